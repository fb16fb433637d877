"""Writing a profile's documents to PostgreSQL within one transaction.

The profile's row is locked after the collection's and before any document's, so that writers of one profile
take turns; documents are written in the order of their sources, as by every other writer of several.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError
from vectorforge.types import ReplacedProfile, StoredDocument
from vectorforge.vectorstore.writes.document import DocumentWriter, LockedDocument
from vectorforge.vectorstore.writes.replacement import PreparedDocument

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_ENSURE = """
INSERT INTO vectorforge.profiles (tenant_id, collection_id, profile_id)
VALUES (%(tenant)s, %(collection)s, %(profile)s)
ON CONFLICT (tenant_id, collection_id, profile_id) DO UPDATE SET updated_at = now()
"""
# In the order in which documents are written; those of other profiles are never waited for.
_LOCK_DOCUMENTS = """
SELECT d.source, d.id, d.version, d.content_hash, d.chunk_count FROM vectorforge.documents d
WHERE d.tenant_id = %(tenant)s AND d.id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
))
ORDER BY d.source COLLATE "C" FOR UPDATE
"""
_REMOVE = """
DELETE FROM vectorforge.documents d
WHERE d.tenant_id = %(tenant)s AND d.id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
)) AND (%(removing)s::text[] IS NULL OR d.parent_source = ANY (%(removing)s::text[]))
    AND d.source <> ALL (%(kept)s::text[])
RETURNING d.chunk_count
"""
_ASSIGN_TO_PROFILE = """
INSERT INTO vectorforge.profile_documents (tenant_id, document_id, collection_id, profile_id)
VALUES (%(tenant)s, %(document)s, %(collection)s, %(profile)s)
"""
_IS_OF_PROFILE = """
SELECT FROM vectorforge.profile_documents
WHERE tenant_id = %(tenant)s AND document_id = %(document)s AND profile_id = %(profile)s
"""
_FORGET = """
DELETE FROM vectorforge.profiles
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND profile_id = %(profile)s
"""
_STORED = """
SELECT d.source, d.id AS document_id, d.version, d.content_hash, array(
    SELECT c.content_hash FROM vectorforge.chunks c
    WHERE c.tenant_id = d.tenant_id AND c.collection_id = d.collection_id AND c.document_id = d.id
        AND c.to_version IS NULL
) AS chunk_hashes
FROM vectorforge.profile_documents p
JOIN vectorforge.documents d ON d.tenant_id = p.tenant_id AND d.id = p.document_id
WHERE p.tenant_id = %s AND p.collection_id = %s AND p.profile_id = %s
"""


class _ProfileDocumentWriter(DocumentWriter):
    """Writes documents that belong to one profile."""

    async def _claim(self, document: LockedDocument) -> None:
        """Make a new document the profile's; refuse another profile's."""
        of_document = {"document": document.id}
        if document.is_new:
            await self._execute(_ASSIGN_TO_PROFILE, of_document)
        elif not (await self._execute(_IS_OF_PROFILE, of_document)).rowcount:
            raise ConflictError("A document with this source belongs to another profile.")


class ProfileWriter:
    """Writes one profile of one collection of one tenant, in a transaction of the caller's.

    Args:
        connection: Inside a transaction that has entered the tenant.
        tenant_id: The tenant.
        collection_id: The collection.
        profile_id: The profile.
    """

    def __init__(
        self,
        connection: "AsyncConnection[dict[str, Any]]",
        tenant_id: str,
        collection_id: UUID,
        profile_id: int,
    ) -> None:
        self._connection = connection
        self._scope = {"tenant": tenant_id, "collection": collection_id, "profile": profile_id}
        self._documents = _ProfileDocumentWriter(connection, tenant_id, collection_id, profile_id)

    async def replace(
        self, documents: Sequence[PreparedDocument], *, removing: Sequence[str]
    ) -> ReplacedProfile:
        """Store checked documents and remove others; see ``VectorStore.replace_profile``."""
        await self._documents.lock_collection()
        await self._execute(_ENSURE)
        rows = await (await self._execute(_LOCK_DOCUMENTS)).fetchall()
        locked = {row.pop("source"): LockedDocument(**row, is_new=False) for row in rows}
        stored: dict[str, StoredDocument] = {}
        for document in sorted(documents, key=lambda document: document.draft.source):
            source = document.draft.source
            unchanged = _unchanged(locked.get(source), document)  # without a statement for each
            stored[source] = unchanged or await self._documents.replace(
                document.draft, document.metadata, document.chunks
            )
        removed = await self._remove(list(removing), kept=list(stored)) if removing else []
        return ReplacedProfile(
            [stored[document.draft.source] for document in documents], len(removed), sum(removed)
        )

    async def delete(self) -> int:
        """Remove the profile with its documents; see ``VectorStore.delete_profile_chunks``."""
        await self._documents.lock_collection()
        await self._execute(_ENSURE)  # a writer that is at it ends first
        await self._execute(_LOCK_DOCUMENTS)
        removed = await self._remove(None, kept=[])
        await self._execute(_FORGET)
        return sum(removed)

    async def _remove(self, removing: list[str] | None, *, kept: list[str]) -> list[int]:
        rows = await (await self._execute(_REMOVE, {"removing": removing, "kept": kept})).fetchall()
        return [row["chunk_count"] for row in rows]

    async def _execute(self, statement: str, params: dict[str, Any] | None = None) -> Any:
        return await self._connection.execute(statement.encode(), {**self._scope, **(params or {})})


def _unchanged(locked: LockedDocument | None, document: PreparedDocument) -> StoredDocument | None:
    if locked is None or locked.content_hash != document.draft.content_hash:
        return None
    return StoredDocument(locked.id, locked.version, 0, locked.chunk_count, 0, unchanged=True)


async def stored_documents(
    db: TenantDatabase, collection_id: UUID, profile_id: int
) -> dict[str, CurrentDocument]:
    """Return the stored state of a profile, by source; see ``VectorStore.profile_documents``."""
    rows = await db.fetch_all(_STORED, (db.tenant_id, collection_id, profile_id))
    return {
        row.pop("source"): CurrentDocument(**{**row, "chunk_hashes": frozenset(row["chunk_hashes"])})
        for row in rows
    }
