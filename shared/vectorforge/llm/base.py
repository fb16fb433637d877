"""Base class of LLM providers: timing, retries, errors and metrics; a provider adds only vendor calls."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, ClassVar, TypeAlias, TypeVar, Unpack

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, LLMAuthenticationError, LLMError, VectorForgeError
from vectorforge.health import ComponentHealth
from vectorforge.llm import failures
from vectorforge.llm.types import (
    MODEL_CAPABILITIES,
    AnswerPart,
    Completion,
    GroundingSource,
    LLMRequestConfig,
    LLMResponse,
    LLMStreamEvent,
    Message,
    ProviderCall,
    ProviderCapability,
    ProviderInfo,
    ProviderOptions,
    StreamEnd,
    TextDelta,
    check_messages,
    check_sampling,
    response_of,
)
from vectorforge.telemetry import InMemoryMetrics, Measurement, MetricsCollector, measure
from vectorforge.tokens import estimate_tokens
from vectorforge.vendors.resilience import LONGEST_WAIT_S, RetryBudget, with_retries

logger = logging.getLogger(__name__)
T = TypeVar("T")
StreamItem: TypeAlias = AnswerPart | Completion
_Stream: TypeAlias = AsyncGenerator[StreamItem, None]


class BaseLLMProvider(ABC):
    """LLM vendor; creating a provider imports no SDK and connects to nothing.

    Subclasses implement ``provider_name``, ``_call_api``, ``_call_api_stream`` and ``_list_models``, each
    one attempt, and ``_map_error``. This class adds at most ``retries`` further attempts within the deadline
    and none after the first token, our errors, the ``llm.*`` metrics, and the limit on a stream's silence.
    ``default_model`` is the model of requests that name none.
    """

    max_temperature: ClassVar[float] = 2.0
    """Highest temperature that the vendor accepts."""

    def __init__(self, *, default_model: str, **options: Unpack[ProviderOptions]) -> None:
        self._default_model = default_model
        self._retries = options.get("retries", 3)
        self._timeout_s = options.get("timeout_s", 60.0)
        self._token_gap_s = min(options.get("token_gap_s", 10.0), self._timeout_s)
        self.metrics: MetricsCollector = options.get("metrics") or InMemoryMetrics()
        self.retry_budget = RetryBudget()  # a registry shares one among its providers
        if (health_checker := options.get("health_checker")) is not None:
            health_checker.register(name=f"llm.{self.name}", probe=self._health_probe)

    @abstractmethod
    def provider_name(self) -> str:
        """Return the short lower-case name, e.g. "openai"."""

    @property
    def name(self) -> str:
        """Same as ``provider_name()``, which providers implement."""
        return self.provider_name()

    @property
    def default_model(self) -> str:
        """Model of requests that name none."""
        return self._default_model

    @property
    def capabilities(self) -> frozenset[ProviderCapability]:
        """Capabilities of this provider."""
        return MODEL_CAPABILITIES

    @property
    def calls_tools(self) -> bool:
        """True if the provider sends tools to its models."""
        return ProviderCapability.EXTRACTIVE not in self.capabilities

    def info(self, *, is_default: bool = False) -> ProviderInfo:
        """Describe this provider; holds no secret."""
        return ProviderInfo(self.name, self.default_model, self.capabilities, is_default)

    async def generate(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        deadline: Deadline | None = None,
    ) -> LLMResponse:
        """Return the whole answer.

        Args:
            messages: The conversation, oldest first; at least one message.
            config: Sampling; default: the default model, temperature 0.7, at most 1,024 tokens.
            sources: Chunks that the answer may quote, in the order of their labels.
            deadline: Time limit of all attempts; default: the sum of the longest attempts and waits.

        Raises:
            InvalidInputError: A message or a sampling value is out of range; names the field.
            LLMError: The vendor failed; subclasses give the reason.
            DeadlineExceededError: The deadline passed before the first attempt.
        """
        call = self._prepare(messages, config, sources, deadline)
        with measure(self.metrics, "llm.generate", call.tags) as timer:
            completion = await self._attempt(call, self._call_api)
            return await self._response(call, completion, [completion.content], timer)

    async def generate_stream(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the texts of ``stream_events``; same arguments and errors."""
        events = self.stream_events(messages, config, sources=sources, deadline=deadline)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    async def stream_events(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[LLMStreamEvent, None]:
        """Yield the answer as it is generated: ``TextDelta`` and ``ToolCallDelta``, then one ``StreamEnd``.

        A stream that ends in any other way raises, even when the vendor closed the connection normally.
        Closing the generator (``contextlib.aclosing``) closes the connection. Arguments and errors as
        ``generate``; no error is ``retryable`` once a text was yielded.
        """
        call, items = self._prepare(messages, config, sources, deadline), list[AnswerPart]()
        with measure(self.metrics, "llm.generate", call.tags) as timer:
            try:
                stream, item = await self._attempt(call, self._open_stream)
                async with aclosing(stream):
                    while not isinstance(item, Completion):
                        if not items:
                            self.metrics.observe("llm.streaming.first_token_ms", timer.elapsed_ms, call.tags)
                        items.append(item)
                        yield TextDelta(item) if isinstance(item, str) else item
                        item = await self._next(stream, call.deadline)
            finally:
                if items:
                    self.metrics.increment("llm.streaming.chunks", len(items), call.tags)
            response = await self._response(call, item, items, timer)
            facts = (response.total_tokens, self.name, response.model, response.latency_ms)
            logger.info("Streamed %d tokens from %s (%s) in %.0f ms", *facts)
            yield StreamEnd(response)

    def request_body(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        stream: bool = False,
    ) -> Mapping[str, Any] | None:
        """Return the body that ``generate`` (or ``stream_events``) would send, or None; errors as there."""
        return self._body(self._prepare(messages, config, sources, None), stream=stream)

    async def validate_credentials(self) -> bool:
        """Return False if the vendor rejects our credentials; errors as ``list_models``."""
        with suppress(LLMAuthenticationError):
            await self.list_models()
            return True
        return False

    async def list_models(self) -> list[str]:
        """Return the names of the vendor's models, in its order; one attempt. Raises ``LLMError``."""
        return await self._guarded(self._list_models(), self._timeout_s)

    async def preload(self) -> None:  # noqa: B027 - nothing to import by default
        """Import the packages of the first call; connects to nothing."""

    async def aclose(self) -> None:  # noqa: B027 - nothing to close by default
        """Close connections. The provider may be used again and reconnects."""

    @abstractmethod
    async def _call_api(self, call: ProviderCall) -> Completion:
        """Make one attempt at a whole answer; may raise anything that ``_map_error`` maps."""

    @abstractmethod
    def _call_api_stream(self, call: ProviderCall) -> _Stream:
        """Make one attempt: non-empty texts and pieces of calls, then a ``Completion`` if it is complete."""

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any] | None:
        """Return the JSON of the next attempt; None for a provider that sends nothing."""
        return None

    @abstractmethod
    async def _list_models(self) -> list[str]:
        """Make one attempt to list the models."""

    def _map_error(self, exc: Exception) -> LLMError:
        """Return our error for a foreign exception."""
        return LLMError(f"Provider {self.name} failed ({type(exc).__name__})")

    def _safe_cause(self, exc: Exception) -> Exception:
        """Return the exception with no secret in its text."""
        return exc

    async def _health_probe(self) -> ComponentHealth:
        started, detail = time.perf_counter(), ""
        try:
            await self.list_models()
        except VectorForgeError as exc:
            detail = exc.message
        return ComponentHealth(f"llm.{self.name}", not detail, detail, (time.perf_counter() - started) * 1000)

    def _prepare(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None,
        sources: Sequence[GroundingSource],
        deadline: Deadline | None,
    ) -> ProviderCall:
        config = config or LLMRequestConfig(model=self.default_model)
        check_messages(messages)
        check_sampling(config, self.name, self.max_temperature)
        if deadline is None:
            deadline = Deadline.after(self._timeout_s + self._retries * (LONGEST_WAIT_S + self._timeout_s))
        return ProviderCall(self.name, messages, config, sources, self._timeout_s, deadline)

    async def _attempt(self, call: ProviderCall, step: Callable[[ProviderCall], Awaitable[T]]) -> T:
        async def once() -> T:
            call.timeout_s = call.deadline.clamp(self._timeout_s)
            call.attempts += 1
            return await self._guarded(step(call), call.timeout_s)

        try:
            if self._retries == 0:
                return await once()
            return await with_retries(
                once,
                retries=self._retries,
                deadline=call.deadline,
                budget=self.retry_budget,
                on_retry=lambda: self.metrics.increment("llm.generate.retries", tags=call.tags),
            )
        except DeadlineExceededError as exc:
            if call.attempts == 0:
                raise
            raise failures.timed_out(self.name) from exc

    async def _guarded(self, step: Awaitable[T], timeout_s: float) -> T:
        """Await a step for at most ``timeout_s`` and raise our errors for the vendor's."""
        try:
            async with asyncio.timeout(timeout_s):
                return await step
        except VectorForgeError:
            raise
        except TimeoutError as exc:
            raise failures.timed_out(self.name) from exc
        except Exception as exc:  # noqa: BLE001 - a vendor's answer may raise anything; it is mapped and raised
            raise self._map_error(exc) from self._safe_cause(exc)

    async def _open_stream(self, call: ProviderCall) -> tuple[_Stream, StreamItem]:
        """Return the stream and its first item: everything before the first text can be retried."""
        stream = self._call_api_stream(call)
        try:
            return stream, await self._item(stream)
        except BaseException:
            await stream.aclose()
            raise

    async def _next(self, stream: _Stream, deadline: Deadline) -> StreamItem:
        """Return the next item of a stream that has emitted text: no error is retryable."""
        silence_s = min(self._token_gap_s, deadline.remaining_s())
        try:
            return await self._guarded(self._item(stream), silence_s)
        except VectorForgeError as exc:
            exc.retryable = False
            raise

    async def _item(self, stream: _Stream) -> StreamItem:
        async for item in stream:
            return item
        raise failures.broken_stream(self.name)  # the vendors' SDKs take such an end for success

    async def _response(
        self, call: ProviderCall, completion: Completion, items: Sequence[AnswerPart], timer: Measurement
    ) -> LLMResponse:
        response = await response_of(call, completion, items, timer.elapsed_ms, estimate_tokens)
        self.metrics.increment("llm.tokens_input", response.prompt_tokens, call.tags)
        self.metrics.increment("llm.tokens_output", response.completion_tokens, call.tags)
        return response
