"""``/v1/docrag/query``: answers from documentation, with examples, sources and how sure the model is."""

from contextlib import suppress

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.docrag.schemas import DocRagQueryRequest, DocRagQueryResponse
from vectorforge.api.native.dry_run import DryRunResponse
from vectorforge.api.query_route import QueryRoute
from vectorforge.api.querying import (
    answer_as_stream,
    answer_dry,
    answer_whole,
    check_config,
    is_extractive,
    look_up_query,
    query_time_limit,
)
from vectorforge.api.responses import ANSWER_PROBLEMS, event_stream_content
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.docrag import DEFAULT_COLLECTION
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import QueryLookup

router = APIRouter(prefix="/v1", tags=["query"], route_class=QueryRoute)


@router.post(
    "/docrag/query",
    response_model=DocRagQueryResponse | DryRunResponse,
    responses={
        200: {
            "description": "The answer: JSON, or with `stream: true` server-sent events.",
            "content": event_stream_content(),
        },
        **ANSWER_PROBLEMS,
    },
)
async def docrag_query(
    request: Request, body: DocRagQueryRequest, application: ApplicationDep, tenant: Tenant
) -> Response | DocRagQueryResponse | DryRunResponse:
    """Answer a question from documentation. The model writes JSON; a stream has its answer as text."""
    config = body.config(tenant.choose_variant(body.variant, body.conversation_id))
    check_config(application, config, {"top_k": "n_results", "llm_provider": "provider"})
    asked = await _look_up(application, tenant, body, config)
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, asked, config)
    if body.stream:
        return await answer_as_stream(
            request, application, tenant, body.query, asked, config, resumable=body.resumable
        )
    result = await answer_whole(request, application, tenant, body.query, asked, config)
    return DocRagQueryResponse.of(result, extractive=is_extractive(result))


async def _look_up(
    application: Application, tenant: TenantServices, body: DocRagQueryRequest, config: QueryConfig
) -> QueryLookup:
    if body.collection is None:
        with suppress(NotFoundError):
            async with query_time_limit(application):
                return await tenant.look_up_query(DEFAULT_COLLECTION, body.query, config)
    return await look_up_query(application, tenant, body.collection, body.query, config)
