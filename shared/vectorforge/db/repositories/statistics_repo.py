"""Statistics of the query log: usage, latency, cost and quality."""

# ruff: noqa: S608
# (Statements are put together from constants of this module only; values are bound.)

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from vectorforge.db.repositories.paging import CONDITIONS, QueryFilter
from vectorforge.db.repositories.statistics_types import (
    Activity,
    Bucket,
    CollectionActivity,
    Content,
    DailyUsage,
    Interval,
    ModelActivity,
    Percentiles,
    Statistics,
    VariantActivity,
)
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
       cost_usd,
       CASE WHEN outcome <> 'started' THEN latency_ms END AS total, nullif(retrieval_ms, 0) AS retrieval,
       nullif(context_ms, 0) AS context, nullif(generation_ms, 0) AS generation, first_token_ms AS first_token
FROM vectorforge.query_logs
WHERE {CONDITIONS}
"""
_USAGE = (
    "count(*) AS queries, "
    + ", ".join(
        f"count(*) FILTER (WHERE outcome = '{name}') AS {name}" for name in _OUTCOMES if name != "cached"
    )
    + """, count(*) FILTER (WHERE outcome = 'cached') AS cached_outcome,
       count(*) FILTER (WHERE cached) AS cached,
       count(*) FILTER (WHERE degraded) AS degraded,
       count(*) FILTER (WHERE low_quality) AS low_quality,
       sum(prompt_tokens) AS prompt_tokens, sum(completion_tokens) AS completion_tokens,
       coalesce(sum(cost_usd), 0) AS cost_usd,
       count(*) FILTER (
           WHERE cost_usd IS NULL AND NOT cached AND prompt_tokens + completion_tokens > 0
       ) AS unpriced"""
)


def _latency(*stages: str) -> str:
    return ", ".join(
        f"percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY {stage}) AS {stage}"
        for stage in stages
    )


def _grouped(columns: str) -> str:
    """Return the groups with the most queries, as a JSON array."""
    return f"""(
        SELECT coalesce(jsonb_agg(to_jsonb(found)), '[]') FROM (
            SELECT {columns}, {_USAGE}, {_latency(*_GROUP_STAGES)} FROM log
            GROUP BY {columns} ORDER BY count(*) DESC, {columns} LIMIT {MAX_GROUPS}
        ) AS found
    )"""


_COLLECT = f"""
WITH log AS MATERIALIZED ({_LOG})
SELECT
    (SELECT to_jsonb(found) FROM (SELECT {_USAGE}, {_latency(*_STAGES)} FROM log) AS found) AS totals,
    (SELECT coalesce(jsonb_object_agg(step, times), '{{}}') FROM (
        SELECT step, count(*) AS times FROM log, jsonb_array_elements_text(steps) AS step
        WHERE degraded GROUP BY step
    ) AS found) AS degraded_steps,
    (SELECT coalesce(jsonb_agg(to_jsonb(found)), '[]') FROM (
        SELECT date_trunc(%(bucket)s, created_at, 'UTC') AS start, {_USAGE}, {_latency(*_STAGES)}
        FROM log GROUP BY 1
    ) AS found) AS series,
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


class StatisticsRepository:
    """The statistics of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def collect(self, matching: QueryFilter, bucket: Bucket | None = None) -> Statistics:
        """Everything about the queries of a range, in one statement.

        Args:
            matching: Filter of the queries; its time range is ``bounded``.
            bucket: Length of an interval; None for hours up to two days, else days.

        Raises:
            InvalidInputError: The range is too long, or empty.
        """
        matching, since, until = bounded(matching, bucket)
        chosen: Bucket = bucket or ("hour" if until - since <= timedelta(days=2) else "day")
        values = {**matching.values, "tenant_id": self._db.tenant_id, "bucket": chosen}
        row = await self._db.fetch_one(_COLLECT, values)
        assert row is not None  # noqa: S101 - a SELECT without FROM
        return Statistics(
            since=since,
            until=until,
            bucket=chosen,
            totals=_activity(Activity, row["totals"]),
            degraded_steps=row["degraded_steps"],
            series=_filled(since, until, chosen, row["series"]),
            models=[_activity(ModelActivity, found, "provider", "model") for found in row["models"]],
            variants=[_activity(VariantActivity, found, "variant") for found in row["variants"]],
            collections=[
                _activity(
                    CollectionActivity,
                    {
                        **found,
                        "name": row["names"].get(found["collection_id"]),
                        "collection_id": UUID(found["collection_id"]),
                    },
                    "collection_id",
                    "name",
                )
                for found in row["by_collection"]
            ],
            content=Content(**row["content"]),
        )

    async def usage(self, matching: QueryFilter) -> list[DailyUsage]:
        """Tokens and cost by day, provider and model, oldest day first, at most 5,000 rows.

        Raises:
            InvalidInputError: The range of time is too long, or empty.
        """
        matching, _, _ = bounded(matching)
        rows = await self._db.fetch_all(_USAGE_BY_DAY, {**matching.values, "tenant_id": self._db.tenant_id})
        return [DailyUsage(**_usage(row), **_named(row, "start", "provider", "model")) for row in rows]

    async def mean_latency_ms(self, matching: QueryFilter) -> float | None:
        """Return the mean latency of ended queries; None without any.

        Raises:
            InvalidInputError: The range of time is too long, or empty.
        """
        matching, _, _ = bounded(matching)
        row = await self._db.fetch_one(_MEAN_LATENCY, {**matching.values, "tenant_id": self._db.tenant_id})
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


def _activity(kind: type[_A], found: Mapping[str, Any], *names: str) -> _A:
    latency = {stage: Percentiles(*found[stage]) for stage in _STAGES if found.get(stage)}
    return kind(**_usage(found), **_named(found, *names), latency_ms=latency)


def _usage(found: Mapping[str, Any]) -> dict[str, Any]:
    counted = {name: found["cached_outcome" if name == "cached" else name] for name in _OUTCOMES}
    return {
        **_named(found, "queries", "cached", "degraded", "low_quality", "cost_usd", "unpriced"),
        "prompt_tokens": found["prompt_tokens"] or 0,
        "completion_tokens": found["completion_tokens"] or 0,
        "outcomes": {name: count for name, count in counted.items() if count},
    }


def _named(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names}


def _filled(
    since: datetime, until: datetime, bucket: Bucket, found: Sequence[Mapping[str, Any]]
) -> list[Interval]:
    """Every interval of the range."""
    by_start = {datetime.fromisoformat(row["start"]): row for row in found}
    step = timedelta(hours=1) if bucket == "hour" else timedelta(days=1)
    start = since.replace(minute=0, second=0, microsecond=0)
    start = start if bucket == "hour" else start.replace(hour=0)
    series = []
    while start < until:
        row = by_start.get(start)
        series.append(_activity(Interval, {**row, "start": start}, "start") if row else Interval(start=start))
        start += step
    return series
