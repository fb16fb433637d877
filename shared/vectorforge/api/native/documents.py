"""Documents of a collection, single documents and chunks."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, TypeAdapter

from vectorforge.api.admin.erasures import ERASURE_RESPONSES, ErasureBody, erase
from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    CollectionInPath,
    Limit,
    Offset,
    PartsLimit,
    Tenant,
    deadline_of,
    document_filter,
    existing,
)
from vectorforge.api.error_schemas import problems
from vectorforge.api.native.document_schemas import (
    ChunkBody,
    ChunkList,
    ChunkWithDocument,
    DeletedDocuments,
    DocumentBody,
    DocumentList,
    DocumentsDeletion,
    DocumentText,
)
from vectorforge.api.native.document_uploads import REQUEST_BODY, read_job_items
from vectorforge.api.native.jobs import JobWithDocuments
from vectorforge.api.schemas import MAX_PARTS
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.document_repo import Document
from vectorforge.db.repositories.paging import SqlCondition
from vectorforge.erasure.repo import Subject
from vectorforge.ingestion.language import language_of

router = APIRouter(prefix="/v1", tags=["documents"])

FilteredDocuments = Annotated[
    SqlCondition,
    Depends(
        document_filter(
            TypeAdapter(dict[str, Any]),
            lambda filters: filters,
            description="JSON of a condition on the documents' metadata, as `filters` of a query.",
            example='{"year": {"$gte": 2024}}',
        )
    ),
]


async def _find_document(tenant: TenantServices, document_id: UUID) -> Document:
    return existing(await tenant.documents.find_by_id(document_id), "Document", document_id)


@router.get("/collections/{collection_id}/documents", responses=problems(404))
async def list_documents(
    collection_id: CollectionInPath,
    tenant: Tenant,
    filtered: FilteredDocuments,
    limit: Limit = 50,
    offset: Offset = 0,
) -> DocumentList:
    """List the documents of a collection."""
    collection = await tenant.find_collection(collection_id)
    documents, total = await tenant.documents.list(
        collection.id, limit=limit, offset=offset, condition=filtered
    )
    return DocumentList(
        documents=[DocumentBody.of(document) for document in documents],
        total=total,
        limit=limit,
        offset=offset,
        language_note=tenant.embeddings.language_note(
            collection, (language_of(document.metadata) for document in documents)
        ),
    )


@router.post(
    "/collections/{collection_id}/documents",
    status_code=202,
    responses=problems(404, 413, 415, 429),
    openapi_extra={"requestBody": REQUEST_BODY},
)
async def add_documents(
    request: Request,
    collection_id: CollectionInPath,
    response: Response,
    application: ApplicationDep,
    tenant: AdmittedTenant,
) -> JobWithDocuments:
    """Ingest documents, as files or as JSON, in the background; the job has the progress."""
    collection = await tenant.find_collection(collection_id)
    new_items = await read_job_items(request, application.config.ingestion)
    job = await tenant.jobs.create(collection.id, new_items)
    await application.background.announce_job(tenant.tenant_id, job.id)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    items = await tenant.jobs.items(job.id, limit=MAX_PARTS)
    return JobWithDocuments.with_items(job, items, limit=MAX_PARTS, offset=0)


@router.post("/collections/{collection_id}/documents/delete", responses=problems(404, 409, 413, 415))
async def delete_documents(
    request: Request,
    collection_id: CollectionInPath,
    body: DocumentsDeletion,
    tenant: Tenant,
) -> DeletedDocuments:
    """Delete the documents whose metadata matches, or count them. Large deletions need several requests."""
    deadline, store = deadline_of(request), tenant.vector_store

    async def delete(found_id: UUID) -> DeletedDocuments:
        chosen = (found_id, body.filters)
        matched = await store.count_documents(*chosen, profile_id=body.profile_id)
        if body.dry_run:
            return DeletedDocuments(matched=matched, deleted=0, remaining=matched)
        deleted = remaining = 0
        while gone := await store.delete_documents(*chosen, profile_id=body.profile_id):
            deleted += gone
            if deadline.remaining_s() <= 0:
                remaining = await store.count_documents(*chosen, profile_id=body.profile_id)
                break
        version = await tenant.collections.version(found_id)
        return DeletedDocuments(matched=matched, deleted=deleted, remaining=remaining, version=version)

    return await tenant.with_collection_id(collection_id, delete)


@router.get("/documents/{document_id}", responses=problems(404))
async def show_document(document_id: UUID, tenant: Tenant) -> DocumentBody:
    """Return one document without its text."""
    return DocumentBody.of(await _find_document(tenant, document_id))


@router.delete("/documents/{document_id}", responses=ERASURE_RESPONSES)
async def delete_document(
    request: Request, response: Response, document_id: UUID, tenant: Tenant
) -> ErasureBody:
    """Erase a document with all traces: chunks, vectors, answers made of it, its uploaded file."""
    subject = Subject("document", document_id=document_id)
    return await erase(request, response, subject)


_PART_CHARS = 2_500_000
"""PostgreSQL counts characters from the start of the text for each part: 0.6 s of its CPU for the longest
text in parts of 500,000, 0.15 s in these."""


@router.get("/documents/{document_id}/text", responses=problems(404), response_model=DocumentText)
async def show_text(document_id: UUID, tenant: Tenant) -> Response:
    """Return the document's extracted text."""
    document = await _find_document(tenant, document_id)
    body = DocumentText.of(document, text="")
    return await text_in_parts(tenant, document, body) or await show_text(document_id, tenant)


async def text_in_parts(tenant: TenantServices, document: Document, body: BaseModel) -> Response | None:
    """Return a body, whose last ``text`` is empty, with a document's text, which is read while it is sent.

    Slow clients would fill the memory with texts. None: the document was replaced or deleted meanwhile.
    """

    async def read(start: int) -> str | None:
        part = await tenant.documents.part(document.id, start, _PART_CHARS, version=document.version)
        return None if part is None else json.dumps(part, ensure_ascii=False)[1:-1]

    first = await read(0)
    if first is None:
        return None
    before, field, after = body.model_dump_json().rpartition('"text":"')

    async def parts() -> AsyncIterator[str]:
        yield before + field + first
        for start in range(_PART_CHARS, document.size_chars, _PART_CHARS):
            yield existing(await read(start), "Document", document.id)
        yield after

    return StreamingResponse(parts(), media_type="application/json")


@router.get("/documents/{document_id}/chunks", responses=problems(404))
async def list_chunks(
    document_id: UUID, tenant: Tenant, limit: PartsLimit = MAX_PARTS, offset: Offset = 0
) -> ChunkList:
    """List the document's chunks in order."""
    document = await _find_document(tenant, document_id)
    chunks = await tenant.documents.chunks(document_id, limit=limit, offset=offset)
    return ChunkList(
        chunks=[ChunkBody.of(chunk) for chunk in chunks],
        total=document.chunk_count,
        limit=limit,
        offset=offset,
    )


@router.get("/chunks/{chunk_id}", responses=problems(404))
async def show_chunk(chunk_id: UUID, tenant: Tenant) -> ChunkWithDocument:
    """Return one chunk and its document, including chunks of earlier versions (`retired`)."""
    cited = existing(await tenant.documents.chunk(chunk_id), "Chunk", chunk_id)
    return ChunkWithDocument.of_document(cited, await _find_document(tenant, cited.chunk.document_id))
