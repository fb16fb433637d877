"""Async generators that an invocation left behind are closed before the next.

An async generator that is dropped half-way is closed by a task that the event loop starts for it. A web
server's loop runs on and does so at once; on Lambda the loop stands still between invocations, so a
generator's ``finally`` (a log row, a connection given back) would wait for the next one, or for ever.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from typing import Any

_logger = logging.getLogger(__name__)


class GeneratorFinaliser:
    """Closes dropped async generators, and can be awaited, unlike the event loop's own hook."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Take over the generators that this thread starts from now on, until the event loop stops."""
        loop = asyncio.get_running_loop()

        def finalise(generator: AsyncGenerator[Any, Any]) -> None:
            if not loop.is_closed():  # called by the garbage collector, in whatever thread it runs
                loop.call_soon_threadsafe(self._close, loop, generator)

        sys.set_asyncgen_hooks(finalizer=finalise)

    async def wait(self, limit_s: float) -> bool:
        """Wait until all that were dropped so far are closed; False if ``limit_s`` seconds did not do."""
        await asyncio.sleep(0)  # lets _close run for those dropped a moment ago
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
