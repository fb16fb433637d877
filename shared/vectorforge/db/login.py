"""Login to the database: connection strings, the passwords and IAM grants of roles, and made passwords."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from vectorforge.config import DatabaseSettings
from vectorforge.errors import ConfigurationError, InvalidInputError, MigrationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection


def login_passwords(settings: DatabaseSettings) -> dict[str, SecretStr]:
    """Return the passwords of ``LOGIN_ROLES`` in the configured URLs, by role.

    Raises:
        InvalidInputError: A setting is no URL.
    """
    urls = {
        "VECTORFORGE_DATABASE_URL": settings.database_url,
        "VECTORFORGE_LOG_WRITER_DATABASE_URL": settings.log_writer_database_url,
        "VECTORFORGE_ERASER_DATABASE_URL": settings.eraser_database_url,
    }
    passwords = {}
    for variable, url in urls.items():
        if url is None:
            continue
        try:
            parts = urlsplit(url.get_secret_value())
        except ValueError as exc:
            raise InvalidInputError(f"{variable} is not a URL.", field=variable) from exc
        if parts.username in LOGIN_ROLES and parts.password:
            passwords[parts.username] = SecretStr(unquote(parts.password))
    return passwords


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
    """Set new passwords of roles, sent as SCRAM verifiers and never in clear text.

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

    RDS creates that role and accepts nothing but IAM tokens from its members.
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


def parsed(conninfo: str, *, variable: str = "VECTORFORGE_DATABASE_URL") -> dict[str, str]:
    """Return the parameters of a URL or key-value string, by libpq's names.

    Args:
        conninfo: The URL or string.
        variable: Environment variable that holds it, for the error.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    except psycopg.Error as exc:
        raise ConfigurationError(
            f"{variable} is not a URL that PostgreSQL understands. Special characters of its password must "
            "be percent-encoded (% as %25).",
            setting=variable,
        ) from exc


def log_writer_url(settings: DatabaseSettings) -> str:
    """Return the URL of the role that writes logs.

    Raises:
        ConfigurationError: It is not set, or cannot be parsed.
    """
    if settings.log_writer_database_url is None:
        raise ConfigurationError("Set VECTORFORGE_LOG_WRITER_DATABASE_URL to the role that writes logs.")
    url = settings.log_writer_database_url.get_secret_value()
    parsed(url, variable="VECTORFORGE_LOG_WRITER_DATABASE_URL")
    return url


def complete(conninfo: str, *, timeout_s: float) -> str:
    """Return a URL or key-value string with a name, and timeouts for connections and packets, unless set.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    from psycopg.conninfo import make_conninfo

    defaults = {
        "application_name": "vectorforge",
        "connect_timeout": str(max(2, round(timeout_s))),  # libpq raises 1 to 2
        "tcp_user_timeout": str(int(timeout_s * 1000)),
    }
    return make_conninfo(**{**defaults, **parsed(conninfo)})


def with_login(conninfo: str, *, user: str, password: str) -> str:
    """Return the same connection string for this role and password.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    from psycopg.conninfo import make_conninfo

    return make_conninfo(**{**parsed(conninfo), "user": user, "password": password})


def with_host(conninfo: str, *, host: str, port: int | None = None) -> str:
    """Return the same connection string for another host, and another port unless None.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    from psycopg.conninfo import make_conninfo

    kept = {name: value for name, value in parsed(conninfo).items() if name != "hostaddr"}
    return make_conninfo(**{**kept, "host": host, **({} if port is None else {"port": str(port)})})


class PasswordSource(Protocol):
    """Source of connection passwords; called in any thread, for each attempt to connect."""

    makes_tokens: ClassVar[bool]
    """True if the password is an IAM token."""

    def check(self, parameters: Mapping[str, str]) -> None:
        """Check that a connection string, as ``parsed``, cannot lead a password to an impostor.

        Raises:
            ConfigurationError: It can.
        """

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """Return a password for a role at an address, which is the connection string's.

        Raises:
            ConfigurationError: No password can be made, and a retry would not help.
            DatabaseUnavailableError: No password can be made now.
        """

    def renew(self, refused: SecretStr) -> bool:
        """Return True if there is a newer password than the one that a server rejected."""

    def preload(self) -> None:
        """Import what the first call would import; makes no password and connects to nothing."""


def check_conninfo(parameters: Mapping[str, str], *, setting: str, sockets: bool = False) -> None:
    """Check that a connection string cannot lead a made password to an impostor.

    Args:
        parameters: Result of ``parsed``.
        setting: Setting that requires it, for the error.
        sockets: Accept a Unix socket, which the file system protects.

    Raises:
        ConfigurationError: It does not verify whom it sends the password to, has one already, or does not
            name one server and one role.
    """
    host = parameters.get("host", "")
    is_socket = sockets and host.startswith("/")
    faults = {
        "must have sslmode=verify-full": parameters.get("sslmode") != "verify-full" and not is_socket,
        "must hold no password": "password" in parameters,
        "must name the role": not parameters.get("user"),
        "must name one host": not host or "," in host or (host.startswith("/") and not is_socket),
    }
    for text, is_fault in faults.items():
        if is_fault:
            raise ConfigurationError(f"With {setting} a database URL {text}.")


def make_password(source: PasswordSource, conninfo: str) -> SecretStr:
    """Return the password of one connection. May fetch credentials, so do not call it in an event loop.

    Raises:
        ConfigurationError: As ``PasswordSource``, also of its check.
        DatabaseUnavailableError: As ``PasswordSource``.
    """
    parameters = parsed(conninfo)
    source.check(parameters)
    return source(parameters["host"], int(parameters.get("port", "5432")), parameters["user"])


def with_made_password(source: PasswordSource, conninfo: str) -> str:
    """Return a connection string with a password made for one connection instead of its own.

    Raises:
        ConfigurationError: As ``make_password``.
        DatabaseUnavailableError: As ``make_password``.
    """
    from psycopg.conninfo import make_conninfo

    parameters = {name: value for name, value in parsed(conninfo).items() if name != "password"}
    password = make_password(source, make_conninfo(**parameters))
    return make_conninfo(**{**parameters, **password_options(password)})


def password_options(password: SecretStr) -> dict[str, str]:
    """Return a made password as parameters of libpq."""
    # Without gssencmode, Kerberos would come before TLS, and in place of it.
    # https://www.postgresql.org/docs/17/libpq-connect.html#LIBPQ-CONNECT-GSSENCMODE
    return {"password": password.get_secret_value(), "gssencmode": "disable"}
