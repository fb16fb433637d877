"""Parts of answers that all query routers share: figures, sources, citations and details."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, SerializeAsAny

from vectorforge.api.schemas import Body, Locations, LocationText
from vectorforge.pipeline.presets import accuracy_indicators
from vectorforge.pipeline.step_types import StepKind, StepOrigin
from vectorforge.pipeline.types import CitationVerdict, QueryResult, SourceCitation
from vectorforge.types import Location, ScanReason, SearchMode, location_text

SCAN = "`exact`: all matching passages were compared; `index`: approximate index; null: unknown."
SCAN_REASON = (
    "Reason for `scan`: few or many matches; sparse, a small part of the index matches; unindexed, there is "
    "no index; short, the index returned fewer than match; words, an exact lexical search."
)
RELEVANCE = "Rank criterion of a hybrid or lexical search or of a reranker; null: ranked by score."


class Usage(Body):
    """Tokens as counted by the vendor; zeros if no model was called."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the usage of a ``QueryResult``."""
        return cls() if source.llm_response is None else super().of(source.llm_response, **given)


class Quality(Body):
    """Quality of an answer, measured without a model."""

    relevance: float = Field(description="Share of the answer's words found in the passages, 0 to 1.")
    completeness: float = Field(description="Share of the query's words answered from passages, 0 to 1.")
    supported_citations: int
    unsupported_citations: int
    uncited_sentences: int = Field(description="Sentences of the answer without a citation.")
    low: bool


class DocRagQuality(Quality):
    """Quality of a structured answer, with the DocRag engine's names in addition."""

    relevance_score: float = Field(description="`relevance`.")
    completeness_score: float = Field(description="`completeness`.")
    accuracy_indicators: list[str] = Field(description="Any of `sources_provided` and `examples_provided`.")


def quality_of(result: QueryResult) -> Quality | None:
    """Return the quality of an answer, or None without chunks to measure it by."""
    quality, structured = result.quality, result.structured
    if quality is None:
        return None
    if structured is None:
        return Quality.of(quality)
    return DocRagQuality.of(
        quality,
        relevance_score=quality.relevance,
        completeness_score=quality.completeness,
        accuracy_indicators=accuracy_indicators(structured.examples, structured.source_urls),
    )


class FunnelBody(Body):
    """Chunks left by each step; candidates = below_min_score + dropped_by_budget + used."""

    matched: int | None = Field(description="Matches of collection, profile and filters; null: no search.")
    matched_is_at_least: bool = Field(description="Counting stopped at `matched`: there are more.")
    candidates: int = Field(description="Nearest of them, as many as requested.")
    below_min_score: int = Field(description="Candidates below the minimum score.")
    dropped_by_budget: int = Field(description="Candidates that did not fit into the prompt.")
    used: int = Field(description="Passages in the prompt.")
    cited: int = Field(description="Distinct passages that the answer cites.")
    search_mode: SearchMode | None = Field(description="Mode of the search; null: no search was made.")
    scan: Literal["exact", "index"] | None = Field(description=SCAN)
    scan_reason: ScanReason | None = Field(description=SCAN_REASON)

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``Funnel``."""
        scan = source.scan
        return super().of(
            source, scan=scan.method if scan else None, scan_reason=scan.reason if scan else None, **given
        )


class Latency(Body):
    """Milliseconds; the total is at least the sum of retrieval, context and generation."""

    retrieval_ms: float = Field(validation_alias="retrieval_latency_ms")
    context_ms: float = Field(validation_alias="context_latency_ms")
    generation_ms: float = Field(validation_alias="generation_latency_ms")
    total_ms: float = Field(validation_alias="total_latency_ms")
    first_token_ms: float | None = Field(
        validation_alias="first_token_latency_ms",
        description="From the start of the query; null without a token.",
    )


class RetrievalStats(BaseModel):
    """Figures of the search; scores are null if nothing was found."""

    chunks_retrieved: int
    retrieval_time_ms: float = Field(description="Rounded to 2 decimals.")
    generation_time_ms: float = Field(description="Rounded to 2 decimals.")
    top_score: float | None = Field(description="Rounded to 4 decimals.")
    avg_score: float | None
    min_score: float | None
    below_min_score: int = Field(description="Passages near the query that scored too low to be used.")

    @classmethod
    def of(cls, result: QueryResult) -> Self:
        """Return the figures of a result."""
        scores = [chunk.score for chunk in result.retrieved_chunks]
        return cls(
            chunks_retrieved=len(scores),
            retrieval_time_ms=round(result.retrieval_latency_ms, 2),
            generation_time_ms=round(result.generation_latency_ms, 2),
            top_score=round(max(scores), 4) if scores else None,
            avg_score=round(sum(scores) / len(scores), 4) if scores else None,
            min_score=round(min(scores), 4) if scores else None,
            below_min_score=result.funnel.below_min_score,
        )


class SourceBody(Body):
    """A chunk in the prompt."""

    number: int = Field(description="N of its label, from 1.")
    document_source: str
    source_url: str | None = Field(description="The source, if it is a web address.")
    title: str | None
    heading: str | None
    chunk_id: UUID
    document_id: UUID
    chunk_index: int
    score: float
    relevance: float | None = Field(description=RELEVANCE)
    snippet: str
    truncated: bool
    start_offset: int
    end_offset: int
    locations: Locations
    location_text: LocationText
    link: str = Field(description="Page that shows the document with the passage highlighted, for people.")
    text: str


def numbered_sources(sources: Sequence[SourceCitation]) -> list[SourceBody]:
    """Return the bodies of the sources in the order of their labels."""
    return [
        SourceBody.of(source, number=number, link=_source_page(source))
        for number, source in enumerate(sources, start=1)
    ]


def link_to(source: SourceCitation, locations: Sequence[Location], base_url: str | None = None) -> str | None:
    """Return the address that links to a source open; no other function chooses one.

    Args:
        source: The source. A web address is the link; any other source is shown by this server's source page.
        locations: Where to open a web address: at the first page (``#page=12``, RFC 8118).
        base_url: This server, without a final slash; None: only web addresses have a link.
    """
    url = source.source_url
    if not url:
        return base_url and f"{base_url}{_source_page(source)}"
    page = next((location["page"] for location in locations if "page" in location), None)
    return f"{url}#page={page}" if page and "#" not in url else url


def _source_page(source: SourceCitation) -> str:
    return f"/source?chunk={source.chunk_id}"


def title_of(source: SourceCitation, locations: Sequence[Location]) -> str:
    """Return the title of a source, or its name, with the locations: "Handbook, p. 12"."""
    return ", ".join(filter(None, [source.title or source.document_source, location_text(locations)]))


class CitationBody(Body):
    """A label in the answer that refers to a source."""

    source_number: int
    start: int = Field(description="Offset of the label in the answer, in characters.")
    end: int
    chunk_id: UUID
    document_id: UUID
    verdict: CitationVerdict = Field(
        description="`supported`: the passage has the numbers, names and most words of the citing sentence, "
        "with the same negations; `unsupported`: it lacks or contradicts one; "
        "`unchecked`: words do not decide."
    )
    start_offset: int = Field(
        description="Offset in the document's text of the sentence that the answer rests on; of the passage "
        "if that is unclear."
    )
    end_offset: int
    locations: Locations
    location_text: LocationText


class Structured(Body):
    """Additional output of a model that was requested to return JSON."""

    examples: list[str] = Field(description="Code examples.")
    sources: list[str] = Field(
        validation_alias="source_urls",
        description="Sources named by the model, limited to those in the prompt.",
    )
    dropped_sources: int = Field(
        validation_alias="dropped_source_urls",
        description="Sources named by the model that are not in the prompt.",
    )
    confidence: Literal["high", "medium", "low"] = Field(description="As stated by the model, else low.")


def is_extractive(result: QueryResult) -> bool:
    """Return True if the answer quotes the documents."""
    return result.llm_response is not None and bool(result.llm_response.metadata.get("extractive"))


_DERIVED: Mapping[str, Callable[[QueryResult], Any]] = {
    "quality": quality_of,
    "funnel": lambda result: FunnelBody.of(result.funnel),
    "usage": Usage.of,
    "latency": Latency.of,
    "retrieval_stats": RetrievalStats.of,
    "structured": lambda result: result.structured and Structured.of(result.structured),
    "provider": lambda result: result.llm_response and result.llm_response.provider,
    "model": lambda result: result.llm_response and result.llm_response.model,
    "extractive": is_extractive,
}
"""Fields of answers that are no attributes of ``QueryResult``."""


class StepBody(Body):
    """A step of a search with ``effort`` or ``intents``: plan, search, or reading of a document."""

    kind: StepKind
    round: int = Field(description="0: the search for the query itself.")
    origin: StepOrigin = Field(description="Author of the queries.")
    queries: list[str]
    found: int = Field(description="Passages found.")
    added: int = Field(description="Those that no earlier step found.")
    coverage: float | None = Field(description="Share of the query's words in the best passages (`auto`).")
    source: str | None = Field(description="The document read.")
    tokens: int = Field(description="Tokens of the call of the model.")
    duration_ms: float
    error: str | None = Field(description="Code of the error because of which the step was skipped.")


class ResultBody(Body):
    """A body made from a ``QueryResult``."""

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``QueryResult``; fields that it derives need not be given."""
        derived = {
            name: derive(source)
            for name, derive in _DERIVED.items()
            if name in cls.model_fields and name not in given
        }
        return super().of(source, **derived, **given)


class AnswerDetails(ResultBody):
    """Origin and cost of an answer, with the same names in all routers."""

    cached: bool = Field(description="The answer comes from the cache.")
    degraded: list[str] = Field(description="Steps of the degradation ladder, in order; empty: full answer.")
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None = Field(description="Text that was searched for instead of the query.")
    quality: SerializeAsAny[Quality] | None
    funnel: FunnelBody
    cost_usd: float | None = Field(description="Null if the price list does not have the model.")
    steps: list[StepBody] = Field(
        default_factory=list,
        exclude_if=lambda steps: not steps,
        description="Steps of a search with `effort` or `intents`; left out without.",
    )
    dropped_parameters: list[str] = Field(description="Omitted, since the model does not support them.")


class ContextEntry(Body):
    """A retrieved chunk."""

    text: str
    score: float
    chunk_id: UUID
    document_id: UUID
    source: str
    title: str | None
    heading: str | None
    index: int
    start_offset: int
    end_offset: int
    locations: Locations
    metadata: dict[str, Any]
    label: str | None = Field(description="Label in the prompt; null if the passage is not in the prompt.")

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``RetrievedChunk``."""
        return super().of(source.chunk, **retrieved_fields(source), **given)


def retrieved_fields(retrieved: Any) -> dict[str, Any]:
    """Return the fields of a ``RetrievedChunk`` that its chunk does not have under the same name."""
    return {
        "chunk_id": retrieved.chunk.id,
        "source": retrieved.document_source,
        "title": retrieved.document_title,
        "score": retrieved.score,
    }


class DryRunResponse(Body):
    """The request for the model and its cost; no model was called and nothing was logged."""

    dry_run: Literal[True] = True
    query: str
    provider: str
    model: str | None
    request: dict[str, Any] | None = Field(description="Body of the request to the vendor; null without one.")
    request_sha256: str | None = Field(description="Of the body as compact JSON with sorted keys, in UTF-8.")
    prompt_tokens: int = Field(description="Estimated; the vendor may count a few more for its format.")
    max_completion_tokens: int
    prompt_cost_usd: float | None = Field(description="Null if the price list does not have the model.")
    max_cost_usd: float | None = Field(description="Including the longest answer allowed.")
    context_tokens: int
    history_messages: int = Field(description="Earlier messages of the conversation in the prompt.")
    rewritten_query: str | None = Field(
        description="Text that was searched for instead of the query, with earlier queries."
    )
    sources: list[SourceBody]
    used_chunk_ids: list[UUID]

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``DryRun``."""
        return super().of(source, sources=numbered_sources(source.sources), **given)
