"""Input, events and result of a query.

One query is one stream of ``QueryEvent``: ``MetaEvent``, ``StepEvent`` for each step of a search with
``effort``, ``SourcesEvent``, ``DegradedEvent`` for each
fallback, then ``TokenEvent`` and ``CitationEvent`` mixed, ``UsageEvent``, and last either ``DoneEvent`` or
``ErrorEvent``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from vectorforge.errors import VectorForgeError
from vectorforge.llm.tools import ToolCall, ToolCallDelta, ToolChoice, ToolDefinition
from vectorforge.llm.types import LLMResponse
from vectorforge.pipeline.step_types import Effort, QueryStep, StepEvent
from vectorforge.types import Location, Outcome, RetrievedChunk, Scan, SearchMode, location_text


@dataclass(frozen=True, slots=True)
class Funnel:
    """Number of chunks that each step of a query left.

    ``candidates = below_min_score + dropped_by_budget + used``, ``cited <= used``, and ``candidates <=
    matched`` if that is known. A cached answer has the funnel of its search; an answer without a search has
    ``matched = None`` and zeros.
    """

    matched: int | None = None
    """Chunks in the scope of collection, profile and filters; None if unknown."""
    matched_is_at_least: bool = False
    """True if counting stopped at ``matched``; only with filters or a profile."""
    candidates: int = 0
    """Chunks that the search returned, at most ``top_k``."""
    below_min_score: int = 0
    dropped_by_budget: int = 0
    """Candidates that did not fit into the prompt."""
    cited: int = 0
    search_mode: SearchMode | None = None
    scan: Scan | None = None

    @property
    def used(self) -> int:
        """Number of chunks in the prompt."""
        return self.candidates - self.below_min_score - self.dropped_by_budget


Degradation: TypeAlias = Literal[
    "lexical", "not_reranked", "provider", "stale", "passages", "ungrounded", "template"
]
"""Fallback: a lexical search in place of a hybrid one, the order of the search in place of the reranker's,
another provider, an expired cached answer, quoted chunks, a model without chunks, a fixed sentence."""
CitationVerdict: TypeAlias = Literal["supported", "unsupported", "unchecked"]
"""Result of comparing a sentence's words with the cited chunk; "unchecked": they do not decide it."""

RewriteMode: TypeAlias = Literal["auto"] | bool


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """Earlier message of the conversation; lists have the oldest first."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    tool_calls: Sequence[ToolCall] = ()
    """Calls in an answer of the assistant."""
    tool_call_id: str | None = None
    """Call that a message of a tool answers."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON as the form of a whole answer."""

    schema: Mapping[str, Any] | None = None
    """See ``json_output.check_schema``; None: any JSON object."""
    name: str = "answer"
    strict: bool = True
    """True: the schema is in the subset that vendors can guarantee."""


@dataclass(frozen=True, slots=True)
class SearchTool:
    """Search that the model may call."""

    definition: ToolDefinition
    read: Callable[[str], tuple[str, int]]
    """Returns the query and the number of chunks of a call's arguments, or raises ``InvalidInputError``."""


@dataclass(frozen=True, slots=True)
class QueryConfig:
    """Settings of one query. ``None`` leaves the choice to the collection, provider or vendor."""

    top_k: int = 10
    """Chunks to retrieve, 1 to ``QuerySettings.max_top_k``."""
    min_score: float | None = 0.0
    """Lowest score returned: 0.0 drops negative cosine scores; None returns all."""
    filters: Mapping[str, Any] | None = None
    llm_provider: str | None = None
    llm_model: str | None = None
    embedding_provider: str | None = None
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 1024
    """Longest answer, in tokens; the context may have three times as many."""
    include_sources: bool = True
    stream: bool = False
    history: Sequence[HistoryMessage] = ()
    system_prompt: str | None = None
    """Template with ``{context}``; None for the preset's."""
    preset: str = "vectorforge"
    """Defaults and formats of the API surface; see ``pipeline.presets``."""
    variant: str | None = None
    """Name of the overlay that these values include; for the log."""
    profile_id: int | None = None
    conversation_id: UUID | None = None
    begins_conversation: bool = False
    """True: the conversation is new, and deleted if the query is aborted."""
    sends_history: bool = False
    """True: ``history`` is that of the request, not of the store, and calls of tools are stored, too."""
    regenerates: bool = False
    """True: if the last query of the stored conversation is the same, its exchange is replaced."""
    rewrite: RewriteMode = "auto"
    """Make a follow-up query self-contained before the search, by the model or by words of earlier turns.
    "auto": by the model only if the query does not stand alone; False: search for the query as it is."""
    use_cache: bool = True
    """False: neither answer nor vector is taken from a cache; both are stored."""
    allow_ungrounded: bool | Literal["after_embedding"] = False
    """Let a model answer without chunks if the search fails; "after_embedding": only if the query could be
    embedded."""
    quote_passages: bool = True
    """Quote the chunks if no model answers."""
    search_mode: SearchMode | None = None
    mmr_lambda: float | None = None
    """Choose the chunks by maximal marginal relevance, see ``retriever.rerank``; None: by relevance alone."""
    effort: Effort = "minimal"
    """Steps of the search: one; a plan and its sub-queries ("low"); with up to two further rounds and the
    reading of one document ("medium"); a plan only if the best chunks lack words of the query ("auto")."""
    intents: Sequence[str] = ()
    """Sub-queries given by the caller in place of a plan, at most ``MAX_SUB_QUERIES``."""
    stop: Sequence[str] = ()
    """Texts before which the answer ends."""
    response_format: JsonFormat | None = None
    """JSON in place of text."""
    tools: Sequence[ToolDefinition] = ()
    """Tools of the caller that the model may call; it gets the chunks as well."""
    search_tool: SearchTool | None = None
    """Let the model decide on the search, with this tool: no search precedes it."""
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    following: Sequence[HistoryMessage] = ()
    """Messages after the query: tool calls with their results, or the start of the answer."""
    min_version: int | None = None
    """Oldest version of the collection to search; see ``BaseRetriever.retrieve``."""

    @property
    def needs_model(self) -> bool:
        """True if quoted chunks or a fixed sentence would not be in the requested form."""
        is_forced = self.may_call_tools and self.tool_choice != "auto"
        return is_forced or self.response_format is not None or self.search_tool is not None

    @property
    def may_call_tools(self) -> bool:
        """True if tool calls in an answer are requested."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def offered_tools(self) -> tuple[ToolDefinition, ...]:
        """Tools of the request to the model."""
        if self.search_tool is None:
            return tuple(self.tools)
        return (*(self.tools if self.may_call_tools else ()), self.search_tool.definition)

    @property
    def has_tools(self) -> bool:
        """True if the model may call tools, or has called some."""
        return bool(self.offered_tools or self.following) or any(m.role == "tool" for m in self.history)

    @property
    def has_steps(self) -> bool:
        """True if more than the query itself may be searched for."""
        return self.effort != "minimal" or bool(self.intents)


@dataclass(frozen=True, slots=True)
class SourceCitation:
    """Chunk in the prompt, in the order of the labels: the first is ``[Source 1]``."""

    document_source: str
    chunk_index: int
    score: float
    snippet: str
    """First 200 characters and "..."; see ``truncated``."""
    truncated: bool
    chunk_id: UUID
    document_id: UUID
    title: str | None
    heading: str | None
    start_offset: int
    """Offset of the chunk in the document's text, in characters."""
    end_offset: int
    text: str
    relevance: float | None = None
    """Rank value of a hybrid or lexical search, or of a reranker; None: ranked by score."""
    locations: Sequence[Location] = ()
    """Pages with rectangles, slides, cells or heading in the original file, in order."""

    @property
    def source_url(self) -> str | None:
        """Source if it is a web address, else None."""
        return self.document_source if self.document_source.startswith(("http://", "https://")) else None

    @property
    def location_text(self) -> str:
        """Locations as short text, such as "pp. 3–4"; empty if there are none but headings."""
        return location_text(self.locations)


@dataclass(frozen=True, slots=True)
class Citation:
    """Label in the answer that names a source."""

    source_number: int
    """From 1; index into the sources plus one."""
    start: int
    """Offset of the label in the answer, in characters."""
    end: int
    chunk_id: UUID
    document_id: UUID
    verdict: CitationVerdict = "unchecked"
    start_offset: int = 0
    """Offset in the document's text of the sentence that the answer rests on; of the chunk if unclear."""
    end_offset: int = 0
    locations: Sequence[Location] = ()
    """Those of the chunk that the cited text covers."""

    @property
    def location_text(self) -> str:
        """Locations as short text, such as "p. 4"; empty if there are none but headings."""
        return location_text(self.locations)


def cited_locations(
    number: int, locations: Sequence[Location], citations: Iterable[Any]
) -> Sequence[Location]:
    """Return the locations of the citations of source ``number``; all of the source if none cites it."""
    cited = [citation.locations for citation in citations if citation.source_number == number]
    return [location for found in cited for location in found] if cited else locations


def cited_heading(number: int, heading: str | None, citations: Iterable[Any]) -> str | None:
    """Return the heading paths above what source ``number`` is cited for; its own if they are unknown."""
    cited = cited_locations(number, (), citations)
    return "; ".join(dict.fromkeys(one["heading"] for one in cited if "heading" in one)) or heading


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """Heuristic quality of an answer, computed without a model; shares are 0 to 1."""

    relevance: float
    """Share of the answer's words that occur in the chunks."""
    completeness: float
    """Share of the query's content words that occur in the chunks and the answer."""
    supported_citations: int = 0
    unsupported_citations: int = 0
    uncited_sentences: int = 0
    """Sentences of the answer without a citation; no headings, questions, code and lead-ins to lists."""
    low: bool = False
    """True if it is counted and logged as a poor answer."""


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """Further fields of a model's answer in JSON."""

    examples: Sequence[str] = ()
    source_urls: Sequence[str] = ()
    """URLs named by the model that belong to chunks in the prompt."""
    dropped_source_urls: int = 0
    """Number of other URLs named by the model."""
    confidence: Literal["high", "medium", "low"] = "low"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Answer with its sources, timings and outcome."""

    query: str
    answer: str
    retrieved_chunks: list[RetrievedChunk]
    """Best first, before the context budget was applied."""
    sources: list[SourceCitation]
    """Chunks in the prompt, in the order of the labels; empty if ``include_sources`` is false."""
    retrieval_latency_ms: float
    generation_latency_ms: float
    total_latency_ms: float
    """At least the sum of the other two."""
    llm_response: LLMResponse | None
    """None if nothing was found and no model was called."""
    request_id: UUID
    collection_id: UUID
    citations: list[Citation] = field(default_factory=list)
    invalid_citations: int = 0
    outcome: Outcome = "answered"
    finish_reason: str = "stop"
    """stop | length | content_filter | tool_calls | empty | deadline | stopped | other"""
    used_chunk_ids: list[UUID] = field(default_factory=list)
    query_truncated: bool = False
    funnel: Funnel = field(default_factory=Funnel)
    context_latency_ms: float = 0.0
    first_token_latency_ms: float | None = None
    """From the start of the query to the first token; None without a token."""
    cached: bool = False
    degraded: Sequence[Degradation] = ()
    variant: str | None = None
    conversation_id: UUID | None = None
    rewritten_query: str | None = None
    """Text that was searched for in place of the query."""
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    cost_usd: float | None = None
    """Cost by the price list in the settings, or None if the model has no known price."""
    steps: Sequence[QueryStep] = ()
    """Steps of a search with ``effort`` or intents, in order."""

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """Tools that the model asks the caller to run."""
        return self.llm_response.tool_calls if self.llm_response else ()

    @property
    def dropped_parameters(self) -> list[str]:
        """Requested parameters that the model does not accept and that were not sent."""
        return list(self.llm_response.metadata.get("dropped_parameters", ())) if self.llm_response else []


@dataclass(frozen=True, slots=True)
class MetaEvent:
    """First event, with the answering model."""

    request_id: UUID
    collection_id: UUID
    provider: str | None
    """None if no model answers."""
    model: str | None
    extractive: bool
    query_truncated: bool = False
    cached: bool = False
    variant: str | None = None
    conversation_id: UUID | None = None
    rewritten_query: str | None = None


@dataclass(frozen=True, slots=True)
class SourcesEvent:
    """Second event, with the chunks."""

    sources: Sequence[SourceCitation]
    retrieved_chunks: Sequence[RetrievedChunk]
    retrieval_latency_ms: float


@dataclass(frozen=True, slots=True)
class DegradedEvent:
    """Fallback in use and its provider; comes before the first token."""

    step: Degradation
    reason: str
    provider: str | None
    model: str | None
    extractive: bool


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """Piece of the answer; the pieces joined are the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEvent:
    """Piece of a tool call."""

    piece: ToolCallDelta


@dataclass(frozen=True, slots=True)
class CitationEvent:
    """Citation; comes at the end of its sentence, at the latest before ``UsageEvent``."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """Tokens of the answer as counted by the vendor."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False
    """True if estimated, because the answer was cut off before the vendor's count."""


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """Last event of a successful query."""

    result: QueryResult


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Last event of a failed query."""

    error: VectorForgeError
    stage: str
    """preprocess | retrieve | context | generate"""
    partial_answer: str = ""


_AnswerEvent: TypeAlias = DegradedEvent | TokenEvent | ToolCallEvent | CitationEvent | UsageEvent
QueryEvent: TypeAlias = MetaEvent | StepEvent | SourcesEvent | _AnswerEvent | DoneEvent | ErrorEvent
