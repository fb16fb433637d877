"""``/v1/jobs``: progress of ingestions; ``/v1/collections/{id}/uploads``: direct uploads of files to S3."""

import operator
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from vectorforge.api.dependencies import (
    AdmittedTenant,
    ApplicationDep,
    CollectionInPath,
    CollectionInQuery,
    Limit,
    Offset,
    PartsLimit,
    Tenant,
    check_at_most,
    existing,
    listed_of_collection,
)
from vectorforge.api.error_schemas import problems
from vectorforge.api.native.document_schemas import MAX_SOURCE_CHARS
from vectorforge.api.schemas import MAX_PARTS, VERSION, Body, RequestBody, storable
from vectorforge.aws.uploads import UploadKey, source_of
from vectorforge.db.repositories.job_types import IngestionJob, IngestionJobItem
from vectorforge.errors import ConfigurationError


class JobError(Body):
    """Reason of a failure."""

    code: str
    message: str


class JobDocument(Body):
    """One document of a job."""

    source: str
    media_type: str | None
    status: str
    stage: str | None
    error: JobError | None
    document_id: UUID | None
    warnings: list[str] = Field(description="What was replaced or guessed while reading, at most ten.")
    chunks_added: int
    chunks_kept: int
    chunks_removed: int


class JobBody(Body):
    """An ingestion and its progress."""

    id: UUID
    collection_id: UUID
    status: str
    stage: str | None
    documents_total: int
    documents_done: int
    documents_failed: int
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    error: JobError | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


class JobWithDocuments(JobBody):
    """A job and a page of its documents, in the order they were sent; ``documents_total`` counts all."""

    version: int | None = Field(description=f"{VERSION} Null until the job has ended.")
    documents: list[JobDocument]
    documents_limit: int
    documents_offset: int

    @classmethod
    def with_items(
        cls, job: IngestionJob, items: Sequence[IngestionJobItem], *, limit: int, offset: int
    ) -> Self:
        """Return the body of a job with a page of its items."""
        return cls.of(job, documents=items, documents_limit=limit, documents_offset=offset)


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobBody]
    limit: int
    offset: int


router = APIRouter(tags=["documents"])

_Source = Annotated[
    str,
    AfterValidator(storable),
    Query(
        min_length=1,
        max_length=MAX_SOURCE_CHARS,
        description="Only jobs with this document, or with records of this JSONL file.",
    ),
]


@router.get("/v1/jobs", responses=problems(404))
async def list_jobs(
    tenant: Tenant,
    collection_id: CollectionInQuery | None = None,
    source: _Source | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> JobList:
    """List ingestion jobs, newest first; all, or those of a collection or a document."""

    async def find(id_: UUID | None) -> Sequence[IngestionJob]:
        return await tenant.jobs.list(id_, source=source, limit=limit, offset=offset)

    jobs = await listed_of_collection(tenant, collection_id, find, operator.not_)
    return JobList(jobs=[JobBody.of(job) for job in jobs], limit=limit, offset=offset)


@router.get("/v1/jobs/{job_id}", responses=problems(404))
async def show_job(
    job_id: UUID, tenant: Tenant, documents_limit: PartsLimit = MAX_PARTS, documents_offset: Offset = 0
) -> JobWithDocuments:
    """Return one job with a page of its documents."""
    job = existing(await tenant.jobs.find_by_id(job_id), "Job", job_id)
    items = await tenant.jobs.items(job_id, limit=documents_limit, offset=documents_offset)
    return JobWithDocuments.with_items(job, items, limit=documents_limit, offset=documents_offset)


# RFC 6838, 4.2, without "$", which starts a variable in S3 forms
_NAME = r"[A-Za-z0-9!#&^_.+-]+"
_MEDIA_TYPE = rf"^{_NAME}/{_NAME}(; ?{_NAME}=[\x20-\x23\x25-\x7e]+)?$"


class UploadRequest(RequestBody):
    """A file to be uploaded."""

    path: str = Field(
        min_length=1, max_length=1000, description="File name below the collection, e.g. policies/refunds.md."
    )
    content_type: Annotated[str, StringConstraints(max_length=200, pattern=_MEDIA_TYPE)] | None = Field(
        default=None, description="Media type; default: by file name or content."
    )
    size_bytes: int | None = Field(default=None, ge=1, description="Exact size; S3 rejects any other.")


class UploadFormBody(BaseModel):
    """Upload form: POST the fields and then the part ``file``, as multipart/form-data."""

    url: str
    method: Literal["POST"] = "POST"
    fields: dict[str, str]
    expires_at: datetime = Field(description="S3 refuses the form after this time, or before.")
    max_bytes: int = Field(description="S3 refuses a larger file.")
    key: str
    source: str = Field(description="The document's source; `GET /v1/jobs?source=` finds its jobs.")


@router.post("/v1/collections/{collection_id}/uploads", responses=problems(404, 409, 413, 415, 429))
async def prepare_upload(
    collection_id: CollectionInPath, body: UploadRequest, application: ApplicationDep, tenant: AdmittedTenant
) -> UploadFormBody:
    """Sign a form that uploads one file to S3, valid for some minutes.

    The ingest function ingests the uploaded file.
    """
    forms = application.aws.upload_forms
    if forms is None:
        raise ConfigurationError(
            "Direct uploads are not configured (VECTORFORGE_UPLOADS_BUCKET); send documents to "
            "/v1/collections/{id}/documents."
        )
    collection = await tenant.find_collection(collection_id)
    limit = application.config.ingestion.max_document_bytes
    check_at_most("size_bytes", body.size_bytes or 0, limit)
    key = UploadKey.make(tenant.tenant_id, collection.name, body.path).key
    form = await forms.sign(
        key,
        min_bytes=body.size_bytes or 1,
        max_bytes=body.size_bytes or limit,
        media_type=body.content_type,
    )
    return UploadFormBody(
        url=form.url,
        fields=dict(form.fields),
        expires_at=form.expires_at,
        max_bytes=body.size_bytes or limit,
        key=key,
        source=source_of(forms.bucket, key),
    )
