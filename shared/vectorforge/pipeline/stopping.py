"""Ends the answer of a query before its time, in good order: what was said so far is the answer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing


class QueryStopped(Exception):  # noqa: N818 - it is no error, as StopIteration is none
    """Somebody asked for the end of the answer."""


class StopSignal:
    """Interrupts the answer of one query, in whose event loop it is used.

    Unlike a cancellation it leaves the query at work, which still has citations, usage and a log to give.
    """

    def __init__(self) -> None:
        self.requested = False
        """Whether the answer is to end."""
        self._waiting: asyncio.Timeout | None = None

    def request(self) -> None:
        """End the answer; a second call changes nothing."""
        if self.requested:
            return
        self.requested = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def interrupting(self, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        """The texts until the end is asked for.

        Args:
            texts: Closed with this generator; cancelled while it is waited for.

        Raises:
            QueryStopped: The end was asked for.
        """
        async with aclosing(texts):
            while not self.requested:
                scope = asyncio.timeout(None)
                try:
                    async with scope:
                        self._waiting = scope
                        text = await anext(texts, None)
                except TimeoutError:
                    if scope.expired():
                        break
                    raise
                finally:
                    self._waiting = None
                if text is None:
                    return
                yield text
        raise QueryStopped
