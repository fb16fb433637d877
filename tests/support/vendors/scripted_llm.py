"""A language model whose answer and pieces are set by the test."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from vectorforge.errors import LLMError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import Completion, GroundingSource, LLMRequestConfig, Message, ProviderCall
from vectorforge.telemetry import MetricsCollector


class ScriptedLLM(BaseLLMProvider):
    """Streams ``pieces``; records every call.

    Args:
        pieces: The answer, in order.
        error: Raised after the pieces, in place of a regular end.
        first_errors: Raised by the first calls, one each, before any piece; retryable ones are retried.
        delay_s: Seconds before the first piece.
        gate: Awaited before each piece after the first.
        name: The provider's name.
        metrics: Sink of the ``llm.*`` metrics.
    """

    def __init__(
        self,
        pieces: Sequence[str] = ("It is so. [Source 1]",),
        *,
        error: LLMError | None = None,
        first_errors: Sequence[LLMError] = (),
        delay_s: float = 0.0,
        gate: asyncio.Semaphore | None = None,
        name: str = "scripted",
        metrics: MetricsCollector | None = None,
    ) -> None:
        self._name = name
        super().__init__(default_model="scripted-1", metrics=metrics, retries=len(first_errors))
        self._pieces = pieces
        self._error = error
        self._first_errors = list(first_errors)
        self._delay_s = delay_s
        self._gate = gate
        self.calls: list[tuple[list[Message], LLMRequestConfig]] = []
        """Messages and settings of each call, oldest first."""
        self.sources: list[GroundingSource] = []
        """Sources of the last call."""
        self.closed_early = 0
        """Streams that the caller closed before their end."""

    def provider_name(self) -> str:
        """The configured name."""
        return self._name

    async def _list_models(self) -> list[str]:
        return [self.default_model]

    async def _call_api(self, call: ProviderCall) -> Completion:
        await self._begin(call)
        if self._error is not None:
            raise self._error
        return self._completion(call, "".join(self._pieces))

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        await self._begin(call)
        try:
            for number, piece in enumerate(self._pieces):
                if number and self._gate is not None:
                    await self._gate.acquire()
                yield piece
            if self._error is not None:
                raise self._error
            yield self._completion(call, "")
        except (GeneratorExit, asyncio.CancelledError):
            self.closed_early += 1
            raise

    async def _begin(self, call: ProviderCall) -> None:
        self.calls.append((list(call.messages), call.config))
        self.sources = list(call.sources)
        await asyncio.sleep(self._delay_s)
        if self._first_errors:
            raise self._first_errors.pop(0)

    def _completion(self, call: ProviderCall, content: str) -> Completion:
        return Completion(
            model=call.config.model,
            finish_reason="stop",
            content=content,
            prompt_tokens=100,
            completion_tokens=10,
        )
