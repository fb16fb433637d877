"""Rows 32 and 33: schema changes during queries."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.support.aws.live_query_function import DIMENSION
from vectorforge.cli.doctor.database_checks import storage_checks
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.schema.migrate import MIGRATIONS, migrate, read_migrations
from vectorforge.db.schema.vector_indexes import IndexState, list_indexes
from vectorforge.errors import DatabaseError

_SPACE = f"cosine_{DIMENSION}"
_LOCK_AS_A_WRITER = f"LOCK TABLE vectorforge.embeddings_{_SPACE} IN ROW EXCLUSIVE MODE"
_DROP_INDEX = f"DROP INDEX CONCURRENTLY IF EXISTS vectorforge.embeddings_{_SPACE}_hnsw"
_BUILDERS = "SELECT pid FROM pg_stat_progress_create_index"
_ALTER = "ALTER TABLE vectorforge.chunks ADD COLUMN of_the_campaign int"
_UNDO = """
ALTER TABLE vectorforge.chunks DROP COLUMN IF EXISTS of_the_campaign;
DELETE FROM vectorforge.schema_migrations WHERE name LIKE '%_of_the_campaign.sql'
"""
_WAITING_MIGRATION = """
SELECT FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE vectorforge.chunks%' AND wait_event_type = 'Lock'
"""
_STALLED = """
SELECT max(extract(epoch FROM clock_timestamp() - query_start))::float8 AS longest_s FROM pg_stat_activity
WHERE usename = 'vectorforge_app' AND wait_event_type = 'Lock'
"""
_LONGEST_STALL_S = 2.0
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 20


class KilledIndexBuild(Fault):
    number = 32
    name = "kill -9 of the database process that builds an index (CREATE INDEX CONCURRENTLY)"
    client_sees = "a full answer; the doctor names the index, the next build makes it anew"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async def build_and_kill() -> None:
            async with await psycopg.AsyncConnection.connect(system.admin_url) as writer:
                await writer.execute(_LOCK_AS_A_WRITER)  # the build waits for its end
                building = asyncio.create_task(
                    build_indexes(system.admin_url, larger_than=0, spaces=[_SPACE])
                )
                pid = await self._builder(system)
                await load.until_ended(0.3)
                await self.end(system, pid)
                (failure,) = await asyncio.gather(building, return_exceptions=True)
                self._was_killed = isinstance(failure, DatabaseError)
                await writer.close()

        async with background(build_and_kill()):
            yield

    async def end(self, system: System, pid: int) -> None:
        """Kill the building process; PostgreSQL then ends all others, and recovers."""
        os.kill(pid, signal.SIGKILL)

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        try:
            return await self._wrong_with_the_index(system)
        finally:
            await system.fetch_nothing(_DROP_INDEX)

    async def _wrong_with_the_index(self, system: System) -> list[str]:
        found = [] if self._was_killed else ["the build was not killed"]
        if (state := await _state(system)) is not IndexState.INVALID:
            found.append(f"what the killed build left is {state}, not invalid")
        checks = await storage_checks(system.admin_url, larger_than=0)
        if not any(one.status == "warn" and f"{_SPACE}:" in one.detail for one in checks):
            found.append("the doctor does not name the index")
        [built] = await build_indexes(system.admin_url, larger_than=0, spaces=[_SPACE])
        return found if built.state is IndexState.READY else [*found, f"built again, it is {built.state}"]

    async def _builder(self, system: System) -> int:
        """Return the building process once it waits."""
        async with asyncio.timeout(_PATIENCE_S):
            while not (rows := await system.fetch(_BUILDERS)):  # noqa: ASYNC110 - a server's
                await asyncio.sleep(_LOOK_EVERY_S)
        return int(rows[0]["pid"])


async def _state(system: System) -> IndexState:
    return next(one.state for one in await list_indexes(system.admin_url) if one.space == _SPACE)


class QueuedMigration(Fault):
    number = 33
    name = "a migration that waits for the lock of a table behind a long transaction"
    client_sees = f"a full answer; nobody waits for the lock longer than {_LONGEST_STALL_S:g} s"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        self._longest_s = 0.0
        with tempfile.TemporaryDirectory(prefix="vf-") as folder:
            directory = Path(shutil.copytree(MIGRATIONS, Path(folder, "migrations")))
            number = len(read_migrations()) + 1
            (directory / f"{number:04}_of_the_campaign.sql").write_text(f"{_ALTER};\n")
            async with await psycopg.AsyncConnection.connect(system.admin_url) as reader:
                await reader.execute("SELECT FROM vectorforge.chunks LIMIT 1")
                migrating = asyncio.create_task(migrate(system.admin_url, directory=directory))
                await self._until_it_waits(system)

                async def end_the_transaction() -> None:
                    await load.until_ended(0.7)
                    await reader.rollback()
                    self._applied = [one.name for one in await migrating]

                async with background(self._watch(system), endless=True), background(end_the_transaction()):
                    yield

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        await system.fetch_nothing(_UNDO)
        found = [] if len(self._applied) == 1 else ["the migration was not applied"]
        if not self._longest_s:
            found.append("nobody queued behind the migration")
        if self._longest_s > _LONGEST_STALL_S:
            found.append(f"a question waited {self._longest_s:.1f} s for a lock")
        return found

    async def _until_it_waits(self, system: System) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not await system.fetch(_WAITING_MIGRATION):  # noqa: ASYNC110 - a server's
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _watch(self, system: System) -> None:
        """Record how long the app's statements wait for locks."""
        while True:
            (row,) = await system.fetch(_STALLED)
            self._longest_s = max(self._longest_s, row["longest_s"] or 0.0)
            await asyncio.sleep(_LOOK_EVERY_S)


SCHEMA_FAULTS: tuple[type[Fault], ...] = (KilledIndexBuild, QueuedMigration)
