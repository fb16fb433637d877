"""What a caller sees when connections are lost, swallowed, frozen or all in use."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.postgres.pin_rules import PinRule
from tests.support.postgres.postgres_messages import CANCEL_REQUEST
from vectorforge.db.connection import Database
from vectorforge.errors import DatabaseError, DatabaseUnavailableError, InvalidInputError, RefusedRowError
from vectorforge.local.postgres import EmbeddedPostgres


class Proxy:
    """A network between driver and server that can begin to swallow everything."""

    def __init__(self, server: EmbeddedPostgres, directory: Path) -> None:
        self.directory = directory
        self.target = f"{conninfo_to_dict(server.app_url)['host']}/.s.PGSQL.5432"
        self.conninfo = make_conninfo(server.app_url, host=str(directory))
        self.open = asyncio.Event()
        self.open.set()
        self.round_trips = 0
        self.passes_cancel_requests = True
        self.cuts = 0
        """Connections still to be cut when their client says something."""
        self._turn = "server"
        self._writers: list[asyncio.StreamWriter] = []

    async def run(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, f"{self.directory}/.s.PGSQL.5432")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = await reader.readexactly(8)
        if int.from_bytes(start[4:]) == CANCEL_REQUEST and not self.passes_cancel_requests:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_unix_connection(self.target)
        up_writer.write(start)
        self._writers += [writer, up_writer]
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                self._copy(reader, up_writer, "client"), self._copy(up_reader, writer, "server")
            )

    async def stop(self) -> None:
        self.open.set()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, side: str) -> None:
        while data := await reader.read(65536):
            await self.open.wait()
            if side == "client" and self.cuts:
                self.cuts -= 1
                break
            if side == "client":
                self.round_trips += self._turn == "server"
            self._turn = side
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def proxy(
    postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path]
) -> AsyncIterator[Proxy]:
    made = Proxy(postgres_server, private_dir("proxy"))
    listener = await made.run()
    yield made
    listener.close()
    await made.stop()


# Performance: a question of the database is one round trip, and the check of the connection another.
async def test_one_statement_is_one_round_trip(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        await tenant.fetch_one("SELECT 1")
        assert proxy.round_trips == 2


# Performance: what may be run twice does not ask first.
async def test_a_repeatable_statement_checks_no_connection(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        read = "SELECT current_setting('vectorforge.tenant') AS tenant"
        assert await tenant.fetch_one(read, repeatable=True) == {"tenant": "a"}
        assert proxy.round_trips == 1


# Fault 22: the connection ends after the look at its socket
async def test_a_repeatable_statement_is_sent_again_when_its_connection_dies(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.cuts = 1
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}
        proxy.cuts = 2
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}
        assert proxy.cuts == 0


# Fault 24: what took its whole time once is not begun again
async def test_a_repeatable_statement_waits_once(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=2, timeout_s=0.5) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        with pytest.raises(DatabaseUnavailableError):
            await tenant.fetch_one("SELECT pg_sleep(1.5)", repeatable=True)
        assert proxy.round_trips == 1


# Performance: so is a search through an index, whose settings end with its transaction.
async def test_a_search_through_an_index_is_one_round_trip(proxy: Proxy) -> None:
    read = "SELECT current_setting('hnsw.ef_search') AS ef, current_setting('hnsw.iterative_scan') AS scan"
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        assert await tenant.fetch_all(read, ef_search=123) == [{"ef": "123", "scan": "strict_order"}]
        assert proxy.round_trips == 2
        assert await tenant.fetch_all(read) == [{"ef": "40", "scan": "off"}]


async def test_without_the_pipeline_a_transaction_takes_four_round_trips(proxy: Proxy) -> None:
    read = "SELECT current_setting('vectorforge.tenant', true) AS tenant"
    async with Database(proxy.conninfo, pool_size=1, pipeline=False) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        assert await tenant.fetch_one(read) == {"tenant": "a"}
        assert proxy.round_trips == 5  # one checks the connection
        async with database.connection() as connection:
            left = await (await connection.execute(read.encode())).fetchone()
        assert left == {"tenant": ""}


async def test_a_kept_connection_goes_to_whoever_waits(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1, timeout_s=5) as database:
        tenant = database.for_tenant("a")
        first = await tenant.fetch_one("SELECT pg_backend_pid()", repeatable=True)
        others = (tenant.fetch_one("SELECT pg_backend_pid()", repeatable=True) for _ in range(20))
        assert await asyncio.gather(*others) == [first] * 20


async def test_a_server_that_leaves_an_idle_connection_is_heard_once(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1", repeatable=True)
        await proxy.stop()
        await asyncio.sleep(0.1)
        # a socket that is looked at and not read would wake the event loop at each turn
        assert asyncio.get_running_loop()._selector.select(0) == []  # type: ignore[attr-defined]
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}


# Fault 24
async def test_a_network_that_swallows_everything(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=2, timeout_s=0.5) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.open.clear()
        async with asyncio.timeout(5):  # it gives up by itself, long before
            with pytest.raises(DatabaseUnavailableError):
                await tenant.fetch_one("SELECT 1")
        proxy.open.set()
        for _ in range(10):  # each at most half a second, or at once
            if (await database.health()).healthy:
                break
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# Fault 24: the driver alone returns ten seconds after the caller gave up (psycopg/psycopg#1371)
async def test_a_caller_who_gives_up_is_let_go(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1, timeout_s=30) as database:
        tenant = database.for_tenant("a")

        async def ask() -> None:
            async with tenant.transaction() as connection:
                proxy.open.clear()
                await connection.execute("SELECT 1")

        async with asyncio.timeout(4):  # the driver alone would need ten seconds
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await ask()
        proxy.open.set()


# Fault 25: the pool's own queue keeps those who have gone, and is full of them after an outage
async def test_who_has_given_up_waits_no_longer(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1, timeout_s=30) as database:
        tenant = database.for_tenant("a")

        async def ask(patience_s: float) -> dict[str, Any] | None:
            async with asyncio.timeout(patience_s):
                return await tenant.fetch_one("SELECT 1 AS n")

        async def hold() -> None:
            async with tenant.transaction() as connection:
                await connection.execute("SELECT 1")
                held.set()
                await released.wait()

        held, released = asyncio.Event(), asyncio.Event()
        holding = asyncio.create_task(hold())
        await held.wait()
        for _ in range(2):  # each time as many as may wait
            gone = await asyncio.gather(*(ask(0.3) for _ in range(20)), return_exceptions=True)
            assert {type(one) for one in gone} == {TimeoutError}
        waiting = [asyncio.create_task(ask(20)) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(DatabaseUnavailableError, match="Too many requests are waiting"):
            await ask(20)
        released.set()
        await holding
        assert await asyncio.gather(*waiting) == [{"n": 1}] * 20


# Fault 21: a refusal is known at once, so nobody waits for his time to run out
async def test_a_server_that_is_down_is_said_at_once(
    postgres_server: EmbeddedPostgres, private_dir: Callable[[str], Path]
) -> None:
    proxy = Proxy(postgres_server, private_dir("down"))
    listener = await proxy.run()
    async with Database(proxy.conninfo, pool_size=2, timeout_s=3600) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        listener.close()
        await proxy.stop()
        (proxy.directory / ".s.PGSQL.5432").unlink(missing_ok=True)
        async with asyncio.timeout(60):
            for _ in range(3):
                results = await asyncio.gather(
                    *(tenant.fetch_one("SELECT 1") for _ in range(10)), return_exceptions=True
                )
                assert {type(result) for result in results} == {DatabaseUnavailableError}
                assert not (await database.health()).healthy
                await asyncio.sleep(1.1)
            listener = await proxy.run()
            while not (await database.health()).healthy:  # noqa: ASYNC110 - the database has no events
                await asyncio.sleep(0.1)
            assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}
    listener.close()
    await proxy.stop()


async def test_a_cancelled_statement_ends_on_the_server(direct_database: Database) -> None:
    tenant = direct_database.for_tenant("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await tenant.fetch_one("SELECT pg_sleep(60)")
    row = await tenant.fetch_one(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(60)%%'"
        " AND state = 'active' AND pid <> pg_backend_pid()"
    )
    assert row == {"n": 0}


# RDS Proxy: "doesn't currently support canceling a query from a client by issuing a CancelRequest"
async def test_a_cancel_request_that_is_ignored(proxy: Proxy) -> None:
    proxy.passes_cancel_requests = False
    async with Database(proxy.conninfo, pool_size=1, timeout_s=30) as database:
        tenant = database.for_tenant("a")
        async with asyncio.timeout(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await tenant.fetch_one("SELECT pg_sleep(20)")
            assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# Fault 22
async def test_killed_connections_are_replaced(
    direct_database: Database, postgres_server: EmbeddedPostgres
) -> None:
    tenant = direct_database.for_tenant("a")
    for _ in range(10):
        await asyncio.gather(*(tenant.fetch_one("SELECT pg_sleep(0.01)") for _ in range(5)))
        with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE usename = 'vectorforge_app'"
            )
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# Fault 22
async def test_killed_connections_are_seen_by_repeatable_statements(
    direct_database: Database, postgres_server: EmbeddedPostgres
) -> None:
    tenant = direct_database.for_tenant("a")
    for _ in range(5):
        await asyncio.gather(*(tenant.fetch_one("SELECT pg_sleep(0.01)") for _ in range(5)))
        with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE usename = 'vectorforge_app'"
            )
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}


# Fault 26
async def test_when_all_connections_are_in_use(app_url: str) -> None:
    async with Database(app_url, pool_size=1, timeout_s=0.2) as database:
        tenant = database.for_tenant("a")
        async with tenant.transaction():
            with pytest.raises(DatabaseUnavailableError, match="Timed out waiting") as caught:
                await tenant.fetch_one("SELECT 1")
        assert caught.value.retryable
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# Fault 26: the queue is bounded
async def test_a_queue_that_is_full(direct_database: Database) -> None:
    async with Database(direct_database._conninfo, pool_size=1, timeout_s=5) as database:
        tenant = database.for_tenant("a")
        async with tenant.transaction():
            waiting = [asyncio.create_task(tenant.fetch_one("SELECT 1 AS n")) for _ in range(40)]
            await asyncio.sleep(0.2)
            refused = [task for task in waiting if task.done()]
            assert len(refused) == 20
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(result, DatabaseUnavailableError) for result in results) == 20


# Fault 20
async def test_a_frozen_transaction_is_ended_by_the_server(direct_database: Database) -> None:
    tenant = direct_database.for_tenant("a")
    async with tenant.transaction() as connection:
        row = await (
            await connection.execute(
                "SELECT current_setting('idle_in_transaction_session_timeout') AS idle,"
                " current_setting('statement_timeout') AS statement"
            )
        ).fetchone()
    assert row == {"idle": "5s", "statement": "1min"}


class TestErrors:
    async def test_they_say_nothing_of_the_data(self, database: Database) -> None:
        tenant = database.for_tenant("a")
        with pytest.raises(DatabaseError) as caught:
            await tenant.fetch_one("SELECT 'canary'::text / 2 FROM canary")
        assert "canary" not in str(caught.value)
        assert isinstance(caught.value.__cause__, psycopg.Error)

    @pytest.mark.parametrize("value", ["nul \0", "half \ud800"])
    async def test_text_that_cannot_be_stored(self, database: Database, value: str) -> None:
        with pytest.raises(InvalidInputError):
            await database.for_tenant("a").fetch_one("SELECT %s::text", (value,))

    async def test_a_failed_transaction_leaves_nothing(self, tenant_db: Any) -> None:
        insert = (
            "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
            " latency_ms) VALUES (%s, gen_random_uuid(), gen_random_uuid(), 'q', 'answered', 1)"
        )
        with contextlib.suppress(RuntimeError):
            async with tenant_db.transaction() as connection:
                await connection.execute(insert, (tenant_db.tenant_id,))
                raise RuntimeError
        assert await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs") == []
        assert await tenant_db.execute(insert, (tenant_db.tenant_id,)) == 1

    async def test_statements_together_are_all_or_nothing(self, tenant_db: Any) -> None:
        insert = (
            "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
            " latency_ms) VALUES (%s, gen_random_uuid(), gen_random_uuid(), 'q', 'answered', %s)"
        )
        good, bad = (insert, (tenant_db.tenant_id, 1)), (insert, (tenant_db.tenant_id, None))
        for calls in ([good, bad], [bad, good]):
            with pytest.raises(RefusedRowError):
                await tenant_db.execute_all(calls)
            assert await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs") == []
        assert await tenant_db.execute_all([good, good]) == [1, 1]
        assert len(await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs")) == 2

    # A deferred constraint speaks when all statements are done.
    @pytest.mark.pins(PinRule.TEMPORARY)
    async def test_a_commit_that_fails(self, direct_database: Database) -> None:
        tenant = direct_database.for_tenant("a")
        calls: list[tuple[str, tuple[int, ...]]] = [
            ("CREATE TEMP TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP", ()),
            ("INSERT INTO late VALUES (%s)", (1,)),
            ("INSERT INTO late VALUES (%s)", (1,)),
        ]
        with pytest.raises(RefusedRowError):
            await tenant.execute_all(calls)
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}

    async def test_not_open(self) -> None:
        database = Database("dbname=vectorforge")
        with pytest.raises(DatabaseUnavailableError):
            await database.for_tenant("a").fetch_one("SELECT 1")
        assert not (await database.health()).healthy
        await database.close()


_DYING = """
SELECT nth, pg_sleep(CASE WHEN nth <= %s AND pg_terminate_backend(pg_backend_pid()) THEN 60 ELSE 0 END)
FROM (SELECT nextval('public.deaths') AS nth) AS drawn
"""


# faults.md row 22: a failover ends connections in waves, those too that have just said that they live
@pytest.mark.pins(PinRule.SEQUENCE)  # what is counted must outlive the transaction
async def test_what_may_run_twice_survives_three_connections_that_die_under_it(
    make_database: Callable[..., str], make_tenant: Callable[[], str]
) -> None:
    admin_url = make_database()
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("CREATE SEQUENCE public.deaths")
        admin.execute("GRANT USAGE ON SEQUENCE public.deaths TO vectorforge_app")
        async with Database(make_conninfo(admin_url, user="vectorforge_app"), pool_size=2) as database:
            tenant = database.for_tenant(make_tenant())
            row = await tenant.fetch_one(_DYING, (3,), repeatable=True)
            assert row is not None
            assert row["nth"] == 4
            with pytest.raises(DatabaseUnavailableError):  # four deaths are one too many
                await tenant.fetch_one(_DYING, (8,), repeatable=True)
            with pytest.raises(DatabaseUnavailableError):  # what may not run twice runs once
                await tenant.fetch_one(_DYING, (9,))
            row = await tenant.fetch_one(_DYING, (0,))
            assert row is not None
            assert row["nth"] == 10
