"""``/v1/rag/query`` and ``/v1/collections/{id}/query``: queries and cited answers."""

import time
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field

from vectorforge.api.answers import (
    AnswerDetails,
    CitationBody,
    ContextEntry,
    DryRunResponse,
    Latency,
    RetrievalStats,
    SourceBody,
    Usage,
    numbered_sources,
)
from vectorforge.api.dependencies import CollectionInPath, application_of
from vectorforge.api.querying import QueryRoute, answer_request, answer_responses, requested_collection
from vectorforge.api.request_state import RequestState
from vectorforge.api.schemas import (
    NO_SETTINGS,
    CollectionReference,
    Messages,
    ModelName,
    ProviderName,
    QueryRequest,
    Temperature,
    given,
    history,
)
from vectorforge.config.queries import SystemPrompt
from vectorforge.pipeline.presets import RAG_QUERY, VECTORFORGE
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import Variant
from vectorforge.retriever.base import CollectionChoice

_RAG_NAMES = {"top_k": "k", "llm_provider": "provider", "llm_model": "model"}


class RAGQueryRequest(QueryRequest):
    """A query to the default collection."""

    k: int = Field(default=5, ge=1, le=20, description="Top-k results")
    messages: Messages | None = Field(default=None, description="The conversation so far, oldest first.")
    temperature: Temperature | None = 0.7
    top_p: Annotated[float, Field(ge=0, le=1)] | None = 0.9
    max_tokens: Annotated[int, Field(ge=1)] | None = 2048
    include_context: bool | None = Field(default=True, description="Return the retrieved passages.")
    collection: CollectionReference | None = None
    provider: ProviderName | None = None
    model: ModelName | None = None

    def config(self, variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant."""
        explicit = given(self, but={"collection", "include_context", *NO_SETTINGS}, names=_RAG_NAMES)
        if self.max_tokens is None:  # null selects the default
            explicit.pop("max_tokens", None)
        return RAG_QUERY.config(variant, **explicit, history=history(self.messages))


class RAGQueryResponse(AnswerDetails):
    """The answer and the retrieved chunks."""

    id: str
    object: Literal["rag.query.completion"] = "rag.query.completion"
    created: int = Field(description="Unix time in seconds.")
    query: str
    context: list[ContextEntry] | None = Field(description="Best first; null if include_context was false.")
    response: str
    usage: Usage
    retrieval_stats: RetrievalStats
    citations: list[CitationBody]
    provider: str | None
    model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents; no model wrote it.")
    finish_reason: str
    outcome: str

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``QueryResult``."""
        labels = {id_: f"[Context {n}]" for n, id_ in enumerate(source.used_chunk_ids, start=1)}
        context = [
            ContextEntry.of(chunk, label=labels.get(chunk.chunk.id)) for chunk in source.retrieved_chunks
        ]
        own = {
            "id": f"ragq_{source.request_id}",
            "created": int(time.time()),
            "context": context,
            "response": source.answer,
        }
        return super().of(source, **{**own, **given})


class CollectionQueryRequest(QueryRequest):
    """A query to one collection."""

    top_k: int = Field(default=10, ge=1, description="Passages to retrieve; at most the server's max_top_k.")
    min_score: float | None = Field(default=0.0, description="Minimum score of a passage; null keeps all.")
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = None
    embedding_provider: ProviderName | None = None
    temperature: Temperature | None = 0.7
    max_tokens: int = Field(default=1024, ge=1)
    include_sources: bool = True
    messages: Messages | None = Field(default=None, description="The conversation so far, oldest first.")
    system_prompt: SystemPrompt | None = Field(default=None, description="Template; must contain {context}.")

    def config(self, variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant."""
        return VECTORFORGE.config(variant, **given(self, but=NO_SETTINGS), history=history(self.messages))


class CollectionQueryResponse(AnswerDetails):
    """The answer and its sources."""

    id: UUID
    query: str
    answer: str
    sources: list[SourceBody] = Field(description="By label; empty without include_sources.")
    citations: list[CitationBody]
    provider: str | None
    model: str | None
    extractive: bool
    usage: Usage
    latency: Latency
    finish_reason: str
    outcome: str
    invalid_citations: int = Field(description="Labels in the answer that refer to no source.")

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of a ``QueryResult``."""
        sources = numbered_sources(source.sources)
        return super().of(source, id=source.request_id, sources=sources, **given)


router = APIRouter(prefix="/v1", tags=["query"], route_class=QueryRoute)

RAG_QUERY_ERROR_PREFIX = "RAG query error: "

_RESPONSES = answer_responses(" With `dry_run: true` the request for the model, as JSON.")


@router.post("/rag/query", response_model=RAGQueryResponse | DryRunResponse, responses=_RESPONSES)
async def rag_query(request: Request, body: RAGQueryRequest) -> Response | RAGQueryResponse | DryRunResponse:
    """Answer a query from the default collection (or the one named), with citations."""
    RequestState.of(request.scope).problem_prefix = RAG_QUERY_ERROR_PREFIX
    wants_context = body.include_context is not False  # null selects the default, True
    without_context = {} if wants_context else {"context": None}
    return await answer_request(
        request,
        body,
        requested_collection(application_of(request), body.collection),
        body.config,
        lambda result: RAGQueryResponse.of(result, **without_context),
        names=_RAG_NAMES,
        with_sources=wants_context,
    )


@router.post(
    "/collections/{collection_id}/query",
    response_model=CollectionQueryResponse | DryRunResponse,
    responses=_RESPONSES,
)
async def collection_query(
    request: Request, collection_id: CollectionInPath, body: CollectionQueryRequest
) -> Response | CollectionQueryResponse | DryRunResponse:
    """Answer a query from this collection, with sources and citations."""
    collection = CollectionChoice((collection_id,))
    return await answer_request(request, body, collection, body.config, CollectionQueryResponse.of, names={})
