"""Storing a document that is not there yet: one statement, one round trip.

Most documents are new when they come. Whatever is out of the ordinary (the document is there, its collection
is not, belongs to profiles or changes its model, a vector of the wrong length) is left to ``DocumentWriter``,
which takes a statement for each step and can tell what is wrong.

Locks are taken in the same order as there: the collection's row, then the document's.
"""

from collections.abc import Sequence
from uuid import UUID

from vectorforge.db.connection import TenantDatabase
from vectorforge.db.wire_vectors import WireVectors
from vectorforge.types import DocumentDraft, StoredDocument
from vectorforge.vectorstore.chunk_rows import (
    CHUNK_COLUMNS,
    DOCUMENT_COLUMNS,
    DOCUMENT_VALUES,
    UNNESTED,
    VECTOR_BATCH,
    columns,
    document_values,
    new_id,
)
from vectorforge.vectorstore.replacement import PreparedChunk

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
        document: Checked by ``replacement.prepare``, which gives the other two.
        metadata: Of the document, as JSON.
        chunks: In document order.

    Returns:
        What was stored; None: nothing was, and ``DocumentWriter`` is to be asked.

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
        "vectors": WireVectors(vectors),
        **document_values(document, metadata, len(chunks)),
        **columns([(new_id(), chunk) for chunk in chunks]),
    }
    # Repeatable: where the first time did its work and nobody heard of it, the document is there now.
    if await db.fetch_one(_STORE, values, repeatable=True) is None:
        return None
    return StoredDocument(document_id, 1, len(chunks), 0, 0)
