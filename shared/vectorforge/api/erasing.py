"""What routes that delete do: erase with all traces, and answer with the certificate or where it will be."""

import logging

from fastapi import Request, Response

from vectorforge.api.querying import deadline_of
from vectorforge.api.responses import problems
from vectorforge.api.schemas.erasures import ErasureBody
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.erasure_repo import Erasure, Subject
from vectorforge.errors import ObjectStoreError

logger = logging.getLogger(__name__)

ERASURE_RESPONSES = {
    **problems(404, 409),
    202: {
        "model": ErasureBody,
        "description": "It goes on in the background; what Location names tells how far it is.",
    },
}


async def erase(
    request: Request, response: Response, application: Application, tenant: TenantServices, subject: Subject
) -> ErasureBody:
    """Erase, and answer with the certificate; or with 202, and with where it will be.

    Raises:
        NotFoundError: There is nothing of the kind.
    """
    done = await erase_in_time(request, application, tenant, subject)
    response.headers["Location"] = f"/v1/erasures/{done.id}"
    if not done.is_done:
        response.status_code = 202
    return ErasureBody.of(done)


async def erase_in_time(
    request: Request, application: Application, tenant: TenantServices, subject: Subject
) -> Erasure:
    """Erase as much as the request's time allows; a worker does the rest.

    Raises:
        NotFoundError: There is nothing of the kind.
    """
    eraser = tenant.eraser
    logs = application.config.database.erased_logs
    erasure_id = await eraser.begin(subject, logs=logs, requested_by=requester_of(request))
    try:
        done = await eraser.run(erasure_id, deadline_of(request, application))
    except ObjectStoreError as exc:  # a worker tries again
        logger.warning("Uploaded files are still to be erased: %s", exc.message)
        done = await eraser.find(erasure_id)
    if not done.is_done:
        await application.announce_erasure()
    return done


def requester_of(request: Request) -> str:
    """The id of the credential that asks, never the credential itself."""
    principal = request.scope["state"].get("principal")
    return str(getattr(principal, "credential", None) or "api")
