"""Embedding models of a collection: its own, and a second one during a switch.

Partitions of embeddings for the second model are created when missing.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, DatabaseError, DatabaseUnavailableError, NotFoundError
from vectorforge.types import Collection

# One statement, so that both are of the same moment.
_MODELS = """
SELECT c.embedding_provider AS provider, c.embedding_model AS model, c.dimension, c.query_prefix,
       c.document_prefix, coalesce(c.space, c.distance_metric || '_' || c.dimension) AS space,
       0 AS place
FROM vectorforge.collections AS c WHERE c.tenant_id = %(tenant_id)s AND c.id = %(collection)s
UNION ALL
SELECT s.embedding_provider, s.embedding_model, s.dimension, s.query_prefix, s.document_prefix, s.space, 1
FROM vectorforge.embedding_switches AS s
WHERE s.tenant_id = %(tenant_id)s AND s.collection_id = %(collection)s AND s.state <> 'removing'
ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model, its prefixes, and the space of its vectors."""

    provider: str
    """Name under which the provider is registered."""
    model: str
    dimension: int
    query_prefix: str
    document_prefix: str
    space: str
    """The partition of the embeddings."""

    @classmethod
    def of(cls, collection: Collection) -> Self:
        """Return the collection's own."""
        return cls(
            collection.embedding_provider,
            collection.embedding_model,
            collection.dimension,
            collection.query_prefix,
            collection.document_prefix,
            collection.space,
        )


class EmbeddingModelRepository:
    """The models of one tenant's collections."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def of(self, collection_id: UUID) -> list[EmbeddingModel]:
        """Return the collection's own model, and the other one while a change is open.

        Raises:
            NotFoundError: There is no such collection.
        """
        rows = await self._db.fetch_all(_MODELS, {"collection": collection_id})
        if not rows:
            raise NotFoundError("No collection has this id.")
        for row in rows:
            del row["place"]
        return [EmbeddingModel(**row) for row in rows]


_ATTEMPTS: Final = 3
MAX_HALF_DIMENSION: Final = 4_000
"""Limit of an HNSW index on ``halfvec``; above, every search is exact: https://github.com/pgvector/pgvector#hnsw."""
ENSURE_SPACE = """
SELECT vectorforge.ensure_embedding_space(%(distance_metric)s, %(dimension)s, %(kind)s) AS space
"""
_ALTERNATE = "SELECT vectorforge.ensure_alternate_space(%(space)s) AS space"


async def second_space(db: TenantDatabase, space: str, metric: str, dimension: int) -> str:
    """Return the partition for the vectors of a model that replaces another one.

    Returns:
        Its name; never ``space``.

    Raises:
        ConflictError: There are too many partitions.
        DatabaseUnavailableError: It could not be created now.
    """
    values = {"distance_metric": metric, "dimension": dimension, "kind": _kind(space, dimension)}
    ensured = await ensured_space(db, ENSURE_SPACE, values)
    return ensured if ensured != space else await ensured_space(db, _ALTERNATE, {"space": ensured})


async def ensured_space(
    db: TenantDatabase, statement: str, values: Mapping[str, Any], *, tables: str = "this dimension"
) -> str:
    """Return the partition that a statement ensures, in a transaction: attaching one locks out writers.

    Raises:
        ConflictError: There are too many partitions.
        DatabaseUnavailableError: It could not be created now; the text names ``tables``.
    """
    from psycopg import errors

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            row = await db.fetch_one(statement, values)
        except DatabaseError as exc:
            if isinstance(exc.__cause__, errors.ConfigurationLimitExceeded):
                raise ConflictError("Too many combinations of metric and dimension are in use.") from exc
            if not isinstance(exc.__cause__, errors.LockNotAvailable):
                raise
            if attempt == _ATTEMPTS:
                raise DatabaseUnavailableError(
                    f"The tables for {tables} could not be created; try again."
                ) from exc
            await asyncio.sleep(0.2 * attempt)
        else:
            return str((row or {})["space"])
    raise AssertionError("the last attempt returns or raises")


def _kind(space: str, dimension: int) -> str:
    """Return the kind of the new partition: the current one, but half precision only if it can be indexed."""
    kind = space.rsplit("_", 1)[-1]
    if kind == "binary" or (kind == "half" and dimension <= MAX_HALF_DIMENSION):
        return kind
    return "full"
