"""Statistics of queries (``/v1/stats``), caches (``/v1/cache``) and processes (``/metrics`` for Prometheus).

Prometheus' text format, version 0.0.4:
https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format; the names are those of
``telemetry.METRICS`` with "_" for ".".
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import ApplicationDep, Tenant, listed_of_collection
from vectorforge.api.error_schemas import problems
from vectorforge.api.native.queries import RangeParameters
from vectorforge.api.schemas import Body
from vectorforge.db.repositories.statistics_repo import Bucket
from vectorforge.errors import NotFoundError
from vectorforge.telemetry import METRICS, InMemoryMetrics, Series


class PercentilesBody(Body):
    """Milliseconds below which half, 95 and 99 of 100 queries lie."""

    p50: float
    p95: float
    p99: float


class UsageBody(Body):
    """Usage figures of a set of queries."""

    queries: int
    outcomes: dict[str, int] = Field(description="Queries by outcome, without zeros.")
    cached: int = Field(description="Answers from the cache.")
    degraded: int = Field(description="Answers with at least one degradation step.")
    low_quality: int = Field(description="Answers of low quality.")
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float = Field(description="Cost of answers whose model has a known price.")
    unpriced: int = Field(description="Queries that used a model whose price is not known.")
    rated_up: int = Field(description='Ratings "up" of these queries, by all credentials.')
    rated_down: int = Field(description='Ratings "down".')


class ActivityBody(UsageBody):
    """Usage, and how long the queries took."""

    latency_ms: dict[str, PercentilesBody] = Field(
        description="By stage: total, retrieval, context, generation, first_token; of models, variants and "
        "collections total and first_token only."
    )


class IntervalBody(ActivityBody):
    """One hour or day in UTC."""

    start: datetime


class ModelActivityBody(ActivityBody):
    """Queries answered by one model; null: no model was called."""

    provider: str | None
    model: str | None


class VariantActivityBody(ActivityBody):
    """Queries with the settings of one variant; null: without any."""

    variant: str | None


class CollectionActivityBody(ActivityBody):
    """Queries to one collection; its name is null when it was deleted."""

    collection_id: UUID
    name: str | None


class ContentBody(Body):
    """Current number of collections, documents and chunks."""

    collections: int
    documents: int
    chunks: int


class StatisticsBody(Body):
    """The queries of a range of time."""

    since: datetime
    until: datetime
    bucket: Literal["hour", "day"]
    totals: ActivityBody
    degraded_steps: dict[str, int] = Field(description="Answers by degradation step.")
    series: list[IntervalBody] = Field(description="Every interval, oldest first, empty ones too.")
    models: list[ModelActivityBody] = Field(description="At most 100, those with the most queries first.")
    variants: list[VariantActivityBody] = Field(description="As models.")
    collections: list[CollectionActivityBody] = Field(description="As models.")
    content: ContentBody


class DailyUsageBody(UsageBody):
    """One model on one day in UTC."""

    start: datetime
    provider: str | None
    model: str | None


class UsageList(Body):
    """Usage by day, provider and model."""

    usage: list[DailyUsageBody] = Field(description="Oldest day first, at most 5,000 rows.")


class CacheBody(Body):
    """Contents and hit figures of the tenant's caches."""

    enabled: bool = Field(description="True if answers are cached.")
    ttl_s: float = Field(description="Seconds for which an answer is fresh.")
    fresh: int = Field(description="Valid answers.")
    stale: int = Field(description="Expired answers, used only if no other answer is available.")
    outdated: int = Field(description="Answers from changed documents, which are deleted over time.")
    bytes: int = Field(description="Stored size of all these answers.")
    oldest_at: datetime | None
    newest_at: datetime | None
    embeddings: int = Field(description="Cached vectors of queries.")
    answered_last_day: int = Field(description="Answered queries of the last 24 hours.")
    hits_last_day: int = Field(description="Those answered from the cache.")


class CacheCleared(BaseModel):
    """Number of deleted entries."""

    deleted: int = Field(description="Deleted answers and vectors.")


router = APIRouter()


class StatisticsParameters(RangeParameters):
    """Query parameters of ``/v1/stats``."""

    bucket: Bucket | None = None


@router.get("/v1/stats", tags=["statistics"], responses=problems(404))
async def show_statistics(
    tenant: Tenant, parameters: Annotated[StatisticsParameters, Query()]
) -> StatisticsBody:
    """Queries, outcomes, latency, tokens, cost and quality of a range of time.

    Without `until` it ends now; without `since` it is seven days long, at most it is 400. `bucket` is the
    length of the intervals in `series`: hours for up to two days, else days, unless given (hours: at most
    31 days).
    """
    statistics = await listed_of_collection(
        tenant,
        parameters.collection_id,
        lambda id_: tenant.statistics.collect(parameters.matching(id_), parameters.bucket),
        lambda found: not found.totals.queries,
    )
    return StatisticsBody.model_validate(statistics)


@router.get("/v1/stats/usage", tags=["statistics"], responses=problems(404))
async def list_usage(tenant: Tenant, parameters: Annotated[RangeParameters, Query()]) -> UsageList:
    """Tokens and cost by day, provider and model; the range as in `/v1/stats`."""
    usage = await listed_of_collection(
        tenant,
        parameters.collection_id,
        lambda id_: tenant.statistics.usage(parameters.matching(id_)),
        operator.not_,
    )
    return UsageList.model_validate({"usage": usage})


@router.get("/v1/cache", tags=["cache"], responses=problems())
async def show_cache(application: ApplicationDep, tenant: Tenant) -> CacheBody:
    """Return the contents of the caches and their hits of the last 24 hours."""
    settings = application.config.cache
    statistics = await tenant.caches.shared_answers.statistics()
    return CacheBody.of(statistics, enabled=settings.answer_cache, ttl_s=settings.answer_cache_ttl_s)


@router.delete("/v1/cache", tags=["cache"], responses=problems())
async def clear_cache(tenant: Tenant) -> CacheCleared:
    """Delete all cached answers and vectors. Other processes may return theirs for another minute."""
    return CacheCleared(deleted=await tenant.caches.clear())


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.95, 0.99)


def exposition(metrics: InMemoryMetrics) -> str:
    """Everything measured so far, by name.

    Counters end in ``_total``. Histograms become summaries: count and sum are of all values, the quantiles of
    the latest 1,000.
    """
    families: dict[str, list[tuple[dict[str, str], Series]]] = {}
    for name, tags, series in metrics.items():
        families.setdefault(name, []).append((tags, series))
    return "".join(line + "\n" for name in sorted(families) for line in _family(name, families[name]))


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


@router.get(
    "/metrics",
    tags=["server"],
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
        raise NotFoundError("Metrics are not available to this tenant or on this server.")
    return Response(exposition(metrics), media_type=CONTENT_TYPE)
