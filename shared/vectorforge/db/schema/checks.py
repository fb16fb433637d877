"""Checks of a database before the app uses it: schema version, role and transactions."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from vectorforge.db.errors import connect_error, translated_errors
from vectorforge.db.schema.migrate import read_migrations
from vectorforge.errors import MigrationError, UnsafeRoleError

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow
    from psycopg.types import TypeInfo

    from vectorforge.db.session import Session

    class TransactionCheck(Protocol):
        """Proof that the statements of a transaction stay together; True for pipeline mode."""

        async def __call__(
            self, session: Session, connect: Callable[[], Awaitable[Session]], *, pipeline: bool
        ) -> bool:
            """As ``db.session.check_transactions``."""
            ...


_SCHEMA_VERSION = "SELECT max(version) AS version FROM vectorforge.schema_migrations"
_SCHEMA_EXISTS = "SELECT to_regclass('vectorforge.schema_migrations') IS NOT NULL AS found"

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


async def check_database(
    connect: "Callable[[], Awaitable[Session]]",
    check_transactions: "TransactionCheck",
    *,
    timeout_s: float,
    with_token: bool,
    pipeline: bool,
) -> "tuple[list[TypeInfo], bool]":
    """Connect and check schema, role and transactions.

    Args:
        connect: Opens a connection.
        check_transactions: ``db.session.check_transactions``, whose module loads the driver.
        timeout_s: Longest wait for one statement.
        with_token: True if the password is an IAM token.
        pipeline: Use pipeline mode if it keeps the statements of a transaction together.

    Returns:
        The vector types of this database, and True if pipeline mode can be used.

    Raises:
        DatabaseUnavailableError: No connection; see ``connect_error`` for its kinds. Or as
            ``check_transactions``.
        MigrationError: As ``check_schema``.
        UnsafeRoleError: As ``check_role``.
    """
    import psycopg
    from psycopg.types import TypeInfo

    async def connected() -> "Session":
        session = await connect()
        session.timeout_s = timeout_s
        return session

    try:
        connection = await connected()
    except psycopg.OperationalError as exc:
        raise connect_error(exc, with_token=with_token) from exc
    with translated_errors():
        async with connection:
            await check_schema(connection)
            await check_role(connection)
            found = [await TypeInfo.fetch(connection, name) for name in ("vector", "halfvec")]
            together = await check_transactions(connection, connected, pipeline=pipeline)
        return [info for info in found if info is not None], together


async def check_schema(connection: "AsyncConnection[DictRow]") -> None:
    """Check that the schema is at least this version's; a newer schema also serves this version.

    Raises:
        MigrationError: The schema is missing or outdated.
    """
    wanted = read_migrations()[-1].version
    found = await (await connection.execute(_SCHEMA_EXISTS)).fetchone()
    if not found or not found["found"]:
        raise MigrationError("The database has no VectorForge schema; run `vectorforge migrate`.")
    row = await (await connection.execute(_SCHEMA_VERSION)).fetchone()
    version = (row and row["version"]) or 0
    if version < wanted:
        raise MigrationError(
            f"The database schema has version {version}, but this release needs {wanted}; "
            "run `vectorforge migrate`."
        )


async def check_role(connection: "AsyncConnection[DictRow]") -> None:
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
