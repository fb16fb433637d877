"""Build the HNSW indexes of large collections, and drop superfluous ones, without blocking writers."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final
from uuid import UUID

from vectorforge.db.errors import translated_errors
from vectorforge.db.login import parsed
from vectorforge.db.schema.migrate import migrator_connection
from vectorforge.db.schema.vector_indexes import IndexState, SpaceIndex, as_owner, fetch, fetch_spaces
from vectorforge.deadline import concurrently
from vectorforge.errors import ConflictError, DeadlineExceededError, NotFoundError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

_LOCK_KEY: Final = int.from_bytes(
    hashlib.sha256(b"vectorforge.vector_indexes").digest()[:8], "big", signed=True
)
_POLL_S: Final = 0.5
_MIB: Final = 2**20
_GRAPH_BYTES: Final = 1_000
"""Memory of an element besides its vector: 32 neighbors of 16 bytes on the lowest level, and those above.
https://github.com/pgvector/pgvector/blob/v0.8.0/src/hnsw.h"""
_LEAST_MEMORY: Final = 64 * _MIB
_SECONDS_PER_NUMBER: Final = 80 / (100_000 * 384)
"""Build time of one number of a vector, on two cores and in memory; docs/operate/storage.md."""
_MOST_WORKERS: Final = 8

_TRY_LOCK = f"SELECT pg_try_advisory_lock({_LOCK_KEY}) AS held"
_UNLOCK = f"SELECT pg_advisory_unlock({_LOCK_KEY})".encode()
_LIMITS = """
SELECT pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
       current_setting('max_parallel_workers')::int AS workers
"""
_STATEMENT = """
SELECT vectorforge.vector_index_statement(%(space)s, true, %(collection)s) AS build,
       vectorforge.vector_index_name(%(space)s, %(collection)s) AS name
"""
_PROGRESS = """
SELECT coalesce(phase, 'initializing') AS phase, blocks_done, blocks_total
FROM pg_stat_progress_create_index WHERE pid = %s
"""

_BUILDING = """
SELECT replace(c.relname, 'embeddings_', ''), coalesce(p.phase, 'initializing'), p.blocks_done, p.blocks_total
FROM pg_stat_progress_create_index AS p
JOIN pg_class AS c ON c.oid = p.relid
WHERE p.datname = current_database() ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Progress of a build."""

    space: str
    phase: str
    """PostgreSQL's name of it: https://www.postgresql.org/docs/current/progress-reporting.html."""
    fraction: float
    """Finished part of this phase, 0 to 1."""


@dataclass(frozen=True, slots=True)
class BuildResources:
    """Resources of the database server that a build may use.

    Args:
        memory_bytes: ``maintenance_work_mem``. None: as much as the graph needs, up to a quarter of this
            machine's memory if the server runs on it, otherwise up to its ``shared_buffers`` (on RDS a
            quarter).
        workers: Parallel workers besides the leader. None: the number of cores, at most 8.
        timeout_s: Seconds after which the build is canceled. None: no limit.
    """

    memory_bytes: int | None = None
    workers: int | None = None
    timeout_s: float | None = None


def build_bytes(vectors: int, vector_bytes: int) -> int:
    """Return the memory that holds the whole graph; with less, a build continues on disk, much slower."""
    return max(_LEAST_MEMORY, vectors * (vector_bytes + _GRAPH_BYTES) * 5 // 4)


async def missing_build_s(conninfo: str, *, larger_than: int) -> float:
    """Estimate the seconds that the missing indexes take on two cores; 0 if none is missing.

    Raises:
        DatabaseUnavailableError: No connection.
    """
    async with as_owner(conninfo) as connection:
        spaces = await fetch_spaces(connection, larger_than)
    numbers = sum(
        _vectors(index, collection) * index.dimension for index in spaces for collection in index.missing()
    )
    return numbers * _SECONDS_PER_NUMBER


async def builds_in_progress(conninfo: str) -> list[BuildProgress]:
    """Return the index builds that run on the server, of vectors and of migrations.

    Raises:
        DatabaseUnavailableError: No connection.
    """
    with translated_errors():
        # As the login itself: a role that it can SET does not see the progress of its sessions.
        async with migrator_connection(conninfo) as connection:
            rows = await (await connection.execute(_BUILDING.encode())).fetchall()
    return [
        BuildProgress(table, phase, min(done / total, 1.0) if total else 0.0)
        for table, phase, done, total in rows
    ]


async def build_indexes(
    conninfo: str,
    *,
    larger_than: int,
    spaces: Collection[str] = (),
    resources: BuildResources | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> list[SpaceIndex]:
    """Build missing indexes and drop superfluous ones; readers and writers are not blocked.

    Args:
        conninfo: Connection string of the role that owns the schema, to the server and not through a pooler.
        larger_than: Build the index of each collection with more vectors.
        spaces: Build the shared index of exactly these, whatever their size; empty: what large
            collections need.
        resources: Resources of a build.
        on_progress: Called about twice a second.

    Returns:
        The partitions whose index was built, in their new state.

    Raises:
        NotFoundError: One of ``spaces`` does not exist, or has too many dimensions for an index.
        ConflictError: Another process is building.
        DeadlineExceededError: It took longer than ``timeout_s``; the unfinished index is dropped.
        DatabaseUnavailableError: No connection, or it was lost.
        DatabaseError: The server rejected a statement.
    """
    async with as_owner(conninfo) as connection:
        if not (await fetch(connection, _TRY_LOCK))[0]["held"]:
            raise ConflictError("Another process is already building the vector indexes.")
        builder = _Builder(connection, conninfo, resources or BuildResources(), on_progress)
        try:
            return await builder.build_missing(larger_than, spaces)
        finally:
            if not connection.broken:  # closing it would release the lock a moment later
                await connection.execute(_UNLOCK)


@dataclass(eq=False, repr=False, slots=True)  # its address has the password
class _Builder:
    """Builds indexes one by one, on a connection that holds the builders' lock."""

    connection: "AsyncConnection[DictRow]"
    conninfo: str
    resources: BuildResources
    on_progress: Callable[[BuildProgress], None] | None

    async def build_missing(self, larger_than: int, spaces: Collection[str]) -> list[SpaceIndex]:
        possible = [index for index in await fetch_spaces(self.connection, larger_than) if index.possible]
        for space in set(spaces) - {index.space for index in possible}:
            raise NotFoundError(
                f"No vector space {space!r} exists that can have an index; see `vectorforge index list`."
            )
        names = set()
        for index in possible:
            if spaces:
                is_wanted = index.space in spaces and index.state is not IndexState.READY
                missing: list[UUID | None] = [None] if is_wanted else []
            else:
                missing = index.missing()
            for collection in missing:
                await self._build(index, collection)
                names.add(index.space)
            if not spaces:
                for collection in index.superfluous():
                    await self._drop(index.space, collection)
        return [index for index in await fetch_spaces(self.connection, larger_than) if index.space in names]

    async def _build(self, index: SpaceIndex, collection: UUID | None) -> None:
        import psycopg

        workers = await self._set_resources(index, collection)
        async with self._watched(index.space):
            try:
                try:
                    await self._create(index.space, collection)
                except psycopg.errors.DiskFull:
                    if not workers:
                        raise
                    # Parallel workers share memory in /dev/shm, which may be small in a container.
                    await self.connection.execute("SET max_parallel_maintenance_workers = 0")
                    await self._create(index.space, collection)
            except psycopg.errors.QueryCanceled as exc:
                await self.connection.execute("SET statement_timeout = 0")
                await self._drop(index.space, collection)
                raise DeadlineExceededError(
                    f"Building the index of {index.space} timed out after {self.resources.timeout_s:g} s; "
                    "`vectorforge index build` has no limit."
                ) from exc
        await self.connection.execute(f"ANALYZE vectorforge.embeddings_{index.space}".encode())

    async def _create(self, space: str, collection: UUID | None) -> None:
        statement = await self._drop(space, collection)  # left by an interrupted build, it blocks a new one
        await self.connection.execute(statement.encode())

    async def _drop(self, space: str, collection: UUID | None) -> str:
        """Drop an index if it exists, and return the statement that builds it."""
        [statement] = await fetch(self.connection, _STATEMENT, {"space": space, "collection": collection})
        await self.connection.execute(
            f"DROP INDEX CONCURRENTLY IF EXISTS vectorforge.{statement['name']}".encode()
        )
        return str(statement["build"])

    async def _set_resources(self, index: SpaceIndex, collection: UUID | None) -> int:
        """Set the session's resources and return the number of workers."""
        vectors = _vectors(index, collection)
        limits = (await fetch(self.connection, _LIMITS))[0]
        local = _is_local(self.conninfo)
        memory, workers = self.resources.memory_bytes, self.resources.workers
        if memory is None:
            machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            most = machine // 4 if local else limits["shared_buffers"]
            memory = min(build_bytes(vectors, index.vector_bytes), max(most, _LEAST_MEMORY))
        if workers is None:
            workers = min((os.cpu_count() or 1) - 1 if local else limits["workers"], _MOST_WORKERS)
        settings = {
            "maintenance_work_mem": f"{memory // 1024}kB",
            "max_parallel_maintenance_workers": str(workers),
            "statement_timeout": f"{int((self.resources.timeout_s or 0) * 1000)}ms",
        }
        for name, value in settings.items():
            await self.connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        return workers

    @asynccontextmanager
    async def _watched(self, space: str) -> AsyncIterator[None]:
        if self.on_progress is None:
            yield
            return
        (own,) = await fetch(self.connection, "SELECT pg_backend_pid() AS pid")
        async with concurrently(self._watch(space, own["pid"], self.on_progress)):
            yield

    async def _watch(self, space: str, backend: int, on_progress: Callable[[BuildProgress], None]) -> None:
        async with as_owner(self.conninfo) as connection:
            while True:
                for row in await fetch(connection, _PROGRESS, (backend,)):
                    fraction = row["blocks_done"] / row["blocks_total"] if row["blocks_total"] else 0.0
                    on_progress(BuildProgress(space, row["phase"], min(fraction, 1.0)))
                await asyncio.sleep(_POLL_S)


def _vectors(index: SpaceIndex, collection: UUID | None) -> int:
    """Return the vectors of one collection's index; None: of the shared one."""
    return next((own.vectors for own in index.own if own.collection_id == collection), index.vectors)


def _is_local(conninfo: str) -> bool:
    host = str(parsed(conninfo).get("host") or "")
    return host in ("", "localhost", "127.0.0.1", "::1") or PurePath(host).is_absolute()
