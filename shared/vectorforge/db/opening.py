"""Opening of a database: log-in of connections, checks of schema, role and transactions, and the pool.

Imports the driver; ``connection`` imports this module when a database is opened.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types import TypeInfo
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool

from vectorforge.db.errors import ConnectFailures, connect_error, is_refused, translated_errors
from vectorforge.db.login import PasswordSource, make_password, password_options
from vectorforge.db.schema.migrate import read_migrations
from vectorforge.db.session import Session, parse_json
from vectorforge.db.statements import PreparedStatements, is_direct
from vectorforge.errors import DatabaseUnavailableError, MigrationError, UnsafeRoleError, VectorForgeError

logger = logging.getLogger(__name__)

_LEFT_WAITING = 100_000
"""Bound of the pool's own queue, where ended requests stay until there is a connection again."""

_RECONNECT_S = 3.0
"""Seconds for which the pool retries after a refusal, at growing intervals; the next request starts over."""

_CONNECTION_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": None,  # see statements: a pooler may send the next execution to another backend
    "row_factory": dict_row,
}
_ENTER = "SELECT vectorforge.enter_tenant(%s)"
_READ = "SELECT current_setting('vectorforge.tenant', true) AS tenant"
_SCHEMA_VERSION = "SELECT max(version) AS version FROM vectorforge.schema_migrations"
_SCHEMA_EXISTS = "SELECT to_regclass('vectorforge.schema_migrations') IS NOT NULL AS present"

# The login role and the current role, each with every role that it can become.
_UNSAFE_ROLE = """
SELECT r.rolsuper AS superuser, r.rolbypassrls AS bypasses,
       EXISTS (
           SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = 'vectorforge' AND c.relowner = r.oid
       ) AS owner
FROM pg_roles r
WHERE (pg_has_role(session_user, r.oid, 'MEMBER') OR pg_has_role(current_user, r.oid, 'MEMBER'))
ORDER BY r.rolsuper DESC, r.rolbypassrls DESC, owner DESC
LIMIT 1
"""


async def opened_pool(
    conninfo: str,
    *,
    pool_size: int,
    timeout_s: float,
    failures: ConnectFailures,
    password: PasswordSource | None,
    pipeline: bool,
) -> tuple[AsyncConnectionPool[Session], bool]:
    """Check schema, role and transactions; return an open pool, and True if it can use pipeline mode.

    Arguments and errors are those of ``Database`` and ``Database.open``; ``conninfo`` is complete, and
    ``failures`` is notified when an attempt to connect fails or succeeds.
    """
    sessions = _session_class(failures, password)

    async def connect() -> Session:
        session: Session = await sessions.connect(conninfo, **_CONNECTION_OPTIONS)
        session.timeout_s = timeout_s
        return session

    # One connection before the pool: a pool reports a refusal only after its timeout, without the reason.
    try:
        connection = await connect()
    except psycopg.OperationalError as exc:
        raise connect_error(exc, conninfo, with_token=failures.with_tokens) from exc
    with translated_errors():
        async with connection:
            await check_schema(connection)
            await check_role(connection)
            # Stored for every connection of the pool, where a look-up would cost four queries each.
            vector = await TypeInfo.fetch(connection, "vector")
            halfvec = await TypeInfo.fetch(connection, "halfvec")
            direct = await is_direct(connection)
            together = await check_transactions(connection, connect, pipeline=pipeline)

    async def configure(session: Session) -> None:
        if direct:
            session.prepared = PreparedStatements()
        set_json_loads(parse_json, session)
        if vector is not None:
            register_vector_info(session, vector)
        if halfvec is not None:
            register_halfvec_info(session, halfvec)

    pool = _new_pool(conninfo, sessions, pool_size, timeout_s, configure)
    await pool.open()
    return pool, together


def _new_pool(
    conninfo: str,
    sessions: type[Session],
    max_size: int,
    timeout_s: float,
    configure: Callable[[Session], Awaitable[None]],
) -> AsyncConnectionPool[Session]:
    pool = AsyncConnectionPool(
        conninfo,
        connection_class=sessions,
        kwargs=_CONNECTION_OPTIONS,
        min_size=0,
        max_size=max_size,
        max_waiting=_LEFT_WAITING,
        timeout=timeout_s,
        reconnect_timeout=min(timeout_s, _RECONNECT_S),
        max_idle=300,
        configure=configure,
        open=False,
        name="vectorforge",
    )
    pool._pool = _LastUsedFirst()  # noqa: SLF001 - no option of the pool; docs/decisions/database.md
    return pool


class _LastUsedFirst(deque[Session]):
    """Idle connections, the one used last first: its backend has the statements and warm caches."""

    append = deque.appendleft


async def check_schema(connection: AsyncConnection[DictRow]) -> None:
    """Check that the schema is at least this version's; a newer schema also serves this version.

    Raises:
        MigrationError: The schema is missing or outdated.
    """
    wanted = read_migrations()[-1].version
    row = await (await connection.execute(_SCHEMA_EXISTS)).fetchone()
    if not row or not row["present"]:
        raise MigrationError("The database has no VectorForge schema; run `vectorforge migrate`.")
    row = await (await connection.execute(_SCHEMA_VERSION)).fetchone()
    version = (row and row["version"]) or 0
    if version < wanted:
        raise MigrationError(
            f"The database schema has version {version}, but this release needs {wanted}; "
            "run `vectorforge migrate`."
        )


async def check_role(connection: AsyncConnection[DictRow]) -> None:
    """Check that row-level security applies to this connection's role, and to every role it can become.

    Raises:
        UnsafeRoleError: It does not; the message names the role to use.
    """
    row = await (await connection.execute(_UNSAFE_ROLE)).fetchone()
    if row is None:
        return
    if row["superuser"]:
        reason = "is a superuser or can become one"
    elif row["bypasses"]:
        reason = "has BYPASSRLS or can gain it"
    elif row["owner"]:
        reason = "owns the tables or is a member of their owner"
    else:
        return
    raise UnsafeRoleError(
        f"The database role {reason}, so row-level security would not separate tenants. "
        "Connect as vectorforge_app (VECTORFORGE_DATABASE_URL); `vectorforge migrate` creates that role."
    )


def _session_class(failures: ConnectFailures, password: PasswordSource | None) -> type[Session]:
    """Return the class of connections that log in to one database."""

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
