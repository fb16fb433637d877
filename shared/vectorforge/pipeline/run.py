"""State of one query while it runs, and the events, results and log records made of it."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.tools import ToolCall, ToolCallDelta
from vectorforge.llm.types import LLMResponse, Message, ProviderCapability
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.follow_ups import Expansion
from vectorforge.pipeline.presets import Preset, find_preset, quoted_answer
from vectorforge.pipeline.prices import PUBLISHED_PRICES, PriceList
from vectorforge.pipeline.step_types import QueryStep, check_steps
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.stored_answer import CacheState
from vectorforge.pipeline.types import (
    AnswerQuality,
    Citation,
    CitationEvent,
    Degradation,
    ErrorEvent,
    Funnel,
    MetaEvent,
    QueryConfig,
    QueryEvent,
    QueryResult,
    StructuredAnswer,
    TokenEvent,
    UsageEvent,
)
from vectorforge.retriever.base import CleanQuery, CollectionChoice, QueryLookup, RetrievedChunks
from vectorforge.telemetry import QueryTrace
from vectorforge.types import Outcome, RetrievedChunk

_QUALITY = [field.name for field in fields(AnswerQuality)]


@dataclass(slots=True)
class Timings:
    """Milliseconds of the steps, named like the columns of the query log."""

    retrieval_ms: float = 0.0
    context_ms: float = 0.0
    generation_ms: float = 0.0
    first_token_ms: float | None = None


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
    stage: str = "preprocess"
    search_text: str = ""
    query_truncated: bool = False
    request_error: VectorForgeError | None = None
    """Raised by step 1."""
    provider: BaseLLMProvider | None = None
    llm_model: str | None = None
    """Model of the provider; None for its default."""
    lookup: QueryLookup | None = None
    cache: CacheState = field(default_factory=CacheState)
    retrieved: RetrievedChunks = field(default_factory=RetrievedChunks)
    payload: ContextPayload | None = None
    context_limit: int | None = None
    """Token budget of the context after a model rejected a longer prompt."""
    overflowed: bool = False
    """True if a model rejected a prompt as too long."""
    answer: str = ""
    response: LLMResponse | None = None
    call_pieces: list[ToolCallDelta] = field(default_factory=list)
    """Pieces of tool calls that are not events yet."""
    search: Callable[[str, int], Awaitable[RetrievedChunks]] | None = None
    """Finds at most so many chunks for words, in the scope of the query; for ``config.search_tool``."""
    may_search: bool = True
    """False: the model must answer without a further search."""
    search_calls: Sequence[ToolCall] = ()
    """Searches that the last response calls for."""
    tool_messages: list[Message] = field(default_factory=list)
    """Calls of the search and their results so far."""
    request: dict[str, Any] | None = None
    """See ``query_log.logged_request``."""
    citations: list[Citation] = field(default_factory=list)
    invalid_citations: int = 0
    uncited_sentences: int = 0
    links_removed: int = 0
    finish_reason: str = "stop"
    last_result: "QueryResult | None" = None
    """Result that was last returned, whose times a stored answer has."""
    outcome: Outcome = "answered"
    error: VectorForgeError | None = None
    degraded: list[Degradation] = field(default_factory=list)
    replaces: UUID | None = None
    """Query whose exchange this one replaces in its conversation."""
    rewritten_query: str | None = None
    expansion: Expansion | None = None
    """Earlier turns that the query is searched for with, if no model rewrote it."""
    steps: list[QueryStep] = field(default_factory=list)
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    timings: Timings = field(default_factory=Timings)
    used_tokens: int = 0
    """Tokens of all models called for the query."""
    cost_usd: float | None = None
    planning_usd: float = 0.0
    """Cost of the planning calls, part of ``cost_usd``."""
    prices: PriceList = PUBLISHED_PRICES
    stop: StopSignal | None = None
    trace: QueryTrace = field(default_factory=QueryTrace.begin)
    started: float = field(default_factory=time.perf_counter)

    def prepare(self, clean: CleanQuery, registry: LLMProviderRegistry) -> None:
        """Set the cleaned query, check the preset and choose the provider.

        Raises:
            InvalidInputError: The request names an unknown preset, provider or effort, or has bad intents.
        """
        self.search_text, self.query_truncated = clean.text, clean.truncated
        find_preset(self.config.preset)
        if self.config.has_steps:
            check_steps(self.config.effort, self.config.intents)
        self.llm_model = self.config.llm_model
        if self.config.llm_provider:
            self.provider = registry.get(self.config.llm_provider)
        elif registry.list_providers():
            self.provider = registry.get_default()
        if self.config.needs_model and (self.provider is None or self.is_extractive):
            name = "response_format" if self.config.response_format else "tool_choice"
            name = name if self.config.search_tool is None else "retrieval"
            raise InvalidInputError(
                f"`{name}` requires a language model, and none is configured.", field=name
            )

    def expand(self, expansion: Expansion | None) -> None:
        """Search for the query with words of earlier turns, and report it; without words: as it is."""
        if expansion is not None and expansion.words:
            self.expansion, self.rewritten_query = expansion, f"{self.search_text} {expansion.words}"

    @property
    def quoted_query(self) -> str:
        """Text whose vector is searched for, and by which sentences are chosen for a quoted answer."""
        is_new = self.expansion is not None and not self.expansion.is_related
        return self.search_text if is_new else self.rewritten_query or self.search_text

    @property
    def preset(self) -> Preset:
        """Preset of the API surface."""
        return find_preset(self.config.preset)

    @property
    def model(self) -> str | None:
        """Name of the answering model, or None if no model answers."""
        return None if self.provider is None else self.llm_model or self.provider.default_model

    @property
    def is_extractive(self) -> bool:
        """True if the provider quotes the chunks: it costs nothing and ignores prompt and schema."""
        return self.provider is not None and ProviderCapability.EXTRACTIVE in self.provider.capabilities

    @property
    def is_cacheable(self) -> bool:
        """True if a model answers, without tools; quoting again costs as little as a look-up."""
        return self.provider is not None and not self.is_extractive and not self.config.has_tools

    @property
    def needs_no_chunks(self) -> bool:
        """True if the model is called even if nothing is found: for its tools, or for the JSON."""
        wanted = self.config.has_tools or self.config.response_format is not None
        return wanted and self.provider is not None and not self.is_extractive

    def meta(self) -> MetaEvent:
        """Return the first event."""
        return MetaEvent(
            request_id=self.request_id,
            collection_id=self.collection_id,
            provider=self.provider.name if self.provider else None,
            model=self.model,
            extractive=self.is_extractive,
            query_truncated=self.query_truncated,
            cached=self.cache.hit,
            variant=self.config.variant,
            conversation_id=self.config.conversation_id,
            rewritten_query=self.rewritten_query,
        )

    def fail(self, error: VectorForgeError) -> ErrorEvent:
        """Note an error and return the last event of the failed query."""
        self.outcome, self.error, self.finish_reason = "error", error, "error"
        return ErrorEvent(error=error, stage=self.stage, partial_answer=self.answer)

    def adopt(
        self,
        answer: str,
        response: LLMResponse | None = None,
        citations: Sequence[Citation] = (),
        usage: UsageEvent = UsageEvent(0, 0, 0),  # noqa: B008 - immutable
        *,
        invalid_citations: int = 0,
        uncited_sentences: int = 0,
        finish_reason: str = "stop",
        quality: AnswerQuality | None = None,
        structured: StructuredAnswer | None = None,
    ) -> Iterator[QueryEvent]:
        """Make a complete answer, which costs nothing, the run's; return the events of a generated one."""
        if response is not None:
            self.note_first_token()
        self.answer, self.response, self.finish_reason = answer, response, finish_reason
        self.citations, self.invalid_citations = list(citations), invalid_citations
        self.uncited_sentences = uncited_sentences
        self.quality, self.structured, self.cost_usd = quality, structured, self.planning_usd
        return _events_of(answer, citations, usage)

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
            "cost_usd": self.cost_usd,
        }

    def result(self) -> QueryResult:
        """Return the result of a successful query."""
        structured = self.structured
        if structured is None and self.preset.response_schema is not None:
            structured = quoted_answer(self.used, self.citations)
        self.last_result = QueryResult(
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
            structured=structured,
            steps=tuple(self.steps),
        )
        return self.last_result

    def start_record(self) -> QueryLog:
        """Return the record of a query that has begun; ``log_record`` replaces it."""
        return self._record(
            outcome="started",
            used_chunk_ids=[],
            retrieved_chunk_ids=[],
            generated_response="",
            latency_ms=0.0,
            model=self.model,
        )

    def log_record(self) -> QueryLog:
        """Return the record of a query that has ended, with or without success."""
        response = self.response
        times, quality = self.timings, self.quality
        return self._record(
            retrieval_ms=times.retrieval_ms,
            context_ms=times.context_ms,
            generation_ms=times.generation_ms,
            first_token_ms=times.first_token_ms,
            retrieved_chunk_ids=[c.chunk.id for c in self.retrieved],
            generated_response=self.answer,
            latency_ms=self._total_ms(),
            model=response.model if response else self.model,
            prompt_tokens=response.prompt_tokens if response else 0,
            completion_tokens=response.completion_tokens if response else 0,
            error_code=self.error.code if self.error else None,
            error_stage=self.stage if self.error else None,
            quality={name: getattr(quality, name) for name in _QUALITY} if quality else None,
            request=self.request,
            steps=[step.figures() for step in self.steps],
            trace=self.trace.record(),
        )

    def _record(self, **changes: Any) -> QueryLog:
        return QueryLog(
            **self._summary() | changes,
            id=self.request_id,
            query_text=self.search_text or self.query,
            provider=self.provider.name if self.provider else None,
            preset=self.config.preset,
        )

    def note_cost(self, usage: UsageEvent) -> None:
        """Add the tokens and set the cost of an answer; None if the model has no known price."""
        if self.provider is None or self.is_extractive:
            self.cost_usd = self.planning_usd
            return
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        self.used_tokens += prompt + completion
        models = filter(None, (self.response.model if self.response else None, self.model))
        name = self.provider.name
        costs = (self.prices.estimate_cost(name, model, prompt, completion) for model in models)
        self.cost_usd = next((cost + self.planning_usd for cost in costs if cost is not None), None)

    def note_searched(self, version: int) -> None:
        """Note the version of the collection that a search saw; a replica's may be older than step 0's."""
        if self.cache.data_version is not None:
            self.cache.data_version = min(self.cache.data_version, version)

    def note_planning(self, prompt: int, completion: int) -> None:
        """Add the tokens and the cost of a planning call."""
        self.used_tokens += prompt + completion
        if self.provider is not None:
            name, model = self.provider.name, self.model or ""
            self.planning_usd += self.prices.estimate_cost(name, model, prompt, completion) or 0.0

    def note_first_token(self) -> None:
        """Set the time of the first token; later calls do nothing."""
        if self.timings.first_token_ms is None:
            self.timings.first_token_ms = (time.perf_counter() - self.started) * 1000

    def _total_ms(self) -> float:
        times, elapsed = self.timings, (time.perf_counter() - self.started) * 1000
        if self.outcome == "empty" and self.response is None:
            return times.retrieval_ms  # without chunks the search is all there is
        # At least the sum of its parts, which are measured at moments of their own.
        return max(elapsed, times.retrieval_ms + times.context_ms + times.generation_ms)


def _events_of(answer: str, citations: Sequence[Citation], usage: UsageEvent) -> Iterator[QueryEvent]:
    done = 0
    for citation in citations:
        if citation.end > done:
            yield TokenEvent(answer[done : citation.end])
            done = citation.end
        yield CitationEvent(citation)
    if done < len(answer):
        yield TokenEvent(answer[done:])
    yield usage
