"""Connections kept out of their pool between statements that follow each other closely.

Why no connection can be made, known long before a wait for one is over.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg.pq import TransactionStatus
from psycopg_pool import TooManyRequests

from vectorforge.db.conninfo import connect_error
from vectorforge.errors import (
    DatabaseLoginError,
    DatabaseUnavailableError,
    UntrustedDatabaseError,
    VectorForgeError,
)

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from vectorforge.db.session import Session


_KEPT_S = 1.0
"""Then the pool gets them, which closes those that have been idle, or open, for long."""


class KeptConnections:
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

    def take_kept(self) -> "Session | None":
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


_REMEMBERED_S = 1.0
_NOBODY_LISTENS = re.compile(r"Connection refused|No such file or directory|could not translate host")
"""In libpq's texts: it gives no codes for failures to connect."""


class Refusals:
    """Lets those who wait for a connection go as soon as an attempt to make one is refused.

    Args:
        with_tokens: Whether connections log in with tokens of IAM.
    """

    def __init__(self, *, with_tokens: bool = False) -> None:
        self._with_tokens = with_tokens
        self._reason: DatabaseUnavailableError | None = None
        self._refused_at = float("-inf")
        self._waiting: set[asyncio.Timeout] = set()

    def failed(self, failure: Exception) -> None:
        """An attempt to connect failed: with the driver's error, or with ours before the driver was asked."""
        if isinstance(failure, VectorForgeError):  # no password could be made for it
            self._reason = DatabaseUnavailableError(failure.message)
        elif _NOBODY_LISTENS.search(str(failure)):
            self._reason = DatabaseUnavailableError("The database refuses connections.")
        else:
            self._reason = connect_error(failure, with_token=self._with_tokens)
            if not isinstance(self._reason, UntrustedDatabaseError):
                self._refused_at = float("-inf")
                return  # the next attempt, with a new token, may do better: the pool makes it
        self._refused_at = time.monotonic()
        for patience in self._waiting:
            if patience.expired():  # let go by an earlier refusal, and not away yet
                continue
            patience.reschedule(asyncio.get_running_loop().time())

    def succeeded(self) -> None:
        """There is a connection."""
        self._reason = None
        self._refused_at = float("-inf")

    def too_late(self) -> DatabaseUnavailableError:
        """What to say after a wait that ended without a connection."""
        if isinstance(self._reason, DatabaseLoginError):
            return _copy(self._reason)
        return DatabaseUnavailableError("There was no database connection in time.")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Wait for a connection in here.

        Raises:
            DatabaseUnavailableError: One is refused, or was a second ago.
        """
        if self._reason is not None and time.monotonic() - self._refused_at < _REMEMBERED_S:
            raise _copy(self._reason)
        try:
            async with asyncio.timeout(None) as patience:
                self._waiting.add(patience)
                try:
                    yield
                finally:
                    self._waiting.discard(patience)
        except TimeoutError as exc:
            raise _copy(self._reason or DatabaseUnavailableError()) from exc


def _copy(error: DatabaseUnavailableError) -> DatabaseUnavailableError:
    """The same error for one more task: a traceback belongs to one."""
    return type(error)(error.message)
