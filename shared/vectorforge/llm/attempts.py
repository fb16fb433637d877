"""Attempts of one LLM request: retries within the deadline, time limits, errors mapped to ours."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, LLMError, VectorForgeError
from vectorforge.llm import failures
from vectorforge.llm.types import (
    Completion,
    GroundingSource,
    LLMRequestConfig,
    LLMResponse,
    Message,
    ProviderCall,
)
from vectorforge.telemetry import MetricsCollector
from vectorforge.threads import off_event_loop
from vectorforge.tokens import estimate_tokens
from vectorforge.vendors.failures import RetryBudget, with_retries

T = TypeVar("T")


@dataclass(slots=True)
class LLMRun:
    """One request with all its attempts."""

    provider: str
    messages: Sequence[Message]
    config: LLMRequestConfig
    sources: Sequence[GroundingSource]
    deadline: Deadline
    attempts: int = 0
    """Attempts started so far."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of all measurements of this request."""
        return {"provider": self.provider, "model": self.config.model}

    async def attempt(
        self,
        step: Callable[[ProviderCall], Awaitable[T]],
        *,
        retries: int,
        timeout_s: float,
        metrics: MetricsCollector,
        budget: RetryBudget | None = None,
    ) -> T:
        """Run a step until it succeeds, fails for good or the time runs out.

        Args:
            step: One attempt; enforces the call's ``timeout_s`` itself.
            retries: Attempts after the first, 0 or more.
            timeout_s: Time limit of one attempt; cut to the time left.
            metrics: Receives the count of retries.
            budget: Budget that retries are taken from.

        Raises:
            LLMTimeoutError: The deadline passed during an attempt.
            DeadlineExceededError: The deadline passed before the first attempt.
            VectorForgeError: Error of the last attempt.
        """

        async def once() -> T:
            call = ProviderCall(self.messages, self.config, self.sources, self.deadline.clamp(timeout_s))
            self.attempts += 1
            return await step(call)

        try:
            return await with_retries(
                once,
                retries=retries,
                deadline=self.deadline,
                budget=budget,
                on_retry=lambda: metrics.increment("llm.generate.retries", tags=self.tags),
            )
        except DeadlineExceededError as exc:
            if self.attempts == 0:
                raise
            raise failures.timed_out(self.provider) from exc

    async def response(
        self, completion: Completion, content: str, *, latency_ms: float, metrics: MetricsCollector
    ) -> LLMResponse:
        """Build the finished answer and count its tokens.

        Args:
            completion: The provider's report; missing token counts are estimated.
            content: The whole text.
            latency_ms: Time since the request, retries included.
            metrics: Receives the token counts.
        """
        prompt_tokens, completion_tokens = completion.prompt_tokens, completion.completion_tokens
        metadata = {"finish_reason": completion.finish_reason, "attempts": self.attempts}
        if prompt_tokens is None or completion_tokens is None:
            prompt = "\n".join(message["content"] for message in self.messages)
            prompt_tokens, completion_tokens = await off_event_loop(
                len(prompt) + len(content),
                lambda: [estimate_tokens(text, completion.model) for text in (prompt, content)],
            )
            metadata["usage_estimated"] = True
        metrics.increment("llm.tokens_input", prompt_tokens, self.tags)
        metrics.increment("llm.tokens_output", completion_tokens, self.tags)
        return LLMResponse(
            content=content,
            model=completion.model,
            provider=self.provider,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            latency_ms=latency_ms,
            metadata={**metadata, **completion.metadata},
        )


class SilenceLimit:
    """Time limit for each of many awaits in a row, with one timer that is moved forward.

    ``asyncio.timeout`` would set and cancel a timer for each text of a stream. As there, the await is
    canceled and ``TimeoutError`` raised. Set ``limit.s = 10`` and use ``with limit:`` around each await;
    awaits outside the blocks are not limited and may run in other tasks. Close it at the end.
    """

    def __init__(self) -> None:
        self.s = 0.0
        """Time limit of the next awaits, in seconds; 0 or less ends an await as soon as it blocks."""
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
        # The task may have been canceled from outside as well:
        # https://docs.python.org/3/library/asyncio-task.html#asyncio.Task.uncancel
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exc

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at: float) -> None:
        self.close()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._due is None or self._task is None:
            return  # no await is running; the next one sets the timer
        if self._due > self._loop.time():
            self._set(self._due)
        else:
            self._expired = True
            self._task.cancel()


class VendorGuard:
    """Await a provider's steps within their time limits and raise our errors for the vendor's.

    Args:
        name: Returns the provider's name, for the errors.
        map_error: Maps a foreign exception to our error.
        safe_cause: Returns the exception with no secret in its text.
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
            VectorForgeError: The step failed or timed out.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await step
        except VectorForgeError:
            raise
        except Exception as exc:  # noqa: BLE001 - a vendor's answer may raise anything; it is mapped and raised
            error, cause = self._mapped(exc)
            raise error from cause

    async def first(self, stream: AsyncGenerator[str | Completion, None]) -> str | Completion:
        """Return the first item of a stream; await it within a ``step``."""
        item = await anext(stream, None)
        if item is None:  # the vendors' SDKs take such an end for success
            raise failures.broken_stream(self._name())
        return item

    async def following(
        self, stream: AsyncGenerator[str | Completion, None], limit: SilenceLimit
    ) -> str | Completion:
        """Return the next item of a stream that has emitted text: no error is retryable.

        Raises:
            VectorForgeError: The stream failed, timed out or ended without a completion.
        """
        try:
            with limit:
                return await anext(stream)
        except StopAsyncIteration:
            error: VectorForgeError = failures.broken_stream(self._name())
            cause: BaseException | None = None
        except Exception as exc:  # noqa: BLE001 - as above
            error, cause = self._mapped(exc)
        error.retryable = False
        raise error from cause

    def _mapped(self, exc: Exception) -> tuple[VectorForgeError, BaseException | None]:
        """Return our error for an exception, and its cause."""
        if isinstance(exc, VectorForgeError):
            return exc, exc.__cause__
        if isinstance(exc, TimeoutError):
            return failures.timed_out(self._name()), exc
        return self._map_error(exc), self._safe_cause(exc)
