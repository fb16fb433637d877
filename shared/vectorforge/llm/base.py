"""Base class of LLM providers: timing, retries, errors and metrics; a provider adds only vendor calls."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from typing import Any, ClassVar, TypeAlias, TypedDict, TypeVar

from vectorforge.deadline import Deadline
from vectorforge.errors import LLMAuthenticationError, LLMError, VectorForgeError
from vectorforge.health import ComponentHealth, HealthChecker
from vectorforge.llm.attempts import LLMRun, SilenceLimit, VendorGuard
from vectorforge.llm.types import (
    Completion,
    GroundingSource,
    LLMRequestConfig,
    LLMResponse,
    LLMStreamEvent,
    Message,
    ProviderCall,
    ProviderCapability,
    ProviderInfo,
    StreamEnd,
    TextDelta,
    check_messages,
    check_sampling,
)
from vectorforge.telemetry import InMemoryMetrics, Measurement, MetricsCollector, measure
from vectorforge.vendors.failures import LONGEST_WAIT_S, RetryBudget

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MODEL_CAPABILITIES = frozenset(ProviderCapability) - {ProviderCapability.EXTRACTIVE}
_Stream: TypeAlias = AsyncGenerator[str | Completion, None]


class ProviderOptions(TypedDict, total=False):
    """Options of every provider; see ``BaseLLMProvider``."""

    metrics: MetricsCollector | None
    health_checker: HealthChecker | None
    retries: int
    timeout_s: float
    token_gap_s: float


class BaseLLMProvider(ABC):
    """LLM vendor.

    Subclasses implement ``provider_name``, ``_call_api``, ``_call_api_stream`` and ``_list_models``, each
    one attempt, and ``_map_error``. This class adds at most ``retries`` further attempts within the deadline
    and none after the first token, the errors of ``vectorforge.errors``, the ``llm.*`` metrics,
    and the limit on silence within a stream. Creating a provider imports no SDK and connects to nothing.

    Args:
        default_model: Model of requests that name none.
        metrics: Receives the measurements; in memory by default.
        health_checker: Receives the probe ``llm.<name>``.
        retries: Attempts after the first, 0 or more.
        timeout_s: Time limit of one attempt, for a complete answer or a stream's first token.
        token_gap_s: Time limit between two texts of a stream; at most ``timeout_s``.
    """

    max_temperature: ClassVar[float] = 2.0
    """Highest temperature that the vendor accepts."""

    def __init__(
        self,
        *,
        default_model: str,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        retries: int = 3,
        timeout_s: float = 60.0,
        token_gap_s: float = 10.0,
    ) -> None:
        self._default_model = default_model
        self._retries = retries
        self._timeout_s = timeout_s
        self._token_gap_s = min(token_gap_s, timeout_s)
        self._guard = VendorGuard(self.provider_name, self._map_error, self._safe_cause)
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self.retry_budget = RetryBudget()  # a registry shares one among its providers
        if health_checker is not None:
            health_checker.register(name=f"llm.{self.name}", probe=self._health_probe)

    @abstractmethod
    def provider_name(self) -> str:
        """Return the short lower-case name, e.g. "openai"."""

    @property
    def name(self) -> str:
        """Same as ``provider_name()``."""
        return self.provider_name()

    @property
    def default_model(self) -> str:
        """Model of requests that name none."""
        return self._default_model

    @property
    def capabilities(self) -> frozenset[ProviderCapability]:
        """Capabilities of this provider."""
        return _MODEL_CAPABILITIES

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
        run = self._prepare(messages, config, sources, deadline)
        with measure(self.metrics, "llm.generate", run.tags) as measurement:
            completion = await self._attempt(run, self._call_api)
            return await run.response(
                completion, completion.content, latency_ms=measurement.elapsed_ms, metrics=self.metrics
            )

    async def generate_stream(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the texts of ``stream_events``; same arguments and errors."""
        async with aclosing(
            self.stream_events(messages, config, sources=sources, deadline=deadline)
        ) as events:
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
        """Yield the answer as it is generated: any number of ``TextDelta``, then exactly one ``StreamEnd``.

        A stream that ends in any other way raises, even when the vendor closed the connection normally.
        Closing the generator (``contextlib.aclosing``) closes the connection. Arguments as ``generate``.

        Raises:
            InvalidInputError: A message or a sampling value is out of range; names the field.
            LLMError: The vendor failed; not ``retryable`` once a text was yielded.
            DeadlineExceededError: The deadline passed before the first attempt.
        """
        run = self._prepare(messages, config, sources, deadline)
        texts: list[str] = []
        with measure(self.metrics, "llm.generate", run.tags) as measurement:
            try:
                stream, item = await self._attempt(run, self._open_stream)
                async with aclosing(stream):
                    with closing(SilenceLimit()) as limit:
                        while isinstance(item, str):
                            if not texts:
                                self.metrics.observe(
                                    "llm.streaming.first_token_ms", measurement.elapsed_ms, run.tags
                                )
                            texts.append(item)
                            yield TextDelta(item)
                            limit.s = min(self._token_gap_s, run.deadline.remaining_s())
                            item = await self._guard.following(stream, limit)
            finally:
                if texts:
                    self.metrics.increment("llm.streaming.chunks", len(texts), run.tags)
            response = await run.response(
                item, "".join(texts), latency_ms=measurement.elapsed_ms, metrics=self.metrics
            )
            streamed = (response.total_tokens, self.name, response.model, response.latency_ms)
            logger.info("Streamed %d tokens from %s (%s) in %.0f ms", *streamed)
            yield StreamEnd(response)

    def request_body(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        stream: bool = False,
    ) -> Mapping[str, Any] | None:
        """Return the body that ``generate`` (or ``stream_events``) would send; None if it sends nothing.

        Arguments and errors as ``generate``.
        """
        run = self._prepare(messages, config, sources, Deadline.never())
        return self._body(ProviderCall(run.messages, run.config, sources, self._timeout_s), stream=stream)

    async def validate_credentials(self) -> bool:
        """List the vendor's models; return False if it rejects our credentials. Errors as there."""
        with suppress(LLMAuthenticationError):
            await self.list_models()
            return True
        return False

    async def list_models(self) -> list[str]:
        """Return the names of the vendor's models, in its order; one attempt.

        Raises:
            LLMError: The vendor cannot be reached or failed.
        """
        return await self._guard.step(self._list_models(), self._timeout_s)

    async def preload(self) -> None:  # noqa: B027 - nothing to import by default
        """Import the packages of the first call; connects to nothing."""

    async def aclose(self) -> None:  # noqa: B027 - nothing to close by default
        """Close connections. The provider may be used again and reconnects."""

    @abstractmethod
    async def _call_api(self, call: ProviderCall) -> Completion:
        """Make one attempt at a whole answer; may raise anything that ``_map_error`` maps."""

    @abstractmethod
    def _call_api_stream(self, call: ProviderCall) -> _Stream:
        """Make one attempt at a stream: non-empty texts, then a ``Completion`` only if it is complete."""

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
        measurement, detail = Measurement(time.perf_counter()), ""
        try:
            await self.list_models()
        except VectorForgeError as exc:
            detail = exc.message
        return ComponentHealth(f"llm.{self.name}", not detail, detail, measurement.elapsed_ms)

    def _prepare(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None,
        sources: Sequence[GroundingSource],
        deadline: Deadline | None,
    ) -> LLMRun:
        config = config or LLMRequestConfig(model=self.default_model)
        check_messages(messages)
        check_sampling(config, self.name, self.max_temperature)
        if deadline is None:
            deadline = Deadline.after(self._timeout_s + self._retries * (LONGEST_WAIT_S + self._timeout_s))
        return LLMRun(self.name, messages, config, sources, deadline)

    async def _attempt(self, run: LLMRun, step: Callable[[ProviderCall], Awaitable[T]]) -> T:
        return await run.attempt(
            lambda call: self._guard.step(step(call), call.timeout_s),
            retries=self._retries,
            timeout_s=self._timeout_s,
            metrics=self.metrics,
            budget=self.retry_budget,
        )

    async def _open_stream(self, call: ProviderCall) -> tuple[_Stream, str | Completion]:
        """Return the stream and its first item: everything before the first text can be retried."""
        stream = self._call_api_stream(call)
        try:
            return stream, await self._guard.first(stream)
        except BaseException:
            await stream.aclose()
            raise
