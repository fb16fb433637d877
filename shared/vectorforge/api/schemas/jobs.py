"""Bodies of ``/v1/jobs``."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.db.repositories.job_repo import IngestionJob, IngestionJobItem


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
