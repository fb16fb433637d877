"""``/v1/docrag/query``: answers from documentation, with examples, sources and how sure the model is."""

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
    requested_collection,
)
from vectorforge.api.responses import ANSWER_PROBLEMS, event_stream_content
from vectorforge.pipeline.presets import DEFAULT_COLLECTION

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
    collection = requested_collection(application, body.collection, preferred=DEFAULT_COLLECTION)
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, collection, config)
    if body.stream:
        return await answer_as_stream(
            request, application, tenant, body.query, collection, config, resumable=body.resumable
        )
    result = await answer_whole(request, application, tenant, body.query, collection, config)
    return DocRagQueryResponse.of(result, extractive=is_extractive(result))
