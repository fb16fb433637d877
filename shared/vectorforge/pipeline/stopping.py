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
        self._waiting: asyncio.Task[object] | None = None
        """The task that waits for a text; ``request`` cancels it."""
        self._has_cancelled = False

    def request(self) -> None:
        """End the answer; a second call changes nothing."""
        if self.requested:
            return
        self.requested = True
        if self._waiting is not None:
            self._has_cancelled = self._waiting.cancel()

    async def interrupting(self, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        """The texts until the end is asked for.

        Args:
            texts: Read in one task; closed with this generator; cancelled while it is waited for.

        Raises:
            QueryStopped: The end was asked for.
        """
        task = _current_task()
        async with aclosing(texts):
            while not self.requested:
                cancelled_before = task.cancelling()
                self._waiting = task
                try:
                    text = await anext(texts, None)
                except asyncio.CancelledError:
                    # As asyncio.timeout knows its own cancellation, without its cost for each text.
                    if not self._has_cancelled or task.uncancel() > cancelled_before:
                        raise
                    break
                finally:
                    self._waiting = None
                if text is None:
                    return
                yield text
        raise QueryStopped


def _current_task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - whoever awaits is in a task
    return task
