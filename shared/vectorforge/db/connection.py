"""Connections of one process to PostgreSQL: a pool, opened after role and schema are checked."""

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Self

from vectorforge.db.errors import ConnectFailures, translated_errors
from vectorforge.db.login import PasswordSource, complete, parsed
from vectorforge.db.tenant_database import Call, Outcome, Params, TenantDatabase
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.health import ComponentHealth

if TYPE_CHECKING:
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool

    from vectorforge.db.session import Session

_WAITING_PER_CONNECTION = 20
"""Requests that may queue per connection; more are rejected at once instead of late."""

_ATTEMPTS = 4
"""Attempts of repeatable statements: in a failover connections die in waves, checked ones too."""

_PING = ""


class Database:
    """Connections of one process to one database, as a role that row-level security applies to.

    Safe behind a transaction pooler (PgBouncer, RDS Proxy): no session settings, no prepared statements, no
    session locks. Belongs to the event loop that opened it.

    Args:
        conninfo: URL or key-value string for libpq.
        pool_size: Maximum number of connections.
        timeout_s: Longest wait for a free connection, and for one statement.
        password: Source of each connection's password; None if the connection string has it or needs none.
        pipeline: Send the statements of a transaction at once, in libpq's pipeline mode, if ``open`` finds
            that they stay one transaction. Otherwise one statement takes four round trips.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        pool_size: int = 10,
        timeout_s: float = 10.0,
        password: PasswordSource | None = None,
        pipeline: bool = True,
    ) -> None:
        self._pipeline = pipeline
        self._is_split = False
        self._conninfo = conninfo
        self._pool_size = pool_size
        self._timeout_s = timeout_s
        self._password = password
        self._pool: AsyncConnectionPool[Session] | None = None
        self._opening = asyncio.Lock()
        self._waiting = 0
        self._failures = ConnectFailures(with_tokens=password is not None and password.makes_tokens)

    def preload(self) -> None:
        """Import what ``open`` needs; connects to nothing and makes no password.

        Raises:
            ConfigurationError: As ``open``.
        """
        importlib.import_module("vectorforge.db.opening")
        self._complete_conninfo()
        if self._password is not None:
            self._password.preload()

    async def open(self) -> None:
        """Check role and schema, and open the pool. Further calls do nothing, or wait for the first.

        Raises:
            ConfigurationError: The connection string cannot be parsed, or no password can be made for it, or
                it would go to an unverified server.
            DatabaseUnavailableError: No connection.
            DatabaseLoginError: The role or its password was refused.
            UntrustedDatabaseError: The server's certificate does not prove its identity.
            UnsafeRoleError: The role is, or can become, one that bypasses row-level security.
            MigrationError: The schema is missing or behind this version.
        """
        from vectorforge.db.opening import opened_pool

        async with self._opening:  # else two calls would open two pools
            if self._pool is not None:
                return
            self._pool, together = await opened_pool(
                self._complete_conninfo(),
                pool_size=self._pool_size,
                timeout_s=self._timeout_s,
                failures=self._failures,
                password=self._password,
                pipeline=self._pipeline,
            )
            self._is_split = self._pipeline and not together

    async def close(self) -> None:
        """Close every connection; ``open`` may be called again."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def for_tenant(self, tenant_id: str) -> TenantDatabase:
        """Return the database restricted to one tenant. Costs nothing.

        Raises:
            InvalidInputError: The tenant is empty, too long, or not text that PostgreSQL can hold.
        """
        return TenantDatabase(self, tenant_id)

    @asynccontextmanager
    async def connection(self) -> "AsyncIterator[Session]":
        """Provide a live connection outside any tenant, on which row-level security shows no rows.

        Raises:
            DatabaseUnavailableError: The database is not open, or no connection is free in time.
        """
        pool = self._opened()
        connection = await self._live(pool)
        try:
            async with connection:
                yield connection
        finally:
            await pool.putconn(connection)

    async def run(self, calls: Sequence[Call], *, repeatable: bool = False) -> list[Outcome]:
        """Run statements in one transaction and, in pipeline mode, one round trip.

        Args:
            calls: Statements and their parameters.
            repeatable: Running them twice has the same effect as once. Then a connection is used without
                checking it first, and if it dies, the statements are retried on up to three others.

        Returns:
            The outcome of each statement.

        Raises:
            DatabaseUnavailableError: As ``connection``.
            psycopg.Error: A statement failed.
        """
        import psycopg

        pool = self._opened()
        attempts = _ATTEMPTS if repeatable else 1
        checked = not repeatable
        while True:
            attempts -= 1
            connection = await self._live(pool, checked=checked)
            try:
                return await connection.run(calls, pipeline=self._pipeline and not self._is_split)
            except psycopg.OperationalError:
                if not attempts or connection.was_cut or not connection.closed:
                    raise
            finally:
                await pool.putconn(connection)
            checked = True

    def _opened(self) -> "AsyncConnectionPool[Session]":
        if self._pool is None:
            raise DatabaseUnavailableError("The database connection is not open.")
        return self._pool

    async def _live(self, pool: "AsyncConnectionPool[Session]", *, checked: bool = True) -> "Session":
        # The pool's own check sleeps longer after every dead connection, 15 s for five of them; but they die
        # together, when the server restarts or this process was frozen.
        import psycopg

        give_up_at = time.monotonic() + self._timeout_s
        while True:
            connection = await self._from_pool(pool, give_up_at)
            if not checked and connection.seems_alive():
                connection.timeout_s = self._timeout_s
                return connection
            try:
                connection.timeout_s = max(give_up_at - time.monotonic(), 0.0)
                await connection.execute(_PING)
            except psycopg.Error:
                await connection.close()
                await pool.putconn(connection)  # the pool replaces it
            except BaseException:
                await pool.putconn(connection)
                raise
            else:
                connection.timeout_s = self._timeout_s
                return connection

    async def _from_pool(self, pool: "AsyncConnectionPool[Session]", give_up_at: float) -> "Session":
        from psycopg_pool import PoolTimeout, TooManyRequests

        # The pool's own bound counts ended requests as well: after an outage it would reject everything.
        if self._waiting >= self._pool_size * _WAITING_PER_CONNECTION:
            raise TooManyRequests(f"{self._waiting} requests are waiting already")
        is_idle = pool.get_stats()["pool_available"] > 0
        self._waiting += 1
        try:
            async with nullcontext() if is_idle else self._failures.watched():
                return await _assigned(pool, give_up_at - time.monotonic())
        except PoolTimeout as exc:
            raise self._failures.too_late() from exc
        finally:
            self._waiting -= 1

    async def fetch_untenanted(self, query: str, params: Params = ()) -> "DictRow | None":
        """Return the first row of a statement outside any tenant; row-level security shows it no data.

        Raises:
            As ``TenantDatabase.transaction``.
        """
        with translated_errors():
            async with self.connection() as connection:
                row: DictRow | None = await (await connection.execute(query.encode(), params)).fetchone()
                return row

    async def health(self) -> ComponentHealth:
        """Run an empty statement."""
        started = time.perf_counter()
        detail = ""
        try:
            with translated_errors():
                async with self.connection() as connection:
                    await connection.execute(_PING)
        except DatabaseUnavailableError as exc:
            detail = exc.message
        return ComponentHealth("database", not detail, detail, (time.perf_counter() - started) * 1000)

    def transaction_health(self) -> ComponentHealth:
        """Report how transactions are sent, as ``open`` found; sends nothing."""
        if self._is_split:
            detail = "BEGIN and COMMIT: a proxy splits statements that are sent at once"
        else:
            detail = "one round trip" if self._pipeline else "BEGIN and COMMIT, as set"
        return ComponentHealth("database.transactions", healthy=True, detail=detail)

    def _complete_conninfo(self) -> str:
        conninfo = complete(self._conninfo, timeout_s=self._timeout_s)
        if self._password is not None:
            self._password.check(parsed(conninfo))
        return conninfo


async def _assigned(pool: "AsyncConnectionPool[Session]", timeout_s: float) -> "Session":
    """Return a connection of the pool, unless the caller was canceled.

    The pool drops a cancellation that comes as it assigns a connection, and the caller would go on after its
    deadline (https://github.com/psycopg/psycopg/issues/1345).
    """
    caller = asyncio.current_task()
    cancellations = caller.cancelling() if caller else 0
    connection = await pool.getconn(timeout=timeout_s)
    if caller and caller.cancelling() > cancellations:
        await pool.putconn(connection)
        raise asyncio.CancelledError
    return connection
