"""The one retry policy: vendors' SDKs retry nothing, and nothing is retried after a first token."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, VectorForgeError

T = TypeVar("T")

_FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
"""Between two attempts, unless the other side asks for more."""


async def with_retries(
    operation: Callable[[], Awaitable[T]],
    *,
    retries: int,
    deadline: Deadline,
    on_retry: Callable[[], None] = lambda: None,
) -> T:
    """Await ``operation``, again after each retryable error, until ``retries`` or the time is used up.

    Waits grow from 0.2 s to at most 5 s, with jitter. A wait that the other side asked for
    (``retry_after_s``) is kept to when it fits into the time left, else the error is raised at once:
    the SDKs' own loops sleep for minutes on a Retry-After (https://github.com/openai/openai-node/issues/1924).

    Args:
        operation: One attempt; raises a ``VectorForgeError`` whose ``retryable`` says whether to go on.
        retries: Attempts after the first, 0 or more.
        deadline: No attempt starts and no wait ends after it.
        on_retry: Called before each attempt but the first.

    Raises:
        VectorForgeError: The last attempt's error.
        DeadlineExceededError: The time ran out before any attempt failed.
    """
    last_error: VectorForgeError | None = None

    def wait_before_next(exc: Exception) -> bool | float:
        nonlocal last_error
        if not isinstance(exc, VectorForgeError):
            return False
        last_error = exc
        if not exc.retryable:
            return False
        if exc.retry_after_s is None:
            return True
        return exc.retry_after_s if exc.retry_after_s < deadline.remaining_s() else False

    remaining = deadline.remaining_s()
    if remaining <= 0:
        raise DeadlineExceededError
    try:
        async with asyncio.timeout(None if remaining == float("inf") else remaining):
            async for attempt in stamina.retry_context(
                on=wait_before_next,
                attempts=retries + 1,
                timeout=None,
                wait_initial=_FIRST_WAIT_S,
                wait_max=LONGEST_WAIT_S,
                wait_jitter=_FIRST_WAIT_S,
            ):
                with attempt:
                    if attempt.num > 1:
                        on_retry()
                    return await operation()
    except TimeoutError as exc:
        raise last_error or DeadlineExceededError() from exc
    raise AssertionError("stamina always returns or raises")
