"""``/v1/jobs``: how far ingestions are."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from vectorforge.api.dependencies import Limit, Offset, PartsLimit, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.base import MAX_PARTS, storable
from vectorforge.api.schemas.documents import MAX_SOURCE_CHARS
from vectorforge.api.schemas.jobs import JobBody, JobList, JobWithDocuments
from vectorforge.errors import NotFoundError

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
