"""``/metrics``: what this process has measured, for Prometheus."""

from fastapi import APIRouter, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.prometheus import CONTENT_TYPE, exposition
from vectorforge.api.responses import problems
from vectorforge.errors import NotFoundError
from vectorforge.telemetry import InMemoryMetrics

router = APIRouter(tags=["server"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}},
        **problems(404),
    },
)
async def show_metrics(application: ApplicationDep, tenant: Tenant) -> Response:
    """Counters and summaries of this process, of all tenants together.

    For the tenant named by VECTORFORGE_LOCAL_TENANT only, and not on Lambda, where CloudWatch has them.
    """
    metrics = application.metrics
    if tenant.tenant_id != application.config.server.local_tenant or not isinstance(metrics, InMemoryMetrics):
        raise NotFoundError("There are no metrics for you here.")
    return Response(exposition(metrics), media_type=CONTENT_TYPE)
