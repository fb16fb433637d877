"""What is counted and measured of an answer, in the words of every door.

Parts of answers that both query doors share.
"""

from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, SerializeAsAny

from vectorforge.pipeline.docrag import accuracy_indicators
from vectorforge.pipeline.types import (
    AnswerQuality,
    Citation,
    CitationVerdict,
    Funnel,
    QueryResult,
    SourceCitation,
)
from vectorforge.types import RetrievedChunk, ScanReason, SearchMode


class Usage(BaseModel):
    """Tokens, as the vendor counted them; zeros when no model was asked."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @classmethod
    def of(cls, result: QueryResult) -> Self:
        """The body for the result."""
        response = result.llm_response
        if response is None:
            return cls()
        return cls(
            prompt_tokens=response.prompt_tokens,
            completion_tokens=response.completion_tokens,
            total_tokens=response.total_tokens,
        )


class Quality(BaseModel):
    """What can be said of an answer without a model."""

    relevance: float = Field(description="Share of the answer's words that the passages hold, 0 to 1.")
    completeness: float = Field(description="Share of the question's words answered from passages, 0 to 1.")
    supported_citations: int
    unsupported_citations: int
    low: bool

    @classmethod
    def of(cls, quality: AnswerQuality) -> Self:
        """The body for the figures."""
        return cls(
            relevance=quality.relevance,
            completeness=quality.completeness,
            supported_citations=quality.supported_citations,
            unsupported_citations=quality.unsupported_citations,
            low=quality.low,
        )


class DocRagQuality(Quality):
    """The quality of an answer from JSON, with the names that the DocRag engine gives it, too."""

    relevance_score: float = Field(description="`relevance`.")
    completeness_score: float = Field(description="`completeness`.")
    accuracy_indicators: list[str] = Field(description="Of `sources_provided` and `examples_provided`.")


def quality_of(result: QueryResult) -> Quality | None:
    """Return the quality of an answer, or None if there were no chunks to judge it by."""
    if result.quality is None:
        return None
    quality, said = Quality.of(result.quality), result.structured
    if said is None:
        return quality
    return DocRagQuality(
        **quality.model_dump(),
        relevance_score=quality.relevance,
        completeness_score=quality.completeness,
        accuracy_indicators=accuracy_indicators(said.examples, said.source_urls),
    )


SCAN = "Whether all that match were compared, or an approximate index was asked; null: not known."
SCAN_REASON = (
    "Why: few match; many do; sparse, a small part of what the index holds; unindexed, there is none; short, "
    "the index gave fewer than match; words, an exact search of its own."
)


class FunnelBody(BaseModel):
    """How many passages each step left; candidates = below_min_score + dropped_by_budget + used."""

    matched: int | None = Field(
        description="Passages that collection, profile and filters let through; null: nothing was searched."
    )
    matched_is_at_least: bool = Field(description="Counting stopped at `matched`: there are more.")
    candidates: int = Field(description="The nearest of them, as many as were asked for.")
    below_min_score: int = Field(description="Candidates that scored too low.")
    dropped_by_budget: int = Field(description="Candidates that did not fit into the prompt.")
    used: int = Field(description="Passages in the prompt.")
    cited: int = Field(description="Different passages that the answer cites.")
    search_mode: SearchMode | None = Field(description="What they were found by; null: no search was made.")
    scan: Literal["exact", "index"] | None = Field(description=SCAN)
    scan_reason: ScanReason | None = Field(description=SCAN_REASON)

    @classmethod
    def of(cls, funnel: Funnel) -> Self:
        """The body for the funnel."""
        return cls(
            matched=funnel.matched,
            matched_is_at_least=funnel.matched_is_at_least,
            candidates=funnel.candidates,
            below_min_score=funnel.below_min_score,
            dropped_by_budget=funnel.dropped_by_budget,
            used=funnel.used,
            cited=funnel.cited,
            search_mode=funnel.search_mode,
            scan=funnel.scan.method if funnel.scan else None,
            scan_reason=funnel.scan.reason if funnel.scan else None,
        )


class Latency(BaseModel):
    """Milliseconds; the total is at least the sum of the others but the first token's."""

    retrieval_ms: float
    context_ms: float
    generation_ms: float
    total_ms: float
    first_token_ms: float | None = Field(description="From the question on; null without a token.")

    @classmethod
    def of(cls, result: QueryResult) -> Self:
        """The body for the result."""
        return cls(
            retrieval_ms=result.retrieval_latency_ms,
            context_ms=result.context_latency_ms,
            generation_ms=result.generation_latency_ms,
            total_ms=result.total_latency_ms,
            first_token_ms=result.first_token_latency_ms,
        )


class RetrievalStats(BaseModel):
    """How well the search went; scores are null when nothing was found."""

    chunks_retrieved: int
    retrieval_time_ms: float = Field(description="Rounded to 2 decimals.")
    generation_time_ms: float = Field(description="Rounded to 2 decimals.")
    top_score: float | None = Field(description="Rounded to 4 decimals.")
    avg_score: float | None
    min_score: float | None
    below_min_score: int = Field(description="Passages near the question that scored too low to be used.")

    @classmethod
    def of(cls, result: QueryResult) -> Self:
        """The body for the result."""
        scores = [chunk.score for chunk in result.retrieved_chunks]
        return cls(
            chunks_retrieved=len(scores),
            retrieval_time_ms=round(result.retrieval_latency_ms, 2),
            generation_time_ms=round(result.generation_latency_ms, 2),
            top_score=round(max(scores), 4) if scores else None,
            avg_score=round(sum(scores) / len(scores), 4) if scores else None,
            min_score=round(min(scores), 4) if scores else None,
            below_min_score=result.below_min_score,
        )


class ChatMessage(BaseModel):
    """An earlier message of the conversation."""

    model_config = {"extra": "forbid"}

    role: Literal["user", "assistant", "system"]
    content: str = Field(max_length=100_000)


RELEVANCE = "What a hybrid or lexical search, or a reranker, ranked by; null: by score."


class SourceBody(BaseModel):
    """A passage the model was given."""

    number: int = Field(description="The N of its label, from 1.")
    document_source: str
    source_url: str | None = Field(description="The source, when it is a web address.")
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
    text: str

    @classmethod
    def of(cls, number: int, source: SourceCitation) -> Self:
        """The body for the source with this number."""
        return cls(
            number=number,
            document_source=source.document_source,
            source_url=source.source_url,
            title=source.title,
            heading=source.heading,
            chunk_id=source.chunk_id,
            document_id=source.document_id,
            chunk_index=source.chunk_index,
            score=source.score,
            relevance=source.relevance,
            snippet=source.snippet,
            truncated=source.truncated,
            start_offset=source.start_offset,
            end_offset=source.end_offset,
            text=source.text,
        )


class CitationBody(BaseModel):
    """A label in the answer that names a source."""

    source_number: int
    start: int = Field(description="Offset of the label in the answer, in characters.")
    end: int
    chunk_id: UUID
    document_id: UUID
    verdict: CitationVerdict = Field(
        description="Whether the passage holds the numbers and names of the sentence citing it."
    )

    @classmethod
    def of(cls, citation: Citation) -> Self:
        """The body for the citation."""
        return cls(
            source_number=citation.source_number,
            start=citation.start,
            end=citation.end,
            chunk_id=citation.chunk_id,
            document_id=citation.document_id,
            verdict=citation.verdict,
        )


class AnswerDetails(BaseModel):
    """Where an answer came from and what it cost, in every door's words."""

    cached: bool = Field(description="It was given before, to the same question on the same documents.")
    degraded: list[str] = Field(description="Steps down from the full answer, in order; empty: all is well.")
    variant: str | None
    conversation_id: UUID | None
    rewritten_query: str | None = Field(description="What was searched for instead of the question.")
    quality: SerializeAsAny[Quality] | None
    funnel: FunnelBody
    cost_usd: float | None = Field(description="Null when the price list does not know the model.")
    dropped_parameters: list[str] = Field(
        description="Parameters that the model does not take, so it was asked without them."
    )

    @staticmethod
    def fields_of(result: QueryResult) -> dict[str, Any]:
        """The values of these fields."""
        return {
            "cached": result.cached,
            "degraded": list(result.degraded),
            "variant": result.variant,
            "conversation_id": result.conversation_id,
            "rewritten_query": result.rewritten_query,
            "quality": quality_of(result),
            "funnel": FunnelBody.of(result.funnel),
            "cost_usd": result.cost_usd,
            "dropped_parameters": result.dropped_parameters,
        }


class Structured(BaseModel):
    """What a model says beside its answer, when it is asked for JSON."""

    examples: list[str] = Field(description="Code examples.")
    sources: list[str] = Field(description="Of the sources that the model named, those it was given.")
    dropped_sources: int = Field(description="Sources that the model named, but was not given.")
    confidence: Literal["high", "medium", "low"] = Field(description="As the model says; low if it does not.")

    @classmethod
    def of(cls, result: QueryResult) -> Self | None:
        """The body for the result; None when the door asks for no JSON."""
        said = result.structured
        if said is None:
            return None
        return cls(
            examples=list(said.examples),
            sources=list(said.source_urls),
            dropped_sources=said.dropped_source_urls,
            confidence=said.confidence,
        )


class ContextEntry(BaseModel):
    """A passage that was found."""

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
    metadata: dict[str, Any]
    label: str | None = Field(description="Its label in the prompt; null when it was not given to the model.")

    @classmethod
    def of(cls, found: RetrievedChunk, label: str | None) -> Self:
        """The body for the passage."""
        chunk = found.chunk
        return cls(
            text=chunk.text,
            score=found.score,
            chunk_id=chunk.id,
            document_id=chunk.document_id,
            source=found.document_source,
            title=found.document_title,
            heading=chunk.heading,
            index=chunk.index,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            metadata=dict(chunk.metadata),
            label=label,
        )
