"""A private event loop for parsers that are coroutines, since a fuzzer calls functions."""

import asyncio
import atexit
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the loop, which is created once and ends with the process."""
    made = asyncio.new_event_loop()
    atexit.register(_end, made)
    return made


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; return its result or raise its error."""
    return loop().run_until_complete(coroutine)


def _end(ended: asyncio.AbstractEventLoop) -> None:
    """Close open servers and connections, which would cause warnings."""
    while left := asyncio.all_tasks(ended):
        for task in left:
            task.cancel()
        ended.run_until_complete(asyncio.wait(left))
    ended.close()
