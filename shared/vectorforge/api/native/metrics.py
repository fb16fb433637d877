"""Measurements in Prometheus' text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format; the names are
those of ``telemetry.METRICS``, as everywhere else, with "_" for ".".

``/metrics``: what this process has measured, for Prometheus.
"""

from collections.abc import Iterator, Mapping, Sequence

from fastapi import APIRouter, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.responses import problems
from vectorforge.errors import NotFoundError
from vectorforge.telemetry import METRICS, InMemoryMetrics, Series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.95, 0.99)


def exposition(metrics: InMemoryMetrics) -> str:
    """Everything measured so far, by name.

    Counters end in ``_total``. Histograms become summaries: count and sum are of all values, the quantiles of
    the latest 1,000.
    """
    found: dict[str, list[tuple[dict[str, str], Series]]] = {}
    for name, tags, series in metrics.items():
        found.setdefault(name, []).append((tags, series))
    return "".join(line + "\n" for name in sorted(found) for line in _family(name, found[name]))


def _family(name: str, measured: Sequence[tuple[dict[str, str], Series]]) -> Iterator[str]:
    full_name = "vectorforge_" + name.replace(".", "_")
    if METRICS[name].kind == "counter":
        yield f"# TYPE {full_name}_total counter"
        for tags, series in measured:
            yield f"{full_name}_total{_labels(tags)} {series.total}"
        return
    yield f"# TYPE {full_name} summary"
    for tags, series in measured:
        values = sorted(series.values)
        for share in QUANTILES:
            place = round(share * (len(values) - 1))
            yield f"{full_name}{_labels({**tags, 'quantile': str(share)})} {values[place]}"
        yield f"{full_name}_sum{_labels(tags)} {series.total}"
        yield f"{full_name}_count{_labels(tags)} {series.count}"


def _labels(tags: Mapping[str, str]) -> str:
    if not tags:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in tags.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
