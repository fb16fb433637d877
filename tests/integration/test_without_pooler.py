"""The functions' pools on plain PostgreSQL, without a pooler: the stage ``lean``.

Processes of Lambda are pools here, since a pool belongs to one process. A frozen process is a pool that is
not used, so that only the server can end its connections.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from infra.connection_budget import (
    GENERATIONS,
    INGEST_CONNECTIONS,
    LOG_WRITER_CONNECTIONS,
    QUERY_CONNECTIONS,
    RESERVED,
    most_connections,
)
from infra.settings import LEAN
from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrate
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.postgres import EmbeddedPostgres

MAX_CONNECTIONS = LEAN.database.max_connections
BUDGET = most_connections(LEAN.query, LEAN.log_writer, LEAN.ingest) or 0
_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'vectorforge_app'"


@pytest.fixture(scope="module")
def lean_server(private_dir: Callable[[str], Path]) -> Iterator[EmbeddedPostgres]:
    """Start a server with the limit of the stage's instance."""
    settings = {"max_connections": str(MAX_CONNECTIONS), "superuser_reserved_connections": "3"}
    server = EmbeddedPostgres(private_dir("lean"), settings=settings)
    server.start()
    asyncio.run(migrate(server.migrator_url))
    yield server
    server.stop(force=True)


def opened(server: EmbeddedPostgres) -> int:
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        row = connection.execute(_OPEN).fetchone()
    assert row is not None
    return int(row[0])


@contextlib.asynccontextmanager
async def processes(url: str, sizes: list[int]) -> AsyncIterator[list[Database]]:
    """Open one pool for each size, all of them used at the same time."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Database(url, pool_size=size, timeout_s=20)) for size in sizes]


async def use_whole_pool(database: Database, size: int, held: asyncio.Barrier) -> None:
    """Hold all connections of a pool until every other pool holds its own."""

    async def one() -> None:
        async with database.connection() as connection:
            await held.wait()
            await connection.execute("SELECT pg_sleep(0.01)")

    await asyncio.gather(*(one() for _ in range(size)))


def pool_sizes() -> list[int]:
    """Return the pools of all processes at their bounds, those of the previous version included."""
    bounds = [LEAN.query.max_concurrency, LEAN.log_writer.max_concurrency, LEAN.ingest.max_concurrency]
    queries, writers, jobs = (bound or 0 for bound in bounds)
    once = [
        *([QUERY_CONNECTIONS] * queries),
        *([LOG_WRITER_CONNECTIONS] * writers),
        *([INGEST_CONNECTIONS] * (2 * jobs + 1)),
    ]
    return once * GENERATIONS


async def test_all_pools_at_their_bounds_stay_below_max_connections(lean_server: EmbeddedPostgres) -> None:
    sizes = pool_sizes()
    assert sum(sizes) == BUDGET
    held = asyncio.Barrier(BUDGET + 1)
    async with processes(lean_server.app_url, sizes) as databases, asyncio.TaskGroup() as users:
        for database, size in zip(databases, sizes, strict=True):
            users.create_task(use_whole_pool(database, size, held))
        while held.n_waiting < BUDGET:  # noqa: ASYNC110 - a barrier has no event
            await asyncio.sleep(0.02)
        assert opened(lean_server) == BUDGET
        # What is reserved for superusers, migrations and operators is really there.
        with contextlib.ExitStack() as reserved:
            for _ in range(RESERVED - 3):
                reserved.enter_context(psycopg.connect(lean_server.migrator_url))
        await held.wait()


async def test_pools_beyond_max_connections_fail_with_typed_error(lean_server: EmbeddedPostgres) -> None:
    with contextlib.ExitStack() as others:
        with contextlib.suppress(psycopg.OperationalError):  # until the server refuses
            while True:
                others.enter_context(psycopg.connect(lean_server.app_url))
        with pytest.raises(DatabaseUnavailableError):
            await Database(lean_server.app_url, timeout_s=1).open()
    async with Database(lean_server.app_url, timeout_s=20) as database:
        assert (await database.health()).healthy


@pytest.mark.parametrize("repeatable", [False, True])
async def test_frozen_process_loses_its_connections_and_recovers(
    lean_server: EmbeddedPostgres, repeatable: bool
) -> None:
    url = make_conninfo(lean_server.app_url, options="-c idle_session_timeout=200")
    async with Database(url, pool_size=QUERY_CONNECTIONS, timeout_s=20) as database:
        held = asyncio.Barrier(QUERY_CONNECTIONS)
        await use_whole_pool(database, QUERY_CONNECTIONS, held)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(opened, lean_server):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        [(rows, _)] = await database.run([("SELECT 1 AS one", ())], repeatable=repeatable)
        assert rows == [{"one": 1}]
