"""``/v1/vector_stores`` of OpenAI's API: a vector store is a collection.

https://developers.openai.com/api/reference/resources/vector_stores
"""

from uuid import uuid4

from fastapi import APIRouter, Request

from vectorforge.api.admin.erasures import erase_in_time
from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    Tenant,
    check_at_most,
    deadline_of,
    existing,
)
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.openai.ids import VECTOR_STORE, Page, collection_reference, prefixed
from vectorforge.api.openai.vector_stores.file_schemas import VectorStoreFileRequest
from vectorforge.api.openai.vector_stores.store_files import attach_files, waiting_files
from vectorforge.api.openai.vector_stores.store_schemas import (
    SearchResultBody,
    SearchResultsPage,
    VectorStoreBody,
    VectorStoreDeleted,
    VectorStoreList,
    VectorStoreRequest,
    VectorStoreSearchRequest,
    VectorStoreUpdate,
)
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import Subject
from vectorforge.errors import InvalidInputError
from vectorforge.types import Collection, RetrievedChunk
from vectorforge.vectorstore.filters.parse import parse

router = APIRouter(prefix="/v1/vector_stores", tags=["openai"])


@router.get("", responses=openai_problems())
async def list_vector_stores(tenant: Tenant, page: Page) -> VectorStoreList:
    """List the collections by creation time."""
    found = await tenant.listing.collections(page)
    return VectorStoreList.of([VectorStoreBody.of(row) for row in found.rows], has_more=found.has_more)


@router.post("", responses=openai_problems(409, 413, 415, 429, 502, 504))
async def create_vector_store(
    body: VectorStoreRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> VectorStoreBody:
    """Make a collection with the server's embedding model, and attach uploaded files to it."""
    requested = [VectorStoreFileRequest(file_id=id_) for id_ in body.file_ids or ()]
    files = await waiting_files(tenant, requested, field="file_ids")
    name = body.name or f"vector-store-{uuid4().hex[:12]}"
    collection = await tenant.create_collection(name, description=body.description or "")
    try:
        if body.metadata:
            await tenant.collections.update(collection.id, metadata=body.metadata)
        if files:
            await attach_files(application, tenant, collection.id, files, field="file_ids")
    except Exception:
        await tenant.collections.delete(collection.id)
        raise
    return await _body(tenant, collection)


@router.get("/{vector_store_id}", responses=openai_problems(404))
async def retrieve_vector_store(vector_store_id: str, tenant: Tenant) -> VectorStoreBody:
    """Return one collection by its id or name."""
    return await _body(tenant, await _find(tenant, vector_store_id))


@router.post("/{vector_store_id}", responses=openai_problems(404, 409, 413, 415))
async def update_vector_store(
    vector_store_id: str, body: VectorStoreUpdate, application: ApplicationDep, tenant: Tenant
) -> VectorStoreBody:
    """Change the name or the metadata of a collection."""
    collection = await _find(tenant, vector_store_id)
    if body.name not in (None, collection.name) and application.config.aws.uploads_bucket is not None:
        raise InvalidInputError(
            "Collections cannot be renamed where files are uploaded to S3: their keys contain the name.",
            field="name",
        )
    await tenant.collections.update(collection.id, name=body.name, metadata=body.metadata)
    return await _body(tenant, collection)


@router.delete("/{vector_store_id}", responses=openai_problems(404))
async def delete_vector_store(request: Request, vector_store_id: str, tenant: Tenant) -> VectorStoreDeleted:
    """Erase a collection with its documents, as `DELETE /v1/collections/{id}` does."""
    collection = await _find(tenant, vector_store_id)
    await erase_in_time(request, Subject("collection", collection.id))
    return VectorStoreDeleted(id=prefixed(VECTOR_STORE, collection.id))


@router.post("/{vector_store_id}/search", responses=openai_problems(404, 409, 413, 415, 429, 502, 504))
async def search_vector_store(
    request: Request,
    vector_store_id: str,
    body: VectorStoreSearchRequest,
    application: ApplicationDep,
    tenant: AdmittedTenant,
) -> SearchResultsPage:
    """Return the chunks nearest to a query, or to any of several, best first."""
    check_at_most("max_num_results", body.max_num_results, application.config.query.max_top_k)
    if body.filters is not None:
        parse(body.filters.translated())  # before the embedding is paid for
    collection = await _find(tenant, vector_store_id)
    chunks, degraded = await _search(application, tenant, collection, body, deadline_of(request))
    data = [SearchResultBody.of(chunk) for chunk in chunks]
    return SearchResultsPage(search_query=body.query, data=data, degraded=degraded)


async def _search(
    application: Application,
    tenant: TenantServices,
    collection: Collection,
    body: VectorStoreSearchRequest,
    deadline: Deadline,
) -> tuple[list[RetrievedChunk], list[str]]:
    """Return the chunks, best first, and the degradation of the searches."""
    best: dict[object, RetrievedChunk] = {}
    degraded: list[str] = []
    for query in dict.fromkeys(body.query):
        retrieved = await tenant.retriever.retrieve(
            query,
            collection.id,
            body.max_num_results,
            body.filters.translated() if body.filters else None,
            body.ranking_options.score_threshold if body.ranking_options else None,
            profile_id=body.profile_id,
            deadline=deadline,
            search_mode=body.search_mode,
            mmr_lambda=body.mmr_lambda,
            min_version=body.min_version,
            allow_lexical_fallback=application.config.query.degraded_answers,
        )
        degraded = degraded or retrieved.degraded
        for chunk in retrieved:
            known = best.setdefault(chunk.chunk.id, chunk)
            if _rank(chunk) > _rank(known):
                best[chunk.chunk.id] = chunk
    ranked = sorted(best.values(), key=lambda chunk: (-_rank(chunk), str(chunk.chunk.id)))
    return ranked[: body.max_num_results], degraded


def _rank(chunk: RetrievedChunk) -> float:
    return chunk.score if chunk.relevance is None else chunk.relevance


async def _find(tenant: TenantServices, vector_store_id: str) -> Collection:
    return await tenant.find_collection(collection_reference(vector_store_id))


async def _body(tenant: TenantServices, collection: Collection) -> VectorStoreBody:
    listed = await tenant.listing.collection(collection.id)  # None if it was deleted in between
    return VectorStoreBody.of(existing(listed, "Collection", collection.id))
