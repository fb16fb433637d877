"""Statistics of the query log: usage, latency, cost and quality."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import UUID

from vectorforge.db.repositories.feedback_repo import RATINGS
from vectorforge.db.repositories.paging import CONDITIONS, QueryFilter
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError

MAX_DAYS = 400
MAX_DAYS_BY_HOUR = 31
MAX_GROUPS = 100
"""Models, variants or collections, those with the most queries: callers choose the names of models."""
MAX_USAGE_ROWS = 5000

_OUTCOMES = ("started", "answered", "empty", "error", "aborted", "cached", "deadline")
_GROUP_STAGES = ("total", "first_token")
_STAGES = ("total", "retrieval", "context", "generation", "first_token")

# A stage that was never reached is stored as 0 or NULL; one that was took some time. A query that is still
# running, or was killed, has no time at all.
_LOG = f"""
SELECT created_at, collection_id, provider, model, variant, outcome, cached OR outcome = 'cached' AS cached,
       degraded AS steps, degraded <> '[]' AS degraded,
       coalesce(quality -> 'low' = 'true'::jsonb, false) AS low_quality,
       coalesce(prompt_tokens, 0) AS prompt_tokens, coalesce(completion_tokens, 0) AS completion_tokens,
       cost_usd, rated_up, rated_down,
       CASE WHEN outcome <> 'started' THEN latency_ms END AS total, nullif(retrieval_ms, 0) AS retrieval,
       nullif(context_ms, 0) AS context, nullif(generation_ms, 0) AS generation, first_token_ms AS first_token
FROM vectorforge.query_logs LEFT JOIN ({RATINGS}) AS feedback ON feedback.query_id = id
WHERE {CONDITIONS}
"""
_OUTCOME_COUNTS = ", ".join(
    f"'{name}', nullif(count(*) FILTER (WHERE outcome = '{name}'), 0)" for name in _OUTCOMES
)
_USAGE = f"""
count(*) AS queries, json_strip_nulls(json_build_object({_OUTCOME_COUNTS})) AS outcomes,
count(*) FILTER (WHERE cached) AS cached, count(*) FILTER (WHERE degraded) AS degraded,
count(*) FILTER (WHERE low_quality) AS low_quality, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,
coalesce(sum(completion_tokens), 0) AS completion_tokens, coalesce(sum(cost_usd), 0) AS cost_usd,
count(*) FILTER (WHERE cost_usd IS NULL AND NOT cached AND prompt_tokens + completion_tokens > 0) AS unpriced,
coalesce(sum(rated_up), 0)::int AS rated_up, coalesce(sum(rated_down), 0)::int AS rated_down
"""
"""Columns as the fields of ``Usage``; ``json``, not ``jsonb``, which would sort the outcomes."""


def _latency(*stages: str) -> str:
    return ", ".join(
        f"percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY {stage}) AS {stage}"
        for stage in stages
    )


def _grouped(columns: str) -> str:
    """Return the groups with the most queries, as a JSON array."""
    return f"""(
        SELECT coalesce(json_agg(grouped), '[]') FROM (
            SELECT {columns}, {_USAGE}, {_latency(*_GROUP_STAGES)} FROM log
            GROUP BY {columns} ORDER BY count(*) DESC, {columns} LIMIT {MAX_GROUPS}
        ) AS grouped
    )"""


_COLLECT = f"""
WITH log AS MATERIALIZED ({_LOG})
SELECT
    (SELECT row_to_json(usage) FROM (SELECT {_USAGE}, {_latency(*_STAGES)} FROM log) AS usage) AS totals,
    (SELECT coalesce(jsonb_object_agg(step, times), '{{}}') FROM (
        SELECT step, count(*) AS times FROM log, jsonb_array_elements_text(steps) AS step
        WHERE degraded GROUP BY step
    ) AS counted) AS degraded_steps,
    (SELECT coalesce(json_agg(bucket), '[]') FROM (
        SELECT date_trunc(%(bucket)s, created_at, 'UTC') AS start, {_USAGE}, {_latency(*_STAGES)}
        FROM log GROUP BY 1
    ) AS bucket) AS series,
    {_grouped("provider, model")} AS models,
    {_grouped("variant")} AS variants,
    {_grouped("collection_id")} AS by_collection,
    (SELECT coalesce(jsonb_object_agg(id, name), '{{}}') FROM vectorforge.collections
     WHERE tenant_id = %(tenant_id)s) AS names,
    (SELECT jsonb_build_object(
         'collections', count(*), 'documents', coalesce(sum(document_count), 0), 'chunks',
         coalesce(sum(chunk_count), 0)
     ) FROM vectorforge.collections
     WHERE tenant_id = %(tenant_id)s AND (%(collection_id)s::uuid IS NULL OR id = %(collection_id)s)
    ) AS content
"""
_USAGE_BY_DAY = f"""
SELECT date_trunc('day', created_at, 'UTC') AS start, provider, model, {_USAGE}
FROM ({_LOG}) AS log
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT {MAX_USAGE_ROWS}
"""
_MEAN_LATENCY = f"SELECT avg(total)::float8 AS mean FROM ({_LOG}) AS log"

Bucket: TypeAlias = Literal["hour", "day"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds below which half, 95 and 99 of 100 lie, interpolated as percentile_cont does."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Totals of a group of queries."""

    queries: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Number of queries by outcome, without zeros."""
    cached: int = 0
    degraded: int = 0
    """Degraded answers."""
    low_quality: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """Cost of the queries whose price is known."""
    unpriced: int = 0
    """Queries that used a model of unknown price."""
    rated_up: int = 0
    rated_down: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity(Usage):
    """Usage, and how long the queries took."""

    latency_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    """By stage: total, retrieval, context, generation, first_token; those that were measured. Of models,
    variants and collections only total and first_token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(Activity):
    """One hour or day, in UTC."""

    start: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelActivity(Activity):
    """Queries answered by one model; both None without a model."""

    provider: str | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantActivity(Activity):
    """Queries with one variant's settings; None: without any."""

    variant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionActivity(Activity):
    """Queries to one collection; its name is None if it was deleted."""

    collection_id: UUID
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage(Usage):
    """One model on one day, in UTC."""

    start: datetime
    provider: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """Current contents of the collections."""

    collections: int
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """A tenant's queries in a range of time."""

    since: datetime
    until: datetime
    bucket: Bucket
    totals: Activity
    degraded_steps: Mapping[str, int]
    """Number of answers by degradation step; see ``pipeline.types.Degradation``."""
    series: Sequence[Interval]
    """Every hour or day of the range, oldest first, those without queries, too; the first and last are cut
    where the range is."""
    models: Sequence[ModelActivity]
    """At most 100, like the two below, those with the most queries first."""
    variants: Sequence[VariantActivity]
    collections: Sequence[CollectionActivity]
    content: Content


class StatisticsRepository:
    """The statistics of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def collect(self, matching: QueryFilter, bucket: Bucket | None = None) -> Statistics:
        """Return everything about the queries of a range, in one statement.

        Args:
            matching: Filter of the queries; its time range is ``bounded``.
            bucket: Length of an interval; None for hours up to two days, else days.

        Raises:
            InvalidInputError: The range is too long, or empty.
        """
        matching, since, until = bounded(matching, bucket)
        chosen: Bucket = bucket or ("hour" if until - since <= timedelta(days=2) else "day")
        (row,) = await self._db.fetch_all(_COLLECT, {**matching.values, "bucket": chosen})
        return Statistics(
            since=since,
            until=until,
            bucket=chosen,
            totals=_activity(Activity, row["totals"]),
            degraded_steps=row["degraded_steps"],
            series=_filled(since, until, chosen, row["series"]),
            models=[_activity(ModelActivity, group) for group in row["models"]],
            variants=[_activity(VariantActivity, group) for group in row["variants"]],
            collections=[
                _activity(CollectionActivity, {**group, "name": row["names"].get(group["collection_id"])})
                for group in row["by_collection"]
            ],
            content=Content(**row["content"]),
        )

    async def usage(self, matching: QueryFilter) -> list[DailyUsage]:
        """Return the use by day, provider and model, oldest first, at most 5,000; raises as ``bounded``."""
        matching, _, _ = bounded(matching)
        return [DailyUsage(**row) for row in await self._db.fetch_all(_USAGE_BY_DAY, matching.values)]

    async def mean_latency_ms(self, matching: QueryFilter) -> float | None:
        """Return the mean latency of ended queries; None without any. Raises as ``bounded``."""
        matching, _, _ = bounded(matching)
        row = await self._db.fetch_one(_MEAN_LATENCY, matching.values)
        return row["mean"] if row else None


def bounded(matching: QueryFilter, bucket: Bucket | None = None) -> tuple[QueryFilter, datetime, datetime]:
    """Return the filter with both ends of its range: until now, and since seven days before the end.

    Raises:
        InvalidInputError: The range is empty, or longer than 400 days (31 by hour).
    """
    until = (matching.until or datetime.now(UTC)).astimezone(UTC)
    try:
        since = (matching.since or until - timedelta(days=7)).astimezone(UTC)
    except OverflowError:
        raise InvalidInputError("until is too early.", field="until") from None
    longest = MAX_DAYS_BY_HOUR if bucket == "hour" else MAX_DAYS
    if since >= until:
        raise InvalidInputError("since must be before until.", field="since")
    if until - since > timedelta(days=longest):
        unit = " when bucket is hour" if bucket == "hour" else ""
        raise InvalidInputError(f"since must be at most {longest} days before until{unit}.", field="since")
    return replace(matching, since=since, until=until), since, until


_A = TypeVar("_A", bound=Activity)


def _activity(kind: type[_A], row: Mapping[str, Any]) -> _A:
    """Return a row of JSON as an activity."""
    values = {name: value for name, value in row.items() if name not in _STAGES}
    if "collection_id" in values:
        values["collection_id"] = UUID(values["collection_id"])
    return kind(**values, latency_ms={stage: Percentiles(*row[stage]) for stage in _STAGES if row.get(stage)})


def _filled(since: datetime, until: datetime, bucket: Bucket, rows: list[dict[str, Any]]) -> list[Interval]:
    """Return every interval of the range."""
    by_start = {datetime.fromisoformat(row["start"]): row for row in rows}
    step = timedelta(hours=1) if bucket == "hour" else timedelta(days=1)
    start = since.replace(hour=since.hour if bucket == "hour" else 0, minute=0, second=0, microsecond=0)
    series = []
    while start < until:
        row = by_start.get(start)
        series.append(_activity(Interval, {**row, "start": start}) if row else Interval(start=start))
        start += step
    return series
