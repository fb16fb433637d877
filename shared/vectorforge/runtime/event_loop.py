"""The event loop of a process: created once, closed with the process, async generators finalized.

Connection pools, locks and clients belong to the loop they were created in, so an app that reuses them
between invocations needs one loop. It is created on first use: a runtime that forks does so before.

An async generator that is dropped half-way is closed by a task of the event loop. On Lambda the loop stands
still between invocations, so a generator's ``finally`` (a log row, a released connection) would wait for the
next one: generators of an invocation are closed before the next.

Shutdown: Lambda sends SIGTERM to the runtime of a function with extensions, and SIGKILL 300 ms later if one
is external, 500 ms later if all are internal. The 2 s of its shutdown phase belong to the extensions. Without
extensions there is no SIGTERM.

https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html#runtimes-lifecycle-shutdown
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

_logger = logging.getLogger(__name__)

_USED_S = 0.25  # of 0.3: waits end late on a busy CPU
_ends_at: float | None = None


def begin_shutdown() -> None:
    """Start the clock, at SIGTERM."""
    global _ends_at
    _ends_at = time.monotonic() + _USED_S


def shutdown_remaining_s() -> float:
    """Return the seconds left, at least 0; all of them if no SIGTERM came."""
    return _USED_S if _ends_at is None else max(_ends_at - time.monotonic(), 0.0)


class GeneratorFinaliser:
    """Closes dropped async generators, and can be awaited, unlike the event loop's own hook."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Track the generators that this thread starts, until the event loop stops."""
        loop = asyncio.get_running_loop()

        def finalise(generator: AsyncGenerator[Any, Any]) -> None:
            if not loop.is_closed():  # called by the garbage collector, in any thread
                loop.call_soon_threadsafe(self._close, loop, generator)

        sys.set_asyncgen_hooks(finalizer=finalise)

    async def wait(self, limit_s: float) -> bool:
        """Wait until all that were dropped so far are closed; False if ``limit_s`` seconds did not do."""
        await asyncio.sleep(0)  # runs pending calls of _close
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        return not self._tasks

    def _close(self, loop: asyncio.AbstractEventLoop, generator: AsyncGenerator[Any, Any]) -> None:
        task = loop.create_task(_aclose(generator), name="close-async-generator")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _aclose(generator: AsyncGenerator[Any, Any]) -> None:
    try:
        await generator.aclose()
    except Exception:
        _logger.exception("An async generator failed while it was closed.")


_T = TypeVar("_T")

_loop: asyncio.AbstractEventLoop | None = None
_before_close: list[Callable[[], None]] = []


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process; the first call creates it and sets it as the current one."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)  # for Mangum and other users of asyncio.get_event_loop
    return _loop


def event_loop_is_running() -> bool:
    """Return True if the loop of this process is running; does not create one."""
    return _loop is not None and _loop.is_running()


def run_in_loop(coroutine: Coroutine[object, object, _T]) -> _T:
    """Run a coroutine to its end, on the loop the app is served on.

    For plain functions that meet the app's objects between invocations, as SnapStart hooks do.

    Raises:
        RuntimeError: The loop is running, as it is inside the app: await the coroutine there.
    """
    return event_loop().run_until_complete(coroutine)


def call_before_close(function: Callable[[], None]) -> None:
    """Have a function called at the end of the process, while the loop can run; the last one is the first."""
    _before_close.append(function)


def close_event_loop() -> None:
    """End the process's loop: run the shutdown callbacks, cancel running tasks, close the loop."""
    global _loop
    loop = _loop
    if loop is None or loop.is_closed() or loop.is_running():
        return
    while _before_close:
        try:
            _before_close.pop()()
        except Exception:
            _logger.exception("A shutdown function failed.")
    _loop = None
    loop.run_until_complete(_end_everything())
    asyncio.set_event_loop(None)
    loop.close()


async def _end_everything() -> None:
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    # Not gather: cancelling it waits for its tasks, and some cannot be canceled.
    if tasks:
        await asyncio.wait(tasks, timeout=shutdown_remaining_s() / 2)
    closing = loop.create_task(loop.shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=shutdown_remaining_s())
