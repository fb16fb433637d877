"""The one event loop of a process.

Connection pools, locks and clients belong to the loop they were made in, so an app that keeps them between
invocations needs the same loop in each. It is made at first use: a runtime that forks forks before.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeVar

from vectorforge.runtime.shutdown_budget import shutdown_remaining_s

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_loop: asyncio.AbstractEventLoop | None = None
_before_close: list[Callable[[], None]] = []


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; made, and set as the current one, by the first call."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)  # for Mangum and others who ask asyncio for it
    return _loop


def event_loop_is_running() -> bool:
    """Whether the loop of this process is running; does not make one."""
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
    """At the end of the process: call what asked for it, cancel what still runs, close the loop."""
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
    # Not gather: cancelling it waits for its tasks, and some do not let themselves be cancelled.
    if tasks:
        await asyncio.wait(tasks, timeout=shutdown_remaining_s() / 2)
    closing = loop.create_task(loop.shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=shutdown_remaining_s())
