"""How the roles that log in are let in: by a password each, or by tokens of IAM."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from vectorforge.errors import MigrationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

LOGIN_ROLES = ("vectorforge_app", "vectorforge_log_writer", "vectorforge_eraser")

_NOT_LET_IN = """
SELECT login.rolname
FROM pg_catalog.pg_roles login, pg_catalog.pg_roles iam
WHERE iam.rolname = 'rds_iam' AND login.rolname = ANY (%s)
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = iam.oid AND m.member = login.oid
  )
ORDER BY login.rolname
"""


async def set_passwords(connection: "AsyncConnection[Any]", passwords: Mapping[str, SecretStr]) -> None:
    """Give roles new passwords; sent as SCRAM verifiers, never as they are.

    Raises:
        MigrationError: A role is not one of ``LOGIN_ROLES``, or the server did not accept its password.
    """
    from psycopg import Error, sql

    for role, password in passwords.items():
        if role not in LOGIN_ROLES:
            raise MigrationError(f"{role} is not a login role of VectorForge.")
        verifier = connection.pgconn.encrypt_password(
            password.get_secret_value().encode(), role.encode(), b"scram-sha-256"
        )
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), verifier.decode())
        try:
            await connection.execute(statement)
        except Error as exc:
            raise MigrationError(f"The password of {role} was not accepted.") from exc


async def let_in_with_tokens(connection: "AsyncConnection[Any]") -> None:
    """Grant ``rds_iam`` to those of ``LOGIN_ROLES`` that lack it; nothing where there is no such role.

    RDS makes that role, and takes tokens of IAM from its members, and nothing else from them.
    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.DBAccounts.html

    Raises:
        MigrationError: The connection's role may not grant it.
    """
    from psycopg import Error, sql

    for role in await _not_let_in(connection):
        try:
            await connection.execute(sql.SQL("GRANT rds_iam TO {}").format(sql.Identifier(role)))
        except Error as exc:
            if role in await _not_let_in(connection):  # else the migrator of another database was faster
                raise MigrationError(f"rds_iam could not be granted to {role}.") from exc


async def _not_let_in(connection: "AsyncConnection[Any]") -> list[str]:
    cursor = await connection.execute(_NOT_LET_IN.encode(), [list(LOGIN_ROLES)])
    return [role for (role,) in await cursor.fetchall()]
