"""Stop signal: ends the answer of a query early; the text so far is the answer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing


class QueryStopped(Exception):  # noqa: N818 - not an error, like StopIteration
    """The end of the answer was requested."""


class StopSignal:
    """Interrupts the answer of one query; used in the query's event loop.

    Unlike a cancellation it lets the query finish: citations, usage and log follow.
    """

    def __init__(self) -> None:
        self.requested = False
        """True once the end was requested."""
        self._waiting: asyncio.Task[object] | None = None
        """Task that waits for a text; ``request`` cancels it."""
        self._has_cancelled = False

    def request(self) -> None:
        """End the answer; a second call does nothing."""
        if self.requested:
            return
        self.requested = True
        if self._waiting is not None:
            self._has_cancelled = self._waiting.cancel()

    async def interrupting(self, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        """Yield the texts until the end is requested.

        Args:
            texts: Read in one task; closed with this generator; canceled while it is awaited.

        Raises:
            QueryStopped: The end was requested.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        async with aclosing(texts):
            while not self.requested:
                cancelled_before = task.cancelling()
                self._waiting = task
                try:
                    text = await anext(texts, None)
                except asyncio.CancelledError:
                    # Recognizes its own cancellation as asyncio.timeout does, without the cost for each text.
                    if not self._has_cancelled or task.uncancel() > cancelled_before:
                        raise
                    break
                finally:
                    self._waiting = None
                if text is None:
                    return
                yield text
        raise QueryStopped
