"""``/v1/jobs``: how far ingestions are."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from vectorforge.api.dependencies import Limit, Offset, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.jobs import JobBody, JobList, JobWithDocuments
from vectorforge.errors import NotFoundError

router = APIRouter(prefix="/v1/jobs", tags=["documents"])


@router.get("", responses=problems())
async def list_jobs(
    tenant: Tenant,
    collection_id: Annotated[UUID | None, Query()] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> JobList:
    """A page of the ingestion jobs, newest first."""
    found = await tenant.jobs.list(collection_id, limit=limit, offset=offset)
    return JobList(jobs=[JobBody.of(job) for job in found], limit=limit, offset=offset)


@router.get("/{job_id}", responses=problems(404))
async def show_job(job_id: UUID, tenant: Tenant) -> JobWithDocuments:
    """One job with its documents."""
    job = await tenant.jobs.find_by_id(job_id)
    if job is None:
        raise NotFoundError(f"Job {job_id} not found")
    return JobWithDocuments.with_items(job, await tenant.jobs.items(job_id))
