"""``/v1/erasures``: what was erased, and its certificates; and the erasure of the tenant itself."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Limit, Tenant
from vectorforge.api.erasing import ERASURE_RESPONSES, erase
from vectorforge.api.responses import problems
from vectorforge.api.schemas.erasures import ErasureBody, ErasureList
from vectorforge.db.repositories.erasure_repo import Subject
from vectorforge.errors import InvalidInputError, NotFoundError

router = APIRouter(prefix="/v1", tags=["erasures"])


@router.get("/erasures", responses=problems())
async def list_erasures(tenant: Tenant, limit: Limit = 50) -> ErasureList:
    """The tenant's erasures, newest first; also of a time before the tenant was erased itself."""
    found = await tenant.eraser.erasures.list(limit)
    return ErasureList(erasures=[ErasureBody.of(erasure) for erasure in found])


@router.get("/erasures/{erasure_id}", responses=problems(404))
async def show_erasure(erasure_id: UUID, tenant: Tenant) -> ErasureBody:
    """How far an erasure is, and its certificate. Answers also while the tenant is being erased."""
    found = await tenant.eraser.erasures.find_by_id(erasure_id)
    if found is None:
        raise NotFoundError(f"Erasure {erasure_id} not found")
    return ErasureBody.of(found)


@router.delete("/tenant", responses=ERASURE_RESPONSES)
async def erase_tenant(
    request: Request,
    response: Response,
    application: ApplicationDep,
    tenant: Tenant,
    confirm: Annotated[str, Query(description="The tenant's name, so that nobody does this by mistake.")],
) -> ErasureBody:
    """Erase everything that belongs to the tenant: documents, questions, conversations, jobs, keys, settings.

    Until it is done every other request of the tenant is refused (409 `tenant_being_erased`).
    """
    if confirm != tenant.tenant_id:
        raise InvalidInputError("confirm must be the name of the tenant whose key this is.", field="confirm")
    return await erase(request, response, application, tenant, Subject("tenant"))
