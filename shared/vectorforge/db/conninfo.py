"""Connection strings: what is added to the user's own, and what the driver's failures to connect mean."""

import re

from vectorforge.errors import (
    ConfigurationError,
    DatabaseLoginError,
    DatabaseUnavailableError,
    UntrustedDatabaseError,
)

# What libpq, RDS and RDS Proxy say, since the driver has no codes for failures to connect; and what to do.
_UNTRUSTED = {
    r"does not match host name": (
        "The database's certificate is for another host name. The database URL must name the server as its "
        "certificate does: on AWS by the endpoint of the proxy or instance, not by an alias or address."
    ),
    r"root certificate file .* does not exist|could not read root certificate file": (
        "The file of root certificates is not there or cannot be read; see sslrootcert in the database URL. "
        "On Lambda such files are in /var/task/certificates."
    ),
    r"certificate verify failed": (
        "The database's certificate has expired, or no authority in the file that sslrootcert in the "
        "database URL names has signed it."
    ),
    r"server does not support SSL|SSL required|no pg_hba\.conf entry .* no encryption": (
        "The database URL and the server do not agree about TLS; see sslmode in the database URL, and "
        "whether the server takes TLS."
    ),
}
_REFUSED = re.compile(
    r"authentication failed|no password supplied|has no credentials for the role"
    r"|role \".*\" (does not exist|is not permitted to log in)"
)
_WRONG_ROLE = (
    "The database refused the role or password; `vectorforge migrate` makes the roles, with the passwords of "
    "the database URLs."
)
_WRONG_ROLE_WITH_IAM = (
    "The database refused the role or its IAM token. Allow this process rds-db:connect for the role, and "
    "migrate with VECTORFORGE_DATABASE_AUTH=iam, which grants rds_iam to the role."
)


def parsed(conninfo: str) -> dict[str, str]:
    """The parameters of a URL or key-value string, by libpq's names.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    except psycopg.Error as exc:
        raise ConfigurationError("The database URL is not one that PostgreSQL understands.") from exc


def complete(conninfo: str, *, timeout_s: float) -> str:
    """The same connection string with timeouts and a name for the server's logs, unless it has its own.

    Args:
        conninfo: URL or key-value string.
        timeout_s: Longest wait for a connection, and for a packet to be acknowledged.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    from psycopg.conninfo import make_conninfo

    defaults = {
        "application_name": "vectorforge",
        "connect_timeout": str(max(2, round(timeout_s))),  # libpq takes 1 for 2
        "tcp_user_timeout": str(int(timeout_s * 1000)),
    }
    return make_conninfo(**{**defaults, **parsed(conninfo)})


def with_login(conninfo: str, *, user: str, password: str) -> str:
    """The same connection string for this role and password.

    Raises:
        ConfigurationError: It cannot be parsed.
    """
    from psycopg.conninfo import make_conninfo

    return make_conninfo(**{**parsed(conninfo), "user": user, "password": password})


def is_refused(failure: Exception) -> bool:
    """Whether the server took neither the role nor the password, by the driver's text."""
    return _REFUSED.search(str(failure)) is not None


def connect_error(failure: Exception, *, with_token: bool = False) -> DatabaseUnavailableError:
    """What a failure to connect means and what to do about it. The driver's text is read, and not copied.

    Args:
        failure: As the driver raised it.
        with_token: Whether the password was a token of IAM.
    """
    text = str(failure)
    for pattern, advice in _UNTRUSTED.items():
        if re.search(pattern, text):
            return UntrustedDatabaseError(advice)
    if is_refused(failure):
        return DatabaseLoginError(_WRONG_ROLE_WITH_IAM if with_token else _WRONG_ROLE)
    return DatabaseUnavailableError(
        "The database cannot be reached, or it refused the role or password "
        "(roles are made by `vectorforge migrate`)."
    )
