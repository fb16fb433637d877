"""Circuit breakers: stop calling a model that keeps failing, so that a fallback gets the time.

A breaker belongs to one provider and model and covers streams: a stream that breaks after its first token
counts as a failure like one that never began; a disconnect of the reader counts neither way.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, TypeAlias

from vectorforge.errors import LLMAuthenticationError, LLMCircuitOpenError, LLMError, LLMRequestError

CircuitState: TypeAlias = Literal["closed", "open", "half_open"]

_NOT_COUNTED = (LLMAuthenticationError, LLMRequestError, LLMCircuitOpenError)
"""Errors that do not show a failure of the model."""

_MAX_BREAKERS: Final = 1000
"""Reached only by callers that make up model names."""


class CircuitBreaker:
    """Pass all calls when closed, none when open, one at a time when half open.

    The breaker opens after ``failures`` failed calls in a row. After ``open_s``, or the vendor's Retry-After
    if that is longer, it lets one call through, which closes the breaker or opens it again.

    Args:
        name: Shown in errors, e.g. "openai/gpt-4o".
        failures: Failed calls in a row that open it; 0 disables the breaker.
        open_s: Seconds until the first call is let through.
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
    def state(self) -> CircuitState:
        """State seen by the next call."""
        with self._lock:
            if not self._is_open():
                return "closed"
            return "open" if self._wait_s() > 0 or self._probing else "half_open"

    def call(self) -> "_Call":
        """Return a context manager for one call, from the request to the end of its answer.

        An ``LLMError`` that leaves the block is a failure, unless it concerns credentials or the request.
        Any other exception, such as a disconnect, counts neither way.

        Raises:
            LLMCircuitOpenError: The breaker is open; nothing was sent.
        """
        return _Call(self)

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
        """Record the outcome of a call; None means success."""
        if error is None:
            with self._lock:
                self._failed, self._probing = 0, False
            return
        with self._lock:
            self._probing = False
            if not isinstance(error, LLMError) or isinstance(error, _NOT_COUNTED):
                return
            self._failed += 1
            self._opened_at = self._clock()
            self._closed_for_s = max(self._open_s, error.retry_after_s or 0.0)

    def _is_open(self) -> bool:
        return 0 < self._limit <= self._failed

    def _wait_s(self) -> float:
        passed_s = self._clock() - self._opened_at
        return self._closed_for_s - passed_s if passed_s >= 0 else 0.0  # the clock was set back


class _Call:
    """One call through a breaker."""

    __slots__ = ("_breaker",)

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker

    def __enter__(self) -> None:
        self._breaker._enter()  # noqa: SLF001 - a part of it

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._breaker._leave(exc)  # noqa: SLF001 - a part of it


class CircuitBreakers:
    """Breakers of one process, created at the first call of each model.

    Args:
        failures: Failed calls in a row that open a breaker; 0 disables all breakers.
        open_s: Seconds until an open breaker lets a call through.
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
