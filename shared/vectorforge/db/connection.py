"""Connections to PostgreSQL: a pool, from which tenants get theirs."""

import importlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from vectorforge.db import conninfo as connection_strings
from vectorforge.db.connect_failures import ConnectFailures
from vectorforge.db.login import PasswordSource
from vectorforge.db.schema.checks import check_database
from vectorforge.db.tenant_database import Params, run_together
from vectorforge.db.tenant_database import TenantDatabase as TenantDatabase  # belongs to this interface
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.health import ComponentHealth

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from vectorforge.db.connection_cache import ConnectionCache
    from vectorforge.db.session import Session
    from vectorforge.db.wire import Call, Outcome

_WAITING_PER_CONNECTION = 20
"""Requests that may queue for one connection; more are refused at once instead of late."""

_LEFT_WAITING = 100_000
"""Requests in the pool's own queue, where those that have gone stay until there is a connection again."""

_RECONNECT_S = 3.0
"""For how long the pool tries again after a refusal, at growing intervals; the next request begins anew."""

_ATTEMPTS = 4
"""Of statements that may be run twice: when a server fails over, connections die in waves, asked ones too."""

_PING = ""


class Database:
    """The connections of one process to one database, as a role that row-level security applies to.

    Safe behind a transaction pooler (PgBouncer, RDS Proxy): no session settings, no prepared statements, no
    session locks. Belongs to the event loop that opened it.

    Args:
        conninfo: URL or key-value string for libpq.
        pool_size: Most connections at a time.
        timeout_s: Longest wait for a free connection, and for one statement.
        password: Gives the password of each connection; None: the connection string has it, if one is needed.
        pipeline: Send a transaction of one statement at once, in libpq's pipeline mode, where ``open`` finds
            that this is one transaction. Else it takes four round trips.
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
        self._pool: ConnectionCache | None = None
        self._with_tokens = password is not None and password.makes_tokens
        self._refusals = ConnectFailures(with_tokens=self._with_tokens)

    def preload(self) -> None:
        """Import ahead what ``open`` needs; connects to nothing, and makes no password.

        Raises:
            ConfigurationError: As ``open``.
        """
        importlib.import_module("psycopg_pool")
        importlib.import_module("vectorforge.db.session")
        self._complete_conninfo()
        if self._password is not None:
            self._password.preload()

    async def open(self) -> None:
        """Check role and schema, and open the pool. A second call does nothing.

        Raises:
            ConfigurationError: The connection string cannot be parsed, or a password is to be made for it and
                it would not verify the server; or none can be made.
            DatabaseUnavailableError: No connection.
            DatabaseLoginError: The role or its password was refused.
            UntrustedDatabaseError: The server's certificate does not prove that it is the one that was meant.
            UnsafeRoleError: The role is, or can become, one that row-level security does not apply to.
            MigrationError: The schema is missing or behind this version.
        """
        if self._pool is not None:
            return
        from psycopg.types.json import set_json_loads
        from psycopg_pool import AsyncConnectionPool

        from vectorforge.db.connection_cache import ConnectionCache
        from vectorforge.db.session import Session, session_class
        from vectorforge.db.values import read_json, register_vectors

        conninfo = self._complete_conninfo()
        sessions = session_class(self._refusals, self._password)
        timeout_s = self._timeout_s
        # One connection before the pool: a pool reports a refusal only after its timeout, and not why.
        types, together = await check_database(
            partial(sessions.connect, conninfo, **_connection_options()),
            timeout_s=timeout_s,
            with_token=self._with_tokens,
            pipeline=self._pipeline,
        )
        self._is_split = self._pipeline and not together

        async def configure(connection: Session) -> None:
            register_vectors(connection, types)
            set_json_loads(read_json, connection)

        pool = AsyncConnectionPool(
            conninfo,
            connection_class=sessions,
            kwargs=_connection_options(),
            min_size=0,
            max_size=self._pool_size,
            max_waiting=_LEFT_WAITING,
            timeout=timeout_s,
            reconnect_timeout=min(timeout_s, _RECONNECT_S),
            max_idle=300,
            configure=configure,
            open=False,
            name="vectorforge",
        )
        await pool.open()
        self._pool = ConnectionCache(pool, max_waiting=self._pool_size * _WAITING_PER_CONNECTION)

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

    def for_tenant(self, tenant_id: str) -> "TenantDatabase":
        """The same database, as one tenant sees it. Costs nothing.

        Raises:
            InvalidInputError: The tenant is empty, too long, or not text that PostgreSQL can hold.
        """
        return TenantDatabase(self, tenant_id)

    @asynccontextmanager
    async def connection(self) -> "AsyncIterator[Session]":
        """A live connection outside any tenant, on which row-level security shows no rows.

        Raises:
            DatabaseUnavailableError: The database was not opened, or there is no connection in time.
        """
        pool = self._opened()
        connection = await self._live(pool)
        try:
            async with connection:
                yield connection
        finally:
            await pool.give_back(connection)

    async def run(self, calls: "Sequence[Call]", *, repeatable: bool = False) -> "list[Outcome]":
        """Run statements in one transaction and, in pipeline mode, one round trip.

        Args:
            calls: Statements and their values.
            repeatable: Whether running them twice does no more than running them once. Then a connection is
                used without asking first whether it is alive, and if it dies, others are, three at most.

        Returns:
            The outcome of each statement.

        Raises:
            DatabaseUnavailableError: As ``connection``.
            psycopg.Error: A statement failed.
        """
        import psycopg

        pool = self._opened()
        left = _ATTEMPTS if repeatable else 1
        asked = not repeatable
        while True:
            left -= 1
            connection = await self._live(pool, asked=asked)
            try:
                return await run_together(connection, calls, pipeline=self._pipeline and not self._is_split)
            except psycopg.OperationalError:
                if not left or connection.was_cut or not connection.closed:
                    raise
            finally:
                await pool.give_back(connection)
            asked = True

    def _opened(self) -> "ConnectionCache":
        if self._pool is None:
            raise DatabaseUnavailableError("The database connection is not open.")
        return self._pool

    async def _live(self, pool: "ConnectionCache", *, asked: bool = True) -> "Session":
        # The pool's own check sleeps longer after every dead connection it finds, 15 s for five of them; but
        # they die together, when the server is restarted or this process was frozen.
        import psycopg

        give_up_at = time.monotonic() + self._timeout_s
        while True:
            connection = pool.take_kept() or await self._from_pool(pool, give_up_at)
            if not asked and connection.seems_alive():
                connection.timeout_s = self._timeout_s
                return connection
            try:
                connection.timeout_s = max(give_up_at - time.monotonic(), 0.0)
                await connection.execute(_PING)
            except psycopg.Error:
                await connection.close()
                await pool.give_back(connection)  # which replaces it
            except BaseException:
                await pool.give_back(connection)
                raise
            else:
                connection.timeout_s = self._timeout_s
                return connection

    async def _from_pool(self, pool: "ConnectionCache", give_up_at: float) -> "Session":
        from psycopg_pool import PoolTimeout

        try:
            async with self._refusals.watched():
                return await pool.take(give_up_at - time.monotonic())
        except PoolTimeout as exc:
            raise self._refusals.too_late() from exc

    async def fetch_untenanted(self, query: str, params: Params = ()) -> "DictRow | None":
        """The first row of a statement that belongs to no tenant; row-level security shows it no data.

        Raises:
            As ``TenantDatabase.transaction``.
        """
        from vectorforge.db.session import translated_errors

        with translated_errors():
            async with self.connection() as connection:
                row: DictRow | None = await (await connection.execute(query.encode(), params)).fetchone()
                return row

    async def health(self) -> ComponentHealth:
        """Whether a statement can be run now."""
        from vectorforge.db.session import translated_errors

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
        """How transactions of one statement are sent, which ``open`` has found out; asks nobody."""
        if self._is_split:
            detail = "BEGIN and COMMIT: a proxy splits statements that are sent at once"
        else:
            detail = "one round trip" if self._pipeline else "BEGIN and COMMIT, as set"
        return ComponentHealth("database.transactions", healthy=True, detail=detail)

    def _complete_conninfo(self) -> str:
        conninfo = connection_strings.complete(self._conninfo, timeout_s=self._timeout_s)
        if self._password is not None:
            self._password.check(connection_strings.parsed(conninfo))
        return conninfo


def _connection_options() -> dict[str, Any]:
    from psycopg.rows import dict_row

    # prepare_threshold: a pooler may send the next execution to a backend that did not prepare it
    return {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}
