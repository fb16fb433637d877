"""Writing a profile's documents to PostgreSQL within one transaction.

The profile's row is locked after the collection's and before any document's, so that writers of one profile
take turns; documents are written in the order of their sources, as by every other writer of several.
"""

from collections.abc import Sequence
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import ReplacedProfile, StoredDocument
from vectorforge.vectorstore.writes.document import OF_PROFILE, DocumentWriter, LockedDocument
from vectorforge.vectorstore.writes.replacement import PreparedDocument

_ENSURE = """
INSERT INTO vectorforge.profiles (tenant_id, collection_id, profile_id)
VALUES (%(tenant)s, %(collection)s, %(profile)s)
ON CONFLICT (tenant_id, collection_id, profile_id) DO UPDATE SET updated_at = now()
"""
# In the order in which documents are written; those of other profiles are never waited for.
_LOCK_DOCUMENTS = f"""
SELECT d.source, d.id, d.version, d.content_hash, d.chunk_count FROM vectorforge.documents d
WHERE d.tenant_id = %(tenant)s AND {OF_PROFILE}
ORDER BY d.source COLLATE "C" FOR UPDATE
"""  # noqa: S608 -- the only insertion is the constant of document
_REMOVE = f"""
DELETE FROM vectorforge.documents d
WHERE d.tenant_id = %(tenant)s AND {OF_PROFILE}
    AND (%(removing)s::text[] IS NULL OR d.parent_source = ANY (%(removing)s::text[]))
    AND d.source <> ALL (%(sources)s::text[])
RETURNING d.chunk_count
"""  # noqa: S608 -- the only insertion is the constant of document
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


async def replace_profile(
    writer: DocumentWriter, documents: Sequence[PreparedDocument], *, removing: Sequence[str]
) -> ReplacedProfile:
    """Store checked documents and remove others; see ``VectorStore.replace_profile``."""
    locked = await _lock(writer)
    stored: dict[str, StoredDocument] = {}
    for document in sorted(documents, key=lambda document: document.draft.source):
        source = document.draft.source
        unchanged = _unchanged(locked.get(source), document)  # without a statement for each
        stored[source] = unchanged or await writer.replace(document.draft, document.metadata, document.chunks)
    removed = await _remove(writer, removing, except_for=list(stored)) if removing else []
    return ReplacedProfile(
        [stored[document.draft.source] for document in documents], len(removed), sum(removed)
    )


async def delete_profile(writer: DocumentWriter) -> int:
    """Remove the profile with its documents; see ``VectorStore.delete_profile_chunks``."""
    await _lock(writer)  # a writer that is at it ends first
    removed = await _remove(writer, None, except_for=[])
    await writer.execute(_FORGET)
    return sum(removed)


async def _lock(writer: DocumentWriter) -> dict[str, LockedDocument]:
    await writer.lock_collection()
    await writer.execute(_ENSURE)
    rows = await (await writer.execute(_LOCK_DOCUMENTS)).fetchall()
    return {row.pop("source"): LockedDocument(**row, is_new=False) for row in rows}


async def _remove(
    writer: DocumentWriter, removing: Sequence[str] | None, *, except_for: list[str]
) -> list[int]:
    params = {"removing": None if removing is None else list(removing), "sources": except_for}
    rows = await (await writer.execute(_REMOVE, params)).fetchall()
    return [row["chunk_count"] for row in rows]


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
