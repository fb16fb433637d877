"""Partitions of the embeddings, their HNSW indexes and statistics, read by the role that owns them.

A new partition has no index: up to some thousand vectors a search compares all of them, and an index makes
every write slower. The largest collection of a partition decides if an index is worth it, since a search
reads one collection only. https://github.com/pgvector/pgvector#hnsw
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from vectorforge.db.errors import translated_errors
from vectorforge.db.schema.migrate import migrator_connection

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

_MAX_VECTOR_DIMENSION: Final = 2_000
"""Largest dimension indexed in full precision; above it, in half precision."""

_LIMITED_DIMENSION: Final = 384
"""Dimension of the vectors that a limit counts; longer ones take longer to compare."""

_SPACES = """
SELECT s.space, coalesce(z.vectors, 0) AS vectors, coalesce(z.largest, 0) AS largest,
       pg_relation_size(p.oid) AS table_bytes, coalesce(x.bytes, 0) AS index_bytes,
       coalesce(x.scans, 0) AS scans, x.valid, vectorforge.vector_index_statement(s.space, true) AS statement
FROM pg_inherits AS i
JOIN pg_class AS p ON p.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT substr(p.relname, length('embeddings_') + 1) AS space) AS s
LEFT JOIN vectorforge.embedding_space_sizes() AS z ON z.space = s.space
LEFT JOIN LATERAL (
    SELECT i.indisvalid AS valid, pg_relation_size(c.oid) AS bytes, pg_stat_get_numscans(c.oid) AS scans
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam
    WHERE i.indrelid = p.oid AND a.amname = 'hnsw' ORDER BY i.indisvalid DESC LIMIT 1
) AS x ON true
WHERE i.inhparent = 'vectorforge.embeddings'::regclass
ORDER BY 1
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
    table_bytes: int
    index_bytes: int
    possible: bool
    """True if it can have an index: pgvector indexes at most 4,000 dimensions, or 16,000 signs."""
    vector_bytes: int
    """Size of one vector in the index."""
    dimension: int = 0
    """Dimension of its vectors."""
    scans: int = 0
    """Searches that used the index since the server's statistics were last reset."""

    def pays(self, larger_than: int) -> bool:
        """Return True if an exact scan is too large: more vectors of 384 dimensions, or fewer longer ones."""
        longer = max(self.dimension / _LIMITED_DIMENSION, 1)
        return self.possible and self.largest * longer > larger_than


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
    with translated_errors():
        async with as_owner(conninfo) as connection:
            tables = [TableStatistics(**row) for row in await fetch(connection, _TABLES)]
            [buffers] = await fetch(connection, _SHARED_BUFFERS)
            return tables, buffers["bytes"]


async def list_indexes(conninfo: str) -> list[SpaceIndex]:
    """Return every partition of the embeddings, by name, as the schema's owner.

    Raises:
        DatabaseUnavailableError: No connection.
        DatabaseError: The schema is outdated, or the role may not read it.
    """
    with translated_errors():
        async with as_owner(conninfo) as connection:
            return [index for index, _ in await fetch_spaces(connection)]


@asynccontextmanager
async def as_owner(conninfo: str) -> "AsyncIterator[AsyncConnection[DictRow]]":
    """Connect as the owner of the tables, with autocommit.

    Raises:
        DatabaseUnavailableError: No connection.
    """
    from psycopg.rows import dict_row

    async with migrator_connection(conninfo) as connection:
        connection.row_factory = dict_row
        await connection.execute("SET ROLE vectorforge_migrator")
        yield connection


async def fetch_spaces(connection: "AsyncConnection[DictRow]") -> list[tuple[SpaceIndex, str | None]]:
    """Return every partition with the statement that creates its index; None if it cannot have one."""
    return [(_space_index(row), row["statement"]) for row in await fetch(connection, _SPACES)]


async def fetch(
    connection: "AsyncConnection[DictRow]", query: str, params: Sequence[Any] | None = None
) -> "list[DictRow]":
    """Return all rows of one statement."""
    return await (await connection.execute(query.encode(), params)).fetchall()


def _space_index(row: "DictRow") -> SpaceIndex:
    state = {None: IndexState.NONE, True: IndexState.READY, False: IndexState.INVALID}[row["valid"]]
    space: str = row["space"]
    dimension = int(next(part for part in space.split("_") if part.isdigit()))
    half = space.endswith("_half") or dimension > _MAX_VECTOR_DIMENSION
    bits = 1 if space.endswith("_binary") else 16 if half else 32
    return SpaceIndex(
        space=space,
        vectors=row["vectors"],
        largest=row["largest"],
        state=state,
        table_bytes=row["table_bytes"],
        index_bytes=row["index_bytes"],
        possible=row["statement"] is not None,
        vector_bytes=dimension * bits // 8,
        dimension=dimension,
        scans=row["scans"],
    )
