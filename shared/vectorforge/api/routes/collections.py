"""``/v1/collections``."""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Limit, Offset, Tenant, check_provider
from vectorforge.api.erasing import ERASURE_RESPONSES, erase
from vectorforge.api.responses import problems
from vectorforge.api.schemas.base import MAX_PAGE
from vectorforge.api.schemas.collections import (
    CollectionBody,
    CollectionChange,
    CollectionList,
    CollectionRequest,
    SearchSettingsFields,
)
from vectorforge.api.schemas.erasures import ErasureBody
from vectorforge.db.repositories.erasure_repo import Subject
from vectorforge.errors import NotFoundError

router = APIRouter(prefix="/v1/collections", tags=["collections"])


@router.get("", responses=problems())
async def list_collections(tenant: Tenant, limit: Limit = MAX_PAGE, offset: Offset = 0) -> CollectionList:
    """A page of the collections, by name."""
    found = await tenant.collections.list(limit=limit, offset=offset)
    bodies = [CollectionBody.of(collection) for collection in found]
    return CollectionList(collections=bodies, limit=limit, offset=offset)


@router.post("", status_code=201, responses=problems(409, 413, 415, 429, 502, 504))
async def create_collection(
    body: CollectionRequest, response: Response, application: ApplicationDep, tenant: AdmittedTenant
) -> CollectionBody:
    """Make a collection."""
    check_provider(
        "embedding_provider", body.embedding_provider, application.embedding_registry.list_providers()
    )
    made_of = body.model_dump(exclude={*SearchSettingsFields.model_fields, "keeps_words"})
    collection = await tenant.create_collection(**made_of, search=body.search_settings())
    response.headers["Location"] = f"/v1/collections/{collection.id}"
    return CollectionBody.of(collection)


@router.get("/{collection_id}", responses=problems(404))
async def show_collection(collection_id: UUID, tenant: Tenant) -> CollectionBody:
    """One collection."""
    collection = await tenant.collections.find_by_id(collection_id)
    if collection is None:
        raise NotFoundError(f"Collection {collection_id} not found")
    return CollectionBody.of(collection)


@router.patch("/{collection_id}", responses=problems(404, 413, 415))
async def change_collection(collection_id: UUID, body: CollectionChange, tenant: Tenant) -> CollectionBody:
    """Change how a collection is searched.

    After a change of the language, the passages' words are read anew in the background.
    """
    collection = await tenant.collections.set_search(collection_id, body.search_settings())
    if collection is None:
        raise NotFoundError(f"Collection {collection_id} not found")
    return CollectionBody.of(collection)


@router.delete("/{collection_id}", responses=ERASURE_RESPONSES)
async def delete_collection(
    request: Request, response: Response, collection_id: UUID, application: ApplicationDep, tenant: Tenant
) -> ErasureBody:
    """Erase a collection with its documents and all traces of them."""
    subject = Subject("collection", collection_id)
    return await erase(request, response, application, tenant, subject)
