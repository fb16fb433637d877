"""State of one query while it runs, and the events, results and log records made of it."""

import asyncio
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMResponse, ProviderCapability
from vectorforge.pipeline.context import ContextConfig, ContextPayload
from vectorforge.pipeline.presets import Preset, find_preset, last_exchanges, quoted_answer
from vectorforge.pipeline.prices import PUBLISHED_PRICES, PriceList
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.stored_answer import CacheState
from vectorforge.pipeline.types import (
    AnswerQuality,
    Citation,
    Degradation,
    ErrorEvent,
    Funnel,
    MetaEvent,
    Outcome,
    QueryConfig,
    QueryResult,
    StructuredAnswer,
    UsageEvent,
)
from vectorforge.retriever.base import CleanQuery, CollectionChoice, QueryLookup, RetrievedChunks
from vectorforge.types import RetrievedChunk


@dataclass(slots=True)
class Timings:
    """Milliseconds of the steps; the names are those of the query log's columns."""

    retrieval_ms: float = 0.0
    context_ms: float = 0.0
    generation_ms: float = 0.0
    first_token_ms: float | None = None
    """From the start of the query to the first token; None without a token."""


@dataclass(slots=True)
class ModelUse:
    """Tokens of all models called for one query, and the cost of its answer."""

    tokens: int = 0
    cost_usd: float | None = None
    """Cost of the answer, or None if the price list does not have the model."""


@dataclass(slots=True)
class QueryRun:
    """One query, filled in step by step."""

    query: str
    choice: CollectionChoice
    config: QueryConfig
    request_id: UUID
    deadline: Deadline
    buffered: bool
    """True: the model returns the whole answer at once."""
    collection_id: UUID = field(init=False)
    """Set by step 0."""
    stage: str = "preprocess"
    search_text: str = ""
    query_truncated: bool = False
    request_error: VectorForgeError | None = None
    """Error found while the query was prepared; raised by step 1, after the collection was found."""
    provider: BaseLLMProvider | None = None
    llm_model: str | None = None
    """Model of the provider; None for its default."""
    lookup: QueryLookup | None = None
    """Collection and cached vector; None if there is no look-up service."""
    cache: CacheState = field(default_factory=CacheState)
    retrieved: RetrievedChunks = field(default_factory=RetrievedChunks)
    """Chunks found, best first."""
    payload: ContextPayload | None = None
    """Prompt built last."""
    context_limit: int | None = None
    """Token budget of the context after a model rejected a longer prompt."""
    overflowed: bool = False
    """True if a model rejected a prompt as too long and a shorter one was built."""
    answer: str = ""
    response: LLMResponse | None = None
    citations: list[Citation] = field(default_factory=list)
    invalid_citations: int = 0
    links_removed: int = 0
    """Addresses and images removed from the answer."""
    finish_reason: str = "stop"
    outcome: Outcome = "answered"
    error: VectorForgeError | None = None
    degraded: list[Degradation] = field(default_factory=list)
    rewritten_query: str | None = None
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    timings: Timings = field(default_factory=Timings)
    use: ModelUse = field(default_factory=ModelUse)
    prices: PriceList = PUBLISHED_PRICES
    stop: StopSignal = field(default_factory=StopSignal)
    """Ends the answer of a streamed query."""
    started: float = field(default_factory=time.perf_counter)

    def prepare(self, clean: CleanQuery, registry: LLMProviderRegistry) -> None:
        """Set the cleaned query, check the preset and choose the provider.

        Raises:
            InvalidInputError: The request names an unknown preset or provider.
        """
        self.search_text, self.query_truncated = clean.text, clean.truncated
        find_preset(self.config.preset)
        self.llm_model = self.config.llm_model
        if self.config.llm_provider:
            self.provider = registry.get(self.config.llm_provider)
        elif registry.list_providers():
            self.provider = registry.get_default()

    @property
    def preset(self) -> Preset:
        """Preset of the API surface."""
        return find_preset(self.config.preset)

    @property
    def model(self) -> str | None:
        """Name of the answering model, or None if no model answers."""
        if self.provider is None:
            return None
        return self.llm_model or self.provider.default_model

    def loop_deadline(self) -> float | None:
        """Return the deadline on the event loop's clock, or None for no deadline."""
        remaining = self.deadline.remaining_s()
        return None if remaining == float("inf") else asyncio.get_running_loop().time() + remaining

    def meta(self) -> MetaEvent:
        """Return the first event."""
        extractive = (
            self.provider is not None and ProviderCapability.EXTRACTIVE in self.provider.info().capabilities
        )
        return MetaEvent(
            request_id=self.request_id,
            collection_id=self.collection_id,
            provider=self.provider.provider_name() if self.provider else None,
            model=self.model,
            extractive=extractive,
            query_truncated=self.query_truncated,
            cached=self.cache.hit,
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
            rewritten_query=self.rewritten_query,
        )

    def context_config(self) -> ContextConfig:
        """Return the preset's context settings with the request's own template."""
        preset, config, limit = self.preset, self.config, self.context_limit
        factor = preset.context_tokens_per_answer_token
        in_context = preset.history_policy == "last_exchanges"
        return ContextConfig(
            system_prompt_template=config.system_prompt or preset.system_prompt,
            max_context_tokens=limit
            or preset.max_context_tokens
            or (config.max_tokens * factor if factor else None),
            include_sources=config.include_sources,
            chunk_separator=preset.chunk_separator,
            format=preset.context_format,
            model=preset.counting_model,
            max_context_chars=None if limit else preset.context_chars,
            exchanges=last_exchanges(config.history) if in_context else (),
            user_template=None if config.system_prompt else preset.user_template,
        )

    def fail(self, error: VectorForgeError) -> ErrorEvent:
        """Note an error and return the last event of the failed query."""
        self.outcome, self.error, self.finish_reason = "error", error, "error"
        return ErrorEvent(error=error, stage=self.stage, partial_answer=self.answer)

    @property
    def used(self) -> list[RetrievedChunk]:
        """Chunks in the prompt."""
        return self.payload.used if self.payload else []

    def funnel(self) -> Funnel:
        """Return the number of chunks that each step so far has left."""
        found = self.retrieved
        return Funnel(
            matched=found.matched,
            matched_is_at_least=found.matched_is_at_least,
            candidates=len(found) + found.below_min_score,
            below_min_score=found.below_min_score,
            dropped_by_budget=self.payload.chunks_truncated if self.payload else 0,
            cited=len({citation.chunk_id for citation in self.citations}),
            search_mode=found.search_mode,
            scan=found.scan,
        )

    def _summary(self) -> dict[str, Any]:
        """Return the fields that the result and the log record share."""
        return {
            "collection_id": self.collection_id,
            "outcome": self.outcome,
            "used_chunk_ids": [c.chunk.id for c in self.used],
            "cached": self.cache.hit,
            "degraded": tuple(self.degraded),
            "variant": self.config.variant,
            "conversation_id": self.config.conversation_id,
            "cost_usd": self.use.cost_usd,
        }

    def result(self) -> QueryResult:
        """Return the result of a successful query."""
        if self.structured is None and self.preset.response_schema is not None:
            self.structured = quoted_answer(self.used, self.citations)
        return QueryResult(
            **self._summary(),
            query=self.query,
            answer=self.answer,
            retrieved_chunks=self.retrieved,
            sources=self.payload.sources if self.payload else [],
            retrieval_latency_ms=self.timings.retrieval_ms,
            generation_latency_ms=self.timings.generation_ms,
            total_latency_ms=self._total_ms(),
            llm_response=self.response,
            request_id=self.request_id,
            citations=self.citations,
            invalid_citations=self.invalid_citations,
            finish_reason=self.finish_reason,
            query_truncated=self.query_truncated,
            funnel=self.funnel(),
            context_latency_ms=self.timings.context_ms,
            first_token_latency_ms=self.timings.first_token_ms,
            rewritten_query=self.rewritten_query,
            quality=self.quality,
            structured=self.structured,
        )

    def start_record(self) -> QueryLog:
        """Return the record of a query that has begun; ``log_record`` replaces it."""
        return QueryLog(
            **{**self._summary(), "outcome": "started", "used_chunk_ids": []},
            id=self.request_id,
            query_text=self.search_text or self.query,
            retrieved_chunk_ids=[],
            generated_response="",
            latency_ms=0.0,
            provider=self.provider.provider_name() if self.provider else None,
            model=self.model,
            preset=self.config.preset,
        )

    def log_record(self) -> QueryLog:
        """Return the record of a query that has ended, with or without success."""
        response = self.response
        return replace(
            self.start_record(),
            **self._summary(),
            **asdict(self.timings),
            retrieved_chunk_ids=[c.chunk.id for c in self.retrieved],
            generated_response=self.answer,
            latency_ms=self._total_ms(),
            model=response.model if response else self.model,
            prompt_tokens=response.prompt_tokens if response else 0,
            completion_tokens=response.completion_tokens if response else 0,
            error_code=self.error.code if self.error else None,
            error_stage=self.stage if self.error else None,
            quality=self.quality.as_dict() if self.quality else None,
        )

    def note_cost(self, usage: UsageEvent) -> None:
        """Add the tokens and the cost of an answer; the cost is None if the model has no known price."""
        if self.provider is None:
            return
        if ProviderCapability.EXTRACTIVE not in self.provider.capabilities:
            self.use.tokens += usage.prompt_tokens + usage.completion_tokens
        provider = self.provider.provider_name()
        answering = self.response.model if self.response else None
        for model in filter(None, (answering, self.model)):
            self.use.cost_usd = self.prices.estimate_cost(
                provider, model, usage.prompt_tokens, usage.completion_tokens
            )
            if self.use.cost_usd is not None:
                return

    def note_first_token(self) -> None:
        """Set the time of the first token; later calls do nothing."""
        if self.timings.first_token_ms is None:
            self.timings.first_token_ms = (time.perf_counter() - self.started) * 1000

    def _total_ms(self) -> float:
        if self.outcome == "empty" and self.response is None:
            return self.timings.retrieval_ms  # without chunks the search is all there is
        # At least the sum of its parts, which are measured at moments of their own.
        times = self.timings
        elapsed = (time.perf_counter() - self.started) * 1000
        return max(elapsed, times.retrieval_ms + times.context_ms + times.generation_ms)
