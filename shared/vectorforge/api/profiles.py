"""``/v1/profiles/{profile_id}``: rows and documents of one profile, searches and answers from it alone."""

import time
from functools import partial
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api import schemas
from vectorforge.api.admin.erasures import ERASURE_RESPONSES, ErasureBody, erase
from vectorforge.api.answers import DryRunResponse
from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Tenant, check_at_most, deadline_of
from vectorforge.api.error_schemas import ANSWER_PROBLEMS, problems
from vectorforge.api.native.rag import CollectionQueryRequest, CollectionQueryResponse
from vectorforge.api.native.search import SearchResult
from vectorforge.api.querying import QueryRoute, answer_request, answer_responses
from vectorforge.api.schemas import MAX_QUERY_CHARS, Body, Filters, Metadata, RequestBody
from vectorforge.bootstrap import TenantServices
from vectorforge.erasure.repo import Subject
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile_text import ProfileDocument
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS, PROFILE, PROFILE_CONTEXT_CHARS
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import Variant
from vectorforge.profile_types import SourceType
from vectorforge.retriever.profile import RetrievedChunk
from vectorforge.types import SearchMode
from vectorforge.vectorstore.validation import MAX_PROFILE_ID

MAX_ROWS = 500
MAX_ROW_BYTES = 64 * 1024
MAX_TEXT_CHARS = 1_000_000
MAX_CONTEXT_CHARS = 100_000

ProfileRow = Annotated[dict[str, Any], schemas.at_most(MAX_ROW_BYTES, "a row")]
Rows = Annotated[list[ProfileRow], Field(max_length=MAX_ROWS)]


class Chunking(RequestBody):
    """Sizes of the chunks of this call."""

    chunk_size: int = Field(default=800, ge=50, le=20_000, description="Characters at most.")
    chunk_overlap: int | None = Field(
        default=None, ge=0, le=10_000, description="At most half of chunk_size; default: 150, or that half."
    )

    def config(self) -> ChunkingConfig:
        """Return the validated sizes."""
        overlap = self.chunk_overlap
        if overlap is None:
            overlap = min(ChunkingConfig().chunk_overlap, self.chunk_size // 2)
        return ChunkingConfig(self.chunk_size, overlap)


class ProfileRequest(RequestBody):
    """Database rows of a profile."""

    profile_summary: str = Field(default="", max_length=MAX_TEXT_CHARS)
    experiences: Rows = Field(
        default_factory=list,
        description="Rows as they are; a row with the same `id` is replaced.",
        examples=[[{"id": 12, "title": "Engineer", "company": "Acme", "start_date": "2020-01"}]],
    )
    projects: Rows = Field(default_factory=list)
    skills: Annotated[list[ProfileRow | str], Field(max_length=MAX_ROWS)] = Field(
        default_factory=list, description="Names, or rows such as {name, category, level}."
    )
    education: Rows = Field(default_factory=list)
    chunking: Chunking | None = Field(default=None, description="Null: the server's sizes.")

    def rows(self) -> dict[str, Any]:
        """Return the arguments that both ingestion routes share."""
        return self.model_dump(exclude={"chunking", "documents"})


class NewProfileDocument(BaseModel):
    """A CV or another text."""

    model_config = {"extra": "forbid"}

    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    source_type: SourceType = SourceType.CV
    source_id: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)] = (
        Field(default="1", description="Which one of its type; sent again, it replaces the document.")
    )
    title: Annotated[str, Field(max_length=500)] | None = None
    media_type: str = Field(default="text/plain", max_length=200)
    metadata: Metadata = Field(default_factory=dict)


class ProfileDocumentRequest(NewProfileDocument, RequestBody):
    """A CV or another text for a profile."""

    chunking: Chunking | None = Field(default=None, description="Null: the server's sizes.")


class WholeProfileRequest(ProfileRequest):
    """A profile that atomically replaces the stored one."""

    documents: Annotated[list[NewProfileDocument], Field(max_length=MAX_ROWS)] | None = Field(
        default=None, description="Null: the stored CVs and other texts stay; a list takes their place."
    )


class ProfileResult(Body):
    """Result of the ingestion of a profile."""

    profile_id: int
    documents: int = Field(description="Rows and texts of the request that say something.")
    documents_unchanged: int
    documents_removed: int
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    version: int = Field(description=schemas.VERSION)

    @classmethod
    async def of_tenant(cls, tenant: TenantServices, done: Any) -> Self:
        """Return the body of a result with the version of the profiles' collection."""
        return cls.of(done, version=(await tenant.profiles.collection()).data_version)


class ProfileSearchRequest(RequestBody):
    """A search in one profile, without a language model."""

    query: str = Field(max_length=MAX_QUERY_CHARS)
    top_k: int = Field(default=5, ge=1, description="Passages to return; the server's max_top_k at most.")
    filters: Filters | None = None
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")
    search_mode: SearchMode = Field(
        default=SearchMode.DENSE,
        description="Vectors and words (hybrid), vectors only (dense) or words only (lexical).",
    )
    mmr_lambda: schemas.MmrLambda | None = None
    max_length: int = Field(
        default=PROFILE_CONTEXT_CHARS,
        ge=MIN_CONTEXT_CHARS,
        le=MAX_CONTEXT_CHARS,
        description="Characters of `context` at most; it has whole passages only.",
    )


class ProfileSearchResult(SearchResult):
    """A chunk of a profile."""

    source_type: SourceType
    source_id: str

    @classmethod
    def of_profile(cls, chunk: RetrievedChunk) -> Self:
        """Return the body of a chunk."""
        return cls.of(chunk.found, source_type=chunk.source_type, source_id=chunk.source_id)


class ProfileSearchResponse(BaseModel):
    """Chunks of a profile, best first."""

    query: str
    profile_id: int
    results: list[ProfileSearchResult]
    context: str = Field(description="The best of them as one text for a language model.")
    latency_ms: float


class ProfileQueryRequest(CollectionQueryRequest):
    """A query to one profile."""

    top_k: int = Field(default=PROFILE.defaults["top_k"], ge=1, description="Passages; at most max_top_k.")
    min_score: float | None = Field(default=None, description="Passages below are dropped; null drops none.")

    def config_for(self, profile_id: int, variant: Variant | None = None) -> QueryConfig:
        """Return the query settings: explicit fields of the request override the variant.

        Raises:
            InvalidInputError: The body names another profile than the path.
        """
        if self.profile_id not in (None, profile_id):
            raise InvalidInputError("`profile_id` differs from the one in the path.", field="profile_id")
        explicit = {**schemas.given(self, but=schemas.NO_SETTINGS), "profile_id": profile_id}
        return PROFILE.config(variant, **explicit, history=schemas.history(self.messages))


router = APIRouter(prefix="/v1/profiles/{profile_id}", tags=["profiles"])

ProfileInPath = Annotated[int, Path(ge=0, le=MAX_PROFILE_ID, description="The profile's number.")]

_INGEST_PROBLEMS = problems(409, 413, 415, 429, 502, 504)


@router.post("", responses=_INGEST_PROBLEMS)
async def ingest_profile(
    profile_id: ProfileInPath, body: ProfileRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Add rows to a profile, or replace those with the same ids; what is not in the request stays."""
    pipeline = await tenant.profiles.ingestion(body.chunking.config() if body.chunking else None)
    done = await pipeline.ingest_profile_data(profile_id, **body.rows())
    return await ProfileResult.of_tenant(tenant, done)


@router.put("", responses=_INGEST_PROBLEMS)
async def reingest_profile(
    profile_id: ProfileInPath, body: WholeProfileRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Replace a profile atomically: a search sees the whole old one or the whole new one."""
    pipeline = await tenant.profiles.ingestion(body.chunking.config() if body.chunking else None)
    documents = (
        None if body.documents is None else [ProfileDocument(**dict(document)) for document in body.documents]
    )
    done = await pipeline.reingest_profile(profile_id, **body.rows(), documents=documents)
    return await ProfileResult.of_tenant(tenant, done)


@router.post("/documents", responses=_INGEST_PROBLEMS)
async def ingest_document(
    profile_id: ProfileInPath, body: ProfileDocumentRequest, tenant: AdmittedTenant
) -> ProfileResult:
    """Add a CV or another text to a profile, or replace the one with the same type and id."""
    pipeline = await tenant.profiles.ingestion(body.chunking.config() if body.chunking else None)
    options = body.model_dump(exclude={"chunking", "text"})
    done = await pipeline.ingest_document(profile_id, body.text, **options)
    return await ProfileResult.of_tenant(tenant, done)


@router.post("/search", responses=ANSWER_PROBLEMS)
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
    chunks = await pipeline.retrieve(
        body.query,
        profile_id,
        body.top_k,
        body.filters,
        body.min_score,
        deadline=deadline_of(request),
        search_mode=body.search_mode,
        mmr_lambda=body.mmr_lambda,
    )
    return ProfileSearchResponse(
        query=body.query,
        profile_id=profile_id,
        results=[ProfileSearchResult.of_profile(chunk) for chunk in chunks],
        context=await pipeline.format_context(chunks, body.max_length),
        latency_ms=(time.perf_counter() - started) * 1000,
    )


async def query_profile(
    request: Request, profile_id: ProfileInPath, body: ProfileQueryRequest, tenant: Tenant
) -> Response | CollectionQueryResponse | DryRunResponse:
    """Answer a query from a profile, with sources and citations."""
    config_of = partial(body.config_for, profile_id)
    return await answer_request(
        request, body, tenant.profiles.choice, config_of, CollectionQueryResponse.of, names={}
    )


router.add_api_route(
    "/query",
    query_profile,
    methods=["POST"],
    response_model=CollectionQueryResponse | DryRunResponse,
    responses=answer_responses(),
    route_class_override=QueryRoute,
)


@router.delete("", responses=ERASURE_RESPONSES)
async def delete_profile(
    request: Request,
    response: Response,
    profile_id: ProfileInPath,
    tenant: Tenant,
) -> ErasureBody:
    """Erase a profile with everything it holds, and all traces of it."""
    collection = await tenant.profiles.collection()
    subject = Subject("profile", collection.id, profile_id=profile_id)
    return await erase(request, response, subject)
