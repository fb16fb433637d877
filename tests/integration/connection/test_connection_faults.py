"""Errors of callers when connections are lost, silent, frozen or all in use."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.connection.conftest import Proxy
from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.postgres import EmbeddedPostgres


async def test_network_that_swallows_packets_raises_unavailable_in_time(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=2, timeout_s=0.5) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.open.clear()
        async with asyncio.timeout(5):  # it times out long before
            with pytest.raises(DatabaseUnavailableError):
                await tenant.fetch_one("SELECT 1")
        proxy.open.set()
        for _ in range(10):  # each at most half a second, or at once
            if (await database.health()).healthy:
                break
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# The driver alone returns ten seconds after the caller's timeout (psycopg/psycopg#1371)
async def test_cancelled_caller_returns_at_once(proxy: Proxy) -> None:
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


# The pool's own queue retains canceled callers, and is full of them after an outage.
async def test_cancelled_callers_leave_the_queue(proxy: Proxy) -> None:
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
        for _ in range(2):  # each time the maximum number of waiting callers
            gone = await asyncio.gather(*(ask(0.3) for _ in range(20)), return_exceptions=True)
            assert {type(one) for one in gone} == {TimeoutError}
        waiting = [asyncio.create_task(ask(20)) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(DatabaseUnavailableError, match="Too many requests are waiting"):
            await ask(20)
        released.set()
        await holding
        assert await asyncio.gather(*waiting) == [{"n": 1}] * 20


# A refused connection is an immediate error, so no caller waits for its timeout.
async def test_server_that_is_down_raises_unavailable_at_once(
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


async def test_cancelled_statement_ends_on_the_server(direct_database: Database) -> None:
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
async def test_ignored_cancel_request_replaces_connection(proxy: Proxy) -> None:
    proxy.passes_cancel_requests = False
    async with Database(proxy.conninfo, pool_size=1, timeout_s=30) as database:
        tenant = database.for_tenant("a")
        async with asyncio.timeout(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await tenant.fetch_one("SELECT pg_sleep(20)")
            assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


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


async def test_repeatable_statements_on_killed_connections_succeed(
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


async def test_exhausted_pool_raises_retryable_unavailable(each_app_url: str) -> None:
    async with Database(each_app_url, pool_size=1, timeout_s=1) as database:  # 0.2 was too short
        tenant = database.for_tenant("a")
        async with tenant.transaction():
            with pytest.raises(DatabaseUnavailableError, match="Timed out waiting") as caught:
                await tenant.fetch_one("SELECT 1")
        assert caught.value.retryable
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


# The pool alone gives some of them their connection, and they go on (psycopg/psycopg#1345).
async def test_cancellation_as_the_pool_assigns_a_connection_is_raised(direct_database: Database) -> None:
    async with Database(direct_database._conninfo, pool_size=1, timeout_s=5) as database:
        tenant = database.for_tenant("a")
        for steps in range(40):  # of the event loop, until the caller has its answer
            async with tenant.transaction():
                waiting = asyncio.create_task(tenant.fetch_one("SELECT 1 AS n"))
                await asyncio.sleep(0.01)
            for _ in range(steps):
                await asyncio.sleep(0)
            is_cancelled = waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() == is_cancelled, steps
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}


async def test_full_queue_rejects_further_callers(direct_database: Database) -> None:
    async with Database(direct_database._conninfo, pool_size=1, timeout_s=5) as database:
        tenant = database.for_tenant("a")
        async with tenant.transaction():
            waiting = [asyncio.create_task(tenant.fetch_one("SELECT 1 AS n")) for _ in range(40)]
            await asyncio.sleep(0.2)
            refused = [task for task in waiting if task.done()]
            assert len(refused) == 20
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(result, DatabaseUnavailableError) for result in results) == 20


async def test_transaction_sets_timeouts_and_does_without_jit(direct_database: Database) -> None:
    tenant = direct_database.for_tenant("a")
    async with tenant.transaction() as connection:
        row = await (
            await connection.execute(
                "SELECT current_setting('idle_in_transaction_session_timeout') AS idle,"
                " current_setting('statement_timeout') AS statement, current_setting('jit') AS jit"
            )
        ).fetchone()
    assert row == {"idle": "5s", "statement": "1min", "jit": "off"}


_DYING = """
SELECT nth, pg_sleep(CASE WHEN nth <= %s AND pg_terminate_backend(pg_backend_pid()) THEN 60 ELSE 0 END)
FROM (SELECT nextval('public.deaths') AS nth) AS drawn
"""


# A failover ends connections in waves, including those that have just passed a check.
@pytest.mark.pins(PinRule.SEQUENCE)  # the count must outlive the transaction
async def test_repeatable_statement_survives_three_dying_connections(
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
            with pytest.raises(DatabaseUnavailableError):  # a statement that is not repeatable runs once
                await tenant.fetch_one(_DYING, (9,))
            row = await tenant.fetch_one(_DYING, (0,))
            assert row is not None
            assert row["nth"] == 10


async def test_concurrent_opens_open_one_pool(proxy: Proxy) -> None:
    database = Database(proxy.conninfo, pool_size=1)
    await database.open()
    once = proxy.round_trips
    await database.close()
    proxy.round_trips = 0
    await asyncio.gather(database.open(), database.open())
    assert proxy.round_trips == once
    await database.close()
