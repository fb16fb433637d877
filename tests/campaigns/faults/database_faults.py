"""Rows 19 to 28 and 49: faults of the database and the connections to it."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from psycopg.conninfo import make_conninfo

from tests.campaigns.faults.fault import Fault, is_refused
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import POOL_SIZE, TENANT, System
from tests.support.postgres.pin_detector import PinDetector
from vectorforge.local.cluster import processes

_WRITE_ROW = "UPDATE vectorforge.collections SET name = name WHERE tenant_id = %s RETURNING 1"
_END_HOLDERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
_PASSAGES = "SELECT count(*) AS found FROM vectorforge.chunks WHERE tenant_id = %s"
_WAVES = 5


class AnsweredOr503(Fault):
    """Every query is answered, or rejected with problem details."""

    client_sees = "an answer, or 503 with Retry-After"

    def wrong(self, answer: Answer) -> str:
        ended = answer.is_answer or is_refused(answer, 503, 504)
        return "" if ended else "neither answered nor refused with 503 or 504"


class ThawedConnections(Fault):
    number = 19
    name = "frozen (SIGSTOP), all its connections ended meanwhile, thawed"
    client_sees = "a full answer"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        """Fill the pool with queries of another load first."""
        await Load(load.client, 1900, 2 * self.at_once).run()
        system.service.freeze()
        await system.terminate_backends()
        system.relay.cut()
        system.service.thaw()
        yield


class FrozenInTransaction(AnsweredOr503):
    number = 20
    name = "a client frozen in a transaction that holds the collection's row"
    client_sees = "an answer; who waits for the row waits at most the idle timeout"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._frozen = await psycopg.AsyncConnection.connect(system.postgres.app_url, autocommit=True)
        await self._frozen.execute("BEGIN")
        await self._frozen.execute("SELECT vectorforge.enter_tenant(%s)", (TENANT,))
        await self._frozen.execute(
            "SELECT FROM vectorforge.collections WHERE tenant_id = %s FOR UPDATE", (TENANT,)
        )
        yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        """Check that another writer gets the row, because the server ends the frozen transaction."""
        try:
            async with asyncio.timeout(20):
                await system.fetch(_WRITE_ROW, (TENANT,))
        except TimeoutError:
            return ["the row is still locked: nothing ends an idle transaction"]
        finally:
            await self._frozen.close()
        return []


class KillWaves(AnsweredOr503):
    number = 22
    name = f"all connections ended, {_WAVES} times during the load"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def waves() -> None:
            for wave in range(_WAVES):
                await load.until_ended((wave + 0.5) / _WAVES)
                await system.terminate_backends()

        async with background(waves()):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        failed = sum(not one.is_answer for one in answers)
        allowed = 0.001 * len(answers)
        return [] if failed <= allowed else [f"{failed} of {len(answers)} not answered; 0.1 % may be"]


class KilledPostmaster(AnsweredOr503):
    number = 23
    name = "kill -9 of the database server, which is started again"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def kill() -> None:
            await load.until(0.3)
            os.kill(system.postgres.pid, signal.SIGKILL)
            await asyncio.to_thread(system.postgres.start)

        async with background(kill()):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        (row,) = await system.fetch(_PASSAGES, (TENANT,))
        return [] if row["found"] else ["the passage is gone"]


class GrayDatabase(AnsweredOr503):
    number = 24
    name = "a database that accepts and never answers, until two fifths of the queries have failed"
    client_sees = "503 or 504 within the deadline; all well at once afterwards"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        await Load(load.client, 2400, self.at_once).run()
        system.relay.swallow()

        async def heal() -> None:
            await load.until_ended(0.4)
            system.relay.heal()

        async with background(heal()):
            yield
        system.relay.heal()

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        late = sum(not one.is_answer for one in answers[-(len(answers) // 5) :])
        return [] if not late else [f"{late} of the last fifth of the questions not answered after it healed"]


class PoolExhausted(AnsweredOr503):
    number = 26
    name = "every connection of the pooler is held by another client"
    client_sees = "503 with Retry-After within the deadline"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        holding = [asyncio.create_task(_hold(system.surroundings.app_url)) for _ in range(POOL_SIZE)]

        async def release() -> None:
            await load.until_ended(0.4)
            await system.fetch(_END_HOLDERS)
            await asyncio.gather(*holding, return_exceptions=True)

        async with background(release()):
            yield


async def _hold(url: str) -> None:
    """Occupy a connection with a sleeping statement, which no idle timeout ends."""
    conninfo = make_conninfo(url, connect_timeout=60)
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await connection.execute("SELECT pg_sleep(60)")


class TransactionPooler(Fault):
    number = 27
    name = "a transaction pooler that constantly replaces its server connections"
    client_sees = "a full answer"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        """Reconnect: PgBouncer closes each server connection when its transaction ends."""
        host = {"host": str(system.relay.target.parent), "port": system.relay.target.suffix[1:]}
        admin = make_conninfo(dbname="pgbouncer", user="postgres", **host)

        async def reconnect() -> None:
            async with await psycopg.AsyncConnection.connect(
                admin, autocommit=True, cursor_factory=psycopg.AsyncClientCursor
            ) as connection:
                for step in range(20):
                    await load.until(step / 20)
                    await connection.execute("RECONNECT")

        async with background(reconnect()):
            yield


class PinnedConnections(Fault):
    number = 28
    name = "statements that would pin a connection of RDS Proxy, searched in all traffic"
    client_sees = "a full answer; no pin"

    @asynccontextmanager
    async def serve(self, system: System) -> AsyncIterator[httpx2.AsyncClient]:
        with tempfile.TemporaryDirectory(prefix="vf-") as folder, PinDetector(Path(folder)) as self._detector:
            self._detector.listen(system.relay.target)
            url = make_conninfo(system.surroundings.app_url, host=folder)
            async with system.serving({"database_url": url}) as client:
                yield client

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        pins = self._detector.take()
        found = [f"{len(pins)} pins, the first: {pins[0]}"] if pins else []
        return found if self._detector.statements >= len(answers) else [*found, "nothing was seen"]


class PowerCut(AnsweredOr503):
    number = 49
    name = "kill -9 of every process of the database, three times, its stale files left"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def cut() -> None:
            for share in (0.1, 0.4, 0.7):
                await load.until_ended(share)
                for pid in processes(system.postgres.data_dir):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(system.postgres.start)

        async with background(cut()):
            yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        (row,) = await system.fetch(_PASSAGES, (TENANT,))
        return [] if row["found"] else ["the passage is gone"]


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None], *, endless: bool = False) -> AsyncIterator[None]:
    """Run work concurrently with the block, then await it (or cancel endless work)."""
    task = asyncio.create_task(work)
    try:
        yield
        if not endless:
            await task
    finally:
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
    if isinstance(done[0], Exception):
        raise done[0]


DATABASE_FAULTS: tuple[type[Fault], ...] = (
    ThawedConnections,
    FrozenInTransaction,
    KillWaves,
    KilledPostmaster,
    GrayDatabase,
    PoolExhausted,
    TransactionPooler,
    PinnedConnections,
    PowerCut,
)
