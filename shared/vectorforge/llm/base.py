"""What every LLM provider shares: timing, retries, errors, metrics; a provider adds only vendor calls."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, ClassVar, TypeAlias, TypeVar

from vectorforge.deadline import Deadline
from vectorforge.errors import LLMAuthenticationError, LLMError, VectorForgeError
from vectorforge.health import ComponentHealth, HealthChecker
from vectorforge.llm.request_shaping import check_messages, check_sampling
from vectorforge.llm.resilience import SilenceLimit, VendorGuard
from vectorforge.llm.run import Run
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
)
from vectorforge.telemetry import InMemoryMetrics, Measurement, MetricsCollector, measure
from vectorforge.vendors.retry import LONGEST_WAIT_S, RetryBudget

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OF_MODELS = frozenset(ProviderCapability) - {ProviderCapability.EXTRACTIVE}
_Stream: TypeAlias = AsyncGenerator[str | Completion, None]


class BaseLLMProvider(ABC):
    """An LLM vendor.

    Subclasses implement ``provider_name``, ``_call_api``, ``_call_api_stream`` and ``_list_models``, each
    one attempt, and ``_map_error``. Everything else is done here, once: at most ``retries`` further
    attempts within the deadline and none after the first token, the errors of ``vectorforge.errors``,
    the ``llm.*`` metrics, and the limit on silence within a stream.
    """

    max_temperature: ClassVar[float] = 2.0
    """Highest temperature the vendor knows."""

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
        """Connects to nothing.

        Args:
            default_model: Used when a request names none.
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.<name>``.
            retries: Attempts after the first, 0 or more.
            timeout_s: Longest wait of one attempt for a complete answer or for a stream's first token.
            token_gap_s: Longest wait between two texts of a stream; never more than ``timeout_s``.
        """
        self._default_model = default_model
        self._retries = retries
        self._timeout_s = timeout_s
        self._token_gap_s = min(token_gap_s, timeout_s)
        self._guard = VendorGuard(self.provider_name, self._map_error, self._safe_cause)
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self.retry_budget = RetryBudget()  # a registry gives all its providers one
        if health_checker is not None:
            health_checker.register(name=f"llm.{self.name}", probe=self._health_probe)

    @abstractmethod
    def provider_name(self) -> str:
        """Short lower-case name, e.g. "openai"."""

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
        """What this provider can do."""
        return _OF_MODELS

    def info(self, *, is_default: bool = False) -> ProviderInfo:
        """Describe this provider without any secret."""
        return ProviderInfo(self.name, self.default_model, self.capabilities, is_default)

    async def generate(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        deadline: Deadline | None = None,
    ) -> LLMResponse:
        """The whole answer at once.

        Args:
            messages: The conversation, oldest first; at least one.
            config: Sampling; default: the default model, temperature 0.7, at most 1,024 tokens.
            sources: Passages the answer may quote, in the order of their labels.
            deadline: When to give up; default: when all attempts and waits took as long as they may.

        Raises:
            InvalidInputError: A message or a sampling value is out of range; names the field.
            LLMError: The vendor failed; the subclass says how.
            DeadlineExceededError: No time was left to ask at all.
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
        """The texts of ``stream_events``: same arguments, same errors."""
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
        """The answer as it is written: ``TextDelta`` as often as needed, then exactly one ``StreamEnd``.

        A stream that ends in any other way raises, even when the vendor closed it in good order. Closing
        the generator (``contextlib.aclosing``) closes the vendor's connection. Arguments as ``generate``.

        Raises:
            InvalidInputError: A message or a sampling value is out of range; names the field.
            LLMError: The vendor failed; not ``retryable`` once a text was yielded.
            DeadlineExceededError: No time was left to ask at all.
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
            logger.info(
                "Streamed %d tokens from %s (%s) in %.0f ms",
                response.total_tokens, self.name, response.model, response.latency_ms,
            )  # fmt: skip
            yield StreamEnd(response)

    def request_body(
        self,
        messages: Sequence[Message],
        config: LLMRequestConfig | None = None,
        *,
        sources: Sequence[GroundingSource] = (),
        stream: bool = False,
    ) -> Mapping[str, Any] | None:
        """The body that ``generate`` (or ``stream_events``) would send next, without sending it.

        Arguments as ``generate``. None: this provider sends nothing.

        Raises:
            InvalidInputError: A message or a sampling value is out of range; names the field.
        """
        run = self._prepare(messages, config, sources, Deadline.never())
        return self._body(ProviderCall(run.messages, run.config, sources, self._timeout_s), stream=stream)

    async def validate_credentials(self) -> bool:
        """Whether the vendor accepts our credentials; asks it for its models.

        Raises:
            LLMError: The vendor could not be asked.
        """
        try:
            await self.list_models()
        except LLMAuthenticationError:
            return False
        return True

    async def list_models(self) -> list[str]:
        """Names of the models that the vendor offers, in its order; one attempt.

        Raises:
            LLMError: The vendor could not be asked.
        """
        return await self._guard.step(self._list_models(), self._timeout_s)

    async def preload(self) -> None:
        """Load ahead what the first call would load; connects to nothing. Vendors' providers do more."""
        return

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        return

    @abstractmethod
    async def _call_api(self, call: ProviderCall) -> Completion:
        """One attempt at a whole answer; may raise anything ``_map_error`` knows."""

    @abstractmethod
    def _call_api_stream(self, call: ProviderCall) -> _Stream:
        """One attempt at a stream: non-empty texts, then one ``Completion`` if and only if it is complete."""

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any] | None:
        """What the next attempt at this call would send, as JSON; vendors that are asked override it."""
        return None

    @abstractmethod
    async def _list_models(self) -> list[str]:
        """One attempt at the list of models."""

    def _map_error(self, exc: Exception) -> LLMError:
        """Our error for an exception that is none of ours."""
        return LLMError(f"Provider {self.name} failed ({type(exc).__name__})")

    def _safe_cause(self, exc: Exception) -> Exception:
        """The exception, with nothing secret in its text."""
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
    ) -> Run:
        config = config or LLMRequestConfig(model=self.default_model)
        check_messages(messages)
        check_sampling(config, self.name, self.max_temperature)
        if deadline is None:
            deadline = Deadline.after(self._timeout_s + self._retries * (LONGEST_WAIT_S + self._timeout_s))
        return Run(self.name, messages, config, sources, deadline)

    async def _attempt(self, run: Run, step: Callable[[ProviderCall], Awaitable[T]]) -> T:
        return await run.attempt(
            lambda call: self._guard.step(step(call), call.timeout_s),
            retries=self._retries,
            timeout_s=self._timeout_s,
            metrics=self.metrics,
            budget=self.retry_budget,
        )

    async def _open_stream(self, call: ProviderCall) -> tuple[_Stream, str | Completion]:
        """The stream and its first item, so that everything before the first text can be tried again."""
        stream = self._call_api_stream(call)
        try:
            return stream, await self._guard.first(stream)
        except BaseException:
            await stream.aclose()
            raise
