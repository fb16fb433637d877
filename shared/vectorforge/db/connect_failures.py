"""Reasons why no connection can be made, known before the wait for one is over."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vectorforge.db.conninfo import connect_error
from vectorforge.errors import (
    DatabaseLoginError,
    DatabaseUnavailableError,
    UntrustedDatabaseError,
    VectorForgeError,
)

_REMEMBERED_S = 1.0
_NOBODY_LISTENS = re.compile(r"Connection refused|No such file or directory|could not translate host")
"""In libpq's texts: it gives no codes for failures to connect."""


class ConnectFailures:
    """Lets those who wait for a connection go as soon as an attempt to make one is refused.

    Args:
        with_tokens: Whether connections log in with tokens of IAM.
    """

    def __init__(self, *, with_tokens: bool = False) -> None:
        self._with_tokens = with_tokens
        self._reason: DatabaseUnavailableError | None = None
        self._refused_at = float("-inf")
        self._waiting: set[asyncio.Timeout] = set()

    def failed(self, failure: Exception) -> None:
        """An attempt to connect failed: with the driver's error, or with ours before the driver was asked."""
        if isinstance(failure, VectorForgeError):  # no password could be made for it
            self._reason = DatabaseUnavailableError(failure.message)
        elif _NOBODY_LISTENS.search(str(failure)):
            self._reason = DatabaseUnavailableError("The database refuses connections.")
        else:
            self._reason = connect_error(failure, with_token=self._with_tokens)
            if not isinstance(self._reason, UntrustedDatabaseError):
                self._refused_at = float("-inf")
                return  # the next attempt, with a new token, may do better: the pool makes it
        self._refused_at = time.monotonic()
        for patience in self._waiting:
            if patience.expired():  # let go by an earlier refusal, and not away yet
                continue
            patience.reschedule(asyncio.get_running_loop().time())

    def succeeded(self) -> None:
        """There is a connection."""
        self._reason = None
        self._refused_at = float("-inf")

    def too_late(self) -> DatabaseUnavailableError:
        """What to say after a wait that ended without a connection."""
        if isinstance(self._reason, DatabaseLoginError):
            return _copy(self._reason)
        return DatabaseUnavailableError("There was no database connection in time.")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Wait for a connection in here.

        Raises:
            DatabaseUnavailableError: One is refused, or was a second ago.
        """
        if self._reason is not None and time.monotonic() - self._refused_at < _REMEMBERED_S:
            raise _copy(self._reason)
        try:
            async with asyncio.timeout(None) as patience:
                self._waiting.add(patience)
                try:
                    yield
                finally:
                    self._waiting.discard(patience)
        except TimeoutError as exc:
            raise _copy(self._reason or DatabaseUnavailableError()) from exc


def _copy(error: DatabaseUnavailableError) -> DatabaseUnavailableError:
    """The same error for one more task: a traceback belongs to one."""
    return type(error)(error.message)
