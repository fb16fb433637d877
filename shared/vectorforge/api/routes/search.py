"""``/v1/search``: passages without an answer."""

import time

from fastapi import APIRouter, Request

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, check_at_most
from vectorforge.api.querying import deadline_of, find_asked_collection
from vectorforge.api.responses import problems
from vectorforge.api.schemas.search import SearchRequest, SearchResponse
from vectorforge.vectorstore.filters import parse

router = APIRouter(prefix="/v1", tags=["search"])


@router.post("/search", responses=problems(404, 409, 413, 415, 429, 502, 504))
async def search(
    request: Request, body: SearchRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> SearchResponse:
    """Find the passages that answer a question best, best first."""
    check_at_most("top_k", body.top_k, application.config.query.max_top_k)
    parse(body.filters)  # before the embedding is paid for
    collection = await find_asked_collection(application, tenant, body.collection)
    started = time.perf_counter()
    found = await tenant.retriever.retrieve(
        body.query,
        collection.id,
        body.top_k,
        body.filters,
        body.min_score,
        profile_id=body.profile_id,
        deadline=deadline_of(request, application),
        search_mode=body.search_mode,
        words_suffice=application.config.query.degraded_answers,
    )
    return SearchResponse.of(body.query, collection.id, found, (time.perf_counter() - started) * 1000)
