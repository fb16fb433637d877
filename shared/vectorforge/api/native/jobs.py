"""Bodies of ``/v1/jobs``.

``/v1/jobs``: how far ingestions are.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field

from vectorforge.api.dependencies import Limit, Offset, PartsLimit, Tenant
from vectorforge.api.native.document_schemas import MAX_SOURCE_CHARS
from vectorforge.api.responses import problems
from vectorforge.api.schemas import MAX_PARTS, storable
from vectorforge.db.repositories.job_types import IngestionJob, IngestionJobItem
from vectorforge.errors import NotFoundError


class JobError(BaseModel):
    """Why something failed."""

    code: str
    message: str


class JobDocument(BaseModel):
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

    @classmethod
    def of(cls, item: IngestionJobItem) -> Self:
        """The body for the item."""
        return cls(
            source=item.source,
            media_type=item.media_type,
            status=item.status,
            stage=item.stage,
            error=JobError(code=item.error.code, message=item.error.message) if item.error else None,
            document_id=item.document_id,
            warnings=list(item.warnings),
            chunks_added=item.chunks_added,
            chunks_kept=item.chunks_kept,
            chunks_removed=item.chunks_removed,
        )


class JobBody(BaseModel):
    """An ingestion, as far as it has come."""

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

    @classmethod
    def of(cls, job: IngestionJob) -> Self:
        """The body for the job."""
        return cls(
            id=job.id,
            collection_id=job.collection_id,
            status=job.status,
            stage=job.stage,
            documents_total=job.documents_total,
            documents_done=job.documents_done,
            documents_failed=job.documents_failed,
            chunks_added=job.chunks_added,
            chunks_kept=job.chunks_kept,
            chunks_removed=job.chunks_removed,
            error=JobError(code=job.error.code, message=job.error.message) if job.error else None,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )


class JobWithDocuments(JobBody):
    """A job and a page of its documents, in the order they were sent; ``documents_total`` counts all."""

    documents: list[JobDocument]
    documents_limit: int
    documents_offset: int

    @classmethod
    def with_items(
        cls, job: IngestionJob, items: Sequence[IngestionJobItem], *, limit: int, offset: int
    ) -> Self:
        """The body for the job and a page of its items."""
        return cls(
            **JobBody.of(job).model_dump(),
            documents=[JobDocument.of(item) for item in items],
            documents_limit=limit,
            documents_offset=offset,
        )


class JobList(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[JobBody]
    limit: int
    offset: int


router = APIRouter(prefix="/v1/jobs", tags=["documents"])

_Source = Annotated[
    str,
    AfterValidator(storable),
    Query(
        min_length=1,
        max_length=MAX_SOURCE_CHARS,
        description="Only jobs with this document, or with records of this JSONL file.",
    ),
]


@router.get("", responses=problems())
async def list_jobs(
    tenant: Tenant,
    collection_id: Annotated[UUID | None, Query()] = None,
    source: _Source | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> JobList:
    """A page of the ingestion jobs, newest first; all, or those of a collection or a document."""
    found = await tenant.jobs.list(collection_id, source=source, limit=limit, offset=offset)
    return JobList(jobs=[JobBody.of(job) for job in found], limit=limit, offset=offset)


@router.get("/{job_id}", responses=problems(404))
async def show_job(
    job_id: UUID, tenant: Tenant, documents_limit: PartsLimit = MAX_PARTS, documents_offset: Offset = 0
) -> JobWithDocuments:
    """One job with a page of its documents."""
    job = await tenant.jobs.find_by_id(job_id)
    if job is None:
        raise NotFoundError(f"Job {job_id} not found")
    items = await tenant.jobs.items(job_id, limit=documents_limit, offset=documents_offset)
    return JobWithDocuments.with_items(job, items, limit=documents_limit, offset=documents_offset)
