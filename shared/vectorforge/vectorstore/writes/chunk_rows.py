"""Documents and their chunks as rows: the statements that insert them, and their values.

``store_new`` stores new documents with one statement and one round trip for some hundred chunks, the usual
case. All other cases (the document exists, its collection does not, is for profiles or switches its model, a
vector has the wrong length) are left to ``DocumentWriter``, which runs a statement per step and reports the
reason.

Locks are taken in the same order as there: the collection's row, then the documents', by source.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DocumentDraft, StoredDocument
from vectorforge.vectorstore.validation import wire_vector
from vectorforge.vectorstore.writes.replacement import PreparedChunk, PreparedDocument

CHUNK_BATCH: Final = 500
"""Chunks in one statement."""
VECTOR_BATCH: Final = 200
"""Vectors in one INSERT: each walks the HNSW graph, and a statement must end well within its timeout."""

_DOCUMENT_COLUMNS: Final = """
(tenant_id, id, collection_id, source, parent_source, title, media_type, metadata, text, size_chars,
 content_hash, version, chunk_count, created_at)
"""
_CREATED_AT: Final = """
coalesce((
    SELECT f.created_at FROM vectorforge.uploaded_files AS f WHERE f.tenant_id = %(tenant)s AND f.id = {id}
), now())
"""
"""Creation of a document: an uploaded file that becomes one, of its own id, keeps its place in lists."""
INSERT_DOCUMENT: Final = f"""
INSERT INTO vectorforge.documents {_DOCUMENT_COLUMNS} VALUES (
    %(tenant)s, %(document)s::uuid, %(collection)s::uuid, %(source)s, %(parent_source)s, %(title)s,
    %(media_type)s, %(metadata)s::jsonb, %(text)s, %(size_chars)s::int, %(content_hash)s::bytea, 1,
    %(chunk_count)s::int, {_CREATED_AT.format(id="%(document)s::uuid")}
)
ON CONFLICT (tenant_id, collection_id, source_key) DO NOTHING
"""  # noqa: S608 -- the only insertions are the constants above
_CHUNK_ARRAYS: Final = """
%(ids)b::uuid[], %(ordinals)b::int[], %(texts)b::text[], %(starts)b::int[], %(ends)b::int[],
%(token_counts)b::int[], %(headings)b::text[], %(chunk_metadata)b::text[]::jsonb[],
%(locations)b::text[]::jsonb[], %(hashes)b::bytea[], %(index_contexts)b::text[]
"""
_CHUNK_NAMES: Final = """
id, ordinal, text, start_offset, end_offset, token_count, heading, metadata, locations, content_hash,
index_context
"""
UNNESTED: Final = f"unnest({_CHUNK_ARRAYS}) AS new ({_CHUNK_NAMES})"
CHUNK_COLUMNS: Final = """
(tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count, heading,
 metadata, locations, content_hash, index_context, from_version)
"""
INSERT_CHUNKS: Final = f"""
INSERT INTO vectorforge.chunks {CHUNK_COLUMNS}
SELECT %(tenant)s, new.id, %(collection)s, %(document)s, new.ordinal, new.text, new.start_offset,
       new.end_offset, new.token_count, new.heading, new.metadata, new.locations, new.content_hash,
       new.index_context, %(version)s
FROM {UNNESTED}
"""  # noqa: S608 -- the only insertions are the constants above
INSERT_EMBEDDINGS: Final = """
INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
SELECT %(tenant)s, %(space)s, %(collection)s, %(document)s, new.chunk_id, new.embedding
FROM unnest(%(ids)b::uuid[], %(vectors)b::public.vector[]) AS new (chunk_id, embedding)
"""


def new_id() -> UUID:
    """Return an id whose first 48 bits are the time, so that new rows are adjacent in every index.

    UUID version 7, https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-7.
    """
    random = secrets.randbits(74)
    milliseconds = time.time_ns() // 1_000_000
    high = milliseconds << 16 | 0x7000 | random >> 62
    return UUID(int=high << 64 | 0b10 << 62 | random & (1 << 62) - 1)


def batches(
    rows: Sequence[tuple[UUID, PreparedChunk]], size: int
) -> Iterator[Sequence[tuple[UUID, PreparedChunk]]]:
    """Yield the rows in batches of a size."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def document_values(document: DocumentDraft, metadata: str, chunk_count: int) -> dict[str, Any]:
    """Return the values of a document's row but for the ids; ``metadata`` is JSON."""
    return {
        "source": document.source,
        "parent_source": document.parent_source,
        "title": document.title,
        "media_type": document.media_type,
        "metadata": metadata,
        "text": document.text,
        "size_chars": len(document.text),
        "content_hash": document.content_hash,
        "chunk_count": chunk_count,
    }


def columns(rows: Sequence[tuple[UUID, PreparedChunk]]) -> dict[str, Any]:
    """Return the values of ``UNNESTED``."""
    drafts = [chunk.draft for _, chunk in rows]
    return {
        "ids": [chunk_id for chunk_id, _ in rows],
        "ordinals": [draft.index for draft in drafts],
        "texts": [draft.text for draft in drafts],
        "starts": [draft.start_offset for draft in drafts],
        "ends": [draft.end_offset for draft in drafts],
        "token_counts": [draft.token_count for draft in drafts],
        "headings": [draft.heading for draft in drafts],
        "chunk_metadata": [chunk.metadata for _, chunk in rows],
        "locations": [chunk.locations for _, chunk in rows],
        "hashes": [draft.content_hash for draft in drafts],
        "index_contexts": [draft.index_context for draft in drafts],
    }


# What is compared here is what DocumentWriter checks. A partition in half precision refuses large numbers.
_STORE = f"""
WITH collection AS MATERIALIZED (
    SELECT by_profile, dimension, other_space, coalesce(space, distance_metric || '_' || dimension) AS space
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant)s AND id = %(collection)s FOR KEY SHARE
), document AS (
    INSERT INTO vectorforge.documents {_DOCUMENT_COLUMNS}
    SELECT %(tenant)s, new.id, %(collection)s, new.source, new.parent_source, new.title, new.media_type,
           new.metadata, new.text, new.size_chars, new.content_hash, 1, new.chunk_count,
           {_CREATED_AT.format(id="new.id")}
    FROM collection CROSS JOIN unnest(
        %(document_ids)b::uuid[], %(sources)b::text[], %(parent_sources)b::text[], %(titles)b::text[],
        %(media_types)b::text[], %(metadata)b::text[]::jsonb[], %(document_texts)b::text[],
        %(sizes)b::int[], %(document_hashes)b::bytea[], %(chunk_counts)b::int[]
    ) WITH ORDINALITY AS new (
        id, source, parent_source, title, media_type, metadata, text, size_chars, content_hash, chunk_count,
        place
    )
    WHERE NOT by_profile AND other_space IS NULL AND dimension = %(dimension)s
        AND right(space, 5) <> '_half' AND space = coalesce(%(space)s::text, space)
    ORDER BY new.place
    ON CONFLICT (tenant_id, collection_id, source_key) DO NOTHING
    RETURNING id
), passages AS (
    INSERT INTO vectorforge.chunks {CHUNK_COLUMNS}
    SELECT %(tenant)s, new.id, %(collection)s, document.id, new.ordinal, new.text, new.start_offset,
           new.end_offset, new.token_count, new.heading, new.metadata, new.locations,
           new.content_hash, new.index_context, 1
    FROM unnest({_CHUNK_ARRAYS}, %(owners)b::uuid[]) AS new ({_CHUNK_NAMES}, document_id)
    JOIN document ON document.id = new.document_id
), vectors AS (
    INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
    SELECT %(tenant)s, collection.space, %(collection)s, document.id, new.chunk_id, new.embedding
    FROM unnest(%(ids)b::uuid[], %(vectors)b::public.vector[], %(owners)b::uuid[])
        AS new (chunk_id, embedding, document_id)
    JOIN document ON document.id = new.document_id
    CROSS JOIN collection
)
SELECT id FROM document
"""  # noqa: S608 -- the only insertions are constants


async def store_new(
    db: TenantDatabase, collection_id: UUID, documents: Sequence[PreparedDocument]
) -> list[StoredDocument | None]:
    """Store checked documents unless they are there, or something else stands in the way.

    Returns:
        For each document, the stored one, or None if nothing was stored and ``DocumentWriter`` must be used.

    Raises:
        DatabaseError: The database failed. Batches of ``VECTOR_BATCH`` chunks may have been stored before.
    """
    stored: list[StoredDocument | None] = [None] * len(documents)
    for batch in _document_batches(documents):
        ids = await _store_batch(db, collection_id, [documents[place] for place in batch])
        for place, document_id in zip(batch, ids, strict=True):
            if document_id is not None:
                stored[place] = StoredDocument(document_id, 1, len(documents[place].chunks), 0, 0)
    return stored


def _document_batches(documents: Sequence[PreparedDocument]) -> Iterator[list[int]]:
    """Yield places of documents that can share a statement: few chunks, vectors of one space and length."""
    batch: list[int] = []
    shared, chunks = None, 0
    for place in sorted(range(len(documents)), key=lambda place: documents[place].draft.source.encode()):
        kind = _vector_kind(documents[place].chunks)
        if kind is None:
            continue
        added = len(documents[place].chunks)
        if batch and (kind != shared or chunks + added > VECTOR_BATCH):
            yield batch
            batch, chunks = [], 0
        batch.append(place)
        shared, chunks = kind, chunks + added
    if batch:
        yield batch


def _vector_kind(chunks: Sequence[PreparedChunk]) -> tuple[int, str | None] | None:
    """Return length and space of the vectors; None if one is missing, or they are of several spaces."""
    kinds = {
        None
        if chunk.vector is None or (chunk.vectors is not None and len(chunk.vectors) != 1)
        else (len(chunk.vector), None if chunk.vectors is None else next(iter(chunk.vectors)))
        for chunk in chunks
    }
    return kinds.pop() if len(kinds) == 1 and len(chunks) <= VECTOR_BATCH else None


async def _store_batch(
    db: TenantDatabase, collection_id: UUID, documents: Sequence[PreparedDocument]
) -> list[UUID | None]:
    """Store documents with vectors of one kind; return each one's id, or None."""
    ids = [document.draft.document_id or new_id() for document in documents]
    rows = [(new_id(), chunk) for document in documents for chunk in document.chunks]
    drafts = [document.draft for document in documents]
    first = documents[0].chunks[0]
    values = {
        "tenant": db.tenant_id,
        "collection": collection_id,
        "dimension": len(first.vector or ()),
        "space": next(iter(first.vectors)) if first.vectors else None,
        "document_ids": ids,
        "sources": [draft.source for draft in drafts],
        "parent_sources": [draft.parent_source for draft in drafts],
        "titles": [draft.title for draft in drafts],
        "media_types": [draft.media_type for draft in drafts],
        "metadata": [document.metadata for document in documents],
        "document_texts": [draft.text for draft in drafts],
        "sizes": [len(draft.text) for draft in drafts],
        "document_hashes": [draft.content_hash for draft in drafts],
        "chunk_counts": [len(document.chunks) for document in documents],
        "owners": [
            document_id for document_id, document in zip(ids, documents, strict=True) for _ in document.chunks
        ],
        "vectors": [wire_vector(chunk.vector) for _, chunk in rows if chunk.vector is not None],
        **columns(rows),
    }
    # Repeatable: if the first attempt succeeded without an answer, the documents exist now.
    written = {row["id"] for row in await db.fetch_all(_STORE, values, repeatable=True)}
    return [document_id if document_id in written else None for document_id in ids]
