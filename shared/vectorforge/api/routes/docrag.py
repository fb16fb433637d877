"""``/v1/docrag/query``: answers from documentation, with examples, sources and how sure the model is."""

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.querying import (
    answer_as_stream,
    answer_dry,
    answer_whole,
    check_config,
    find_asked_collection,
    is_extractive,
)
from vectorforge.api.responses import ANSWER_PROBLEMS, event_stream_content
from vectorforge.api.schemas.docrag import DocRagQueryRequest, DocRagQueryResponse
from vectorforge.api.schemas.dry_run import DryRunResponse
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.pipeline.docrag import DEFAULT_COLLECTION
from vectorforge.types import Collection

router = APIRouter(prefix="/v1", tags=["query"])


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
    collection = await _find_collection(application, tenant, body.collection)
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, collection, config)
    if body.stream:
        return await answer_as_stream(
            request, application, tenant, body.query, collection, config, resumable=body.resumable
        )
    result = await answer_whole(request, application, tenant, body.query, collection, config)
    return DocRagQueryResponse.of(result, extractive=is_extractive(result))


async def _find_collection(application: Application, tenant: TenantServices, asked: str | None) -> Collection:
    if asked is None and (own := await tenant.collections.find_by_name(DEFAULT_COLLECTION)) is not None:
        return own
    return await find_asked_collection(application, tenant, asked)
