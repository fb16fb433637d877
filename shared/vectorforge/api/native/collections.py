"""``/v1/collections``: collections and their search settings."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints, model_validator

from vectorforge.api.admin.erasures import ERASURE_RESPONSES, ErasureBody, erase
from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    CollectionInPath,
    Limit,
    Offset,
    Tenant,
    check_provider,
    existing,
)
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import (
    MAX_NAME_CHARS,
    MAX_PAGE,
    VERSION,
    Body,
    ModelName,
    ProviderName,
    RequestBody,
)
from vectorforge.erasure.repo import Subject
from vectorforge.types import Collection, DistanceMetric, SearchMode, SearchSettings, VectorIndex


class SearchSettingsFields(RequestBody):
    """Search settings of a collection."""

    search_mode: SearchMode | None = Field(default=None, description="Search mode of queries that set none.")
    dense_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Weight of the vector score in a hybrid search; words have the rest. The default, 0.5, "
        "is lower for languages that an English embedding model does not know.",
    )
    language: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Text search configuration of PostgreSQL for every document, or `auto`, the default: "
        "that of each document's detected language.",
    )

    def search_settings(self) -> SearchSettings:
        """Return the given settings, and None for the others."""
        return SearchSettings(self.search_mode, self.dense_weight, self.language)


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]


class CollectionChange(SearchSettingsFields):
    """Changes of a collection; omitted fields stay unchanged."""

    name: Name | None = Field(default=None, description="New name; requests by the former name fail.")
    keep_originals: bool | None = Field(
        default=None,
        description="False also deletes the files that are kept. True keeps those ingested from now on.",
    )
    contextual: bool | None = Field(
        default=None,
        description="As at creation; applies to each document when it is ingested the next time.",
    )
    ocr: bool | None = Field(
        default=None, description="True: OCR of the documents that are ingested from now on."
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError(
                "one of name, search_mode, dense_weight, language, keep_originals, contextual and ocr "
                "is required"
            )
        return self


class CollectionRequest(SearchSettingsFields):
    """A new collection; omitted fields come from the embedding provider."""

    name: Name
    description: str = Field(default="", max_length=2000)
    embedding_provider: ProviderName | None = None
    embedding_model: ModelName | None = None
    dimension: Annotated[int, Field(ge=1, le=16_000)] | None = None
    distance_metric: DistanceMetric = DistanceMetric.COSINE
    query_prefix: str | None = Field(default=None, max_length=500)
    document_prefix: str | None = Field(default=None, max_length=500)
    vector_index: VectorIndex = Field(
        default=VectorIndex.FULL,
        description="Precision of the index above 10,000 vectors; results are ranked by the full vectors.",
    )
    keeps_words: bool = Field(
        default=True,
        description="False: no lexical index, so storing is faster and only vector search is possible, until "
        "`search_mode` is set to hybrid or lexical.",
    )
    keep_originals: bool = Field(
        default=True, description="Keep the files of documents, for download and page images."
    )
    contextual: bool = Field(
        default=False,
        description="Embed and index each chunk with a context: a sentence of a language model placing it "
        "in its document, or the first sentences of document and section without a model.",
    )
    ocr: bool = Field(
        default=False,
        description="Read images, and pages of PDFs without a text layer, by OCR; needs an engine where "
        "documents are read, else they fail with `document_not_deployed`.",
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
    by_profile: bool = Field(description="True: every document and every query has a profile.")
    search_mode: SearchMode
    dense_weight: float
    language: str = Field(description="Text search configuration of PostgreSQL.")
    detect_language: bool = Field(
        description="True: `language` applies only to documents whose own language is unknown."
    )
    languages: list[str] = Field(
        description="Text search configurations of the stored chunks; a query is searched by each of them."
    )
    keeps_words: bool = Field(description="False: it can be searched by vectors only.")
    keep_originals: bool = Field(description="True: the files of documents are kept.")
    contextual: bool = Field(description="True: chunks are embedded and indexed with a context.")
    ocr: bool = Field(description="True: images, and pages without a text layer, are read by OCR.")
    terms_complete: bool = Field(description="False: the lexical index is being built; words may be missing.")
    document_count: int
    chunk_count: int
    version: int = Field(validation_alias="data_version", description=VERSION)
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
    collections = await tenant.collections.list(limit=limit, offset=offset)
    bodies = [CollectionBody.of(collection) for collection in collections]
    return CollectionList(collections=bodies, limit=limit, offset=offset)


@router.post("", status_code=201, responses=problems(409, 413, 415, 429, 502, 504))
async def create_collection(
    body: CollectionRequest, response: Response, application: ApplicationDep, tenant: AdmittedTenant
) -> CollectionBody:
    """Create a collection."""
    check_provider("embedding_provider", body.embedding_provider, application.embedding_registry)
    made_of = body.model_dump(exclude={*SearchSettingsFields.model_fields, "keeps_words"})
    collection = await tenant.create_collection(**made_of, search=body.search_settings())
    response.headers["Location"] = f"/v1/collections/{collection.id}"
    return CollectionBody.of(collection)


@router.get("/{collection_id}", responses=problems(404))
async def show_collection(collection_id: CollectionInPath, tenant: Tenant) -> CollectionBody:
    """Return one collection."""
    return CollectionBody.of(await tenant.find_collection(collection_id))


@router.patch("/{collection_id}", responses=problems(404, 409, 413, 415))
async def change_collection(
    collection_id: CollectionInPath, body: CollectionChange, tenant: Tenant
) -> CollectionBody:
    """Change the name and search settings of a collection, and those of documents ingested from now on.

    After a change of the language, the chunks are indexed again in the background.
    """
    repo, settings = tenant.collections, body.search_settings()
    ingestion = body.model_dump(include={"keep_originals", "ocr", "contextual"}, exclude_none=True)

    async def change(found_id: UUID) -> Collection:
        if body.name is not None:
            await repo.update(found_id, name=body.name)
        if ingestion:
            await repo.set_ingestion(found_id, **ingestion)
        if body.keep_originals is False:
            await tenant.originals.delete_of_collection(found_id)
        if settings == SearchSettings():
            changed = await repo.find_by_id(found_id)
        else:
            changed = await repo.set_search(found_id, settings)
        return existing(changed, "Collection", found_id)

    return CollectionBody.of(await tenant.with_collection_id(collection_id, change))


@router.delete("/{collection_id}", responses=ERASURE_RESPONSES)
async def delete_collection(
    request: Request, response: Response, collection_id: CollectionInPath, tenant: Tenant
) -> ErasureBody:
    """Erase a collection with its documents and all traces of them."""
    return await tenant.with_collection_id(
        collection_id, lambda found_id: erase(request, response, Subject("collection", found_id))
    )
