"""What is counted and measured of an answer, in the words of every door."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from vectorforge.pipeline.presets import accuracy_indicators
from vectorforge.pipeline.types import AnswerQuality, Funnel, QueryResult
from vectorforge.types import ScanReason, SearchMode


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
            below_min_score=result.funnel.below_min_score,
        )
