"""Statistics of the query log, compared with the same numbers computed in Python."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.rag.query_logs import make_log
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.paging import QueryFilter
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.repositories.statistics_repo import StatisticsRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError
from vectorforge.types import DistanceMetric

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PLAIN: dict[str, Any] = {"cached": False, "degraded": (), "quality": None, "variant": None}


def log(hours: float, **changes: Any) -> QueryLog:
    """Return a log record from this long before noon."""
    return make_log(**{**PLAIN, "created_at": NOON - timedelta(hours=hours), **changes})


def percentile(values: Sequence[float], share: float) -> float:
    """Compute percentile_cont: https://www.postgresql.org/docs/current/functions-aggregate.html"""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


async def store(db: TenantDatabase, *logs: QueryLog) -> None:
    for entry in logs:
        await QueryLogRepository(db).create(entry)


def week() -> QueryFilter:
    return QueryFilter(since=NOON - timedelta(days=7), until=NOON)


async def test_statistics_match_the_query_log(tenant_db: TenantDatabase) -> None:  # D-041, D-042
    claude = {"provider": "anthropic", "model": "claude-haiku-5-5"}
    unasked: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0}
    unmeasured: dict[str, Any] = {"latency_ms": 0.0, "retrieval_ms": 0.0, "context_ms": None}
    never = {"generation_ms": 0.0, "first_token_ms": None, "cost_usd": None}
    logs = [
        log(1, latency_ms=100, first_token_ms=10, cost_usd=0.25),
        log(2, latency_ms=300, first_token_ms=30, cost_usd=0.5, **claude),
        log(3, latency_ms=1000, first_token_ms=90, cost_usd=None, model="unheard-of"),
        log(30, outcome="empty", latency_ms=20, cost_usd=0.0, **unasked),
        log(31, outcome="error", latency_ms=7, **never, **unasked),
        log(32, cached=True, latency_ms=3, cost_usd=None, degraded=("provider", "stale")),
        log(33, quality={"relevance": 0.1, "low": True}, degraded=("stale",), latency_ms=50),
        log(34, outcome="started", prompt_tokens=None, completion_tokens=None, **never, **unmeasured),
    ]
    outside = [log(-0.001), log(24 * 7 + 0.001)]
    await store(tenant_db, *logs, *outside)
    found = await StatisticsRepository(tenant_db).collect(week())
    totals = found.totals
    assert (totals.queries, totals.cached, totals.degraded, totals.low_quality) == (8, 1, 2, 1)
    assert totals.outcomes == {"started": 1, "answered": 5, "empty": 1, "error": 1}
    assert totals.unpriced == 1  # neither the cached one nor the one without a model call
    assert totals.prompt_tokens == sum(entry.prompt_tokens or 0 for entry in logs)
    assert totals.completion_tokens == sum(entry.completion_tokens or 0 for entry in logs)
    assert totals.cost_usd == pytest.approx(sum(entry.cost_usd or 0 for entry in logs))
    assert found.degraded_steps == {"provider": 1, "stale": 2}
    ended = [entry.latency_ms for entry in logs if entry.outcome != "started"]
    firsts = [entry.first_token_ms for entry in logs if entry.first_token_ms]
    generated = [entry.generation_ms for entry in logs if entry.generation_ms]
    for stage, values in (("total", ended), ("first_token", firsts), ("generation", generated)):
        measured = totals.latency_ms[stage]
        expected = [percentile(values, share) for share in (0.5, 0.95, 0.99)]
        assert [measured.p50, measured.p95, measured.p99] == pytest.approx(expected)
    assert set(totals.latency_ms) == {"total", "retrieval", "context", "generation", "first_token"}
    by_day = {interval.start: interval for interval in found.series}
    assert list(by_day) == [datetime(2026, 11, day, tzinfo=UTC) for day in range(13, 21)]
    assert [by_day[datetime(2026, 11, day, tzinfo=UTC)].queries for day in (18, 19, 20)] == [0, 5, 3]
    assert by_day[datetime(2026, 11, 20, tzinfo=UTC)].latency_ms["total"].p50 == 300
    assert by_day[datetime(2026, 11, 13, tzinfo=UTC)].latency_ms == {}
    models = {(entry.provider, entry.model): entry for entry in found.models}
    assert {name: entry.queries for name, entry in models.items()} == {
        ("openai", "gpt-4o"): 6,
        ("anthropic", "claude-haiku-5-5"): 1,
        ("openai", "unheard-of"): 1,
    }
    assert found.models[0].model == "gpt-4o"  # the one with the most queries
    assert models["anthropic", "claude-haiku-5-5"].cost_usd == 0.5
    assert models["openai", "unheard-of"].unpriced == 1


async def test_statistics_are_grouped_by_variant_and_collection(
    tenant_db: TenantDatabase,
) -> None:  # D-040, D-041
    collection = await CollectionRepository(tenant_db).create(
        "kept",
        embedding_provider="local",
        embedding_model="m",
        dimension=3,
        distance_metric=DistanceMetric.COSINE,
    )
    gone = uuid4()
    await store(
        tenant_db,
        log(1, collection_id=collection.id, variant="precise"),
        log(1, collection_id=collection.id),
        log(1, collection_id=gone),
    )
    repo = StatisticsRepository(tenant_db)
    found = await repo.collect(week())
    assert [(entry.variant, entry.queries) for entry in found.variants] == [(None, 2), ("precise", 1)]
    named = [(entry.collection_id, entry.name, entry.queries) for entry in found.collections]
    assert named == [(collection.id, "kept", 2), (gone, None, 1)]
    assert (found.content.collections, found.content.documents, found.content.chunks) == (1, 0, 0)
    one = await repo.collect(QueryFilter(since=week().since, until=NOON, collection_id=gone))
    assert (one.totals.queries, one.content.collections) == (1, 0)
    narrower: list[dict[str, Any]] = [
        {"variant": "precise"},
        {"variant": "precise", "model": "gpt-4o"},
        {"provider": "x"},
    ]
    for narrow in narrower:
        chosen = QueryFilter(since=week().since, until=NOON, **narrow)
        assert (await repo.collect(chosen)).totals.queries == (0 if "provider" in narrow else 1)


async def test_statistics_without_queries_are_zero(tenant_db: TenantDatabase) -> None:
    found = await StatisticsRepository(tenant_db).collect(week())
    assert (found.totals.queries, found.totals.cost_usd, found.totals.latency_ms) == (0, 0.0, {})
    assert [interval.queries for interval in found.series] == [0] * 8
    assert (found.models, found.variants, found.collections, found.degraded_steps) == ([], [], [], {})


async def test_short_range_uses_hourly_buckets(tenant_db: TenantDatabase) -> None:
    await store(tenant_db, log(0.5), log(1.5), log(1.25))
    repo = StatisticsRepository(tenant_db)
    day = await repo.collect(QueryFilter(since=NOON - timedelta(hours=24), until=NOON))
    assert (day.bucket, len(day.series)) == ("hour", 24)
    assert [interval.queries for interval in day.series][-3:] == [0, 2, 1]
    assert (await repo.collect(week(), "hour")).series[-2].queries == 2
    assert (
        await repo.collect(QueryFilter(since=NOON - timedelta(hours=24), until=NOON), "day")
    ).bucket == "day"


async def test_usage_is_grouped_by_day_provider_and_model(tenant_db: TenantDatabase) -> None:
    await store(
        tenant_db,
        log(1, cost_usd=0.5, prompt_tokens=10),
        log(2, cost_usd=0.25, prompt_tokens=20),
        log(13, cost_usd=1.0),
        log(1, provider=None, model=None, cost_usd=0.0),
    )
    rows = await StatisticsRepository(tenant_db).usage(week())
    assert [(row.start.date().day, row.model, row.queries, row.cost_usd) for row in rows] == [
        (19, "gpt-4o", 1, 1.0),
        (20, "gpt-4o", 2, 0.75),
        (20, None, 1, 0.0),
    ]
    assert rows[1].prompt_tokens == 30


async def test_statistics_count_own_tenant_only(
    tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
) -> None:
    await store(tenant_db, log(1), log(2))
    await store(other_tenant_db, log(1, cost_usd=99.0))
    found = await StatisticsRepository(tenant_db).collect(week())
    assert (found.totals.queries, found.totals.cost_usd < 1) == (2, True)
    assert [row.queries for row in await StatisticsRepository(other_tenant_db).usage(week())] == [1]


@pytest.mark.parametrize(
    ("since", "until", "bucket", "field"),
    [
        (NOON, NOON, None, "since"),
        (NOON, NOON - timedelta(days=1), None, "since"),
        (NOON - timedelta(days=400, seconds=1), NOON, None, "since"),
        (NOON - timedelta(days=31, seconds=1), NOON, "hour", "since"),
        (None, datetime(1, 1, 2, tzinfo=UTC), None, "until"),
    ],
)
async def test_invalid_range_is_rejected(
    tenant_db: TenantDatabase, since: datetime | None, until: datetime, bucket: Any, field: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await StatisticsRepository(tenant_db).collect(QueryFilter(since=since, until=until), bucket)
    assert caught.value.field == field


async def test_logs_are_filtered_by_every_condition(tenant_db: TenantDatabase) -> None:
    repo = QueryLogRepository(tenant_db)
    plain = log(1, query_text="What is 50%_of a Straße?")
    others = [
        log(50),
        log(1, collection_id=uuid4(), outcome="error"),
        log(1, provider="anthropic", model="claude-haiku-5-5"),
        log(1, variant="precise"),
        log(1, cached=True),
        log(1, degraded=("stale",)),
    ]
    await store(tenant_db, plain, *others)
    conditions: list[tuple[dict[str, Any], set[int]]] = [
        ({"since": NOON - timedelta(hours=2)}, {1, 2, 3, 4, 5}),
        ({"until": NOON - timedelta(hours=2)}, {0}),
        ({"collection_id": others[1].collection_id}, {1}),
        ({"outcome": "error"}, {1}),
        ({"provider": "anthropic"}, {2}),
        ({"model": "claude-haiku-5-5"}, {2}),
        ({"variant": "precise"}, {3}),
        ({"cached": True}, {4}),
        ({"cached": False, "since": NOON - timedelta(hours=2)}, {1, 2, 3, 5}),
        ({"degraded": True}, {5}),
        ({"outcome": "error", "cached": True}, set()),
    ]
    for values, expected in conditions:
        found = {entry.id for entry in await repo.find(QueryFilter(**values))} - {plain.id}
        assert found == {others[n].id for n in expected}, values
    for text in ("50%_of", "straße", "WHAT IS"):
        assert [entry.id for entry in await repo.find(QueryFilter(text=text))] == [plain.id]
    assert await repo.find(QueryFilter(text="50%of")) == []


async def test_pagination_is_stable_while_queries_arrive(tenant_db: TenantDatabase) -> None:
    repo = QueryLogRepository(tenant_db)
    old = [log(n // 3) for n in range(20)]  # three and three at the same time
    await store(tenant_db, *old)
    read: list[QueryLog] = []
    after = None
    for _ in range(7):
        page = await repo.find(QueryFilter(), limit=3, after=after)
        read += page
        assert page[-1].created_at is not None
        after = (page[-1].created_at, page[-1].id)
        await store(tenant_db, log(-1))  # newer than all of them
    assert await repo.find(QueryFilter(), after=after) == []
    assert len(read) == len({entry.id for entry in read}) == 20
    assert {entry.id for entry in read} == {entry.id for entry in old}
    times = [entry.created_at for entry in read if entry.created_at]
    assert times == sorted(times, reverse=True)
