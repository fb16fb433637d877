"""``/v1/search``: chunks without an answer."""

import time
from typing import Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import Field

from vectorforge.api.answers import RELEVANCE, SCAN, SCAN_REASON, retrieved_fields
from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, check_at_most, deadline_of
from vectorforge.api.error_schemas import ANSWER_PROBLEMS
from vectorforge.api.querying import find_collection, requested_collection
from vectorforge.api.schemas import (
    MAX_QUERY_CHARS,
    Body,
    CollectionReference,
    Filters,
    Locations,
    RequestBody,
    SearchOptions,
)
from vectorforge.types import ScanReason, SearchMode
from vectorforge.vectorstore.filters.parse import parse

SEARCH_DEGRADED = '"lexical": the query could not be embedded; "not_reranked": the reranker failed.'


class SearchRequest(RequestBody, SearchOptions):
    """A search without an answer and without a language model."""

    query: str = Field(max_length=MAX_QUERY_CHARS)
    collection: CollectionReference | None = None
    top_k: int = Field(default=10, ge=1, description="Passages to return; the server's max_top_k at most.")
    filters: Filters | None = None
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")


class SearchResult(Body):
    """A chunk that was found."""

    chunk_id: UUID
    document_id: UUID
    source: str
    title: str | None
    heading: str | None
    index: int
    text: str
    score: float = Field(description="Vector similarity; in a lexical search BM25 over the best one's.")
    relevance: float | None = Field(description=RELEVANCE)
    lexical_score: float | None = Field(description="BM25; null without a lexical search.")
    start_offset: int
    end_offset: int
    locations: Locations
    metadata: dict[str, Any]

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``RetrievedChunk``."""
        scores = {"relevance": source.relevance, "lexical_score": source.lexical_score}
        return super().of(source.chunk, **retrieved_fields(source), **scores, **given)


class SearchResponse(Body):
    """Chunks, best first."""

    query: str
    collection_id: UUID
    results: list[SearchResult]
    search_mode: SearchMode | None = Field(description="What they were found by.")
    degraded: list[str] = Field(description=SEARCH_DEGRADED)
    scan: Literal["exact", "index"] | None = Field(description=SCAN)
    scan_reason: ScanReason | None = Field(description=SCAN_REASON)
    matched: int | None = Field(description="Passages that match collection, profile and filters.")
    matched_is_at_least: bool = Field(description="Counting stopped at `matched`: there are more.")
    latency_ms: float

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of ``RetrievedChunks``; query, collection and latency are given."""
        results, scan = [SearchResult.of(chunk) for chunk in source], source.scan
        by = {"scan": scan.method if scan else None, "scan_reason": scan.reason if scan else None}
        return super().of(source, results=results, **by, **given)


router = APIRouter(prefix="/v1", tags=["search"])


@router.post("/search", responses=ANSWER_PROBLEMS)
async def search(
    request: Request, body: SearchRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> SearchResponse:
    """Return the best chunks for a query, best first."""
    check_at_most("top_k", body.top_k, application.config.query.max_top_k)
    parse(body.filters)  # before the embedding is paid for
    choice = requested_collection(application, body.collection)
    collection = await find_collection(application, tenant, choice)
    started = time.perf_counter()
    retrieved = await tenant.retriever.retrieve(
        body.query,
        collection.id,
        body.top_k,
        body.filters,
        body.min_score,
        profile_id=body.profile_id,
        deadline=deadline_of(request),
        search_mode=body.search_mode,
        mmr_lambda=body.mmr_lambda,
        min_version=body.min_version,
        allow_lexical_fallback=application.config.query.degraded_answers,
    )
    latency_ms = (time.perf_counter() - started) * 1000
    return SearchResponse.of(retrieved, query=body.query, collection_id=collection.id, latency_ms=latency_ms)
