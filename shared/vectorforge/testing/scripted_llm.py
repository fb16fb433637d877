"""A language model that says what a test tells it to, in the pieces the test chooses."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from vectorforge.errors import LLMError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import (
    GroundingSource,
    LLMRequestConfig,
    LLMResponse,
    LLMStreamEvent,
    Message,
    StreamEnd,
    TextDelta,
)
from vectorforge.telemetry import MetricsCollector


class ScriptedLLM(BaseLLMProvider):
    """Streams ``pieces``; records every call.

    Args:
        pieces: The answer, in order.
        error: Raised after the pieces, in place of a regular end.
        gate: Waited for before each piece after the first.
        name: The provider's name.
        metrics: Where ``llm.*`` goes.
    """

    def __init__(
        self,
        pieces: Sequence[str] = ("It is so. [Source 1]",),
        *,
        error: LLMError | None = None,
        gate: asyncio.Semaphore | None = None,
        name: str = "scripted",
        metrics: MetricsCollector | None = None,
    ) -> None:
        super().__init__(default_model="scripted-1", metrics=metrics, retries=0)
        self._pieces = pieces
        self._error = error
        self._gate = gate
        self._name = name
        self.calls: list[tuple[list[Message], LLMRequestConfig]] = []
        """Messages and settings of each call, oldest first."""
        self.sources: list[GroundingSource] = []
        """Sources of the last call."""
        self.closed_early = 0
        """Streams that the caller closed before their end."""

    def provider_name(self) -> str:
        """The name given."""
        return self._name

    async def list_models(self) -> list[str]:
        """Its one model."""
        return [self.default_model]

    async def validate_credentials(self) -> bool:
        """It needs none."""
        return True

    async def _call_api(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig,
        *,
        sources: Sequence[GroundingSource] = (),
        timeout_s: float,
    ) -> LLMResponse:
        self.calls.append((list(messages), config))
        self.sources = list(sources)
        if self._error is not None:
            raise self._error
        return self._response(config)

    async def _call_api_stream(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig,
        *,
        sources: Sequence[GroundingSource] = (),
        timeout_s: float,
    ) -> AsyncIterator[LLMStreamEvent]:
        self.calls.append((list(messages), config))
        self.sources = list(sources)
        try:
            for number, piece in enumerate(self._pieces):
                if number and self._gate is not None:
                    await self._gate.acquire()
                yield TextDelta(piece)
            if self._error is not None:
                raise self._error
            yield StreamEnd(self._response(config))
        except GeneratorExit:
            self.closed_early += 1
            raise

    def _response(self, config: LLMRequestConfig) -> LLMResponse:
        return LLMResponse(
            content="".join(self._pieces),
            model=config.model,
            provider=self._name,
            prompt_tokens=100,
            completion_tokens=10,
            total_tokens=110,
            latency_ms=0.0,
            metadata={"finish_reason": "stop"},
        )
