"""``/v1/rag/query`` and ``/v1/collections/{id}/query``: questions and cited answers."""

import time
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.native.dry_run import DryRunResponse
from vectorforge.api.native.rag_schemas import (
    CollectionQueryRequest,
    CollectionQueryResponse,
    RAGQueryRequest,
    RAGQueryResponse,
)
from vectorforge.api.query_route import QueryRoute
from vectorforge.api.querying import (
    answer_as_stream,
    answer_dry,
    answer_whole,
    check_config,
    is_extractive,
    look_up_query,
)
from vectorforge.api.request_state import RequestState
from vectorforge.api.schemas import ANSWER_PROBLEMS
from vectorforge.api.streaming.sse import event_stream_content

router = APIRouter(prefix="/v1", tags=["query"], route_class=QueryRoute)

RAG_QUERY_ERROR_PREFIX = "RAG query error: "

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer: JSON, or with `stream: true` server-sent events. "
        "With `dry_run: true` the request for the model, as JSON.",
        "content": event_stream_content(),
    },
    **ANSWER_PROBLEMS,
}


@router.post("/rag/query", response_model=RAGQueryResponse | DryRunResponse, responses=_RESPONSES)
async def rag_query(
    request: Request, body: RAGQueryRequest, application: ApplicationDep, tenant: Tenant
) -> Response | RAGQueryResponse | DryRunResponse:
    """Answer a question from the default collection (or the one named), with citations."""
    RequestState.of(request.scope).problem_prefix = RAG_QUERY_ERROR_PREFIX
    config = body.config(tenant.choose_variant(body.variant, body.conversation_id))
    check_config(application, config, {"top_k": "k", "llm_provider": "provider"})
    asked = await look_up_query(application, tenant, body.collection, body.query, config)
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, asked, config)
    if body.stream:
        return await answer_as_stream(
            request,
            application,
            tenant,
            body.query,
            asked,
            config,
            with_sources=body.wants_context,
            resumable=body.resumable,
        )
    result = await answer_whole(request, application, tenant, body.query, asked, config)
    return RAGQueryResponse.of(
        result,
        created=int(time.time()),
        extractive=is_extractive(result),
        with_context=body.wants_context,
    )


@router.post(
    "/collections/{collection_id}/query",
    response_model=CollectionQueryResponse | DryRunResponse,
    responses=_RESPONSES,
)
async def collection_query(
    request: Request,
    collection_id: UUID,
    body: CollectionQueryRequest,
    application: ApplicationDep,
    tenant: Tenant,
) -> Response | CollectionQueryResponse | DryRunResponse:
    """Answer a question from this collection, with sources and citations."""
    config = body.config(tenant.choose_variant(body.variant, body.conversation_id))
    check_config(application, config, {})
    asked = await look_up_query(application, tenant, str(collection_id), body.query, config)
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, asked, config)
    if body.stream:
        return await answer_as_stream(
            request, application, tenant, body.query, asked, config, resumable=body.resumable
        )
    result = await answer_whole(request, application, tenant, body.query, asked, config)
    return CollectionQueryResponse.of(result, extractive=is_extractive(result))
