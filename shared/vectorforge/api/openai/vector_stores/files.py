"""``/v1/files`` of OpenAI's API: uploaded files, which become documents of a vector store, and documents.

https://developers.openai.com/api/reference/resources/files
"""

from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from vectorforge.api.admin.erasures import erase_in_time
from vectorforge.api.dependencies import AdmittedTenant, ApplicationDep, Tenant, existing
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.native.document_uploads import read_form, source_of
from vectorforge.api.native.originals import SAFE_HEADERS, content_of, find_original, in_parts
from vectorforge.api.openai.ids import FILE, Page, parse_id, prefixed
from vectorforge.api.openai.vector_stores.file_schemas import FileBody, FileDeleted, FileList
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.file_repo import MAX_FILENAME_CHARS, StoredFile
from vectorforge.erasure.repo import Subject
from vectorforge.errors import ExtractionError, InvalidInputError, NotFoundError
from vectorforge.ingestion.extract import media

PURPOSES = ("assistants", "user_data")
_REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "purpose"],
                "properties": {
                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                    "purpose": {"enum": list(PURPOSES)},
                },
            }
        }
    },
}

router = APIRouter(prefix="/v1/files", tags=["openai"])


@router.post("", responses=openai_problems(409, 413, 415, 429), openapi_extra={"requestBody": _REQUEST_BODY})
async def create_file(request: Request, application: ApplicationDep, tenant: AdmittedTenant) -> FileBody:
    """Upload a file, which is deleted after 24 hours unless it is attached to a vector store."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "multipart/form-data":
        raise HTTPException(415, "Send multipart/form-data with `file` and `purpose`.")
    form = await read_form(request, max_files=1)
    try:
        purpose, upload = _parts_of(form)
        max_bytes = application.config.ingestion.max_document_bytes
        if (upload.size or 0) > max_bytes:
            raise HTTPException(
                413, f"`file` must have at most {max_bytes} bytes (VECTORFORGE_MAX_DOCUMENT_BYTES)."
            )
        content = await upload.read()
    finally:
        await form.close()
    filename = source_of(upload.filename or "")[-MAX_FILENAME_CHARS:]
    if not filename:
        raise InvalidInputError("The file needs a name.", field="file")
    kind = (upload.content_type or "")[:200] or None
    _check_one_document(content, filename, kind)
    return FileBody.of(await _existing(tenant, await tenant.files.create(filename, purpose, kind, content)))


def _parts_of(form: FormData) -> tuple[str, UploadFile]:
    if refused := next((name[:100] for name in form if name.startswith("expires_after")), None):
        raise InvalidInputError("`expires_after` is not supported.", field=refused)
    purpose, upload = form.get("purpose"), form.get("file")
    if purpose not in PURPOSES:
        raise InvalidInputError(f"`purpose` must be one of: {', '.join(PURPOSES)}.", field="purpose")
    if not isinstance(upload, UploadFile):
        raise InvalidInputError("A file is required, as a part named `file`.", field="file")
    return purpose, upload


def _check_one_document(content: bytes, filename: str, media_type: str | None) -> None:
    """Reject files that are several documents; others that cannot be read fail when they are attached."""
    try:
        kind = media.detect(content, filename, media_type)
    except ExtractionError:
        return
    if kind in (media.JSONL, media.ZIP):
        raise InvalidInputError(
            "JSONL and ZIP files are several documents: add them with POST /v1/collections/{id}/documents.",
            field="file",
        )


@router.get("", responses=openai_problems())
async def list_files(
    tenant: Tenant,
    page: Page,
    purpose: Annotated[Literal["assistants", "user_data"] | None, Query(description="Only these.")] = None,
) -> FileList:
    """List uploaded files and the documents of all collections, by creation time."""
    found = await tenant.files.list(page, purpose=purpose)
    return FileList.of([FileBody.of(file) for file in found.rows], has_more=found.has_more)


@router.get("/{file_id}", responses=openai_problems(404))
async def retrieve_file(file_id: str, tenant: Tenant) -> FileBody:
    """Return one file without its content."""
    return FileBody.of(await find_file(tenant, file_id))


@router.delete("/{file_id}", responses=openai_problems(404, 409))
async def delete_file(request: Request, file_id: str, tenant: Tenant) -> FileDeleted:
    """Delete a file; its document is erased, as `DELETE /v1/documents/{id}` does."""
    file = await find_file(tenant, file_id)
    await delete_stored_file(request, tenant, file)
    return FileDeleted(id=prefixed(FILE, file.id))


@router.get(
    "/{file_id}/content",
    response_class=Response,
    responses={
        **openai_problems(404),
        200: {"description": "The file.", "content": {"application/octet-stream": {}}},
    },
)
async def retrieve_file_content(file_id: str, application: ApplicationDep, tenant: Tenant) -> Response:
    """Return the content of a file that waits to be attached, or of a document whose original is kept."""
    file = await find_file(tenant, file_id)
    headers = {**SAFE_HEADERS, "Content-Type": "application/octet-stream"}
    if file.status == "completed":
        original = await find_original(tenant, file.id)
        read = partial(content_of, application, tenant, original)
        return await in_parts(read, range(original.size_bytes), headers)

    async def read_waiting(part: range) -> bytes:
        return existing(await tenant.files.content(file.id, part), "Content of file", file_id)

    return await in_parts(read_waiting, range(file.size_bytes), headers)


async def find_file(tenant: TenantServices, file_id: str, collection_id: UUID | None = None) -> StoredFile:
    """Return a file by its id, with a collection one that is attached to it.

    Raises:
        NotFoundError: There is none.
    """
    requested = parse_id(FILE, file_id)
    if requested is None:
        raise NotFoundError(f"File {file_id} not found")
    return await _existing(tenant, requested, collection_id)


async def _existing(tenant: TenantServices, file_id: UUID, collection_id: UUID | None = None) -> StoredFile:
    return existing(await tenant.files.find(file_id, collection_id), "File", prefixed(FILE, file_id))


async def delete_stored_file(request: Request, tenant: TenantServices, file: StoredFile) -> None:
    """Erase the document of a file, or delete the file that is none.

    Raises:
        ConflictError: It is being ingested.
    """
    if file.status == "completed":
        await erase_in_time(request, Subject("document", document_id=file.id))
    else:
        await tenant.files.delete(file.id)
