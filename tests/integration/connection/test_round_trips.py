"""Statements take one round trip, and connections are reused."""

import asyncio

import pytest

from tests.integration.connection.conftest import Proxy
from vectorforge.db.connection import Database
from vectorforge.errors import DatabaseUnavailableError


# One for the statement, one for the check of the connection.
async def test_statement_takes_one_round_trip(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        await tenant.fetch_one("SELECT 1")
        assert proxy.round_trips == 2


async def test_repeatable_statement_skips_connection_check(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        read = "SELECT current_setting('vectorforge.tenant') AS tenant"
        assert await tenant.fetch_one(read, repeatable=True) == {"tenant": "a"}
        assert proxy.round_trips == 1


# The connection ends after its socket was checked.
async def test_repeatable_statement_on_dead_connection_is_retried(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.cuts = 1
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}
        proxy.cuts = 2
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}
        assert proxy.cuts == 0


# A statement that used up its time is not retried.
async def test_repeatable_statement_after_timeout_is_not_retried(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=2, timeout_s=0.5) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1")
        proxy.round_trips = 0
        with pytest.raises(DatabaseUnavailableError):
            await tenant.fetch_one("SELECT pg_sleep(1.5)", repeatable=True)
        assert proxy.round_trips == 1


async def test_transaction_without_pipeline_takes_four_round_trips(proxy: Proxy) -> None:
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


async def test_cached_connection_serves_waiting_callers(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1, timeout_s=5) as database:
        tenant = database.for_tenant("a")
        first = await tenant.fetch_one("SELECT pg_backend_pid()", repeatable=True)
        others = (tenant.fetch_one("SELECT pg_backend_pid()", repeatable=True) for _ in range(20))
        assert await asyncio.gather(*others) == [first] * 20


async def test_closed_idle_connection_wakes_event_loop_once(proxy: Proxy) -> None:
    async with Database(proxy.conninfo, pool_size=1) as database:
        tenant = database.for_tenant("a")
        await tenant.fetch_one("SELECT 1", repeatable=True)
        await proxy.stop()
        await asyncio.sleep(0.1)
        # a watched socket that is not read would wake the event loop in every iteration
        assert asyncio.get_running_loop()._selector.select(0) == []  # type: ignore[attr-defined]
        assert await tenant.fetch_one("SELECT 1 AS n", repeatable=True) == {"n": 1}
