"""Time limit of a request, to which every timeout and retry is cut, waits, concurrent tasks, and threads."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from vectorforge.errors import DeadlineExceededError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Point in time on the monotonic clock."""

    at: float
    """Seconds of ``time.monotonic()``; ``inf`` for none."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline this many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def never(cls) -> "Deadline":
        """Return a deadline without limit."""
        return cls(float("inf"))

    def remaining_s(self) -> float:
        """Return the seconds left; negative when it has passed."""
        return self.at - time.monotonic()

    def within(self, limit_s: float | None) -> "Deadline":
        """Return the earlier of this deadline and ``limit_s`` from now; None for no limit."""
        return self if limit_s is None else Deadline(min(self.at, time.monotonic() + limit_s))

    def clamp(self, seconds: float) -> float:
        """Return the smaller of ``seconds`` and the time left.

        Raises:
            DeadlineExceededError: No time is left.
        """
        remaining = self.remaining_s()
        if remaining <= 0:
            raise DeadlineExceededError
        return min(seconds, remaining)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncGenerator[None, None]:
    """Raise ``DeadlineExceededError`` if the block takes longer; ``inf`` for no limit."""
    try:
        async with asyncio.timeout(seconds if seconds < float("inf") else None):
            yield
    except TimeoutError as exc:
        raise DeadlineExceededError from exc


@asynccontextmanager
async def concurrently(step: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T], None]:
    """Run a step concurrently with the block; the end of the block cancels it."""
    task = asyncio.create_task(step)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


_QUICK_CHARS = 16_384
"""Length that all processing of an answer handles in milliseconds (``tests/unit/test_linear_growth.py``)."""


async def off_event_loop(chars: int, work: Callable[[], T]) -> T:
    """Return the result of ``work``, run in a thread for texts of more than 16,384 characters.

    Args:
        chars: Length of the text to process.
        work: Synchronous work; its exceptions are raised here.
    """
    return work() if chars <= _QUICK_CHARS else await asyncio.to_thread(work)
