"""The system that faults are injected into: everything real but the vendors and AWS."""

import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from infra.settings import LEAN
from tests.campaigns.faults.service import ServiceProcess
from tests.campaigns.query_log.delivery import LogQueue, log_writer
from tests.support.aws.fake_aws import aws_environment
from tests.support.aws.fake_sqs import FakeSqs
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.postgres.faulty_relay import FaultyRelay
from tests.support.postgres.pgbouncer import PgBouncer
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_vendor import FakeVendor
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres

TENANT = "campaign"
DEADLINE_S = 6.0
"""Deadline of every query."""
VISIBILITY_S = 5
POOL_SIZE = 8
"""Pool sizes: from the service to PgBouncer, and from PgBouncer to the server for the app's role."""
_DRAIN_TIMEOUT_S = 300.0
_LONGEST_HIDDEN_S = 30.0
"""Longest hiding of a message after an outage: 18 minutes, as deployed, would delay every row."""


@dataclass(slots=True)
class System:
    """The whole system, from PostgreSQL to the log writer."""

    postgres: EmbeddedPostgres
    server_socket: Path
    """Socket of PostgreSQL."""
    relay: FaultyRelay
    """Relay between the service and PgBouncer, or PostgreSQL without one."""
    surroundings: QuerySurroundings
    other_vendor: FakeAnthropic
    """Second vendor, the fallback of the first."""
    sqs: FakeSqs
    queue: LogQueue
    service: ServiceProcess = field(init=False)
    """Service of the current row."""
    printed: list[str] = field(default_factory=list)
    """Records of the query log that were printed, because the queue did not accept them in time."""

    @property
    def admin_url(self) -> str:
        """Connection string of a superuser that bypasses relay and PgBouncer."""
        return self.postgres.migrator_url

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of the service; ``more`` as in ``QuerySurroundings.environment``."""
        settings = {
            "database_pool_size": str(POOL_SIZE),
            "query_timeout_s": str(DEADLINE_S),
            "query_log_queue_url": self.queue.url,
            "anthropic_base_url": self.other_vendor.base_url,
            "anthropic_api_key": self.other_vendor.api_key,
            "resume_grace_s": "0",
            **more,
        }
        return self.surroundings.environment(**settings) | aws_environment(self.sqs.url)

    @asynccontextmanager
    async def serving(
        self, settings: Mapping[str, str], variables: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """Start a new process of the service; yield a client with the tenant's key.

        Args:
            settings: Settings as for ``environment``; an empty one is not set.
            variables: Other environment variables.
        """
        environment = {name: value for name, value in self.environment(**settings).items() if value}
        async with ServiceProcess(environment | dict(variables or {}), self.printed) as self.service:
            limits = httpx2.Limits(max_connections=600, max_keepalive_connections=50)
            async with self.surroundings.client(self.service.url, timeout=None, limits=limits) as client:
                yield client

    async def fetch(self, query: str, params: Any = None) -> list[dict[str, Any]]:
        """Return rows as a superuser."""
        async with await psycopg.AsyncConnection.connect(
            self.admin_url, autocommit=True, row_factory=dict_row
        ) as connection:
            return await (await connection.execute(query, params)).fetchall()

    async def fetch_nothing(self, statements: str) -> None:
        """Execute one statement, or several without parameters, as a superuser."""
        async with await psycopg.AsyncConnection.connect(self.admin_url, autocommit=True) as connection:
            await connection.execute(statements.encode())

    async def terminate_backends(self) -> int:
        """Terminate every connection of the app's role, as a failover does; return their number."""
        rows = await self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'vectorforge_app'"
        )
        return len(rows)

    async def drain(self, timeout_s: float = _DRAIN_TIMEOUT_S) -> None:
        """Wait until the log writer has emptied the queue, then replay the printed records.

        Raises:
            TimeoutError: The queue is not empty after this many seconds.
        """
        await self.queue.empty(timeout_s)
        printed = self.printed[:]
        if printed:
            await replay(printed, self.postgres.log_writer_url)
            del self.printed[: len(printed)]


async def replay(printed: list[str], log_writer_url: str) -> None:
    """Store the printed records as an operator would.

    Raises:
        RuntimeError: The command failed.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write("\n".join(printed) + "\n")
        file.flush()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vectorforge.cli", "logs", "replay", file.name),
            env={"VECTORFORGE_LOG_WRITER_DATABASE_URL": log_writer_url},
            stdout=asyncio.subprocess.DEVNULL,
        )
        if await process.wait() != 0:
            raise RuntimeError("`vectorforge logs replay` failed.")


@asynccontextmanager
async def running_system(
    folder: Path, *, server: EmbeddedPostgres | None = None, socket: Path | None = None, pooler: bool = True
) -> AsyncIterator[System]:
    """Start all but the service; the tenant's default collection has one chunk.

    Args:
        folder: Its own folder, with a short path that other accounts may traverse.
        server: A running, migrated server; None starts one that syncs its files, as on AWS.
        socket: The server's own socket, if its connection strings lead elsewhere.
        pooler: Whether PgBouncer is before the server; without it, the server has the limit of ``lean``.
    """
    limit = 300 if pooler else LEAN.database.max_connections
    postgres = server or EmbeddedPostgres(folder / "postgres", settings={"max_connections": str(limit)})
    if server is None:
        await asyncio.to_thread(postgres.start)
        await migrate(postgres.migrator_url)
    socket = socket or Path(str(conninfo_to_dict(postgres.app_url)["host"]), ".s.PGSQL.5432")
    for name in ("bouncer", "network"):
        (folder / name).mkdir()
    try:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            target = socket
            if pooler:
                bouncer = PgBouncer(folder / "bouncer", socket, pool_size=POOL_SIZE)
                target = stack.enter_context(bouncer).socket
            relay = await enter(FaultyRelay(folder / "network" / target.name, target))
            url = make_conninfo(postgres.app_url, host=str(folder / "network"), port=target.suffix[1:])
            surroundings = await enter(query_surroundings(url, TENANT, fill=not await _is_filled(postgres)))
            sqs = await enter(FakeSqs(longest_hidden_s=_LONGEST_HIDDEN_S))
            queue = await asyncio.to_thread(LogQueue, sqs.url, visibility_s=VISIBILITY_S)
            other_vendor = await enter(FakeAnthropic())
            await _warm(surroundings.vendor, other_vendor)
            writing = log_writer(queue, postgres.log_writer_url, rng=random.Random(1), killed=0.0, holds=True)
            await enter(writing)
            yield System(postgres, socket, relay, surroundings, other_vendor, sqs, queue)
    finally:
        if server is None:
            await asyncio.to_thread(postgres.stop, force=True)


async def _warm(*vendors: FakeVendor) -> None:
    """Load the types that the fakes check requests against, which takes seconds."""
    async with httpx2.AsyncClient(timeout=60) as client:
        for vendor in vendors:
            headers = {"Authorization": f"Bearer {vendor.api_key}", "x-api-key": vendor.api_key}
            headers["anthropic-version"] = "2023-06-01"
            origin = vendor.base_url.removesuffix(vendor.base_path)
            await client.post(origin + vendor.generation_paths[0], json={}, headers=headers)
            vendor.requests.clear()


async def _is_filled(postgres: EmbeddedPostgres) -> bool:
    async with await psycopg.AsyncConnection.connect(make_conninfo(postgres.migrator_url)) as connection:
        found = await connection.execute("SELECT FROM vectorforge.chunks WHERE tenant_id = %s", (TENANT,))
        return await found.fetchone() is not None
