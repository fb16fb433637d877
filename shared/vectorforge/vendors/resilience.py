"""Resilience of calls to vendors: the one retry policy, its budget, and circuit breakers.

Vendors' SDKs retry nothing, and nothing is retried after the first token.
"""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeVar

from vectorforge.deadline import Deadline
from vectorforge.errors import (
    DeadlineExceededError,
    LLMAuthenticationError,
    LLMCircuitOpenError,
    LLMError,
    LLMRequestError,
    VectorForgeError,
)

T = TypeVar("T")

_FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
"""Longest wait between two attempts without Retry-After."""

_UNLIMITED_S = 1e6
"""Finite replacement of infinity for a timer."""


class RetryBudget:
    """Budget that limits retries to a share of the calls, so that they do not amplify an outage.

    Each call adds ``ratio`` of a retry and each retry takes one; at most ``most`` are saved, and all are
    available at the start.
    Source: https://sre.google/sre-book/handling-overload/ ("per-client retry budget", 10 %).
    """

    def __init__(self, *, ratio: float = 0.1, most: float = 20.0) -> None:
        self._ratio = ratio
        self._most = most
        self._saved = most
        self._lock = threading.Lock()

    def earn(self) -> None:
        """Count a call."""
        with self._lock:
            self._saved = min(self._most, self._saved + self._ratio)

    def spend(self) -> bool:
        """Take a retry; return False if none is left."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True


async def with_retries(
    operation: Callable[[], Awaitable[T]],
    *,
    retries: int,
    deadline: Deadline,
    on_retry: Callable[[], None] = lambda: None,
    budget: RetryBudget | None = None,
) -> T:
    """Await ``operation`` and retry it after retryable errors until ``retries`` or the time is used up.

    The backoff grows from 0.2 s to at most 5 s, with jitter. A ``retry_after_s`` is honored if it fits into
    the time left, else the error is raised immediately: the SDKs' own loops sleep for minutes on a
    Retry-After (https://github.com/openai/openai-node/issues/1924).

    Args:
        operation: One attempt; ends by the deadline itself.
        retries: Attempts after the first, 0 or more.
        deadline: No attempt starts and no wait ends after it.
        on_retry: Called before each attempt but the first.
        budget: Shared with other calls; None: no further limit.

    Raises:
        VectorForgeError: The last attempt's error.
        DeadlineExceededError: The time ran out before the first attempt.
    """
    if deadline.remaining_s() <= 0:
        raise DeadlineExceededError
    if budget is not None:
        budget.earn()
    try:
        return await operation()
    except VectorForgeError as exc:
        error = exc
    try:
        async with asyncio.timeout(min(deadline.remaining_s(), _UNLIMITED_S)):
            for retry in range(retries):
                wait_s = _wait_s(error, retry, deadline)
                if wait_s is None or (budget is not None and not budget.spend()):
                    break
                await asyncio.sleep(wait_s)
                on_retry()
                try:
                    return await operation()
                except VectorForgeError as exc:
                    error = exc
    except TimeoutError as exc:
        raise error from exc
    raise error


def _wait_s(error: VectorForgeError, retry: int, deadline: Deadline) -> float | None:
    """Return the seconds to wait after an error; None if a retry cannot help or would be too late."""
    if not error.retryable:
        return None
    if error.retry_after_s is None:
        return min(LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**retry + random.uniform(0, _FIRST_WAIT_S))
    return error.retry_after_s if error.retry_after_s < deadline.remaining_s() else None


_NOT_COUNTED = (LLMAuthenticationError, LLMRequestError, LLMCircuitOpenError)
"""Errors that do not show a failure of the model."""

_MAX_BREAKERS: Final = 1000
"""Reached only by callers that make up model names."""


class CircuitBreaker:
    """Pass all calls when closed, none when open, one at a time when half open.

    The breaker opens after ``failures`` failed calls in a row. After ``open_s``, or the vendor's Retry-After
    if that is longer, it lets one call through, which closes the breaker or opens it again, so that a
    fallback gets the time of a model that keeps failing. A stream that breaks after its first token counts
    as a failure like one that never began.

    Args:
        name: Shown in errors, e.g. "openai/gpt-4o".
        failures: Failed calls in a row that open it; 0 disables the breaker.
        clock: Seconds; the wall clock, because a monotonic one may stand still while a function is frozen.
    """

    def __init__(
        self, name: str, *, failures: int, open_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failed = 0
        self._opened_at = 0.0
        self._closed_for_s = 0.0
        self._probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """State seen by the next call."""
        with self._lock:
            if not self._is_open():
                return "closed"
            return "open" if self._wait_s() > 0 or self._probing else "half_open"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Return a context manager for one call, from the request to the end of its answer.

        An ``LLMError`` that leaves the block is a failure, unless it concerns credentials or the request.
        Any other exception, such as a disconnect, counts neither way.

        Raises:
            LLMCircuitOpenError: The breaker is open; nothing was sent.
        """
        self._enter()
        try:
            yield
        except BaseException as exc:
            self._leave(exc)
            raise
        self._leave(None)

    def _enter(self) -> None:
        with self._lock:
            if not self._is_open():
                return
            wait_s = self._wait_s()
            if wait_s > 0 or self._probing:
                raise LLMCircuitOpenError(
                    f"{self._name} failed {self._failed} times in a row; calls are suspended.",
                    retry_after_s=max(wait_s, 1.0),
                )
            self._probing = True

    def _leave(self, error: BaseException | None) -> None:
        with self._lock:
            self._probing = False
            if error is None:
                self._failed = 0
            elif isinstance(error, LLMError) and not isinstance(error, _NOT_COUNTED):
                self._failed += 1
                self._opened_at = self._clock()
                self._closed_for_s = max(self._open_s, error.retry_after_s or 0.0)

    def _is_open(self) -> bool:
        return 0 < self._limit <= self._failed

    def _wait_s(self) -> float:
        passed_s = self._clock() - self._opened_at
        return self._closed_for_s - passed_s if passed_s >= 0 else 0.0  # the clock was set back


class CircuitBreakers:
    """Breakers of one process, created at the first call of each model.

    Args:
        failures: Failed calls in a row that open a breaker; 0 disables all breakers.
    """

    def __init__(self, *, failures: int = 5, open_s: float = 30.0) -> None:
        self._failures = failures
        self._open_s = open_s
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._lock = threading.Lock()

    def find(self, provider: str, model: str) -> CircuitBreaker:
        """Return the breaker of this model."""
        with self._lock:
            breaker = self._breakers.get((provider, model))
            if breaker is None:
                if len(self._breakers) >= _MAX_BREAKERS:
                    self._breakers.clear()
                breaker = self._breakers[provider, model] = CircuitBreaker(
                    f"{provider}/{model[:100]}", failures=self._failures, open_s=self._open_s
                )
            return breaker
