"""Whether anybody listens at the database's address, known long before a wait for a connection is over."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vectorforge.errors import DatabaseUnavailableError

_REMEMBERED_S = 1.0
_NOBODY_LISTENS = re.compile(r"Connection refused|No such file or directory|could not translate host")
"""In libpq's texts: it gives no codes for failures to connect."""


class Refusals:
    """Lets those who wait for a connection go as soon as an attempt to make one is refused."""

    def __init__(self) -> None:
        self._refused_at = float("-inf")
        self._waiting: set[asyncio.Timeout] = set()

    def failed(self, text: str) -> None:
        """An attempt to connect failed, says the driver with this text."""
        if _NOBODY_LISTENS.search(text):
            self._refused_at = time.monotonic()
            for patience in self._waiting:
                patience.reschedule(asyncio.get_running_loop().time())

    def succeeded(self) -> None:
        """There is a connection."""
        self._refused_at = float("-inf")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Wait for a connection in here.

        Raises:
            DatabaseUnavailableError: Nobody listens, or nobody did a second ago.
        """
        refused = DatabaseUnavailableError("The database refuses connections.")
        if time.monotonic() - self._refused_at < _REMEMBERED_S:
            raise refused
        try:
            async with asyncio.timeout(None) as patience:
                self._waiting.add(patience)
                try:
                    yield
                finally:
                    self._waiting.discard(patience)
        except TimeoutError as exc:
            raise refused from exc
