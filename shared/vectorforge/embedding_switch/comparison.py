"""Reads for a comparison of a collection's two models: queries, and their nearest chunks."""

from array import array
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.validation import wire_vector

_OPERATORS = {
    DistanceMetric.COSINE: "<=>",
    DistanceMetric.INNER_PRODUCT: "<#>",
    DistanceMetric.L2: "<->",
}
# The latest record of each text, newest first; failed queries count as well.
_LOGGED = """
SELECT query_text FROM (
    SELECT query_text, max(created_at) AS asked_at FROM vectorforge.query_logs
    WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND query_text <> ''
    GROUP BY query_text
) AS asked
ORDER BY asked_at DESC LIMIT %(limit)s
"""
# By the bare column, which no index is made on: the models are compared, not their indexes.
_NEAREST = """
SELECT f.id, f.document_id, f.start_offset, f.end_offset, f.text
FROM (
    SELECT e.chunk_id, e.embedding {operator} %(query)b::public.vector AS distance
    FROM vectorforge.embeddings AS e
    WHERE e.tenant_id = %(tenant)s AND e.collection_id = %(collection)s AND e.space = %(space)s
    ORDER BY distance, e.chunk_id LIMIT %(k)s
) AS nearest
JOIN vectorforge.chunks AS f ON f.tenant_id = %(tenant)s AND f.id = nearest.chunk_id
ORDER BY nearest.distance, nearest.chunk_id
"""
_SAMPLE = """
SELECT text FROM vectorforge.chunks
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND to_version IS NULL LIMIT %(limit)s
"""
_TOKENS = """
SELECT count(*) AS passages, coalesce(sum(token_count), 0)::bigint AS tokens FROM vectorforge.chunks
WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND to_version IS NULL
"""


@dataclass(frozen=True, slots=True)
class NearChunk:
    """A chunk near a query, with the fields that judgments use."""

    id: UUID
    document_id: UUID
    start_offset: int
    end_offset: int
    text: str


class ModelComparison:
    """Reads of one collection of one tenant."""

    def __init__(self, db: TenantDatabase, collection_id: UUID) -> None:
        self._db = db
        self._scope: dict[str, Any] = {"tenant": db.tenant_id, "collection": collection_id}

    async def logged_questions(self, limit: int) -> list[str]:
        """Return the distinct queries to the collection, latest first."""
        rows = await self._db.fetch_all(_LOGGED, {**self._scope, "limit": limit})
        return [row["query_text"] for row in rows]

    async def nearest(
        self, space: str, metric: DistanceMetric, query: "array[float]", k: int
    ) -> list[NearChunk]:
        """Return the k chunks nearest to a vector of a space, nearest first, by exact comparison."""
        values = {**self._scope, "space": space, "query": wire_vector(query), "k": k}
        rows = await self._db.fetch_all(_NEAREST.format(operator=_OPERATORS[metric]), values)
        return [NearChunk(**row) for row in rows]

    async def size(self) -> tuple[int, int]:
        """Return the number of the collection's chunks and their tokens, estimated at ingestion."""
        row = await self._db.fetch_one(_TOKENS, self._scope)
        return (row["passages"], row["tokens"]) if row else (0, 0)

    async def sample(self, limit: int) -> list[str]:
        """Return the texts of some chunks."""
        return [row["text"] for row in await self._db.fetch_all(_SAMPLE, {**self._scope, "limit": limit})]
