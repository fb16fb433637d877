"""A document and its chunks as rows: the statements that insert them, and their values.

``store_new`` stores a new document in one statement and one round trip, the usual case. All other cases (the
document exists, its collection does not, is for profiles or switches its model, a vector has the wrong
length) are left to ``DocumentWriter``, which runs a statement per step and reports the reason.

Locks are taken in the same order as there: the collection's row, then the document's.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DocumentDraft, StoredDocument
from vectorforge.vectorstore.validation import wire_vector
from vectorforge.vectorstore.writes.replacement import PreparedChunk

CHUNK_BATCH: Final = 500
"""Chunks in one statement."""
VECTOR_BATCH: Final = 200
"""Vectors in one INSERT: each walks the HNSW graph, and a statement must end well within its timeout."""

DOCUMENT_COLUMNS: Final = """
(tenant_id, id, collection_id, source, parent_source, title, media_type, metadata, text, size_chars,
 content_hash, version, chunk_count)
"""
DOCUMENT_VALUES: Final = """
%(tenant)s, %(document)s::uuid, %(collection)s::uuid, %(source)s, %(parent_source)s, %(title)s,
%(media_type)s, %(metadata)s::jsonb, %(text)s, %(size_chars)s::int, %(content_hash)s::bytea, 1,
%(chunk_count)s::int
"""
INSERT_DOCUMENT: Final = f"""
INSERT INTO vectorforge.documents {DOCUMENT_COLUMNS} VALUES ({DOCUMENT_VALUES})
ON CONFLICT (tenant_id, collection_id, source_key) DO NOTHING
"""  # noqa: S608 -- the only insertions are the constants above
UNNESTED: Final = """
unnest(%(ids)b::uuid[], %(ordinals)b::int[], %(texts)b::text[], %(starts)b::int[], %(ends)b::int[],
       %(token_counts)b::int[], %(headings)b::text[], %(chunk_metadata)b::text[]::jsonb[],
       %(hashes)b::bytea[])
    AS new (id, ordinal, text, start_offset, end_offset, token_count, heading, metadata, content_hash)
"""
CHUNK_COLUMNS: Final = """
(tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count, heading,
 metadata, content_hash, from_version)
"""
INSERT_CHUNKS: Final = f"""
INSERT INTO vectorforge.chunks {CHUNK_COLUMNS}
SELECT %(tenant)s, new.id, %(collection)s, %(document)s, new.ordinal, new.text, new.start_offset,
       new.end_offset, new.token_count, new.heading, new.metadata, new.content_hash, %(version)s
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
        "hashes": [draft.content_hash for draft in drafts],
    }


# What is compared here is what DocumentWriter checks. A partition in half precision refuses large numbers.
_STORE = f"""
WITH collection AS MATERIALIZED (
    SELECT by_profile, dimension, other_space, coalesce(space, distance_metric || '_' || dimension) AS space
    FROM vectorforge.collections
    WHERE tenant_id = %(tenant)s AND id = %(collection)s FOR KEY SHARE
), document AS (
    INSERT INTO vectorforge.documents {DOCUMENT_COLUMNS}
    SELECT {DOCUMENT_VALUES} FROM collection
    WHERE NOT by_profile AND other_space IS NULL AND dimension = %(dimension)s
        AND right(space, 5) <> '_half' AND space = coalesce(%(space)s::text, space)
    ON CONFLICT (tenant_id, collection_id, source_key) DO NOTHING
    RETURNING id
), passages AS (
    INSERT INTO vectorforge.chunks {CHUNK_COLUMNS}
    SELECT %(tenant)s, new.id, %(collection)s, document.id, new.ordinal, new.text, new.start_offset,
           new.end_offset, new.token_count, new.heading, new.metadata, new.content_hash, 1
    FROM document CROSS JOIN {UNNESTED}
), vectors AS (
    INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
    SELECT %(tenant)s, collection.space, %(collection)s, document.id, new.chunk_id, new.embedding
    FROM document CROSS JOIN collection
    CROSS JOIN unnest(%(ids)b::uuid[], %(vectors)b::public.vector[]) AS new (chunk_id, embedding)
)
SELECT id FROM document
"""  # noqa: S608 -- the only insertions are constants


async def store_new(
    db: TenantDatabase,
    collection_id: UUID,
    document: DocumentDraft,
    metadata: str,
    chunks: Sequence[PreparedChunk],
) -> StoredDocument | None:
    """Store a checked document unless it is there, or something else stands in the way.

    Args:
        db: The tenant's.
        collection_id: The collection.
        document: Checked by ``replacement.prepare``, which returns the other two.
        metadata: Metadata of the document, as JSON.
        chunks: In document order.

    Returns:
        The stored document; None if nothing was stored and ``DocumentWriter`` must be used.

    Raises:
        DatabaseError: The database failed; nothing was stored.
    """
    vectors = [chunk.vector for chunk in chunks if chunk.vector is not None]
    spaces = {tuple(chunk.vectors) if chunk.vectors is not None else None for chunk in chunks}
    if not 0 < len(chunks) <= VECTOR_BATCH or len(vectors) < len(chunks) or len(spaces) > 1:
        return None
    (names,) = spaces
    if names is not None and len(names) != 1:
        return None
    document_id = new_id()
    values = {
        "tenant": db.tenant_id,
        "collection": collection_id,
        "document": document_id,
        "dimension": len(vectors[0]),
        "space": names[0] if names else None,
        "vectors": [*map(wire_vector, vectors)],
        **document_values(document, metadata, len(chunks)),
        **columns([(new_id(), chunk) for chunk in chunks]),
    }
    # Repeatable: if the first attempt succeeded without an answer, the document exists now.
    if await db.fetch_one(_STORE, values, repeatable=True) is None:
        return None
    return StoredDocument(document_id, 1, len(chunks), 0, 0)
