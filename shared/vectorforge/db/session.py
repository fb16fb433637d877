"""One connection whose every wait is bounded, with the types and the transactions it is used with."""

import asyncio
import json
import logging
import os
import secrets
import select
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg.abc import PQGen
from psycopg.types import TypeInfo
from pydantic_core import from_json

from vectorforge.db.errors import ConnectFailures, is_refused
from vectorforge.db.login import PasswordSource, make_password, password_options
from vectorforge.db.types import Call, Outcome
from vectorforge.db.wire import Exchange
from vectorforge.errors import DatabaseUnavailableError, VectorForgeError

logger = logging.getLogger(__name__)

RV = TypeVar("RV")

_CANCEL_GRACE_S = 0.1
"""Longest time for a canceled statement to end on the server before its connection is closed.

Adds to a query's deadline, as a quarter of a second for its log record does; the client must have its answer
half a second after the deadline."""

_ENTER = "SELECT vectorforge.enter_tenant(%s)"
_READ = "SELECT current_setting('vectorforge.tenant', true) AS tenant"


class Session(psycopg.AsyncConnection[Any]):
    """A connection whose every wait is bounded.

    The driver alone may wait forever on a network that drops packets, and for ten seconds more when its task
    is canceled (https://github.com/psycopg/psycopg/issues/1371). Shutting the socket down wakes it.
    """

    timeout_s: float = 10.0
    """Longest wait for the server, seconds."""
    was_cut: bool = False
    """True after the server took too long: then do not retry it at once."""
    _watchdog: asyncio.TimerHandle | None = None
    _watched: tuple[asyncio.AbstractEventLoop, int] | None = None
    """The event loop that watches the socket, and the socket's number."""
    _ready: asyncio.Future[None] | None = None

    @cached_property
    def _exchange(self) -> Exchange:
        return Exchange(self, self)

    async def run(self, calls: Sequence[Call], *, pipeline: bool) -> list[Outcome]:
        """Run statements in one transaction and return their outcomes. Must be outside a transaction.

        Args:
            calls: Statements and their parameters.
            pipeline: Send them at once, in libpq's pipeline mode; else one by one, between BEGIN and COMMIT.

        Raises:
            psycopg.Error: A statement failed; all are rolled back.
        """
        if pipeline:
            return await self._exchange.run(calls)
        async with self.transaction():
            cursors = [await self.execute(query.encode(), params) for query, params in calls]
            return [
                (await cursor.fetchall() if cursor.description else [], cursor.rowcount) for cursor in cursors
            ]

    def seems_alive(self) -> bool:
        """Return True if there is nothing to read, such as the server's goodbye. Sends nothing.

        A server that ends a connection sends a message; a network that fails does not.
        """
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    async def until_ready(self, *, to_write: bool = False) -> None:
        """Wait until the socket can be read, or written too. ``watch`` bounds it.

        The event loop watches the socket until ``unwatch``, for the next wait.
        """
        loop = asyncio.get_running_loop()
        ready = self._ready = loop.create_future()
        if self._watched is None:
            self._watched = (loop, self.pgconn.socket)
            loop.add_reader(self.pgconn.socket, self._on_readable)
        fileno = self._watched[1]
        if to_write:
            loop.add_writer(fileno, _wake, ready)
        try:
            await ready
        finally:
            self._ready = None
            if to_write:
                loop.remove_writer(fileno)

    def unwatch(self) -> None:
        """Stop the event loop from watching the socket; required before the socket is closed.

        Another connection may get its number next.
        """
        if self._watched is None:
            return
        (loop, fileno), self._watched = self._watched, None
        if not loop.is_closed():
            loop.remove_reader(fileno)

    def _on_readable(self) -> None:
        if self._ready is None:  # the server's goodbye, which would be reported again and again
            self.unwatch()
        else:
            _wake(self._ready)

    def give_up(self) -> None:
        """Close the connection at once, in any state."""
        self.unwatch()
        self.pgconn.finish()

    async def close(self) -> None:
        """Close the connection; see psycopg."""
        self.unwatch()
        await super().close()

    async def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's signature
    ) -> RV:
        """Run a protocol generator, at most ``timeout_s`` seconds; see psycopg."""
        self.unwatch()  # the driver watches the socket itself
        self.watch(self.timeout_s)
        try:
            return await super().wait(gen, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            self.timeout_s = min(self.timeout_s, _CANCEL_GRACE_S)  # for a rollback, which is not canceled
            raise
        finally:
            self.watch(None)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - the driver's signature
        """Ask the server to end the current statement, and close the connection if it does not soon."""
        self.watch(_CANCEL_GRACE_S)
        await super().cancel_safe(timeout=min(timeout, _CANCEL_GRACE_S))

    def watch(self, seconds: float | None) -> None:
        """Close the connection after this many seconds from now; None ends the watch."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if seconds is not None:
            self._watchdog = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        self.was_cut = True
        with (
            suppress(OSError, psycopg.OperationalError),  # closed meanwhile, as intended
            socket.socket(fileno=os.dup(self.fileno())) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def session_class(failures: ConnectFailures, password: PasswordSource | None = None) -> type[Session]:
    """Return the class of connections to one database.

    Args:
        failures: Notified when an attempt to connect fails or succeeds.
        password: Source of each connection's password; None if the connection string has it.
    """

    class DatabaseSession(Session):
        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Any:
            try:
                connection = await cls._log_in(conninfo, options)
            except (psycopg.OperationalError, VectorForgeError) as exc:
                failures.failed(exc)
                raise
            failures.succeeded()
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


async def check_transactions(
    session: Session, connect: Callable[[], Awaitable[Session]], *, pipeline: bool
) -> bool:
    """Prove that the statements of a transaction stay together on the way to the server.

    A proxy may put a Sync between statements that were sent at once. Each is its own transaction then: the
    tenant that the first enters is gone at the second, and row-level security shows no rows.

    Args:
        session: A connection, possibly closed by this call.
        connect: Makes another one.
        pipeline: Try pipeline mode first.

    Returns:
        True if pipeline mode can be used.

    Raises:
        DatabaseUnavailableError: Not even the statements between BEGIN and COMMIT stay together.
        psycopg.OperationalError: No other connection.
    """
    if pipeline:
        together = await _stay_together(session, pipeline=True)
        if together is None and not session.was_cut:  # one connection may be lost for any reason
            async with await connect() as another:
                together = await _stay_together(another, pipeline=True)
        if together:
            return True
        async with await connect() as session:
            together = await _stay_together(session, pipeline=False)
    else:
        together = await _stay_together(session, pipeline=False)
    if not together:
        raise DatabaseUnavailableError(
            "The database, or a proxy before it, does not keep the statements of a transaction together; "
            "use a proxy that pools by transaction or by session."
        )
    if pipeline:
        logger.warning(
            "The database proxy splits statements that are sent at once: transactions use BEGIN and COMMIT "
            "now, which takes four round trips instead of one."
        )
    return False


async def _stay_together(session: Session, *, pipeline: bool) -> bool | None:
    """Return True if a second statement reads what the first set; None if the connection was lost."""
    tenant = f"probe {secrets.token_hex(8)}"
    try:
        _, (rows, _) = await session.run([(_ENTER, (tenant,)), (_READ, ())], pipeline=pipeline)
    except (psycopg.OperationalError, psycopg.InterfaceError):
        return None
    return rows == [{"tenant": tenant}]


def read_json(data: bytes | str) -> Any:
    """Parse JSON faster than ``json.loads``, to the same values, at any depth.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return from_json(data)
    except ValueError:  # nested deeper than 200 levels
        return json.loads(data)


def register_vectors(connection: Session, types: Sequence[TypeInfo]) -> None:
    """Register the vector types on a connection from stored facts: a look-up would cost four queries."""
    register = {"vector": register_vector_info, "halfvec": register_halfvec_info}
    for info in types:
        register[info.name](connection, info)
