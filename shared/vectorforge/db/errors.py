"""The driver's errors translated into ours: failures to connect, and SQLSTATEs of statements.

Imports the driver only when there is an error to translate.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from vectorforge.errors import (
    AuthenticationError,
    DatabaseError,
    DatabaseLoginError,
    DatabaseUnavailableError,
    InvalidInputError,
    RefusedRowError,
    TenantBeingErasedError,
    UntrustedDatabaseError,
    VectorForgeError,
)

WRONG_KEY = "The API key is not valid."
"""The same text for every invalid key, so that it does not reveal which keys once existed."""

_UNSTORABLE = (None, "22P02", "22P05", "22003", "22021")
"""SQLSTATEs of values that text, jsonb or a number cannot hold; None if the driver rejects them itself."""
_REFUSED_CLASSES = ("22", "23")
"""SQLSTATE classes of data exceptions and violated constraints, the only ones caused by the values given.
https://www.postgresql.org/docs/17/errcodes-appendix.html"""
_BEING_ERASED = "VF001"
"""Our own SQLSTATE: ``vectorforge.enter_tenant`` rejects a tenant that is being erased."""
_INVALID_KEY = "VF002"
"""Our own SQLSTATE: ``vectorforge.check_keys`` finds a key that is revoked or expired."""
_DISK_FULL = "53100"
_READ_ONLY = "25006"
"""The server became a replica; a new connection may reach its successor."""

# Texts of libpq, RDS and RDS Proxy, since the driver has no codes for failures to connect, with our advice.
_UNTRUSTED = {
    r"does not match host name": (
        "The database's certificate is for another host name. The database URL must name the server as its "
        "certificate does: on AWS by the endpoint of the proxy or instance, not by an alias or address."
    ),
    r"root certificate file .* does not exist|could not read root certificate file": (
        "The file of root certificates does not exist or cannot be read; see sslrootcert in the database "
        "URL. On Lambda such files are in /var/task/certificates."
    ),
    r"certificate verify failed": (
        "The database's certificate has expired, or is not signed by an authority in the file that "
        "sslrootcert in the database URL names."
    ),
    r"server does not support SSL|SSL required|no pg_hba\.conf entry .* no encryption": (
        "The database URL and the server do not agree on TLS; check sslmode in the database URL, and "
        "whether the server accepts TLS."
    ),
}
_UNREACHABLE = {
    r"Connection refused|No such file or directory": "nothing listens there",
    r"(translate|resolve) host": "the host name is unknown",
    r"timeout|timed out": "it did not answer in time",
}
_REFUSED = re.compile(
    r"authentication failed|no password supplied|has no credentials for the role"
    r"|role \".*\" (does not exist|is not permitted to log in)"
)
_NOT_LISTENING = re.compile(r"Connection refused|No such file or directory|could not translate host")
_WRONG_ROLE = (
    "The database refused the role or password; `vectorforge migrate` creates the roles, with the passwords "
    "in the database URLs."
)
_WRONG_ROLE_WITH_IAM = (
    "The database refused the role or its IAM token. Allow this process rds-db:connect for the role, and "
    "migrate with VECTORFORGE_DATABASE_AUTH=iam, which grants rds_iam to the role."
)
_REMEMBERED_S = 1.0
"""Seconds for which a refused connection fails later requests immediately."""


def is_refused(failure: Exception) -> bool:
    """Return True if the server rejected the role or the password, by the driver's text."""
    return _REFUSED.search(str(failure)) is not None


def connect_error(
    failure: Exception, conninfo: str = "", *, with_token: bool = False
) -> DatabaseUnavailableError:
    """Return our error for a failure to connect. The driver's text is read, and not copied.

    Args:
        failure: The driver's error.
        conninfo: Connection string; its host and port become a note of the error, for people who run the
            server and not for its clients.
        with_token: The password was an IAM token.
    """
    error = _connect_error(failure, with_token)
    if conninfo:
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(conninfo)
        error.add_note(
            f"The database URL names {parts.get('host', 'localhost')}, port {parts.get('port', 5432)}."
        )
    return error


def _connect_error(failure: Exception, with_token: bool) -> DatabaseUnavailableError:
    text = str(failure)
    for pattern, advice in _UNTRUSTED.items():
        if re.search(pattern, text):
            return UntrustedDatabaseError(advice)
    if is_refused(failure):
        return DatabaseLoginError(_WRONG_ROLE_WITH_IAM if with_token else _WRONG_ROLE)
    for pattern, reason in _UNREACHABLE.items():
        if re.search(pattern, text):
            return DatabaseUnavailableError(f"The database cannot be reached: {reason}.")
    return DatabaseUnavailableError(
        "The database cannot be reached, or it refused the role or password "
        "(roles are created by `vectorforge migrate`)."
    )


class ConnectFailures:
    """Ends the wait of requests for a connection as soon as an attempt to connect is refused."""

    def __init__(self, *, with_tokens: bool = False) -> None:
        self.with_tokens = with_tokens
        self._reason: DatabaseUnavailableError | None = None
        self._refused_at = float("-inf")
        self._waiting: set[asyncio.Timeout] = set()

    def failed(self, failure: Exception) -> None:
        """Note a failed attempt to connect: the driver's error, or ours if no password could be made."""
        if isinstance(failure, VectorForgeError):
            self._reason = DatabaseUnavailableError(failure.message)
        elif _NOT_LISTENING.search(str(failure)):
            self._reason = DatabaseUnavailableError("The database refuses connections.")
        else:
            self._reason = connect_error(failure, with_token=self.with_tokens)
            if not isinstance(self._reason, UntrustedDatabaseError):
                self._refused_at = float("-inf")
                return  # the pool's next attempt, with a new token, may succeed
        self._refused_at = time.monotonic()
        for timeout in self._waiting:
            if timeout.expired():  # ended by an earlier refusal, but not left yet
                continue
            timeout.reschedule(asyncio.get_running_loop().time())

    def succeeded(self) -> None:
        """Note that a connection was made."""
        self._reason = None
        self._refused_at = float("-inf")

    def too_late(self) -> DatabaseUnavailableError:
        """Return the error of a wait that ended without a connection."""
        if isinstance(self._reason, DatabaseLoginError):
            return _copy(self._reason)
        return DatabaseUnavailableError("Timed out waiting for a database connection.")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Wait for a connection inside this context.

        Raises:
            DatabaseUnavailableError: A connection is refused, or was within the last second.
        """
        if self._reason is not None and time.monotonic() - self._refused_at < _REMEMBERED_S:
            raise _copy(self._reason)
        try:
            async with asyncio.timeout(None) as timeout:
                self._waiting.add(timeout)
                try:
                    yield
                finally:
                    self._waiting.discard(timeout)
        except TimeoutError as exc:
            raise _copy(self._reason or DatabaseUnavailableError()) from exc


def _copy(error: DatabaseUnavailableError) -> DatabaseUnavailableError:
    """Return the same error for another task: a traceback belongs to one."""
    return type(error)(error.message)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the driver's errors into ours, as causes; their texts are not copied.

    Raises:
        DatabaseUnavailableError: No connection, a lost one, or the server ran out of a resource.
        TenantBeingErasedError: The tenant to enter is being erased.
        AuthenticationError: A cached key is revoked or expired.
        InvalidInputError: A value that PostgreSQL cannot store, such as a NUL character in text.
        RefusedRowError: Any other value or row that a type or a constraint rejects.
        DatabaseError: Any other failure.
    """
    try:
        yield
    except Exception as exc:
        if (error := translated(exc)) is None:
            raise
        raise error from exc


def translated(exc: Exception) -> VectorForgeError | None:
    """Return our error for the driver's; None for any other."""
    import psycopg
    from psycopg_pool import PoolClosed, TooManyRequests

    if isinstance(exc, TooManyRequests):
        return DatabaseUnavailableError("Too many requests are waiting for a database connection.")
    state = getattr(exc, "sqlstate", None)
    if state == _DISK_FULL:
        return DatabaseUnavailableError("The database's disk is full.")
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError | PoolClosed):
        return DatabaseUnavailableError()
    if not isinstance(exc, psycopg.Error | UnicodeEncodeError):
        return None
    if state in _UNSTORABLE and isinstance(exc, psycopg.DataError | UnicodeEncodeError):
        is_text = isinstance(exc, psycopg.DataError)
        fault = "holds a NUL or is out of range" if is_text else "is not valid UTF-8"
        return InvalidInputError(f"A value cannot be stored: it {fault}.")
    if state is not None and state[:2] in _REFUSED_CLASSES:
        return RefusedRowError()
    if state == _BEING_ERASED:
        return TenantBeingErasedError()
    if state == _INVALID_KEY:
        return AuthenticationError(WRONG_KEY, presented=True)
    if state == _READ_ONLY:
        return DatabaseUnavailableError("The database is read-only.")
    return DatabaseError()
