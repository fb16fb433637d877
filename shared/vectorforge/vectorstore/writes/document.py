"""Writing a document's chunks to PostgreSQL within one transaction.

Locks are taken in one order, so that writers wait for each other and never form a ring: the collection's row
(shared with other writers, but not with its deletion), then the document's row, and at the commit postings of
deleted words, and the collection's counts and ``data_version`` (``vectorforge.settle_changes``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError
from vectorforge.types import DocumentDraft, StoredDocument
from vectorforge.vectorstore.validation import wire_vector
from vectorforge.vectorstore.writes.chunk_rows import (
    CHUNK_BATCH,
    INSERT_CHUNKS,
    INSERT_DOCUMENT,
    INSERT_EMBEDDINGS,
    UNNESTED,
    VECTOR_BATCH,
    batches,
    columns,
    document_values,
    new_id,
)
from vectorforge.vectorstore.writes.replacement import (
    PreparedChunk,
    Replacement,
    check_dimension,
    check_halvable,
    plan,
    vector_in,
)

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_ATTEMPTS = 5
"""A document may be deleted between failing to insert it and locking it, but hardly ever twice in a row."""

# FOR KEY SHARE, not FOR SHARE: two holders of the latter would deadlock when data_version is raised.
_COLLECTION = """
SELECT dimension, by_profile, coalesce(space, distance_metric || '_' || dimension) AS space, other_space
FROM vectorforge.collections
WHERE tenant_id = %(tenant)s AND id = %(collection)s FOR KEY SHARE
"""
_DOCUMENT = """
SELECT id, version, content_hash, chunk_count FROM vectorforge.documents
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s
    AND source_key = vectorforge.source_key(%(source)s) AND source = %(source)s
FOR UPDATE
"""
_UPDATE_DOCUMENT = """
UPDATE vectorforge.documents
SET parent_source = %(parent_source)s, title = %(title)s, media_type = %(media_type)s,
    metadata = %(metadata)s::jsonb, text = %(text)s, size_chars = %(size_chars)s,
    content_hash = %(content_hash)s, version = %(version)s, chunk_count = %(chunk_count)s, updated_at = now()
WHERE tenant_id = %(tenant)s AND id = %(document)s
"""
_CURRENT_CHUNKS = """
SELECT id, content_hash FROM vectorforge.chunks
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND document_id = %(document)s
    AND to_version IS NULL
ORDER BY ordinal
"""
_FORGET_RETIRED = """
DELETE FROM vectorforge.chunks
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND document_id = %(document)s
    AND to_version IS NOT NULL
"""
_RETIRE = """
UPDATE vectorforge.chunks SET to_version = %(version)s
WHERE tenant_id = %(tenant)s AND id = ANY (%(removed)s)
"""
_DELETE_EMBEDDINGS = """
DELETE FROM vectorforge.embeddings
WHERE tenant_id = %(tenant)s AND chunk_id = ANY (%(removed)s) AND space = ANY (%(spaces)s)
"""
_UPDATE_PAIRED = f"""
UPDATE vectorforge.chunks old
SET ordinal = new.ordinal, text = new.text, start_offset = new.start_offset, end_offset = new.end_offset,
    token_count = new.token_count, heading = new.heading, metadata = new.metadata,
    locations = new.locations
FROM {UNNESTED}
WHERE old.tenant_id = %(tenant)s AND old.id = new.id AND old.id = ANY (%(ids)b::uuid[])
    AND (old.ordinal, old.text, old.start_offset, old.end_offset, old.token_count, old.heading, old.metadata,
     old.locations)
        IS DISTINCT FROM (new.ordinal, new.text, new.start_offset, new.end_offset, new.token_count,
                          new.heading, new.metadata, new.locations)
"""  # noqa: S608 -- the only insertion is the constant of chunk_rows
# Without a condition, so that the row is held until the chunks can be seen that it speaks of.
_NOTE_LACKING = """
UPDATE vectorforge.embedding_switches SET complete = false
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND state <> 'removing'
"""
_COLLECTION_OF_DOCUMENT = """
SELECT c.id FROM vectorforge.collections c
JOIN vectorforge.documents d ON d.tenant_id = c.tenant_id AND d.collection_id = c.id
WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s
FOR KEY SHARE OF c
"""
_DELETE_DOCUMENT = "DELETE FROM vectorforge.documents WHERE tenant_id = %(tenant)s AND id = %(document)s"

OF_PROFILE: Final = """
d.id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
))
"""
"""Condition on ``vectorforge.documents d``: the profile's."""
_ASSIGN_TO_PROFILE = """
INSERT INTO vectorforge.profile_documents (tenant_id, document_id, collection_id, profile_id)
VALUES (%(tenant)s, %(document)s, %(collection)s, %(profile)s)
"""
_IS_OF_PROFILE = """
SELECT FROM vectorforge.profile_documents
WHERE tenant_id = %(tenant)s AND document_id = %(document)s AND profile_id = %(profile)s
"""

# Locked first, in the order in which every writer of several documents locks them.
_DELETE_LEFT_OUT = """
DELETE FROM vectorforge.documents
WHERE tenant_id = %(tenant)s AND id = ANY (ARRAY(
    SELECT id FROM vectorforge.documents
    WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND id = ANY (ARRAY(
        SELECT vectorforge.documents_of_parent(%(collection)s, %(parent_source)s)
    )) AND parent_source = %(parent_source)s AND source <> ALL (%(kept)s::text[])
    ORDER BY source COLLATE "C" FOR UPDATE
))
"""


@dataclass(frozen=True, slots=True)
class LockedDocument:
    """The document's row, held until the transaction ends."""

    id: UUID
    version: int
    content_hash: bytes
    chunk_count: int
    is_new: bool


class DocumentWriter:
    """Writes into one collection of one tenant, in a transaction of the caller's.

    Args:
        connection: Inside a transaction that has entered the tenant.
        tenant_id: The tenant.
        collection_id: The collection.
        profile_id: Profile of the documents; None in a collection without profiles.
    """

    def __init__(
        self,
        connection: "AsyncConnection[dict[str, Any]]",
        tenant_id: str,
        collection_id: UUID,
        profile_id: int | None = None,
    ) -> None:
        self._connection = connection
        self.profile_id = profile_id
        self._dimension = 0
        self._scope: dict[str, Any] = {
            "tenant": tenant_id,
            "collection": collection_id,
            "profile": profile_id,
        }

    async def replace(
        self, document: DocumentDraft, metadata: str, chunks: Sequence[PreparedChunk]
    ) -> StoredDocument:
        """Store or replace a checked document; see ``VectorStore.replace_document``."""
        await self.lock_collection()
        for chunk in chunks:
            vector = vector_in(self._scope["space"], chunk)
            if vector is not None:
                check_dimension(expected=self._dimension, actual=len(vector), what="chunk's vector")
                check_halvable(vector, self._scope["space"])
        values = document_values(document, metadata, len(chunks))
        locked = await self._lock_document(values, document.document_id)
        if self.profile_id is not None:
            await self._claim(locked)
        if not locked.is_new and locked.content_hash == document.content_hash:
            return StoredDocument(locked.id, locked.version, 0, locked.chunk_count, 0, unchanged=True)
        self._scope["document"] = locked.id
        self._scope["version"] = version = 1 if locked.is_new else locked.version + 1
        stored = [] if locked.is_new else await self._current_chunks()
        replacement = plan(stored, chunks)
        if not locked.is_new:
            await self.execute(_UPDATE_DOCUMENT, values)
            await self.execute(_FORGET_RETIRED)
        await self._write(replacement)
        added, paired, removed = map(len, (replacement.added, replacement.paired, replacement.removed))
        return StoredDocument(locked.id, version, added, paired, removed)

    async def delete_left_out(self, parent_source: str, kept: list[str]) -> int:
        """Delete the documents of a file but for these; see ``VectorStore.delete_left_out``."""
        await self.execute(_COLLECTION)
        deleted = await self.execute(_DELETE_LEFT_OUT, {"parent_source": parent_source, "kept": kept})
        return int(deleted.rowcount)

    async def lock_collection(self) -> None:
        """Hold the collection until the transaction ends; a second call does nothing.

        Raises:
            NotFoundError: No such collection.
            ConflictError: It is not for profiles.
            InvalidInputError: It was, and no profile is named.
        """
        if "space" in self._scope:
            return
        collection = await (await self.execute(_COLLECTION)).fetchone()
        if collection is None:
            raise NotFoundError("No collection has this id.")
        if collection["by_profile"] and self.profile_id is None:
            raise InvalidInputError(
                "The documents of this collection belong to profiles: profile_id is required.",
                field="profile_id",
            )
        if self.profile_id is not None and not collection["by_profile"]:
            raise ConflictError("The collection was not made for profiles.")
        self._dimension = collection["dimension"]
        self._scope["space"] = collection["space"]
        self._scope["spaces"] = [space for space in (collection["space"], collection["other_space"]) if space]

    async def _lock_document(self, values: dict[str, Any], document_id: UUID | None) -> LockedDocument:
        for _ in range(_ATTEMPTS):
            row = await (await self.execute(_DOCUMENT, values)).fetchone()
            if row is not None:
                return LockedDocument(**row, is_new=False)
            fresh = document_id or new_id()
            if (await self.execute(INSERT_DOCUMENT, {**values, "document": fresh})).rowcount:
                return LockedDocument(fresh, 1, values["content_hash"], values["chunk_count"], is_new=True)
        raise ConflictError("The document is being deleted and stored concurrently; try again.")

    async def _claim(self, document: LockedDocument) -> None:
        """Make a new document the profile's; refuse another profile's."""
        if document.is_new:
            await self.execute(_ASSIGN_TO_PROFILE, {"document": document.id})
        elif not (await self.execute(_IS_OF_PROFILE, {"document": document.id})).rowcount:
            raise ConflictError("A document with this source belongs to another profile.")

    async def _current_chunks(self) -> list[tuple[bytes, UUID]]:
        rows = await (await self.execute(_CURRENT_CHUNKS)).fetchall()
        return [(row["content_hash"], row["id"]) for row in rows]

    async def _write(self, replacement: Replacement[UUID]) -> None:
        if replacement.removed:
            removed = {"removed": list(replacement.removed)}
            await self.execute(_DELETE_EMBEDDINGS, removed)
            await self.execute(_RETIRE, removed)
        for paired in batches(replacement.paired, CHUNK_BATCH):
            await self.execute(_UPDATE_PAIRED, columns(paired))
        added = [(new_id(), chunk) for chunk in replacement.added]
        for rows in batches(added, CHUNK_BATCH):
            await self.execute(INSERT_CHUNKS, columns(rows))
        for space in self._scope["spaces"]:
            own = space == self._scope["space"]
            embedded = [row for row in added if own or space in (row[1].vectors or {})]
            await self._write_vectors(space, embedded)
            if len(embedded) < len(added):  # the backfill embeds them later
                await self.execute(_NOTE_LACKING)

    async def _write_vectors(self, space: str, rows: Sequence[tuple[UUID, PreparedChunk]]) -> None:
        for batch in batches(rows, VECTOR_BATCH):
            of_space = [(key, vector_in(space, chunk)) for key, chunk in batch]
            vectors = {key: vector for key, vector in of_space if vector is not None}
            if vectors:
                wired = [*map(wire_vector, vectors.values())]
                values = {"space": space, "ids": list(vectors), "vectors": wired}
                await self.execute(INSERT_EMBEDDINGS, values)

    async def execute(self, statement: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run a statement, with the parameters ``tenant, collection, profile`` besides these."""
        return await self._connection.execute(statement.encode(), {**self._scope, **(params or {})})


async def delete_document(
    connection: "AsyncConnection[dict[str, Any]]", tenant_id: str, document_id: UUID
) -> bool:
    """Delete a document; its chunks and embeddings go with it. See ``VectorStore.delete_document``."""
    params: dict[str, Any] = {"tenant": tenant_id, "document": document_id}
    collection = await (await connection.execute(_COLLECTION_OF_DOCUMENT, params)).fetchone()
    return collection is not None and (await connection.execute(_DELETE_DOCUMENT, params)).rowcount == 1
