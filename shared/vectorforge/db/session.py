"""One connection that never waits longer than it may, and what its driver's errors mean to us."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg_pool import PoolClosed, TooManyRequests

from vectorforge.db.login import PasswordSource, make_password, password_options
from vectorforge.db.refusals import Refusals
from vectorforge.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    InvalidInputError,
    RefusedRowError,
    VectorForgeError,
)

RV = TypeVar("RV")

_CANCEL_GRACE_S = 0.5
"""What a cancelled statement may take to end on the server before its connection is given up."""

_VALUE_ERRORS = (psycopg.DataError, UnicodeEncodeError)
_UNSTORABLE = (None, "22P02", "22P05", "22003", "22021")
"""SQLSTATE of values that text, jsonb or a number cannot hold; None where the driver refuses them itself."""
_REFUSED_CLASSES = ("22", "23")
"""Of SQLSTATE: data exceptions and broken constraints, the only ones that are about the values given.
https://www.postgresql.org/docs/17/errcodes-appendix.html"""
_READ_ONLY = "25006"
"""The server has become a replica: a connection made anew may lead to its successor."""


class Session(psycopg.AsyncConnection[Any]):
    """A connection whose every wait is bounded.

    The driver alone may wait for ever on a network that swallows packets, and for ten seconds more when its
    task is cancelled (https://github.com/psycopg/psycopg/issues/1371). Shutting the socket down wakes it.
    """

    timeout_s: float = 10.0
    """Longest wait for the server, seconds."""
    _watchdog: asyncio.TimerHandle | None = None

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's signature
    ) -> RV:
        """Run a protocol generator, at most ``timeout_s`` seconds; see psycopg."""
        self._watch(self.timeout_s)
        try:
            return await super().wait(gen, interval=interval, timeout=timeout)
        finally:
            self._watch(None)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the driver's signature
        """Ask the server to end the current statement, and give up the connection soon if it does not."""
        self._watch(_CANCEL_GRACE_S)
        await super().cancel_safe(timeout=min(timeout, _CANCEL_GRACE_S))

    def _watch(self, seconds: float | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if seconds is not None:
            self._watchdog = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        with (
            suppress(OSError, psycopg.OperationalError),  # closed meanwhile: that is what is wanted
            socket.socket(fileno=os.dup(self.fileno())) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)


def session_class(refusals: Refusals, password: PasswordSource | None = None) -> type[Session]:
    """The class of connections for one database.

    Args:
        refusals: Is told when an attempt to connect fails or succeeds.
        password: Makes the password of each connection; None: the connection string has it.
    """

    class DatabaseSession(Session):
        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Any:
            try:
                if password is not None:
                    made = await asyncio.to_thread(make_password, password, conninfo)
                    options |= password_options(made)
                connection = await super().connect(conninfo, **options)
            except (psycopg.OperationalError, VectorForgeError) as exc:
                refusals.failed(exc)
                raise
            refusals.succeeded()
            return connection

    return DatabaseSession


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what the driver raises into our errors; the cause is kept, its text is not copied.

    Raises:
        DatabaseUnavailableError: No connection, a lost one, or the server gave up for lack of something.
        InvalidInputError: A value that PostgreSQL cannot store, such as a NUL character in text.
        RefusedRowError: Any other value or row that a type or a constraint forbids.
        DatabaseError: Everything else.
    """
    try:
        yield
    except TooManyRequests as exc:
        raise DatabaseUnavailableError("Too many requests wait for a database connection.") from exc
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolClosed) as exc:
        raise DatabaseUnavailableError from exc
    except (psycopg.Error, UnicodeEncodeError) as exc:
        state = getattr(exc, "sqlstate", None)
        if state in _UNSTORABLE and isinstance(exc, _VALUE_ERRORS):
            raise InvalidInputError("A value cannot be stored: it holds a NUL or is out of range.") from exc
        if state is not None and state[:2] in _REFUSED_CLASSES:
            raise RefusedRowError from exc
        if state == _READ_ONLY:
            raise DatabaseUnavailableError("The database is read-only now.") from exc
        raise DatabaseError from exc
