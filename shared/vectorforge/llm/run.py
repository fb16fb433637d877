"""One request to a provider with all its attempts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vectorforge.background import off_event_loop
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError
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
from vectorforge.tokens import estimate_tokens
from vectorforge.vendors.retry import RetryBudget, with_retries

T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """A request on its way."""

    provider: str
    messages: Sequence[Message]
    config: LLMRequestConfig
    sources: Sequence[GroundingSource]
    deadline: Deadline
    attempts: int = 0
    """Attempts begun so far."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of all its measurements."""
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
        """Try a step until it succeeds, must not be tried again, or the time is used up.

        Args:
            step: One attempt; keeps to the call's ``timeout_s`` itself.
            retries: Attempts after the first, 0 or more.
            timeout_s: Longest time of one attempt; cut to what the deadline leaves.
            metrics: Where the retries are counted.
            budget: What the retries are taken from.

        Raises:
            LLMTimeoutError: The deadline passed while the provider was asked.
            DeadlineExceededError: It had passed before that.
            VectorForgeError: What the last attempt raised.
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
        """The finished answer; counts its tokens.

        Args:
            completion: What the provider said; token counts that it left out are estimated.
            content: The whole text.
            latency_ms: From the request to now, retries included.
            metrics: Where the token counts go.
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
