"""Work on texts whose length a model or a caller decides, done beside the event loop when it takes long."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_QUICK_CHARS = 16_384
"""Read in a few milliseconds by all that is done with an answer (``tests/unit/test_linear_growth.py``)."""


async def beside_the_loop(chars: int, work: Callable[[], T]) -> T:
    """What ``work`` returns; of more than 16,384 characters it is done in a thread, while others are served.

    Args:
        chars: Length of the text that is read.
        work: Its exceptions are passed on.
    """
    return work() if chars <= _QUICK_CHARS else await asyncio.to_thread(work)
