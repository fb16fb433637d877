"""One request to a provider with all its attempts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vectorforge.deadline import Deadline
from vectorforge.llm.types import Completion, GroundingSource, LLMRequestConfig, LLMResponse, Message
from vectorforge.telemetry import MetricsCollector
from vectorforge.tokens import estimate_tokens


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

    def response(
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
            prompt_tokens = estimate_tokens(prompt, completion.model)
            completion_tokens = estimate_tokens(content, completion.model)
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
