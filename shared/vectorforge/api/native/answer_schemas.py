"""Parts of answers that both query doors share."""

from typing import Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, SerializeAsAny

from vectorforge.api.native.answer_figures import FunnelBody, Quality, quality_of
from vectorforge.pipeline.types import Citation, CitationVerdict, QueryResult, SourceCitation
from vectorforge.types import RetrievedChunk


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
