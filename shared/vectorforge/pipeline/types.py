"""What became of the passages: how many each step of a query left of those before it.

What goes into a query, what comes out, and the events in between.

One query is one stream of ``QueryEvent``: ``MetaEvent``, ``SourcesEvent``, ``DegradedEvent`` where the full
answer cannot be had, then ``TokenEvent`` and ``CitationEvent`` mixed, ``UsageEvent``, and as the last one
exactly one of ``DoneEvent`` or ``ErrorEvent``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from vectorforge.errors import VectorForgeError
from vectorforge.llm.types import LLMResponse
from vectorforge.types import RetrievedChunk, Scan, SearchMode


@dataclass(frozen=True, slots=True)
class Funnel:
    """How many passages each step of a query left of those before it.

    The numbers add up: ``candidates = below_min_score + dropped_by_budget + used``, ``cited <= used``, and
    ``candidates <= matched`` where that is known. An answer from the cache has the funnel of the search that
    it was made of; one without any search has ``matched = None`` and zeros.
    """

    matched: int | None = None
    """Passages that collection, profile and filters let through; None: not known."""
    matched_is_at_least: bool = False
    """Whether counting stopped at ``matched``, and there are more: it stops at 10,000 where there are filters
    or a profile, and the collection's own count is taken where there are none."""
    candidates: int = 0
    """Nearest passages that the search returned, at most ``top_k``."""
    below_min_score: int = 0
    """Candidates that scored too low."""
    dropped_by_budget: int = 0
    """Candidates that scored high enough and did not fit into the prompt."""
    cited: int = 0
    """Different passages that the answer cites."""
    search_mode: SearchMode | None = None
    """What they were found by; None: there was no search."""
    scan: Scan | None = None
    """How they were found; None: not known."""

    @property
    def used(self) -> int:
        """Passages in the prompt."""
        return self.candidates - self.below_min_score - self.dropped_by_budget


# belongs to these

Outcome: TypeAlias = Literal["answered", "empty", "error", "aborted", "cached", "deadline"]
"""How a query ended."""
Degradation: TypeAlias = Literal["lexical", "provider", "stale", "passages", "ungrounded", "template"]
"""A step down from the full answer: its passages were found by words only, another provider wrote it, it is
an expired one from the cache, it is the passages themselves, a model wrote it without any passage, it is a
fixed sentence."""
CitationVerdict: TypeAlias = Literal["supported", "unsupported", "unchecked"]
"""Whether the passage holds the numbers and names of the sentence citing it; "unchecked": it has none."""
LoggedOutcome: TypeAlias = Literal["started", Outcome]
"""What the query log stores: "started" until the record of the end has come."""


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """An earlier message of the conversation, oldest first in lists."""

    role: Literal["user", "assistant", "system"]
    content: str


@dataclass(frozen=True, slots=True)
class QueryConfig:
    """How one question is answered. ``None`` leaves the choice to the collection, provider or vendor."""

    top_k: int = 10
    """Passages to retrieve, 1 to ``QuerySettings.max_top_k``."""
    min_score: float | None = 0.0
    """Passages scoring less are dropped (equal stays): 0.0 drops negative cosine scores; None drops none."""
    filters: Mapping[str, Any] | None = None
    llm_provider: str | None = None
    llm_model: str | None = None
    embedding_provider: str | None = None
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 1024
    """Longest answer, in tokens; the context may take three times as many."""
    include_sources: bool = True
    stream: bool = False
    history: Sequence[HistoryMessage] = ()
    system_prompt: str | None = None
    """Template with ``{context}``; None takes the preset's."""
    preset: str = "vectorforge"
    """Which door's defaults and formats apply; see ``pipeline.presets``."""
    variant: str | None = None
    """Named overlay that is in these values already; kept for the log."""
    profile_id: int | None = None
    """Only passages of this profile."""
    conversation_id: UUID | None = None
    """Stored conversation that the question belongs to."""
    rewrite: bool = False
    """Whether a model may first make a question that stands alone of one that follows up."""
    use_cache: bool = True
    """False: neither an answer nor a vector comes from a cache; both are stored anew."""
    allow_ungrounded: bool | Literal["after_embedding"] = False
    """Whether a model may answer without any passage when the search fails; "after_embedding": only when the
    query could be embedded."""
    quote_passages: bool = True
    """False: when no model answers, the passages do not take the answer's place."""
    search_mode: SearchMode | None = None
    """What passages are found by; None leaves it to the collection."""


@dataclass(frozen=True, slots=True)
class SourceCitation:
    """A passage the model was given, in the order of the labels: the first is ``[Source 1]``."""

    document_source: str
    chunk_index: int
    score: float
    snippet: str
    """First 200 characters and "..."; see ``truncated``."""
    truncated: bool
    """Whether the passage is longer than the snippet."""
    chunk_id: UUID
    document_id: UUID
    title: str | None
    heading: str | None
    start_offset: int
    """Offset of the passage in the document's text, in characters."""
    end_offset: int
    text: str
    """The whole passage, as the model saw it."""
    relevance: float | None = None
    """What a hybrid or lexical search, or a reranker, ranked by; None: by score."""

    @property
    def source_url(self) -> str | None:
        """The source, when it is a web address."""
        return self.document_source if self.document_source.startswith(("http://", "https://")) else None


@dataclass(frozen=True, slots=True)
class Citation:
    """A label in the answer that names a source."""

    source_number: int
    """From 1; index into the sources plus one."""
    start: int
    """Offset of the label in the answer, in characters."""
    end: int
    chunk_id: UUID
    document_id: UUID
    verdict: CitationVerdict = "unchecked"


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """What can be said of an answer without a model; heuristics, each from 0 to 1."""

    relevance: float
    """Share of the answer's words that the passages hold."""
    completeness: float
    """Share of the question's content words that the passages hold and the answer takes up."""
    supported_citations: int = 0
    unsupported_citations: int = 0
    low: bool = False
    """Whether it is counted and logged as a poor answer."""

    def as_dict(self) -> dict[str, Any]:
        """The same for the query log."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """What a model says beside its answer, when it is asked for JSON."""

    examples: Sequence[str] = ()
    source_urls: Sequence[str] = ()
    """Those that the model named and that belong to passages it was given."""
    dropped_source_urls: int = 0
    """Others that it named."""
    confidence: Literal["high", "medium", "low"] = "low"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer and how it came about."""

    query: str
    answer: str
    retrieved_chunks: list[RetrievedChunk]
    """Best first, before the context budget was applied."""
    sources: list[SourceCitation]
    """What the model was given, in the order of the labels; empty when sources were not wanted."""
    retrieval_latency_ms: float
    generation_latency_ms: float
    total_latency_ms: float
    """At least the sum of the other two."""
    llm_response: LLMResponse | None
    """None when nothing was found and no model was asked."""
    request_id: UUID
    collection_id: UUID
    citations: list[Citation] = field(default_factory=list)
    invalid_citations: int = 0
    """Labels in the answer that name no source."""
    outcome: Outcome = "answered"
    finish_reason: str = "stop"
    """stop | length | content_filter | empty | deadline | stopped | other"""
    used_chunk_ids: list[UUID] = field(default_factory=list)
    """Passages that fitted into the context."""
    query_truncated: bool = False
    funnel: Funnel = field(default_factory=Funnel)
    context_latency_ms: float = 0.0
    first_token_latency_ms: float | None = None
    """From the question to the first token; None without a token."""
    cached: bool = False
    """The answer was given before, to the same question on the same documents."""
    degraded: Sequence[Degradation] = ()
    """Steps down from the full answer, in order; empty when all is well."""
    variant: str | None = None
    conversation_id: UUID | None = None
    rewritten_query: str | None = None
    """What was searched for instead of the question."""
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    cost_usd: float | None = None
    """By the price list in the settings; None when it does not know the model."""

    @property
    def below_min_score(self) -> int:
        """Passages among the nearest ``top_k`` that scored too low."""
        return self.funnel.below_min_score

    @property
    def dropped_parameters(self) -> list[str]:
        """Parameters that were asked for and that the model does not take, so the request went without."""
        return list(self.llm_response.metadata.get("dropped_parameters", ())) if self.llm_response else []


@dataclass(frozen=True, slots=True)
class MetaEvent:
    """First event: what is going to answer."""

    request_id: UUID
    collection_id: UUID
    provider: str | None
    """None: no model will be asked."""
    model: str | None
    extractive: bool
    """True: the answer quotes the documents and is written by no model."""
    query_truncated: bool = False
    cached: bool = False
    variant: str | None = None
    conversation_id: UUID | None = None
    rewritten_query: str | None = None


@dataclass(frozen=True, slots=True)
class SourcesEvent:
    """The passages the model is given."""

    sources: Sequence[SourceCitation]
    retrieved_chunks: Sequence[RetrievedChunk]
    retrieval_latency_ms: float


@dataclass(frozen=True, slots=True)
class DegradedEvent:
    """The full answer cannot be had: what comes instead, and from whom. Before the first token."""

    step: Degradation
    reason: str
    """Code of the error that led to it."""
    provider: str | None
    model: str | None
    extractive: bool


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A piece of the answer; the pieces joined are the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CitationEvent:
    """A label names a source; comes when its sentence has ended, at the latest before ``UsageEvent``."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """Tokens of the answer, as the vendor counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False
    """True: counted by us, because the answer was cut off before the vendor said."""


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """Last event of a query that worked."""

    result: QueryResult


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Last event of a query that failed; ``stage`` is where."""

    error: VectorForgeError
    stage: str
    """preprocess | retrieve | context | generate"""
    partial_answer: str = ""


QueryEvent: TypeAlias = (
    MetaEvent
    | SourcesEvent
    | DegradedEvent
    | TokenEvent
    | CitationEvent
    | UsageEvent
    | DoneEvent
    | ErrorEvent
)
