"""``/v1/collections``: collections and their search settings."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints, model_validator

from vectorforge.api.admin.erasures import ERASURE_RESPONSES, ErasureBody, erase
from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Limit, Offset, Tenant, check_provider
from vectorforge.api.schemas import (
    MAX_NAME_CHARS,
    MAX_PAGE,
    Body,
    ModelName,
    ProviderName,
    RequestBody,
    problems,
)
from vectorforge.erasure.repo import Subject
from vectorforge.errors import NotFoundError
from vectorforge.types import DistanceMetric, SearchMode, SearchSettings, VectorIndex


class SearchSettingsFields(RequestBody):
    """Search settings of a collection."""

    search_mode: SearchMode | None = Field(default=None, description="Search mode of queries that set none.")
    dense_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Weight of the score by vector in a hybrid search; the score by words has the rest.",
    )
    language: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Text search configuration of PostgreSQL: english ...; simple takes words as they are.",
    )

    def search_settings(self) -> SearchSettings:
        """Return the given settings, and None for the others."""
        return SearchSettings(self.search_mode, self.dense_weight, self.language)


class CollectionChange(SearchSettingsFields):
    """Changes of a collection; omitted fields stay unchanged."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.search_settings() == SearchSettings():
            raise ValueError("one of search_mode, dense_weight and language is required")
        return self


class CollectionRequest(SearchSettingsFields):
    """A new collection; omitted fields come from the embedding provider."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]
    description: str = Field(default="", max_length=2000)
    embedding_provider: ProviderName | None = None
    embedding_model: ModelName | None = None
    dimension: Annotated[int, Field(ge=1, le=16_000)] | None = None
    distance_metric: DistanceMetric = DistanceMetric.COSINE
    query_prefix: str | None = Field(default=None, max_length=500)
    document_prefix: str | None = Field(default=None, max_length=500)
    vector_index: VectorIndex = Field(
        default=VectorIndex.FULL,
        description="What the index of the vectors is made of, once there are more than 10,000: the "
        "vectors, the vectors in half precision, or their signs. What it finds is ranked by the full ones.",
    )
    keeps_words: bool = Field(
        default=True,
        description="False: words of passages are not indexed, so that storing them takes a fraction of the "
        "time and space; the collection is searched by vectors only. Setting its search_mode to hybrid or "
        "lexical later has them indexed.",
    )

    def search_settings(self) -> SearchSettings:
        """Return the given settings for the repository."""
        return replace(super().search_settings(), keeps_words=self.keeps_words)


class CollectionBody(Body):
    """A set of documents that share one embedding model."""

    id: UUID
    name: str
    description: str
    embedding_provider: str
    embedding_model: str
    dimension: int
    distance_metric: DistanceMetric
    vector_index: VectorIndex
    by_profile: bool = Field(
        description="True: every document belongs to a profile, and every query names one."
    )
    search_mode: SearchMode
    dense_weight: float
    language: str
    keeps_words: bool = Field(description="False: it can be searched by vectors only.")
    terms_complete: bool = Field(
        description="False: words of some passages are still to be read, or to be read anew by another "
        "language; searches by words may miss them."
    )
    document_count: int
    chunk_count: int
    created_at: datetime | None


class CollectionList(BaseModel):
    """List the collections by name."""

    collections: list[CollectionBody]
    limit: int
    offset: int


router = APIRouter(prefix="/v1/collections", tags=["collections"])


@router.get("", responses=problems())
async def list_collections(tenant: Tenant, limit: Limit = MAX_PAGE, offset: Offset = 0) -> CollectionList:
    """List the collections by name."""
    found = await tenant.collections.list(limit=limit, offset=offset)
    bodies = [CollectionBody.of(collection) for collection in found]
    return CollectionList(collections=bodies, limit=limit, offset=offset)


@router.post("", status_code=201, responses=problems(409, 413, 415, 429, 502, 504))
async def create_collection(
    body: CollectionRequest, response: Response, application: ApplicationDep, tenant: AdmittedTenant
) -> CollectionBody:
    """Create a collection."""
    check_provider(
        "embedding_provider", body.embedding_provider, application.embedding_registry.list_providers()
    )
    made_of = body.model_dump(exclude={*SearchSettingsFields.model_fields, "keeps_words"})
    collection = await tenant.create_collection(**made_of, search=body.search_settings())
    response.headers["Location"] = f"/v1/collections/{collection.id}"
    return CollectionBody.of(collection)


@router.get("/{collection_id}", responses=problems(404))
async def show_collection(collection_id: UUID, tenant: Tenant) -> CollectionBody:
    """Return one collection."""
    collection = await tenant.collections.find_by_id(collection_id)
    if collection is None:
        raise NotFoundError(f"Collection {collection_id} not found")
    return CollectionBody.of(collection)


@router.patch("/{collection_id}", responses=problems(404, 413, 415))
async def change_collection(collection_id: UUID, body: CollectionChange, tenant: Tenant) -> CollectionBody:
    """Change the search settings of a collection.

    After a change of the language, the chunks are indexed again in the background.
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
