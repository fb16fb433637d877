"""``/v1/erasures``: erasures and their certificates, and the erasure of the tenant.

Routes that delete documents, profiles, collections or tenants erase all traces, and return the certificate
or its location.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import (
    Limit,
    Tenant,
    application_of,
    deadline_of,
    existing,
    principal_of,
    tenant_services_of,
)
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import VERSION, Body
from vectorforge.erasure.repo import Erasure, Kind, Subject
from vectorforge.errors import InvalidInputError, ObjectStoreError


class ErasureBody(Body):
    """An erasure, and at its end what proves it."""

    id: UUID
    kind: Kind
    status: Literal["running", "done"]
    stage: str = Field(description="What is being done: waiting, jobs, documents and so on, done.")
    erased: Mapping[str, int] = Field(description="Erased rows by table, and emptied texts.")
    requested_by: str = Field(description="Id of the credential that asked for it.")
    begun_at: datetime
    finished_at: datetime | None
    certificate: Mapping[str, Any] | None = Field(
        description="Erased objects, without content; null until done."
    )
    sha256: str | None = Field(description="Of the certificate's canonical form (RFC 8785), in hex.")
    version: int | None = Field(
        default=None, description=f"{VERSION} Null in lists, until done, and if it is erased itself."
    )

    @classmethod
    def of(cls, source: Any, /, **given: Any) -> Self:
        """Return the body of an ``Erasure``."""
        return super().of(
            source,
            status="done" if source.is_done else "running",
            erased=source.counts,
            certificate=json.loads(source.certificate) if source.certificate else None,
            sha256=source.certificate_sha256,
            **given,
        )


class ErasureList(BaseModel):
    """Erasures, newest first."""

    erasures: Sequence[ErasureBody]


logger = logging.getLogger(__name__)

ERASURE_RESPONSES = {
    **problems(404, 409),
    202: {
        "model": ErasureBody,
        "description": "It continues in the background; Location has its progress.",
    },
}


async def erase(request: Request, response: Response, subject: Subject) -> ErasureBody:
    """Erase, and return the certificate, or 202 with its future location.

    Raises:
        NotFoundError: The subject does not exist.
    """
    done = await erase_in_time(request, subject)
    response.headers["Location"] = f"/v1/erasures/{done.id}"
    version = None
    if not done.is_done:
        response.status_code = 202
    elif done.collection_id is not None:
        version = await tenant_services_of(request).collections.version(done.collection_id)
    return ErasureBody.of(done, version=version)


async def erase_in_time(request: Request, subject: Subject) -> Erasure:
    """Erase as much as the request's time allows; a worker does the rest.

    Raises:
        NotFoundError: The subject does not exist.
    """
    application, eraser = application_of(request), tenant_services_of(request).eraser
    logs = application.config.database.erased_logs
    erasure_id = await eraser.begin(subject, logs=logs, requested_by=principal_of(request).credential)
    try:
        done = await eraser.run(erasure_id, deadline_of(request))
    except ObjectStoreError as exc:  # a worker tries again
        logger.warning("Uploaded files are still to be erased: %s", exc.message)
        done = await eraser.find(erasure_id)
    if not done.is_done:
        await application.background.announce_erasure()
    return done


router = APIRouter(prefix="/v1", tags=["erasures"])


@router.get("/erasures", responses=problems())
async def list_erasures(tenant: Tenant, limit: Limit = 50) -> ErasureList:
    """List the tenant's erasures, newest first, including those from before an erasure of the tenant."""
    erasures = await tenant.eraser.erasures.list(limit)
    return ErasureList(erasures=[ErasureBody.of(erasure) for erasure in erasures])


@router.get("/erasures/{erasure_id}", responses=problems(404))
async def show_erasure(erasure_id: UUID, tenant: Tenant) -> ErasureBody:
    """Return the progress of an erasure and its certificate; works while the tenant is being erased."""
    return ErasureBody.of(
        existing(await tenant.eraser.erasures.find_by_id(erasure_id), "Erasure", erasure_id)
    )


@router.delete("/tenant", responses=ERASURE_RESPONSES)
async def erase_tenant(
    request: Request,
    response: Response,
    tenant: Tenant,
    confirm: Annotated[str, Query(description="The tenant's name, so that nobody does this by mistake.")],
) -> ErasureBody:
    """Erase everything that belongs to the tenant: documents, queries, conversations, jobs, keys, settings.

    Until it is done, every other request of the tenant is rejected (409 `tenant_being_erased`).
    """
    if confirm != tenant.tenant_id:
        raise InvalidInputError("`confirm` must be the name of the tenant of this key.", field="confirm")
    return await erase(request, response, Subject("tenant"))
