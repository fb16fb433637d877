"""Partitions of the embeddings, their HNSW indexes and statistics, read by the role that owns them.

A new partition has no index: up to some thousand vectors a search compares all of them, and an index makes
every write slower. A search reads one collection only, so a large collection has an index of its own; where a
partition has more large collections than ``MOST_OWN``, they share one. https://github.com/pgvector/pgvector#hnsw
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.db.errors import translated_errors
from vectorforge.db.schema.migrate import migrator_connection
from vectorforge.types import EXACT_SCAN_LIMIT

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

_MAX_VECTOR_DIMENSION: Final = 2_000
"""Largest dimension indexed in full precision; above it, in half precision."""

_LIMITED_DIMENSION: Final = 384
"""Dimension of the vectors that a limit counts; longer ones take longer to compare."""

MOST_OWN: Final = 16
"""Collections of one partition with an index of their own: each write and each plan considers all of them."""
_REMAINS: Final = 2
"""Divisor of the limits below which an existing index is given up, so that it is not rebuilt each time."""

_SPACES = """
SELECT s.space, coalesce(z.vectors, 0) AS vectors, coalesce(z.largest, 0) AS largest,
       pg_relation_size(p.oid) AS table_bytes, coalesce(x.bytes, 0) AS index_bytes,
       coalesce(x.scans, 0) AS scans, x.valid,
       vectorforge.vector_index_statement(s.space, true) IS NOT NULL AS possible
FROM pg_inherits AS i
JOIN pg_class AS p ON p.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT substr(p.relname, length('embeddings_') + 1) AS space) AS s
LEFT JOIN vectorforge.embedding_space_sizes() AS z ON z.space = s.space
LEFT JOIN LATERAL (
    SELECT i.indisvalid AS valid, pg_relation_size(i.indexrelid) AS bytes,
           pg_stat_get_numscans(i.indexrelid) AS scans
    FROM pg_index AS i
    WHERE i.indexrelid = to_regclass('vectorforge.' || vectorforge.vector_index_name(s.space, NULL))
) AS x ON true
WHERE i.inhparent = 'vectorforge.embeddings'::regclass
ORDER BY 1
"""
# Large collections, and those that have an index although they are large no more.
_OWN_INDEXES = """
SELECT coalesce(large.space, built.space) AS space,
       coalesce(large.collection_id, built.collection_id) AS collection_id,
       coalesce(large.vectors, 0) AS vectors, built.valid,
       coalesce(built.bytes, 0) AS bytes, coalesce(built.scans, 0) AS scans
FROM vectorforge.large_collections(%s) AS large
FULL JOIN (
    SELECT substr(p.relname, length('embeddings_') + 1) AS space,
           substring(pg_get_expr(i.indpred, i.indrelid) FROM '[0-9a-f-]{36}')::uuid AS collection_id,
           i.indisvalid AS valid, pg_relation_size(i.indexrelid) AS bytes,
           pg_stat_get_numscans(i.indexrelid) AS scans
    FROM pg_inherits AS h
    JOIN pg_index AS i ON i.indrelid = h.inhrelid AND i.indpred IS NOT NULL
    JOIN pg_class AS p ON p.oid = h.inhrelid
    WHERE h.inhparent = 'vectorforge.embeddings'::regclass
) AS built ON built.space = large.space AND built.collection_id = large.collection_id
ORDER BY 1, 2
"""


# https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ALL-TABLES-VIEW
_TABLES = """
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead, n_mod_since_analyze AS changed,
       coalesce(last_analyze, last_autoanalyze) IS NOT NULL AS analyzed
FROM pg_stat_user_tables WHERE schemaname = 'vectorforge' ORDER BY 1
"""
_SHARED_BUFFERS = "SELECT pg_size_bytes(current_setting('shared_buffers')) AS bytes"


class IndexState(StrEnum):
    """State of a partition's index."""

    NONE = "none"
    READY = "ready"
    INVALID = "invalid"
    """Being built, or left by an interrupted build; searches do not use it."""


_STATES = {None: IndexState.NONE, True: IndexState.READY, False: IndexState.INVALID}


@dataclass(frozen=True, slots=True)
class OwnIndex:
    """The HNSW index of one collection."""

    collection_id: UUID
    vectors: int
    """Vectors of the collection; 0 if they are too few for an index."""
    is_large: bool
    """True if an exact scan of the collection is too large."""
    state: IndexState
    index_bytes: int
    scans: int


@dataclass(frozen=True, slots=True)
class SpaceIndex:
    """A partition of the embeddings and its HNSW index."""

    space: str
    """Metric, dimension and kind, such as ``cosine_384`` or ``cosine_384_half``."""
    vectors: int
    """Vectors of all its collections."""
    largest: int
    """Vectors of its largest collection."""
    state: IndexState
    """State of the index that all its collections share."""
    table_bytes: int
    index_bytes: int
    """Size of that index and of ``own``."""
    possible: bool
    """True if it can have an index: pgvector indexes at most 4,000 dimensions, or 16,000 signs."""
    vector_bytes: int
    """Size of one vector in the index."""
    dimension: int = 0
    """Dimension of its vectors."""
    scans: int = 0
    """Searches that used one of its indexes since the server's statistics were last reset."""
    own: tuple[OwnIndex, ...] = ()
    """Its large collections, and others that have an index of their own."""

    @property
    def states(self) -> set[IndexState]:
        """States of the shared index and of ``own``."""
        return {self.state, *(index.state for index in self.own)}

    @property
    def is_shared(self) -> bool:
        """True if its large collections are too many for an index each."""
        large = sum(index.is_large for index in self.own)
        return large > (MOST_OWN // _REMAINS if self.state is IndexState.READY else MOST_OWN)

    def missing(self) -> list[UUID | None]:
        """Return the collections whose index is to be built; None for the shared index."""
        if not self.possible:
            return []
        if self.is_shared:
            return [] if self.state is IndexState.READY else [None]
        return [
            index.collection_id
            for index in self.own
            if index.is_large and index.state is not IndexState.READY
        ]

    def superfluous(self) -> list[UUID | None]:
        """Return the collections whose index no search needs, once none is missing; None: the shared one."""
        built = [index for index in self.own if index.state is not IndexState.NONE]
        if self.is_shared:
            return [index.collection_id for index in built]
        unneeded: list[UUID | None] = [index.collection_id for index in built if not index.vectors]
        if self.state is not IndexState.NONE and any(index.is_large for index in self.own):
            unneeded.append(None)
        return unneeded


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """PostgreSQL's estimates of one table."""

    name: str
    live: int
    """Live rows."""
    dead: int
    """Updated or deleted rows that occupy space until they are vacuumed."""
    changed: int
    """Rows changed since the planner's statistics were collected."""
    analyzed: bool
    """True if the planner has statistics."""


async def table_statistics(conninfo: str) -> tuple[list[TableStatistics], int]:
    """Return the tables of the schema by name, and ``shared_buffers`` in bytes, as the schema's owner.

    Raises:
        DatabaseUnavailableError: No connection.
    """
    async with as_owner(conninfo) as connection:
        tables = [TableStatistics(**row) for row in await fetch(connection, _TABLES)]
        [buffers] = await fetch(connection, _SHARED_BUFFERS)
        return tables, buffers["bytes"]


async def list_indexes(conninfo: str, *, larger_than: int = EXACT_SCAN_LIMIT) -> list[SpaceIndex]:
    """Return every partition of the embeddings, by name, as the schema's owner.

    Args:
        conninfo: Connection string.
        larger_than: Vectors of 384 dimensions, or fewer longer ones, above which a collection is large.

    Raises:
        DatabaseUnavailableError: No connection.
        DatabaseError: The schema is outdated, or the role may not read it.
    """
    async with as_owner(conninfo) as connection:
        return await fetch_spaces(connection, larger_than)


@asynccontextmanager
async def as_owner(conninfo: str) -> "AsyncIterator[AsyncConnection[DictRow]]":
    """Connect as the owner of the tables, with autocommit; translate the driver's errors.

    Raises:
        DatabaseUnavailableError: No connection.
    """
    from psycopg.rows import dict_row

    with translated_errors():
        async with migrator_connection(conninfo) as connection:
            connection.row_factory = dict_row
            await connection.execute("SET ROLE vectorforge_migrator")
            yield connection


async def fetch_spaces(connection: "AsyncConnection[DictRow]", larger_than: int) -> list[SpaceIndex]:
    """Return every partition, by name; ``larger_than`` as for ``list_indexes``."""
    own: dict[str, list[OwnIndex]] = {}
    for row in await fetch(connection, _OWN_INDEXES, (larger_than // _REMAINS,)):
        longer = max(_dimension(row["space"]) / _LIMITED_DIMENSION, 1)
        own.setdefault(row["space"], []).append(
            OwnIndex(
                collection_id=row["collection_id"],
                vectors=row["vectors"],
                is_large=row["vectors"] * longer > larger_than,
                state=_STATES[row["valid"]],
                index_bytes=row["bytes"],
                scans=row["scans"],
            )
        )
    rows = await fetch(connection, _SPACES)
    return [_space_index(row, tuple(own.get(row["space"], ()))) for row in rows]


async def fetch(
    connection: "AsyncConnection[DictRow]",
    query: str,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
) -> "list[DictRow]":
    """Return all rows of one statement."""
    return await (await connection.execute(query.encode(), params)).fetchall()


def _space_index(row: "DictRow", own: tuple[OwnIndex, ...]) -> SpaceIndex:
    space: str = row["space"]
    dimension = _dimension(space)
    half = space.endswith("_half") or dimension > _MAX_VECTOR_DIMENSION
    bits = 1 if space.endswith("_binary") else 16 if half else 32
    return SpaceIndex(
        space=space,
        vectors=row["vectors"],
        largest=row["largest"],
        state=_STATES[row["valid"]],
        table_bytes=row["table_bytes"],
        index_bytes=row["index_bytes"] + sum(index.index_bytes for index in own),
        possible=row["possible"],
        vector_bytes=dimension * bits // 8,
        dimension=dimension,
        scans=row["scans"] + sum(index.scans for index in own),
        own=own,
    )


def _dimension(space: str) -> int:
    return int(next(part for part in space.split("_") if part.isdigit()))
