"""Waiting callers are released when a connection is refused, for any number of refusals."""

import asyncio

import psycopg
import pytest

from vectorforge.db.errors import ConnectFailures
from vectorforge.errors import DatabaseUnavailableError

REFUSED = psycopg.OperationalError("connection failed: Connection refused")


async def test_consecutive_connect_failures_release_all_waiters() -> None:
    refusals = ConnectFailures()
    has_begun = asyncio.Event()

    async def wait_and_leave_slowly() -> None:
        async with refusals.watched():
            try:
                has_begun.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)  # as the pool does, which removes it from the queue

    waiting = [asyncio.create_task(wait_and_leave_slowly()) for _ in range(3)]
    await has_begun.wait()
    refusals.failed(REFUSED)
    await asyncio.sleep(0)  # the waiting callers are being released
    refusals.failed(REFUSED)
    for task in waiting:
        with pytest.raises(DatabaseUnavailableError, match="refuses connections"):
            await task
