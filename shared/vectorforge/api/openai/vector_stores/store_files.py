"""Files of vector stores and their batches: a file is a document of the collection, a batch is a job.

https://developers.openai.com/api/reference/resources/vector_stores/subresources/files
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import TypeAdapter

from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    Tenant,
    document_filter,
    existing,
)
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.native.documents import text_in_parts
from vectorforge.api.openai.ids import FILE, FILE_BATCH, Page, collection_reference, parse_id, prefixed
from vectorforge.api.openai.request_schemas import AttributeFilter
from vectorforge.api.openai.vector_stores.file_schemas import (
    FileBatchBody,
    FileBatchRequest,
    FileContentPage,
    VectorStoreFileBody,
    VectorStoreFileDeleted,
    VectorStoreFileList,
    VectorStoreFileRequest,
    VectorStoreFileUpdate,
    metadata_of,
)
from vectorforge.api.openai.vector_stores.files import delete_stored_file, find_file
from vectorforge.api.openai.vector_stores.store_schemas import TextContent
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.job_types import IngestionJob
from vectorforge.db.repositories.paging import SqlCondition
from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError

FilteredFiles = Annotated[
    SqlCondition,
    Depends(
        document_filter(
            TypeAdapter(AttributeFilter),
            AttributeFilter.translated,
            description="JSON of a filter as the search takes it. Not in OpenAI's own API.",
            example='{"type": "gte", "key": "year", "value": 2024}',
        )
    ),
]
_Status = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None,
    Query(alias="filter", description="Documents that were not attached as files are always completed."),
]

router = APIRouter(prefix="/v1/vector_stores/{vector_store_id}", tags=["openai"])


async def _collection_id(vector_store_id: str, tenant: Tenant) -> UUID:
    return (await tenant.find_collection(collection_reference(vector_store_id))).id


Store = Annotated[UUID, Depends(_collection_id)]
"""Id of the collection."""


@router.get("/files", responses=openai_problems(404))
async def list_vector_store_files(
    store: Store, tenant: Tenant, page: Page, filtered: FilteredFiles, status: _Status = None
) -> VectorStoreFileList:
    """List the collection's documents, and files that are being ingested or failed, by creation time."""
    found = await tenant.files.list(page, condition=filtered, collection_id=store, status=status)
    return VectorStoreFileList.of(
        [VectorStoreFileBody.of(file) for file in found.rows], has_more=found.has_more
    )


@router.post("/files", responses=openai_problems(404, 413, 415, 429))
async def create_vector_store_file(
    store: Store, body: VectorStoreFileRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> VectorStoreFileBody:
    """Attach an uploaded file, which is then ingested; one that is attached already is returned."""
    attached = parse_id(FILE, body.file_id)
    if attached and (file := await tenant.files.find(attached, store)):
        return VectorStoreFileBody.of(file)
    files = await waiting_files(tenant, [body], field="file_id")
    await attach_files(application, tenant, store, files, field="file_id")
    return VectorStoreFileBody.of(await find_file(tenant, body.file_id, store))


async def waiting_files(
    tenant: TenantServices, requested: Sequence[VectorStoreFileRequest], *, field: str
) -> dict[UUID, dict[str, Any]]:
    """Return the metadata of requested files by id.

    Raises:
        InvalidInputError: A file does not exist, or is attached already.
    """
    ids = {one.file_id: parse_id(FILE, one.file_id) for one in requested}
    found = {file.id: file for file in await tenant.files.find_all([id_ for id_ in ids.values() if id_])}
    for name, id_ in ids.items():
        if id_ not in found:
            raise InvalidInputError(f"{name} does not exist; upload it first.", field=field)
        if found[id_].status != "waiting":
            raise InvalidInputError(
                f"{name} belongs to a vector store already; upload it again for another one.", field=field
            )
    return {id_: metadata_of(one.attributes) for one in requested if (id_ := ids[one.file_id])}


async def attach_files(
    application: Application,
    tenant: TenantServices,
    store: UUID,
    files: Mapping[UUID, Mapping[str, Any]],
    *,
    field: str,
) -> UUID:
    """Make ``waiting_files`` a job of the collection; return its id.

    Raises:
        InvalidInputError: Another request has deleted or attached one meanwhile; none is attached then.
    """
    job_id = uuid4()
    if not await tenant.files.attach(store, files, job_id):
        raise InvalidInputError("Another request has deleted or attached one of the files.", field=field)
    await application.background.announce_job(tenant.tenant_id, job_id)
    return job_id


@router.get("/files/{file_id}", responses=openai_problems(404))
async def retrieve_vector_store_file(store: Store, file_id: str, tenant: Tenant) -> VectorStoreFileBody:
    """Return one file without its text."""
    return VectorStoreFileBody.of(await find_file(tenant, file_id, store))


@router.post("/files/{file_id}", responses=openai_problems(404, 409, 413, 415))
async def update_vector_store_file(
    store: Store, file_id: str, body: VectorStoreFileUpdate, tenant: Tenant
) -> VectorStoreFileBody:
    """Replace the attributes of a document: its metadata, except a `language` that is not given."""
    file = await find_file(tenant, file_id, store)
    if file.status != "completed":
        raise ConflictError(f"The file has no document (yet): its status is {file.status}.")
    await tenant.documents.set_metadata(store, file.id, metadata_of(body.attributes))
    return VectorStoreFileBody.of(await find_file(tenant, file_id, store))


@router.delete("/files/{file_id}", responses=openai_problems(404, 409))
async def delete_vector_store_file(
    request: Request, store: Store, file_id: str, tenant: Tenant
) -> VectorStoreFileDeleted:
    """Erase a document with all traces, as `DELETE /v1/documents/{id}` does, or a file that is none."""
    file = await find_file(tenant, file_id, store)
    await delete_stored_file(request, tenant, file)
    return VectorStoreFileDeleted(id=prefixed(FILE, file.id))


@router.get("/files/{file_id}/content", responses=openai_problems(404), response_model=FileContentPage)
async def retrieve_vector_store_file_content(store: Store, file_id: str, tenant: Tenant) -> Response:
    """Return the document's extracted text."""
    file = await find_file(tenant, file_id, store)
    document = await tenant.documents.find_by_id(file.id)  # None if it is being ingested
    body = FileContentPage(data=[TextContent(text="")])
    response = await text_in_parts(tenant, existing(document, "Content of file", file_id), body)
    return response or await retrieve_vector_store_file_content(store, file_id, tenant)


@router.post("/file_batches", responses=openai_problems(404, 413, 415, 429))
async def create_file_batch(
    store: Store, body: FileBatchRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> FileBatchBody:
    """Attach uploaded files together."""
    field = "file_ids" if body.files is None else "files"
    files = await waiting_files(tenant, body.requested, field=field)
    job_id = await attach_files(application, tenant, store, files, field=field)
    return await _batch(tenant, store, prefixed(FILE_BATCH, job_id))


@router.get("/file_batches/{batch_id}", responses=openai_problems(404))
async def retrieve_file_batch(store: Store, batch_id: str, tenant: Tenant) -> FileBatchBody:
    """Return the progress of a batch, or of another ingestion job."""
    return await _batch(tenant, store, batch_id)


@router.get("/file_batches/{batch_id}/files", responses=openai_problems(404))
async def list_file_batch_files(
    store: Store, batch_id: str, tenant: Tenant, page: Page, status: _Status = None
) -> VectorStoreFileList:
    """List the files of a batch by creation time."""
    job = await _job(tenant, store, batch_id)
    found = await tenant.files.list(page, collection_id=store, job_id=job.id, status=status)
    return VectorStoreFileList.of(
        [VectorStoreFileBody.of(file) for file in found.rows], has_more=found.has_more
    )


@router.post("/file_batches/{batch_id}/cancel", responses=openai_problems(404))
async def cancel_file_batch(store: Store, batch_id: str, tenant: Tenant) -> FileBatchBody:
    """Cancel the files of a batch that are not being ingested yet."""
    job = await _job(tenant, store, batch_id)
    await tenant.files.cancel(job.id)
    return await _batch(tenant, store, batch_id)


async def _batch(tenant: TenantServices, store: UUID, batch_id: str) -> FileBatchBody:
    job = await _job(tenant, store, batch_id)
    return FileBatchBody.of(job, await tenant.files.count_cancelled(job.id))


async def _job(tenant: TenantServices, store: UUID, batch_id: str) -> IngestionJob:
    job_id = parse_id(FILE_BATCH, batch_id)
    job = job_id and await tenant.jobs.find_by_id(job_id)
    if not job or job.collection_id != store:
        raise NotFoundError(f"File batch {batch_id} not found")
    return job
