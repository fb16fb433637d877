"""Results and events of the HTTP API; unknown fields of newer servers are ignored.

docs/openapi.json describes the fields, also of those that are plain dicts here.
"""

from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all results."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Step(Model):
    """A step of a search with ``effort`` or ``intents``; events ``plan`` and ``search``."""

    kind: str
    round: int
    origin: str
    queries: list[str]
    found: int
    added: int
    coverage: float | None
    source: str | None
    tokens: int
    duration_ms: float
    error: str | None


class Chunk(Model):
    """A chunk in its document; offsets in characters of the document's text."""

    chunk_id: UUID
    document_id: UUID
    source: str
    title: str | None
    heading: str | None
    index: int
    text: str
    score: float
    start_offset: int
    end_offset: int
    locations: list[dict[str, Any]]
    metadata: dict[str, Any]


class ContextChunk(Chunk):
    """A retrieved chunk; ``label`` is its label in the prompt, or None if it did not fit."""

    label: str | None


class SearchResult(Chunk):
    """A found chunk."""

    relevance: float | None
    lexical_score: float | None


class SearchResults(Model):
    """The chunks found, best first."""

    query: str
    collection_id: UUID
    results: list[SearchResult]
    search_mode: str | None
    degraded: list[str]
    scan: str | None
    scan_reason: str | None
    matched: int | None
    matched_is_at_least: bool
    latency_ms: float


class Citation(Model):
    """A label in the answer, from ``start`` to ``end``, and the chunk it refers to; also an event."""

    source_number: int
    start: int
    end: int
    chunk_id: UUID
    document_id: UUID
    verdict: str
    start_offset: int
    end_offset: int
    locations: list[dict[str, Any]]
    location_text: str


class Usage(Model):
    """Tokens of an answer; also an event."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False


class AnswerDetails(Model):
    """Details of every finished answer."""

    cached: bool
    degraded: list[str]
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None
    quality: dict[str, Any] | None
    funnel: dict[str, Any]
    cost_usd: float | None
    steps: list[Step] = []
    dropped_parameters: list[str]
    finish_reason: str
    outcome: str
    retrieval_stats: dict[str, Any]


class Answer(AnswerDetails):
    """A cited answer."""

    id: str
    created: int
    query: str
    response: str
    context: list[ContextChunk] | None
    citations: list[Citation]
    usage: Usage
    provider: str | None
    model: str | None
    extractive: bool

    @property
    def query_id(self) -> UUID:
        """Id of the query's log record, for feedback."""
        return UUID(self.id.rpartition("_")[2])


class Source(Model):
    """A chunk of a streamed answer; ``number`` is that of its labels."""

    number: int
    document_source: str
    source_url: str | None
    title: str | None
    heading: str | None
    chunk_id: UUID
    document_id: UUID
    chunk_index: int
    score: float
    relevance: float | None
    snippet: str
    truncated: bool
    start_offset: int
    end_offset: int
    locations: list[dict[str, Any]]
    location_text: str
    link: str
    text: str


class Meta(Model):
    """First event: ids and the answering model. ``request_id`` is the query's id."""

    request_id: UUID
    collection_id: UUID
    provider: str | None
    model: str | None
    extractive: bool
    query_truncated: bool
    cached: bool
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None


class Sources(Model):
    """Event with the retrieved chunks."""

    sources: list[Source]
    retrieval_ms: float


class Degraded(Model):
    """Event: a fallback replaces the full answer."""

    step: str
    reason: str
    provider: str | None
    model: str | None
    extractive: bool


class Token(Model):
    """Event with a piece of the answer."""

    text: str


class Done(AnswerDetails):
    """Last event: the whole answer."""

    answer: str
    invalid_citations: int
    latency: dict[str, float | None]


AnswerEvent: TypeAlias = Meta | Step | Sources | Degraded | Token | Citation | Usage | Done
EVENTS: dict[str, type[AnswerEvent]] = {
    "meta": Meta,
    "plan": Step,
    "search": Step,
    "sources": Sources,
    "degraded": Degraded,
    "token": Token,
    "citation": Citation,
    "usage": Usage,
    "done": Done,
}
"""Name of each event -> its type; ``error`` becomes an exception."""
