"""``/v1/cache``: the tenant's cached answers and vectors."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.schemas import Body, problems


class CacheBody(Body):
    """Contents and hit figures of the tenant's caches."""

    enabled: bool = Field(description="Whether answers are cached at all.")
    ttl_s: float = Field(description="Seconds for which an answer is fresh.")
    fresh: int = Field(description="Answers that the next equal question gets.")
    stale: int = Field(description="Expired ones, which may take the place of an answer that cannot be had.")
    outdated: int = Field(description="Of documents that have changed; deleted by and by.")
    bytes: int = Field(description="Of all these answers, as they are stored.")
    oldest_at: datetime | None
    newest_at: datetime | None
    embeddings: int = Field(description="Vectors of questions.")
    answered_last_day: int = Field(description="Questions of the last 24 hours that were answered.")
    hits_last_day: int = Field(description="Those of them that were answered from the cache.")


class CacheCleared(BaseModel):
    """Number of deleted entries."""

    deleted: int = Field(description="Answers and vectors.")


router = APIRouter(prefix="/v1/cache", tags=["cache"])


@router.get("", responses=problems())
async def show_cache(application: ApplicationDep, tenant: Tenant) -> CacheBody:
    """Return the contents of the caches and their hits of the last 24 hours."""
    settings = application.config.cache
    found = await tenant.caches.shared_answers.statistics()
    return CacheBody.of(found, enabled=settings.answer_cache, ttl_s=settings.answer_cache_ttl_s)


@router.delete("", responses=problems())
async def clear_cache(tenant: Tenant) -> CacheCleared:
    """Delete all cached answers and vectors. Other processes may return theirs for another minute."""
    return CacheCleared(deleted=await tenant.caches.clear())
