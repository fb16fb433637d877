"""Partitions of the embeddings for a second model of a collection, made when they are missing."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from vectorforge.db.connection import TenantDatabase
from vectorforge.errors import ConflictError, DatabaseError, DatabaseUnavailableError

_ATTEMPTS: Final = 3
_MAX_HALF_DIMENSION: Final = 4_000
"""Of an HNSW index over halfvec: https://github.com/pgvector/pgvector#hnsw"""
_SPACE = "SELECT vectorforge.ensure_embedding_space(%(metric)s, %(dimension)s, %(kind)s) AS space"
_ALTERNATE = "SELECT vectorforge.ensure_alternate_space(%(space)s) AS space"


async def space_beside(db: TenantDatabase, space: str, metric: str, dimension: int) -> str:
    """The partition for the vectors of a model that is to take the place of another one.

    Args:
        db: Of any tenant.
        space: Where the vectors are that are compared now.
        metric: Of the collection.
        dimension: Of the model to come.

    Returns:
        Its name; never ``space``.

    Raises:
        ConflictError: There are too many partitions.
        DatabaseUnavailableError: It could not be made now.
    """
    wanted = {"metric": metric, "dimension": dimension, "kind": _kind(space, dimension)}
    found = await _ensured(db, _SPACE, wanted)
    return found if found != space else await _ensured(db, _ALTERNATE, {"space": found})


async def _ensured(db: TenantDatabase, statement: str, values: Mapping[str, Any]) -> str:
    """A partition; in a transaction of its own, because attaching one briefly locks out writers."""
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
                    "The tables for this dimension could not be made; try again."
                ) from exc
            await asyncio.sleep(0.2 * attempt)
        else:
            return str((row or {})["space"])
    raise AssertionError("the last attempt returns or raises")


def _kind(space: str, dimension: int) -> str:
    """The kind of the partition to come: as that of today; no half precision where none can be indexed."""
    kind = space.rsplit("_", 1)[-1]
    if kind == "binary" or (kind == "half" and dimension <= _MAX_HALF_DIMENSION):
        return kind
    return "full"
