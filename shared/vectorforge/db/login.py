"""Passwords that stand in no URL: made for one connection, as RDS's IAM tokens are, or kept elsewhere."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from pydantic import SecretStr

from vectorforge.db.conninfo import parsed
from vectorforge.errors import ConfigurationError

_DEFAULT_PORT = "5432"


class PasswordSource(Protocol):
    """Gives the password of one connection; called in any thread, anew for each attempt to connect."""

    makes_tokens: ClassVar[bool]
    """Whether it is a token of IAM."""

    def check(self, parameters: Mapping[str, str]) -> None:
        """Whether a password may be sent where a connection string leads, which may be an impostor.

        Args:
            parameters: As ``conninfo.parsed`` gives them.

        Raises:
            ConfigurationError: It may not.
        """

    def __call__(self, host: str, port: int, user: str) -> SecretStr:
        """A password for a role at an address.

        Args:
            host: Name of the server, as the connection string has it.
            port: Its port.
            user: The role that logs in.

        Raises:
            ConfigurationError: None can be made, and waiting would not help.
            DatabaseUnavailableError: None can be made now.
        """

    def renew(self, refused: SecretStr) -> bool:
        """Whether there is another password now than one that a server refused. May ask for it.

        Args:
            refused: What was given before.
        """

    def preload(self) -> None:
        """Import what the first call would import; makes no password and connects to nothing."""


def check_conninfo(parameters: Mapping[str, str], *, setting: str, sockets: bool = False) -> None:
    """Whether passwords may be made for a connection string: an impostor could use what he is sent.

    Args:
        parameters: As ``conninfo.parsed`` gives them.
        setting: What asks for it, for the error.
        sockets: Whether it may lead to a Unix socket, of which the file system says whose it is.

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
    found = next((text for text, is_fault in faults.items() if is_fault), None)
    if found is not None:
        raise ConfigurationError(f"With {setting} a database URL {found}.")


def make_password(source: PasswordSource, conninfo: str) -> SecretStr:
    """The password of one connection. May fetch credentials: not for an event loop's thread.

    Raises:
        ConfigurationError: As ``PasswordSource``, also of its check.
        DatabaseUnavailableError: As ``PasswordSource``.
    """
    parameters = parsed(conninfo)
    source.check(parameters)
    return source(parameters["host"], int(parameters.get("port", _DEFAULT_PORT)), parameters["user"])


def with_made_password(source: PasswordSource, conninfo: str) -> str:
    """A connection string with a password that is made for one connection, in place of its own.

    Raises:
        ConfigurationError: As ``make_password``.
        DatabaseUnavailableError: As ``make_password``.
    """
    from psycopg.conninfo import make_conninfo

    parameters = {name: value for name, value in parsed(conninfo).items() if name != "password"}
    password = make_password(source, make_conninfo(**parameters))
    return make_conninfo(**{**parameters, **password_options(password)})


def password_options(password: SecretStr) -> dict[str, str]:
    """A made password as parameters of libpq."""
    # Without gssencmode, Kerberos would come before TLS, and in place of it.
    # https://www.postgresql.org/docs/17/libpq-connect.html#LIBPQ-CONNECT-GSSENCMODE
    return {"password": password.get_secret_value(), "gssencmode": "disable"}
