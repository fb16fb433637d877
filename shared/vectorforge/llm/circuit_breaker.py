"""Stops asking a model that fails, so that the time goes to whoever can answer.

A breaker belongs to one provider and model. It knows streams: one that breaks after its first token has
failed as much as one that never began, and one that its reader leaves has neither failed nor worked.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, TypeAlias

from vectorforge.errors import (
    LLMAuthenticationError,
    LLMCircuitOpenError,
    LLMError,
    LLMRequestError,
)

CircuitState: TypeAlias = Literal["closed", "open", "half_open"]

_NOT_ITS_FAULT = (LLMAuthenticationError, LLMRequestError, LLMCircuitOpenError)
"""Say nothing about whether the model works."""


class CircuitBreaker:
    """Closed it lets all calls through, open none, half open one at a time.

    It opens after ``failures`` calls in a row that failed. After ``open_s``, or as long as the vendor asked
    for if that is longer, one call is let through: it closes the breaker, or opens it anew.

    Args:
        name: Shown in errors, e.g. "openai/gpt-4o".
        failures: Failed calls in a row that open it; 0: it never opens.
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
        """What happens to the next call."""
        with self._lock:
            if not self._is_open():
                return "closed"
            return "open" if self._wait_s() > 0 or self._probing else "half_open"

    def call(self) -> "_Call":
        """The block is one call, from the request to the end of its answer.

        An ``LLMError`` that leaves it is a failure, unless it is about credentials or the request itself. Any
        other exception, such as the reader's leaving, counts neither way.

        Raises:
            LLMCircuitOpenError: No call is let through now; nothing was sent.
        """
        return _Call(self)

    def _enter(self) -> None:
        with self._lock:
            if not self._is_open():
                return
            wait_s = self._wait_s()
            if wait_s > 0 or self._probing:
                raise LLMCircuitOpenError(
                    f"{self._name} failed {self._failed} times in a row and is not asked for a while.",
                    retry_after_s=max(wait_s, 1.0),
                )
            self._probing = True

    def _leave(self, ended_by: BaseException | None) -> None:
        """Note how a call ended; None: as it should."""
        if ended_by is None:
            with self._lock:
                self._failed, self._probing = 0, False
            return
        failure = ended_by if isinstance(ended_by, LLMError) else None
        if isinstance(ended_by, _NOT_ITS_FAULT):
            failure = None
        with self._lock:
            self._probing = False
            if failure is None:
                return
            self._failed += 1
            self._opened_at = self._clock()
            self._closed_for_s = max(self._open_s, failure.retry_after_s or 0.0)

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
    """The breakers of one process; made when a model is first asked.

    Args:
        failures: Failed calls in a row that open a breaker; 0: none ever opens.
        open_s: Seconds until an open one lets a call through.
    """

    def __init__(self, *, failures: int = 5, open_s: float = 30.0) -> None:
        self._failures = failures
        self._open_s = open_s
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._lock = threading.Lock()

    def find(self, provider: str, model: str) -> CircuitBreaker:
        """The breaker of this model."""
        with self._lock:
            found = self._breakers.get((provider, model))
            if found is None:
                if len(self._breakers) >= _MOST:
                    self._breakers.clear()
                found = self._breakers[provider, model] = CircuitBreaker(
                    f"{provider}/{model[:100]}", failures=self._failures, open_s=self._open_s
                )
            return found


_MOST = 1000
"""Breakers at most; only callers who make up names of models reach that."""
