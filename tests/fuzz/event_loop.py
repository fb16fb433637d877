"""An event loop of its own for parsers that are coroutines: a fuzzer calls functions."""

import asyncio
import atexit
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Made once; it ends with the process."""
    made = asyncio.new_event_loop()
    atexit.register(_end, made)
    return made


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises."""
    return loop().run_until_complete(coroutine)


def _end(ended: asyncio.AbstractEventLoop) -> None:
    """Servers and connections that are open would complain."""
    while left := asyncio.all_tasks(ended):
        for task in left:
            task.cancel()
        ended.run_until_complete(asyncio.wait(left))
    ended.close()
