"""``/v1/profiles/{profile_id}``: rows and documents of one profile, searches and answers from it alone."""

import time
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from vectorforge.api.admin.erasures import ERASURE_RESPONSES, ErasureBody, erase
from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Tenant, check_at_most, deadline_of
from vectorforge.api.native.rag import CollectionQueryResponse
from vectorforge.api.profiles.schemas import (
    Chunking,
    ProfileDocumentRequest,
    ProfileQueryRequest,
    ProfileRequest,
    ProfileResult,
    ProfileSearchRequest,
    ProfileSearchResponse,
    ProfileSearchResult,
    WholeProfileRequest,
)
from vectorforge.api.query_bodies import DryRunResponse
from vectorforge.api.query_route import QueryRoute
from vectorforge.api.querying import answer_as_stream, answer_dry, answer_whole, check_config, is_extractive
from vectorforge.api.schemas import ANSWER_PROBLEMS, problems
from vectorforge.api.streaming.sse import event_stream_content
from vectorforge.erasure.repo import Subject
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.vectorstore.validation import MAX_PROFILE_ID

router = APIRouter(prefix="/v1/profiles/{profile_id}", tags=["profiles"])

ProfileInPath = Annotated[int, Path(ge=0, le=MAX_PROFILE_ID, description="The profile's number.")]

_INGEST_PROBLEMS = problems(409, 413, 415, 429, 502, 504)


def _sizes(chunking: Chunking | None) -> ChunkingConfig | None:
    return None if chunking is None else chunking.config()


@router.post("", responses=_INGEST_PROBLEMS)
async def ingest_profile(
    profile_id: ProfileInPath, body: ProfileRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Add rows to a profile, or replace those with the same ids; what is not in the request stays."""
    pipeline = await tenant.profiles.ingestion(_sizes(body.chunking))
    return ProfileResult.of(await pipeline.ingest_profile_data(profile_id, **body.rows()))


@router.put("", responses=_INGEST_PROBLEMS)
async def reingest_profile(
    profile_id: ProfileInPath, body: WholeProfileRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Replace a profile atomically: a search sees the whole old one or the whole new one."""
    pipeline = await tenant.profiles.ingestion(_sizes(body.chunking))
    documents = None if body.documents is None else [document.document() for document in body.documents]
    done = await pipeline.reingest_profile(profile_id, **body.rows(), documents=documents)
    return ProfileResult.of(done)


@router.post("/documents", responses=_INGEST_PROBLEMS)
async def ingest_document(
    profile_id: ProfileInPath, body: ProfileDocumentRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Add a CV or another text to a profile, or replace the one with the same type and id."""
    pipeline = await tenant.profiles.ingestion(_sizes(body.chunking))
    done = await pipeline.ingest_document(
        profile_id,
        body.text,
        body.source_type,
        source_id=body.source_id,
        title=body.title,
        media_type=body.media_type,
        metadata=body.metadata,
    )
    return ProfileResult.of(done)


@router.post("/search", responses=problems(404, 409, 413, 415, 429, 502, 504))
async def search_profile(
    request: Request,
    profile_id: ProfileInPath,
    body: ProfileSearchRequest,
    application: ApplicationDep,
    tenant: AdmittedTenant,
) -> ProfileSearchResponse:
    """Return the best chunks of a profile for a query, and as one context for a model."""
    check_at_most("top_k", body.top_k, application.config.query.max_top_k)
    pipeline = await tenant.profiles.retrieval()
    started = time.perf_counter()
    found = await pipeline.retrieve(
        body.query,
        profile_id,
        body.top_k,
        body.filters,
        body.min_score,
        deadline=deadline_of(request, application),
        search_mode=body.search_mode,
    )
    return ProfileSearchResponse(
        query=body.query,
        profile_id=profile_id,
        results=[ProfileSearchResult.of_profile(chunk) for chunk in found],
        context=await pipeline.format_context(found, body.max_length),
        latency_ms=(time.perf_counter() - started) * 1000,
    )


async def query_profile(
    request: Request,
    profile_id: ProfileInPath,
    body: ProfileQueryRequest,
    application: ApplicationDep,
    tenant: Tenant,
) -> Response | CollectionQueryResponse | DryRunResponse:
    """Answer a query from a profile, with sources and citations."""
    config = body.config_for(profile_id, tenant.choose_variant(body.variant))
    check_config(application, config, {})
    collection = tenant.profiles.choice
    if body.dry_run:
        return await answer_dry(request, application, tenant, body.query, collection, config)
    if body.stream:
        return await answer_as_stream(
            request, application, tenant, body.query, collection, config, resumable=body.resumable
        )
    result = await answer_whole(request, application, tenant, body.query, collection, config)
    return CollectionQueryResponse.of(result, extractive=is_extractive(result))


router.add_api_route(
    "/query",
    query_profile,
    methods=["POST"],
    response_model=CollectionQueryResponse | DryRunResponse,
    responses={
        200: {
            "description": "The answer: JSON, or with `stream: true` server-sent events.",
            "content": event_stream_content(),
        },
        **ANSWER_PROBLEMS,
    },
    route_class_override=QueryRoute,
)


@router.delete("", responses=ERASURE_RESPONSES)
async def delete_profile(
    request: Request,
    response: Response,
    profile_id: ProfileInPath,
    application: ApplicationDep,
    tenant: Tenant,
) -> ErasureBody:
    """Erase a profile with everything it holds, and all traces of it."""
    collection = await tenant.profiles.collection()
    subject = Subject("profile", collection.id, profile_id=profile_id)
    return await erase(request, response, application, tenant, subject)
