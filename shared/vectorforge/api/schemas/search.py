"""Bodies of ``/v1/search``."""

from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.schemas.base import MAX_QUERY_CHARS, CollectionReference, Filters, ProfileId, RequestBody
from vectorforge.types import RetrievedChunk


class SearchRequest(RequestBody):
    """A search without an answer; no language model is asked."""

    query: str = Field(max_length=MAX_QUERY_CHARS)
    collection: CollectionReference | None = None
    top_k: int = Field(default=10, ge=1, description="Passages to return; the server's max_top_k at most.")
    filters: Filters | None = None
    profile_id: ProfileId | None = None
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")


class SearchResult(BaseModel):
    """A passage that was found."""

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
    metadata: dict[str, Any]

    @classmethod
    def of(cls, found: RetrievedChunk) -> Self:
        """The body for the passage."""
        chunk = found.chunk
        return cls(
            chunk_id=chunk.id,
            document_id=chunk.document_id,
            source=found.document_source,
            title=found.document_title,
            heading=chunk.heading,
            index=chunk.index,
            text=chunk.text,
            score=found.score,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            metadata=dict(chunk.metadata),
        )


class SearchResponse(BaseModel):
    """Passages, best first."""

    query: str
    collection_id: UUID
    results: list[SearchResult]
    latency_ms: float
