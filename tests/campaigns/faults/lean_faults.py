"""Rows of the stage ``lean``: query functions with reserved concurrency on PostgreSQL, without a pooler.

They need a system without PgBouncer: ``running_system(..., pooler=False)``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import psycopg
from psycopg.conninfo import make_conninfo

from infra.connection_budget import IDLE_S, QUERY_CONNECTIONS
from infra.settings import LEAN
from tests.campaigns.faults.database_faults import (
    AnsweredOr503,
    FrozenInTransaction,
    GrayDatabase,
    KilledPostmaster,
    KillWaves,
    PowerCut,
    background,
)
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.function_faults import FunctionFault, ThrottledFunction
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System

_CONCURRENCY = LEAN.query.max_concurrency or 1
_OPEN = "SELECT count(*) AS opened FROM pg_stat_activity WHERE usename = 'vectorforge_app'"
_WAIT_S = 60


class LeanFault(FunctionFault):
    """Frozen between their invocations, as many functions as permitted, with the pools of the stage."""

    concurrency = _CONCURRENCY
    at_once = _CONCURRENCY
    idle_s = IDLE_S
    """Seconds until the server ends a connection that is not used."""

    def environment(self, system: System) -> dict[str, str]:
        url = make_conninfo(system.surroundings.app_url, options=f"-c idle_session_timeout={self.idle_s}s")
        return system.environment(database_pool_size=str(QUERY_CONNECTIONS), database_url=url)

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        async with super().serve(system) as client:
            await Load(client, 0, self.concurrency, at_once=self.concurrency).run()  # start all of them
            yield client


class LeanKillWaves(LeanFault, KillWaves):
    number = 1


class LeanKilledPostmaster(LeanFault, KilledPostmaster):
    number = 2


class LeanPowerCut(LeanFault, PowerCut):
    number = 3


class Restart(LeanFault, AnsweredOr503):
    number = 4
    name = "the database restarted in good order, as for a new parameter or version"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def restart() -> None:
            await load.until_ended(0.3)
            await asyncio.to_thread(system.postgres.stop, force=True)
            await asyncio.to_thread(system.postgres.start)

        async with background(restart()):
            yield


class LeanGrayDatabase(LeanFault, GrayDatabase):
    number = 5


class LeanFrozenInTransaction(LeanFault, FrozenInTransaction):
    number = 6


class Exhausted(LeanFault, AnsweredOr503):
    number = 7
    name = "other clients hold every connection that PostgreSQL accepts, until two fifths ended"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        """End the functions' own connections first, so that they need new ones."""
        await system.terminate_backends()
        async with AsyncExitStack() as held:
            with contextlib.suppress(psycopg.OperationalError):  # until the server refuses
                while True:
                    connection = await psycopg.AsyncConnection.connect(system.postgres.app_url)
                    await held.enter_async_context(connection)

            async def release() -> None:
                await load.until_ended(0.4)
                await held.aclose()

            async with background(release()):
                yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        last = answers[-(len(answers) // 5) :]
        failed = sum(not one.is_answer for one in last)
        if all(one.is_answer for one in answers):
            return ["no query lacked a connection"]
        return [f"{failed} of the last fifth of the questions not answered"] if failed else []


class EndedWhileFrozen(LeanFault):
    number = 8
    name = "all functions frozen until the server has ended their idle connections"
    client_sees = "a full answer"
    idle_s = 1

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async with asyncio.timeout(_WAIT_S):
            while (await system.fetch(_OPEN))[0]["opened"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        yield


class Bounded(LeanFault, ThrottledFunction):
    number = 9
    name = f"{2 * _CONCURRENCY} concurrent queries, {_CONCURRENCY} permitted; connections counted throughout"
    concurrency = _CONCURRENCY
    at_once = 2 * _CONCURRENCY
    _most = 0

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def count() -> None:
            while True:
                [row] = await system.fetch(_OPEN)
                self._most = max(self._most, row["opened"])
                await asyncio.sleep(0.02)

        async with background(count(), endless=True):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        bound = _CONCURRENCY * QUERY_CONNECTIONS
        seen = _CONCURRENCY <= self._most <= bound
        return [] if seen else [f"{self._most} connections, not {_CONCURRENCY} to {bound}"]


LEAN_FAULTS: tuple[type[Fault], ...] = (
    LeanKillWaves,
    LeanKilledPostmaster,
    LeanPowerCut,
    Restart,
    LeanGrayDatabase,
    LeanFrozenInTransaction,
    Exhausted,
    EndedWhileFrozen,
    Bounded,
)
