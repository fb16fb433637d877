"""``/v1/vector_stores/{id}/files`` of OpenAI's API: a file is a document."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request

from vectorforge.api.admin.erasures import erase_in_time
from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.native.query_filters import FilteredFiles
from vectorforge.api.openai.errors import openai_problems
from vectorforge.api.openai.file_schemas import (
    FileContentPage,
    TextContent,
    VectorStoreFileBody,
    VectorStoreFileDeleted,
    VectorStoreFileList,
    VectorStoreFileRequest,
)
from vectorforge.api.openai.vector_stores import Page
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.collection_listing import ListedDocument
from vectorforge.erasure.repo import Subject
from vectorforge.errors import InvalidInputError, NotFoundError

router = APIRouter(prefix="/v1/vector_stores/{vector_store_id}/files", tags=["openai"])

_Status = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None,
    Query(alias="filter", description="Every document is completed; of the others only their jobs know."),
]


@router.get("", responses=openai_problems(404))
async def list_vector_store_files(
    vector_store_id: str, tenant: Tenant, asked: Page, filtered: FilteredFiles, status: _Status = None
) -> VectorStoreFileList:
    """A page of the collection's documents, by the time they were made."""
    collection = await tenant.find_collection(vector_store_id)
    if status not in (None, "completed"):
        return VectorStoreFileList.of([], has_more=False)
    with asked.naming_the_cursor():
        found = await tenant.listing.documents(collection.id, asked.page, condition=filtered)
    return VectorStoreFileList.of(
        [VectorStoreFileBody.of(row) for row in found.rows], has_more=found.has_more
    )


@router.post("", responses=openai_problems(404, 413, 415))
async def create_vector_store_file(
    vector_store_id: str, body: VectorStoreFileRequest, tenant: Tenant
) -> VectorStoreFileBody:
    """The document, if the collection has it already; documents cannot be attached to another one."""
    collection = await tenant.find_collection(vector_store_id)
    asked = _uuid(body.file_id)
    found = asked and await tenant.listing.document(collection.id, asked)
    if found:
        return VectorStoreFileBody.of(found)
    elsewhere = asked and await tenant.documents.find_by_id(asked)
    said = "belongs to another vector store, and stays there" if elsewhere else "is not a document of yours"
    raise InvalidInputError(
        f"{body.file_id} {said}; documents are added with POST /v1/collections/{collection.id}/documents.",
        field="file_id",
    )


@router.get("/{file_id}", responses=openai_problems(404))
async def retrieve_vector_store_file(
    vector_store_id: str, file_id: str, tenant: Tenant
) -> VectorStoreFileBody:
    """One document, without its text."""
    return VectorStoreFileBody.of(await _find(tenant, vector_store_id, file_id))


@router.delete("/{file_id}", responses=openai_problems(404))
async def delete_vector_store_file(
    request: Request, vector_store_id: str, file_id: str, application: ApplicationDep, tenant: Tenant
) -> VectorStoreFileDeleted:
    """Erase a document with all traces, as `DELETE /v1/documents/{id}` does."""
    found = await _find(tenant, vector_store_id, file_id)
    await erase_in_time(request, application, tenant, Subject("document", document_id=found.document.id))
    return VectorStoreFileDeleted(id=str(found.document.id))


@router.get("/{file_id}/content", responses=openai_problems(404))
async def retrieve_vector_store_file_content(
    vector_store_id: str, file_id: str, tenant: Tenant
) -> FileContentPage:
    """The document's extracted text."""
    found = await _find(tenant, vector_store_id, file_id)
    text = await tenant.documents.text(found.document.id)
    if text is None:  # it was deleted in between
        raise _not_found(file_id)
    return FileContentPage(data=[TextContent(text=text)])


async def _find(tenant: TenantServices, vector_store_id: str, file_id: str) -> ListedDocument:
    collection = await tenant.find_collection(vector_store_id)
    asked = _uuid(file_id)
    found = await tenant.listing.document(collection.id, asked) if asked else None
    if found is None:
        raise _not_found(file_id)
    return found


def _uuid(file_id: str) -> UUID | None:
    try:
        return UUID(file_id)
    except ValueError:
        return None


def _not_found(file_id: str) -> NotFoundError:
    return NotFoundError(f"File {file_id} not found")
