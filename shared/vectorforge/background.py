"""Logging of failures nobody foresaw: where they happened, never what they said.

An event loop in a thread of its own, for callers that are not asynchronous.

Work on texts whose length a model or a caller decides, done beside the event loop when it takes long.
"""

import asyncio
import concurrent.futures
import logging
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

_MAX_EXCEPTIONS = 20
_MAX_FRAMES = 50


def log_unexpected(logger: logging.Logger, what: str, error: BaseException) -> None:
    """Log type and place of an exception and of its causes.

    Their texts are left out: a driver's or a vendor's may hold keys, URLs or rows. ``logger.exception``
    would print them.

    Args:
        logger: Of the module that caught it.
        what: What failed, in words of ours, e.g. "Request 17 failed".
        error: The exception; of its causes at most 20 are logged, the innermost 50 frames of each.
    """
    logger.error("%s: %s", what, describe(error))


def describe(error: BaseException) -> str:
    """Type and place of an exception and of its causes, in lines; bounded as ``log_unexpected`` says."""
    lines: list[str] = []
    for number, exception in enumerate(_with_causes(error)):
        if number == _MAX_EXCEPTIONS:
            break
        lines.append(f"{type(exception).__module__}.{type(exception).__qualname__}")
        frames = traceback.extract_tb(exception.__traceback__, limit=-_MAX_FRAMES)
        lines.extend(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return "\n".join(lines)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it was raised from; for a group also its members. None twice."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is not None:
            waiting.append(cause)


T = TypeVar("T")


class LoopThread:
    """Keeps something asynchronous open in one loop and runs calls to it there, from any thread.

    One loop for all calls, because pools and clients belong to the loop that opened them; ``asyncio.run``
    would give each call another one.

    Args:
        resource: Entered and left in the loop.
        name: Of the thread.

    Raises:
        Exception: What entering ``resource`` raised; then nothing is left running.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any], *, name: str) -> None:
        self._resource = resource
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:  # KeyboardInterrupt, too
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """False after ``close``, and in a forked child, which has no thread."""
        return not self._closed and self._thread.is_alive()

    def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call in the loop and wait for its end; other threads' calls go on beside it.

        When the waiting is interrupted (Ctrl-C), the call is cancelled and the loop stays usable.

        Raises:
            RuntimeError: It is closed, was closed meanwhile, or this is the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"{self._name} cannot wait for itself; await the asynchronous services instead."
            )
        with self._lock:
            if not self.is_running or self._loop is None:
                raise RuntimeError(f"{self._name} is closed.")
            future = asyncio.run_coroutine_threadsafe(self._tracked(call), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as exc:
            raise RuntimeError(f"{self._name} was closed during the call.") from exc
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel calls under way, leave the resource and end the thread; safe to call twice."""
        with self._lock:
            self._closed = True
            if self._loop is not None and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _tracked(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - coroutines run in tasks here
        self._calls.add(task)
        try:
            return await call()
        finally:
            self._calls.discard(task)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._hold())

    async def _hold(self) -> None:
        try:
            async with self._resource:
                self._opened.set_result(None)
                await self._stop.wait()
                calls = set(self._calls)  # only those: the resource has tasks of its own
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
        except BaseException as exc:
            if self._opened.done():
                raise
            self._opened.set_exception(exc)


_QUICK_CHARS = 16_384
"""Read in a few milliseconds by all that is done with an answer (``tests/unit/test_linear_growth.py``)."""


async def off_event_loop(chars: int, work: Callable[[], T]) -> T:
    """What ``work`` returns; of more than 16,384 characters it is done in a thread, while others are served.

    Args:
        chars: Length of the text that is read.
        work: Its exceptions are passed on.
    """
    return work() if chars <= _QUICK_CHARS else await asyncio.to_thread(work)
