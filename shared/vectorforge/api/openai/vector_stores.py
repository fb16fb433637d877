"""``/v1/vector_stores`` of OpenAI's API: a vector store is a collection, and a file is a document.

https://developers.openai.com/api/reference/resources/vector_stores
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Query, Request
from pydantic import TypeAdapter

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
from vectorforge.api.openai.request_schemas import AttributeFilter
from vectorforge.api.openai.vector_store_schemas import (
    FileContentPage,
    SearchResultBody,
    SearchResultsPage,
    TextContent,
    VectorStoreBody,
    VectorStoreDeleted,
    VectorStoreFileBody,
    VectorStoreFileDeleted,
    VectorStoreFileList,
    VectorStoreFileRequest,
    VectorStoreList,
    VectorStoreRequest,
    VectorStoreSearchRequest,
)
from vectorforge.api.schemas import MAX_FILTERS_BYTES, parse_query_filters
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.collection_listing import ListedDocument
from vectorforge.db.repositories.paging import CursorPage, SqlCondition
from vectorforge.db.repositories.query_lookup_repo import as_uuid
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import Subject
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.types import Collection, RetrievedChunk
from vectorforge.vectorstore.filters.documents import condition_on_documents
from vectorforge.vectorstore.filters.parse import parse

MAX_CURSOR_PAGE = 100


@dataclass(frozen=True, slots=True)
class RequestedPage:
    """A page, and the parameter of its cursor."""

    page: CursorPage
    field: Literal["after", "before"]

    @contextmanager
    def cursor_errors(self) -> Iterator[None]:
        """Make the block's ``NotFoundError`` one of the parameter.

        Raises:
            InvalidInputError: In place of it.
        """
        try:
            yield
        except NotFoundError as exc:
            raise InvalidInputError(exc.message, field=self.field) from exc


async def read_page(
    limit: Annotated[int, Query(ge=1, le=MAX_CURSOR_PAGE, description="Objects to return.")] = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="By created_at.")] = "desc",
    after: Annotated[str | None, Query(description="Id of the last object of the page before.")] = None,
    before: Annotated[str | None, Query(description="Id of the first object of the page behind.")] = None,
) -> RequestedPage:
    """Return the requested page.

    Raises:
        InvalidInputError: Two cursors, or a malformed one.
    """
    if after is not None and before is not None:
        raise InvalidInputError("Send after or before, not both.", field="before")
    field: Literal["after", "before"] = "after" if before is None else "before"
    given = after if before is None else before
    try:
        cursor = UUID(given) if given is not None else None
    except ValueError:
        raise InvalidInputError(f"{field} must be the id of an object of the list.", field=field) from None
    return RequestedPage(CursorPage(limit, order == "desc", cursor, backwards=before is not None), field)


Page = Annotated[RequestedPage, Depends(read_page)]


_FILTERS: Final = TypeAdapter(AttributeFilter)


async def _read_filters(
    filters: Annotated[
        str | None,
        Query(
            max_length=MAX_FILTERS_BYTES,
            description="JSON of a filter as the search takes it. Not in OpenAI's own API.",
            examples=['{"type": "gte", "key": "year", "value": 2024}'],
        ),
    ] = None,
) -> SqlCondition:
    parsed = None if filters is None else parse_query_filters(_FILTERS, filters).translated()
    return condition_on_documents(parsed)


FilteredFiles = Annotated[SqlCondition, Depends(_read_filters)]


router = APIRouter(prefix="/v1/vector_stores", tags=["openai"])


@router.get("", responses=openai_problems())
async def list_vector_stores(tenant: Tenant, requested: Page) -> VectorStoreList:
    """List the collections by creation time."""
    with requested.cursor_errors():
        page = await tenant.listing.collections(requested.page)
    return VectorStoreList.of([VectorStoreBody.of(row) for row in page.rows], has_more=page.has_more)


@router.post("", responses=openai_problems(409, 413, 415, 429, 502, 504))
async def create_vector_store(body: VectorStoreRequest, tenant: AdmittedTenant) -> VectorStoreBody:
    """Make a collection with the server's embedding model."""
    name = body.name or f"vector-store-{uuid4().hex[:12]}"
    collection = await tenant.create_collection(name, description=body.description or "")
    return await _body(tenant, collection)


@router.get("/{vector_store_id}", responses=openai_problems(404))
async def retrieve_vector_store(vector_store_id: str, tenant: Tenant) -> VectorStoreBody:
    """Return one collection by its id or name."""
    return await _body(tenant, await tenant.find_collection(vector_store_id))


@router.delete("/{vector_store_id}", responses=openai_problems(404))
async def delete_vector_store(request: Request, vector_store_id: str, tenant: Tenant) -> VectorStoreDeleted:
    """Erase a collection with its documents, as `DELETE /v1/collections/{id}` does."""
    collection = await tenant.find_collection(vector_store_id)
    await erase_in_time(request, Subject("collection", collection.id))
    return VectorStoreDeleted(id=str(collection.id))


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
    collection = await tenant.find_collection(vector_store_id)
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


async def _body(tenant: TenantServices, collection: Collection) -> VectorStoreBody:
    listed = await tenant.listing.collection(collection.id)  # None if it was deleted in between
    return VectorStoreBody.of(existing(listed, "Collection", collection.id))


_Status = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None,
    Query(alias="filter", description="Every document is completed; of the others only their jobs know."),
]


@router.get("/{vector_store_id}/files", responses=openai_problems(404))
async def list_vector_store_files(
    vector_store_id: str, tenant: Tenant, requested: Page, filtered: FilteredFiles, status: _Status = None
) -> VectorStoreFileList:
    """List the collection's documents by creation time."""
    collection = await tenant.find_collection(vector_store_id)
    if status not in (None, "completed"):
        return VectorStoreFileList.of([], has_more=False)
    with requested.cursor_errors():
        page = await tenant.listing.documents(collection.id, requested.page, condition=filtered)
    return VectorStoreFileList.of([VectorStoreFileBody.of(row) for row in page.rows], has_more=page.has_more)


@router.post("/{vector_store_id}/files", responses=openai_problems(404, 413, 415))
async def create_vector_store_file(
    vector_store_id: str, body: VectorStoreFileRequest, tenant: Tenant
) -> VectorStoreFileBody:
    """Return the document if it belongs to the collection; documents cannot be attached to another one."""
    collection = await tenant.find_collection(vector_store_id)
    requested = as_uuid(body.file_id)
    listed = requested and await tenant.listing.document(collection.id, requested)
    if listed:
        return VectorStoreFileBody.of(listed)
    elsewhere = requested and await tenant.documents.find_by_id(requested)
    reason = "belongs to another vector store" if elsewhere else "does not exist"
    raise InvalidInputError(
        f"{body.file_id} {reason}; documents are added with POST /v1/collections/{collection.id}/documents.",
        field="file_id",
    )


@router.get("/{vector_store_id}/files/{file_id}", responses=openai_problems(404))
async def retrieve_vector_store_file(
    vector_store_id: str, file_id: str, tenant: Tenant
) -> VectorStoreFileBody:
    """Return one document without its text."""
    return VectorStoreFileBody.of(await _find(tenant, vector_store_id, file_id))


@router.delete("/{vector_store_id}/files/{file_id}", responses=openai_problems(404))
async def delete_vector_store_file(
    request: Request, vector_store_id: str, file_id: str, tenant: Tenant
) -> VectorStoreFileDeleted:
    """Erase a document with all traces, as `DELETE /v1/documents/{id}` does."""
    listed = await _find(tenant, vector_store_id, file_id)
    await erase_in_time(request, Subject("document", document_id=listed.document.id))
    return VectorStoreFileDeleted(id=str(listed.document.id))


@router.get("/{vector_store_id}/files/{file_id}/content", responses=openai_problems(404))
async def retrieve_vector_store_file_content(
    vector_store_id: str, file_id: str, tenant: Tenant
) -> FileContentPage:
    """Return the document's extracted text."""
    listed = await _find(tenant, vector_store_id, file_id)
    text = await tenant.documents.text(listed.document.id)  # None if it was deleted in between
    return FileContentPage(data=[TextContent(text=existing(text, "File", file_id))])


async def _find(tenant: TenantServices, vector_store_id: str, file_id: str) -> ListedDocument:
    collection = await tenant.find_collection(vector_store_id)
    requested = as_uuid(file_id)
    return existing(
        await tenant.listing.document(collection.id, requested) if requested else None, "File", file_id
    )
