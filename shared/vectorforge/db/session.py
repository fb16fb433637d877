"""One connection that never waits longer than it may, and what its driver's errors mean to us."""

import asyncio
import os
import select
import socket
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg_pool import PoolClosed, TooManyRequests

from vectorforge.db.connect_failures import ConnectFailures
from vectorforge.db.conninfo import is_refused
from vectorforge.db.key_check import WRONG_KEY
from vectorforge.db.login import PasswordSource, make_password, password_options
from vectorforge.db.wire import Exchange
from vectorforge.errors import (
    AuthenticationError,
    DatabaseError,
    DatabaseUnavailableError,
    InvalidInputError,
    RefusedRowError,
    TenantBeingErasedError,
    VectorForgeError,
)

RV = TypeVar("RV")

_CANCEL_GRACE_S = 0.1
"""What a cancelled statement may take to end on the server before its connection is given up.

Comes on top of a question's deadline, as a quarter of a second for its record does; half a second after the
deadline the client has to have its answer."""

_VALUE_ERRORS = (psycopg.DataError, UnicodeEncodeError)
_UNSTORABLE = (None, "22P02", "22P05", "22003", "22021")
"""SQLSTATE of values that text, jsonb or a number cannot hold; None where the driver refuses them itself."""
_REFUSED_CLASSES = ("22", "23")
"""Of SQLSTATE: data exceptions and broken constraints, the only ones that are about the values given.
https://www.postgresql.org/docs/17/errcodes-appendix.html"""
_BEING_ERASED = "VF001"
"""Of ours: ``vectorforge.enter_tenant`` refuses a tenant that is being erased."""
_KEY_OVER = "VF002"
"""Of ours: ``vectorforge.check_keys`` finds a key that is revoked or over."""
_READ_ONLY = "25006"
"""The server has become a replica: a connection made anew may lead to its successor."""


class Session(psycopg.AsyncConnection[Any]):
    """A connection whose every wait is bounded.

    The driver alone may wait for ever on a network that swallows packets, and for ten seconds more when its
    task is cancelled (https://github.com/psycopg/psycopg/issues/1371). Shutting the socket down wakes it.
    """

    timeout_s: float = 10.0
    """Longest wait for the server, seconds."""
    was_cut: bool = False
    """Whether the server took too long: then the network, or the server, is not to be tried again at once."""
    _watchdog: asyncio.TimerHandle | None = None
    _looking: tuple[asyncio.AbstractEventLoop, int] | None = None
    """The event loop that looks at the socket, and the socket's number."""
    _ready: asyncio.Future[None] | None = None

    @cached_property
    def exchange(self) -> Exchange:
        """Runs statements over this connection in one round trip."""
        return Exchange(self)

    def seems_alive(self) -> bool:
        """Whether the server has said nothing since it was asked last, not even good-bye. Asks nobody.

        A server that ends a connection says so, and the socket can be read; one that is cut off does not.
        """
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    async def until_ready(self, *, to_write: bool = False) -> None:
        """Wait until the socket can be read; or written, too. ``watch`` bounds it.

        The event loop goes on looking at the socket until ``look_away``, for what is awaited next.
        """
        loop = asyncio.get_running_loop()
        ready = self._ready = loop.create_future()
        if self._looking is None:
            self._looking = (loop, self.pgconn.socket)
            loop.add_reader(self.pgconn.socket, self._heard)
        fileno = self._looking[1]
        if to_write:
            loop.add_writer(fileno, _wake, ready)
        try:
            await ready
        finally:
            self._ready = None
            if to_write:
                loop.remove_writer(fileno)

    def look_away(self) -> None:
        """Have the event loop look at the socket no more; to be called before the socket is closed.

        Its number may be another connection's next.
        """
        if self._looking is None:
            return
        (loop, fileno), self._looking = self._looking, None
        if not loop.is_closed():
            loop.remove_reader(fileno)

    def _heard(self) -> None:
        if self._ready is None:  # the server's good-bye, which would be heard again and again
            self.look_away()
        else:
            _wake(self._ready)

    def give_up(self) -> None:
        """Close the connection at once, whatever state it is in."""
        self.look_away()
        self.pgconn.finish()

    async def close(self) -> None:
        """Close the connection; see psycopg."""
        self.look_away()
        await super().close()

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's signature
    ) -> RV:
        """Run a protocol generator, at most ``timeout_s`` seconds; see psycopg."""
        self.look_away()  # the driver looks by itself
        self.watch(self.timeout_s)
        try:
            return await super().wait(gen, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            self.timeout_s = min(self.timeout_s, _CANCEL_GRACE_S)  # for a rollback, which nobody cancels
            raise
        finally:
            self.watch(None)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the driver's signature
        """Ask the server to end the current statement, and give up the connection soon if it does not."""
        self.watch(_CANCEL_GRACE_S)
        await super().cancel_safe(timeout=min(timeout, _CANCEL_GRACE_S))

    def watch(self, seconds: float | None) -> None:
        """Give the connection up after so many seconds from now; None: no longer."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if seconds is not None:
            self._watchdog = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        self.was_cut = True
        with (
            suppress(OSError, psycopg.OperationalError),  # closed meanwhile: that is what is wanted
            socket.socket(fileno=os.dup(self.fileno())) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def session_class(refusals: ConnectFailures, password: PasswordSource | None = None) -> type[Session]:
    """The class of connections for one database.

    Args:
        refusals: Is told when an attempt to connect fails or succeeds.
        password: Gives the password of each connection; None: the connection string has it.
    """

    class DatabaseSession(Session):
        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Any:
            try:
                connection = await cls._log_in(conninfo, options)
            except (psycopg.OperationalError, VectorForgeError) as exc:
                refusals.failed(exc)
                raise
            refusals.succeeded()
            return connection

        @classmethod
        async def _log_in(cls, conninfo: str, options: dict[str, Any]) -> Any:
            if password is None:
                return await super().connect(conninfo, **options)
            made = await asyncio.to_thread(make_password, password, conninfo)
            try:
                return await super().connect(conninfo, **options | password_options(made))
            except psycopg.OperationalError as exc:
                if not is_refused(exc) or not await asyncio.to_thread(password.renew, made):
                    raise
            made = await asyncio.to_thread(make_password, password, conninfo)
            return await super().connect(conninfo, **options | password_options(made))

    return DatabaseSession


class translated_errors:  # noqa: N801 - read as the statement that it makes with "with"
    """Turns what the driver raises into our errors; the cause is kept, its text is not copied.

    Raises:
        DatabaseUnavailableError: No connection, a lost one, or the server gave up for lack of something.
        TenantBeingErasedError: The tenant that was to be entered is being erased.
        AuthenticationError: A key that was remembered is revoked or over.
        InvalidInputError: A value that PostgreSQL cannot store, such as a NUL character in text.
        RefusedRowError: Any other value or row that a type or a constraint forbids.
        DatabaseError: Everything else.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is not None and (error := _translated(exc)) is not None:
            raise error from exc


def _translated(exc: BaseException) -> VectorForgeError | None:
    """Our error for the driver's; None for any other."""
    if isinstance(exc, TooManyRequests):
        return DatabaseUnavailableError("Too many requests wait for a database connection.")
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError | PoolClosed):
        return DatabaseUnavailableError()
    if not isinstance(exc, psycopg.Error | UnicodeEncodeError):
        return None
    state = getattr(exc, "sqlstate", None)
    if state in _UNSTORABLE and isinstance(exc, _VALUE_ERRORS):
        return InvalidInputError("A value cannot be stored: it holds a NUL or is out of range.")
    if state is not None and state[:2] in _REFUSED_CLASSES:
        return RefusedRowError()
    if state == _BEING_ERASED:
        return TenantBeingErasedError()
    if state == _KEY_OVER:
        return AuthenticationError(WRONG_KEY, presented=True)
    if state == _READ_ONLY:
        return DatabaseUnavailableError("The database is read-only now.")
    return DatabaseError()
