"""The state of one query while it runs, and what is made of it: first event, result, log record."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import LLMResponse, ProviderCapability
from vectorforge.pipeline.context import ContextConfig, ContextPayload
from vectorforge.pipeline.docrag import last_exchanges, quoted_answer
from vectorforge.pipeline.presets import Preset, find_preset
from vectorforge.pipeline.prices import PUBLISHED_PRICES, PriceList
from vectorforge.pipeline.stopping import StopSignal
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
from vectorforge.retriever.base import Passages, QueryLookup
from vectorforge.types import RetrievedChunk

if TYPE_CHECKING:
    from vectorforge.pipeline.answer_cache.stored_answer import StoredAnswer


@dataclass(slots=True)
class QueryRun:
    """One query, filled in step by step."""

    query: str
    collection_id: UUID
    config: QueryConfig
    request_id: UUID
    deadline: Deadline
    buffered: bool
    """True: the model is asked for the whole answer at once."""
    stage: str = "preprocess"
    search_text: str = ""
    query_truncated: bool = False
    provider: BaseLLMProvider | None = None
    llm_model: str | None = None
    """Model that the provider is asked for; None: its default."""
    known: QueryLookup | None = None
    """What was looked up of the question beforehand."""
    cache_key: bytes | None = None
    data_version: int | None = None
    """Of the collection, before the search; None: not known."""
    stored: "StoredAnswer | None" = None
    """What the same question got before, on the same documents."""
    retrieved: Passages = field(default_factory=Passages)
    """The passages found, best first."""
    payload: ContextPayload | None = None
    """What a model was sent last."""
    context_limit: int | None = None
    """Tokens of the context at most, because a model did not take more."""
    overflowed: bool = False
    """Whether a model found the prompt too long, and a shorter one was made."""
    answer: str = ""
    response: LLMResponse | None = None
    citations: list[Citation] = field(default_factory=list)
    invalid_citations: int = 0
    links_removed: int = 0
    """Addresses and images taken out of the answer."""
    finish_reason: str = "stop"
    outcome: Outcome = "answered"
    error: VectorForgeError | None = None
    retrieval_ms: float = 0.0
    context_ms: float = 0.0
    generation_ms: float = 0.0
    first_token_ms: float | None = None
    cached: bool = False
    degraded: list[Degradation] = field(default_factory=list)
    rewritten_query: str | None = None
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    cost_usd: float | None = None
    used_tokens: int = 0
    """Of all models that were asked for this query, prompts and completions."""
    prices: PriceList = PUBLISHED_PRICES
    stop: StopSignal = field(default_factory=StopSignal)
    """Ends the answer of a query that streams."""
    started: float = field(default_factory=time.perf_counter)

    @property
    def preset(self) -> Preset:
        """The door's preset."""
        return find_preset(self.config.preset)

    @property
    def model(self) -> str | None:
        """Name of the answering model; None when none will be asked."""
        if self.provider is None:
            return None
        return self.llm_model or self.provider.default_model

    def loop_deadline(self) -> float | None:
        """The deadline on the event loop's clock; None for none."""
        remaining = self.deadline.remaining_s()
        return None if remaining == float("inf") else asyncio.get_running_loop().time() + remaining

    def choose_provider(self, registry: LLMProviderRegistry) -> None:
        """Find who answers.

        Raises:
            InvalidInputError: The request names a provider that is not there.
        """
        self.llm_model = self.config.llm_model
        if self.config.llm_provider:
            self.provider = registry.get(self.config.llm_provider)
        elif registry.list_providers():
            self.provider = registry.get_default()

    def meta(self) -> MetaEvent:
        """The first event."""
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
            cached=self.cached,
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
            rewritten_query=self.rewritten_query,
        )

    def context_config(self) -> ContextConfig:
        """The preset's context under the request's own template."""
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
        """The last event of a query that failed."""
        self.outcome, self.error, self.finish_reason = "error", error, "error"
        return ErrorEvent(error=error, stage=self.stage, partial_answer=self.answer)

    @property
    def used(self) -> list[RetrievedChunk]:
        """The passages in the prompt."""
        return self.payload.used if self.payload else []

    def funnel(self) -> Funnel:
        """What the steps so far left of the passages."""
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

    def result(self) -> QueryResult:
        """The result of a query that worked."""
        if self.structured is None and self.preset.response_schema is not None:
            self.structured = quoted_answer(self.used, self.citations)
        return QueryResult(
            query=self.query,
            answer=self.answer,
            retrieved_chunks=self.retrieved,
            sources=self.payload.sources if self.payload else [],
            retrieval_latency_ms=self.retrieval_ms,
            generation_latency_ms=self.generation_ms,
            total_latency_ms=self._total_ms(),
            llm_response=self.response,
            request_id=self.request_id,
            collection_id=self.collection_id,
            citations=self.citations,
            invalid_citations=self.invalid_citations,
            outcome=self.outcome,
            finish_reason=self.finish_reason,
            used_chunk_ids=[c.chunk.id for c in self.used],
            query_truncated=self.query_truncated,
            funnel=self.funnel(),
            context_latency_ms=self.context_ms,
            first_token_latency_ms=self.first_token_ms,
            cached=self.cached,
            degraded=tuple(self.degraded),
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
            rewritten_query=self.rewritten_query,
            quality=self.quality,
            structured=self.structured,
            cost_usd=self.cost_usd,
        )

    def start_record(self) -> QueryLog:
        """The record of a query that has only begun; ``log_record`` takes its place."""
        return QueryLog(
            id=self.request_id,
            collection_id=self.collection_id,
            query_text=self.search_text,
            retrieved_chunk_ids=[],
            generated_response="",
            latency_ms=0.0,
            outcome="started",
            provider=self.provider.provider_name() if self.provider else None,
            model=self.model,
            preset=self.config.preset,
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
        )

    def log_record(self) -> QueryLog:
        """The record of a query, however it ended."""
        response = self.response
        return QueryLog(
            id=self.request_id,
            collection_id=self.collection_id,
            query_text=self.search_text or self.query,
            retrieved_chunk_ids=[c.chunk.id for c in self.retrieved],
            generated_response=self.answer,
            latency_ms=self._total_ms(),
            outcome=self.outcome,
            used_chunk_ids=[c.chunk.id for c in self.used],
            provider=self.provider.provider_name() if self.provider else None,
            model=response.model if response else self.model,
            prompt_tokens=response.prompt_tokens if response else 0,
            completion_tokens=response.completion_tokens if response else 0,
            retrieval_ms=self.retrieval_ms,
            generation_ms=self.generation_ms,
            error_code=self.error.code if self.error else None,
            error_stage=self.stage if self.error else None,
            preset=self.config.preset,
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
            cached=self.cached,
            degraded=tuple(self.degraded),
            quality=self.quality.as_dict() if self.quality else None,
            context_ms=self.context_ms,
            first_token_ms=self.first_token_ms,
            cost_usd=self.cost_usd,
        )

    def note_cost(self, usage: UsageEvent) -> None:
        """Take what the model's words cost; None when its price is not known."""
        if self.provider is None:
            return
        if ProviderCapability.EXTRACTIVE not in self.provider.capabilities:
            self.used_tokens += usage.prompt_tokens + usage.completion_tokens
        provider = self.provider.provider_name()
        answering = self.response.model if self.response else None
        for model in filter(None, (answering, self.model)):
            self.cost_usd = self.prices.estimate_cost(
                provider, model, usage.prompt_tokens, usage.completion_tokens
            )
            if self.cost_usd is not None:
                return

    def note_first_token(self) -> None:
        """Take the time of the first token; later calls change nothing."""
        if self.first_token_ms is None:
            self.first_token_ms = (time.perf_counter() - self.started) * 1000

    def _total_ms(self) -> float:
        if self.outcome == "empty" and self.response is None:
            return self.retrieval_ms  # as the design has it: without passages there is nothing but the search
        # Never less than its parts, although each is read off the clock at its own moment.
        elapsed = (time.perf_counter() - self.started) * 1000
        return max(elapsed, self.retrieval_ms + self.context_ms + self.generation_ms)
