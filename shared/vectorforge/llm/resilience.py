"""Stops asking a model that fails, so that the time goes to whoever can answer.

A breaker belongs to one provider and model. It knows streams: one that breaks after its first token has
failed as much as one that never began, and one that its reader leaves has neither failed nor worked.

How long a stream may say nothing.

A vendor's steps: limited in time, and their exceptions turned into ours.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Literal, TypeAlias, TypeVar

from vectorforge.errors import (
    LLMAuthenticationError,
    LLMCircuitOpenError,
    LLMError,
    LLMRequestError,
    VectorForgeError,
)
from vectorforge.llm import failures
from vectorforge.llm.types import Completion

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


class SilenceLimit:
    """Limits each of many awaits, one after another, by one timer that is pushed on.

    ``asyncio.timeout`` would set and cancel a timer for each of a stream's texts. As with it, the await is
    cancelled and ``TimeoutError`` raised. Used as ``limit.s = 10`` and ``with limit:`` around each await;
    other awaits between them are not limited, and may be in other tasks. To be closed at the end.
    """

    def __init__(self) -> None:
        self.s = 0.0
        """Longest await from now on, in seconds; 0 or less ends it as soon as it waits."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._due: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - coroutines run in tasks here
        self._cancelling = self._task.cancelling()
        self._due = due = self._loop.time() + self.s
        if self._timer is None or due < self._timer_at:
            self._set(due)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._due = None
        if not self._expired or self._task is None:
            return
        self._expired = False
        # Somebody else may have cancelled the task too:
        # https://docs.python.org/3/library/asyncio-task.html#asyncio.Task.uncancel
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exc

    def close(self) -> None:
        """Let the timer go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at: float) -> None:
        self.close()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due is None or self._task is None:
            return  # nobody waits; whoever waits next sets it again
        if self._due > self._loop.time():
            self._set(self._due)
        else:
            self._expired = True
            self._task.cancel()


T = TypeVar("T")


class VendorGuard:
    """Stands between a provider's steps and whoever awaits them.

    Args:
        name: Gives the provider's name, for the errors.
        map_error: Our error for an exception that is none of ours.
        safe_cause: The exception with nothing secret in its text.
    """

    def __init__(
        self,
        name: Callable[[], str],
        map_error: Callable[[Exception], LLMError],
        safe_cause: Callable[[Exception], Exception],
    ) -> None:
        self._name = name
        self._map_error = map_error
        self._safe_cause = safe_cause

    async def step(self, step: Awaitable[T], timeout_s: float) -> T:
        """Await a step for at most ``timeout_s``.

        Raises:
            VectorForgeError: What the vendor did.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await step
        except VectorForgeError:
            raise
        except Exception as exc:  # noqa: BLE001 - a vendor's answer may raise anything; it is mapped and raised
            error, cause = self._ours(exc)
            raise error from cause

    async def first(self, stream: AsyncGenerator[str | Completion, None]) -> str | Completion:
        """The first item of a stream; to be awaited within a ``step``."""
        item = await anext(stream, None)
        if item is None:  # the vendors' SDKs take such an end for success
            raise failures.broken_stream(self._name())
        return item

    async def following(
        self, stream: AsyncGenerator[str | Completion, None], limit: SilenceLimit
    ) -> str | Completion:
        """The next item of a stream of which somebody has seen a part: no error is retryable.

        Raises:
            VectorForgeError: What the vendor did; a stream that merely ends is broken.
        """
        try:
            with limit:
                return await anext(stream)
        except StopAsyncIteration:
            error: VectorForgeError = failures.broken_stream(self._name())
            cause: BaseException | None = None
        except Exception as exc:  # noqa: BLE001 - as above
            error, cause = self._ours(exc)
        error.retryable = False
        raise error from cause

    def _ours(self, exc: Exception) -> tuple[VectorForgeError, BaseException | None]:
        """Our error for an exception, and its cause."""
        if isinstance(exc, VectorForgeError):
            return exc, exc.__cause__
        if isinstance(exc, TimeoutError):
            return failures.timed_out(self._name()), exc
        return self._map_error(exc), self._safe_cause(exc)
