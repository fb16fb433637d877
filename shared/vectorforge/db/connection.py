"""Connections to PostgreSQL: a pool, and the only way to data, which is with a tenant."""

import importlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from vectorforge.db import conninfo as connection_strings
from vectorforge.db.checks import check_database
from vectorforge.db.login import PasswordSource, check_conninfo
from vectorforge.db.refusals import Refusals
from vectorforge.db.tenant_id import checked_tenant
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.health import ComponentHealth

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool

    from vectorforge.db.session import Session

Params = Sequence[Any] | Mapping[str, Any]

_WAITING_PER_CONNECTION = 20
"""Requests that may queue for one connection; more are refused at once instead of late."""

_RECONNECT_S = 3.0
"""For how long the pool tries again after a refusal, at growing intervals; the next request begins anew."""

_ENTER_TENANT = "SELECT vectorforge.enter_tenant(%s)"
_ENTER_SEARCH = "SELECT vectorforge.enter_search(%s, %s)"
_PING = ""


class Database:
    """The connections of one process to one database, as a role that row-level security applies to.

    Safe behind a transaction pooler (PgBouncer, RDS Proxy): no session settings, no prepared statements, no
    session locks. Belongs to the event loop that opened it.

    Args:
        conninfo: URL or key-value string for libpq.
        pool_size: Most connections at a time.
        timeout_s: Longest wait for a free connection, and for one statement.
        password: Makes a password for each connection; None: the connection string has it, if one is needed.
        pipeline: Whether a transaction of one statement is sent at once, in libpq's pipeline mode. Else it
            takes four round trips, for a proxy that cannot do that.
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
        self.pipeline = pipeline
        self._conninfo = conninfo
        self._pool_size = pool_size
        self._timeout_s = timeout_s
        self._password = password
        self._pool: AsyncConnectionPool[Session] | None = None
        self._refusals = Refusals(with_tokens=password is not None)

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
        from psycopg_pool import AsyncConnectionPool

        from vectorforge.db.session import Session, session_class
        from vectorforge.db.vector_types import register_vectors

        conninfo = self._complete_conninfo()
        sessions = session_class(self._refusals, self._password)
        timeout_s = self._timeout_s
        # One connection before the pool: a pool reports a refusal only after its timeout, and not why.
        types = await check_database(
            partial(sessions.connect, conninfo, **_connection_options()),
            timeout_s=timeout_s,
            with_token=self._password is not None,
        )

        async def configure(connection: Session) -> None:
            register_vectors(connection, types)

        pool = AsyncConnectionPool(
            conninfo,
            connection_class=sessions,
            kwargs=_connection_options(),
            min_size=0,
            max_size=self._pool_size,
            max_waiting=self._pool_size * _WAITING_PER_CONNECTION,
            timeout=timeout_s,
            reconnect_timeout=min(timeout_s, _RECONNECT_S),
            max_idle=300,
            configure=configure,
            open=False,
            name="vectorforge",
        )
        await pool.open()
        self._pool = pool

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
        """The same database, as one tenant sees it. Costs nothing; made per request.

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
        if self._pool is None:
            raise DatabaseUnavailableError("The database connection is not open.")
        pool = self._pool
        connection = await self._live(pool)
        try:
            async with connection:
                yield connection
        finally:
            await pool.putconn(connection)

    async def _live(self, pool: "AsyncConnectionPool[Session]") -> "Session":
        # The pool's own check sleeps longer after every dead connection it finds, 15 s for five of them; but
        # they die together, when the server is restarted or this process was frozen.
        import psycopg
        from psycopg_pool import PoolTimeout

        give_up_at = time.monotonic() + self._timeout_s
        while True:
            try:
                async with self._refusals.watched():
                    connection = await pool.getconn(timeout=give_up_at - time.monotonic())
            except PoolTimeout as exc:
                raise self._refusals.too_late() from exc
            try:
                connection.timeout_s = max(give_up_at - time.monotonic(), 0.0)
                await connection.execute(_PING)
            except psycopg.Error:
                await connection.close()
                await pool.putconn(connection)  # which replaces it
            except BaseException:
                await pool.putconn(connection)
                raise
            else:
                connection.timeout_s = self._timeout_s
                return connection

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

    def _complete_conninfo(self) -> str:
        conninfo = connection_strings.complete(self._conninfo, timeout_s=self._timeout_s)
        if self._password is not None:
            check_conninfo(connection_strings.parsed(conninfo))
        return conninfo


class TenantDatabase:
    """A database as one tenant sees it: every transaction enters the tenant first.

    Statements carry the predicate ``tenant_id = %s`` as well, so that two mistakes are needed for a leak.
    """

    def __init__(self, database: Database, tenant_id: str) -> None:
        self._database = database
        self.tenant_id = checked_tenant(tenant_id)

    @asynccontextmanager
    async def transaction(self) -> "AsyncIterator[AsyncConnection[DictRow]]":
        """A transaction of this tenant; committed at the end, rolled back if the body raises.

        Raises:
            DatabaseUnavailableError: No connection, or it was lost.
            InvalidInputError: A value that PostgreSQL cannot store.
            DatabaseError: The database refused a statement.
        """
        from vectorforge.db.session import translated_errors

        with translated_errors():
            async with self._database.connection() as connection, connection.transaction():
                await connection.execute(_ENTER_TENANT, (self.tenant_id,))
                yield connection

    async def fetch_all(
        self, query: str, params: Params = (), *, ef_search: int | None = None
    ) -> "list[DictRow]":
        """Run one statement in a transaction of its own, in one round trip; all its rows.

        Args:
            query: The statement.
            params: Its values.
            ef_search: For a search through an HNSW index: the candidates it keeps in sight, 1 to 1,000.

        Raises:
            As ``transaction``.
        """
        rows, _ = await self._run(query, params, rows=True, ef_search=ef_search)
        return rows

    async def fetch_one(self, query: str, params: Params = ()) -> "DictRow | None":
        """Like ``fetch_all``; the first row, or None if there is none."""
        rows = await self.fetch_all(query, params)
        return rows[0] if rows else None

    async def execute(self, query: str, params: Params = ()) -> int:
        """Like ``fetch_all``, for a statement without rows; how many rows it changed."""
        _, count = await self._run(query, params, rows=False)
        return count

    async def _run(
        self, query: str, params: Params, *, rows: bool, ef_search: int | None = None
    ) -> "tuple[list[DictRow], int]":
        from vectorforge.db.session import translated_errors

        with translated_errors():
            async with self._database.connection() as connection:
                async with _at_once(connection) if self._database.pipeline else connection.transaction():
                    if ef_search is None:
                        await connection.execute(_ENTER_TENANT, (self.tenant_id,))
                    else:
                        await connection.execute(_ENTER_SEARCH, (self.tenant_id, ef_search))
                    cursor = await connection.execute(query.encode(), params)
                return (await cursor.fetchall() if rows else []), cursor.rowcount


@asynccontextmanager
async def _at_once(connection: "AsyncConnection[DictRow]") -> AsyncIterator[None]:
    """A transaction whose statements are all sent before the first answer is read."""
    async with connection.pipeline():
        await connection.execute("BEGIN")
        yield
        await connection.execute("COMMIT")


def _connection_options() -> dict[str, Any]:
    from psycopg.rows import dict_row

    # prepare_threshold: a pooler may send the next execution to a backend that did not prepare it
    return {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}
