"""``/health``: is it working."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from vectorforge import __version__
from vectorforge.api.dependencies import ApplicationDep
from vectorforge.api.responses import problems
from vectorforge.api.schemas.server import Component, HealthResponse
from vectorforge.errors import AuthenticationError
from vectorforge.health import HealthChecker

router = APIRouter(tags=["server"])

DATABASE_TIMEOUT_S = 3.0


_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: response for status, response in problems().items() if status in (401, 422, 500)
}
_RESPONSES[503] = {"model": HealthResponse, "description": "The database does not answer."}


@router.head("/health", include_in_schema=False)
@router.get("/health", responses=_RESPONSES)
async def health(
    request: Request,
    response: Response,
    application: ApplicationDep,
    deep: Annotated[bool, Query(description="Also ask the providers; needs a credential.")] = False,
) -> HealthResponse:
    """Probe the database; with `deep=1` every provider too, and how transactions are sent."""
    if deep and "tenant_id" not in request.scope["state"]:
        raise AuthenticationError(
            "An API key is required for the deep check, because it calls the providers."
        )
    database = HealthChecker(timeout_s=DATABASE_TIMEOUT_S)
    database.register("database", application.database.health)
    found = await database.check()
    if not found[0].healthy:
        response.status_code = 503
    if deep:
        found.append(application.database.transaction_health())
        found += [probe for probe in await application.health_checker.check() if probe.name != "database"]
    components = [
        Component(name=c.name, healthy=c.healthy, detail=c.detail, latency_ms=c.latency_ms) for c in found
    ]
    healthy = all(component.healthy for component in components)
    return HealthResponse(status="ok" if healthy else "degraded", version=__version__, components=components)
