"""``/v1/cache``: the tenant's cached answers and vectors."""

from fastapi import APIRouter

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.cache import CacheBody, CacheCleared

router = APIRouter(prefix="/v1/cache", tags=["cache"])


@router.get("", responses=problems())
async def show_cache(application: ApplicationDep, tenant: Tenant) -> CacheBody:
    """What the caches hold, and how many questions of the last day they answered."""
    settings = application.config.cache
    found = await tenant.caches.shared_answers.statistics()
    return CacheBody.of(found, enabled=settings.answer_cache, ttl_s=settings.answer_cache_ttl_s)


@router.delete("", responses=problems())
async def clear_cache(tenant: Tenant) -> CacheCleared:
    """Forget all cached answers and vectors. Other processes may give theirs for another minute."""
    return CacheCleared(deleted=await tenant.caches.clear())
