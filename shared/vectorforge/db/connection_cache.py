"""Connections cached outside the pool between statements that follow each other closely."""

import asyncio
from typing import TYPE_CHECKING

from psycopg.pq import TransactionStatus
from psycopg_pool import TooManyRequests

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from vectorforge.db.session import Session


_KEPT_S = 1.0
"""Then the pool gets them, which closes those that have been idle, or open, for long."""


class ConnectionCache:
    """Takes connections from a pool, and goes past its lock and its records while one is at hand.

    Nobody waits for a connection while one is kept here. Belongs to the event loop that uses it.

    Args:
        pool: Open; closed by ``close``.
        max_waiting: Requests that may wait for a connection. The pool's own bound counts those that have
            gone as well: after an outage it would refuse everybody until there is a connection again.
    """

    def __init__(self, pool: "AsyncConnectionPool[Session]", *, max_waiting: int) -> None:
        self._pool = pool
        self._max_waiting = max_waiting
        self._kept: list[Session] = []
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None
        self._is_closed = False

    def take_cached(self) -> "Session | None":
        """The connection given back last; None: ``take`` has to ask the pool."""
        return self._kept.pop() if self._kept else None

    async def take(self, timeout_s: float) -> "Session":
        """A connection of the pool; raises as its ``getconn``, and TooManyRequests by its own bound."""
        if self._waiting >= self._max_waiting:
            raise TooManyRequests(f"{self._waiting} requests wait already")
        self._waiting += 1
        try:
            return await self._pool.getconn(timeout=timeout_s)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: "Session") -> None:
        """The connection is not used any more; a broken one is replaced by the pool."""
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if not is_idle or self._waiting or self._is_closed:
            await self._pool.putconn(connection)
            return
        self._kept.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEPT_S, self._return_soon)

    async def close(self) -> None:
        """Close all connections, and the pool."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._returning is not None:
            await self._returning
        await self._return(self._kept)
        await self._pool.close()

    def _return_soon(self) -> None:
        self._timer = None
        kept, self._kept = self._kept, []
        self._returning = asyncio.create_task(self._return(kept))

    async def _return(self, kept: "list[Session]") -> None:
        while kept:
            await self._pool.putconn(kept.pop())
