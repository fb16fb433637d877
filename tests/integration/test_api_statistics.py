"""``/v1/stats``, ``/v1/queries`` and ``/metrics`` over HTTP."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.rag.query_logs import make_log
from vectorforge.aws.observability import EmfMetrics
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture
async def api(app_url: str, tenant: str) -> AsyncIterator[LiveApi]:
    async with live_api(
        settings_for(app_url, [tenant, "scraper"], server={"local_tenant": "scraper"})
    ) as api:
        yield api


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as client:
        yield client


async def get(client: httpx2.AsyncClient, path: str, **params: Any) -> dict[str, Any]:
    response = await client.get(path, params=params)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def test_executed_queries_appear_in_statistics(client: httpx2.AsyncClient) -> None:  # D-041, D-042
    collection_id = await new_collection(client)
    await add_documents(client, collection_id, tea="Green tea is brewed at eighty degrees.")
    for question in ("How hot is green tea?", "How hot is tea?"):
        answer = await client.post("/v1/rag/query", json={"query": question})
        assert answer.json()["cost_usd"] == 0.0
    await client.post("/v1/rag/query", json={"query": "?", "filters": {"kind": "coffee"}})  # no results
    found = await get(client, "/v1/stats")
    assert found["totals"]["outcomes"] == {"answered": 2, "empty": 1}
    assert {"total", "retrieval", "generation", "first_token"} <= set(found["totals"]["latency_ms"])
    assert (found["totals"]["cost_usd"], found["totals"]["unpriced"]) == (0.0, 0)
    assert found["content"] == {"collections": 1, "documents": 1, "chunks": 1}
    assert [(row["provider"], row["queries"]) for row in found["models"]] == [("extractive", 3)]
    assert [(row["name"], row["queries"]) for row in found["collections"]] == [("default", 3)]
    assert (found["bucket"], len(found["series"])) == ("day", 8)
    assert sum(interval["queries"] for interval in found["series"]) == 3
    (usage,) = (await get(client, "/v1/stats/usage"))["usage"]
    assert (usage["provider"], usage["queries"]) == ("extractive", 3)
    assert (await get(client, "/v1/stats", model="another"))["totals"]["queries"] == 0


async def test_query_log_list_is_filtered_and_paginated(
    api: LiveApi, client: httpx2.AsyncClient, tenant: str
) -> None:
    repo = QueryLogRepository(api.application.database.for_tenant(tenant))
    start = datetime(2026, 11, 20, tzinfo=UTC)
    for n in range(7):
        changes = {"cached": n % 2 == 0, "degraded": (), "model": "gpt-4o" if n < 5 else "claude"}
        await repo.create(
            make_log(created_at=start + timedelta(hours=n), query_text=f"Question {n}", **changes)
        )
    numbers: list[str] = []
    cursor: dict[str, Any] = {}
    for more in (True, False):
        page = await get(client, "/v1/queries", limit=3, model="gpt-4o", **cursor)
        numbers += [query["query_text"] for query in page["queries"]]
        assert (page["next"] is not None) is more
        cursor = {"after": page["next"]}
        await repo.create(make_log(query_text="Too late"))  # newer than all of them
    assert numbers == [f"Question {n}" for n in (4, 3, 2, 1, 0)]
    found = await get(client, "/v1/queries", until="2026-11-20T02:00:01", text="QUESTION", cached="true")
    assert [query["query_text"] for query in found["queries"]] == ["Question 2", "Question 0"]
    found = await get(client, "/v1/queries", since="2026-11-20T07:00:00+02:00", until="2026-11-21", limit=1)
    assert [query["query_text"] for query in found["queries"]] == ["Question 6"]
    found = await get(client, "/v1/queries", offset=8, limit=3)
    assert [query["query_text"] for query in found["queries"]] == ["Question 0"]


@pytest.mark.parametrize(
    ("path", "params", "field"),
    [
        ("/v1/queries", {"after": "nonsense"}, "after"),
        ("/v1/queries", {"after": "4pyT"}, "after"),
        ("/v1/queries", {"after": "MjAyNg", "offset": 1}, "offset"),
        ("/v1/queries", {"since": "yesterday"}, "since"),
        ("/v1/queries", {"since": "9999-12-31T23:00:00-12:00"}, "since"),
        ("/v1/queries", {"cached": "perhaps"}, "cached"),
        ("/v1/queries", {"text": "x" * 201}, "text"),
        ("/v1/queries", {"outcome": "won"}, "outcome"),
        ("/v1/stats", {"bucket": "week"}, "bucket"),
        ("/v1/stats", {"since": "2020-01-01"}, "since"),
        ("/v1/stats", {"since": "2026-01-02", "until": "2026-01-01"}, "since"),
        ("/v1/stats", {"until": "0001-01-01"}, "until"),
        ("/v1/stats", {"collection_id": "x" * 201}, "collection_id"),
        ("/v1/stats/usage", {"model": ""}, "model"),
    ],
)
async def test_invalid_parameter_returns_422_naming_it(
    client: httpx2.AsyncClient, path: str, params: dict[str, Any], field: str
) -> None:
    response = await client.get(path, params=params)
    assert response.status_code == 422
    assert [error["field"].split(".")[-1] for error in response.json()["errors"]] == [field]


async def test_special_characters_in_text_filter_return_no_rows(client: httpx2.AsyncClient) -> None:
    for text in ("a\0b", "%", "'; DROP TABLE", "\\"):
        assert (await get(client, "/v1/queries", text=text))["queries"] == []


async def test_prometheus_scrape_returns_process_metrics_to_authorized_tenant(
    api: LiveApi, tenant: str
) -> None:  # C26
    async with api.client(tenant) as client, api.client("scraper") as scraper:
        await new_collection(client)
        await client.post("/v1/rag/query", json={"query": "How hot?"})
        refused = await client.get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        response = await scraper.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {s.name: s.value for f in text_string_to_metric_families(response.text) for s in f.samples}
    calls = api.application.metrics.total("pipeline.query.calls")  # type: ignore[attr-defined] # in memory
    assert samples["vectorforge_pipeline_query_calls_total"] == calls == 1
    async with api.client(None) as stranger:
        assert (await stranger.get("/metrics")).status_code == 401


async def test_metrics_are_served_locally_and_absent_on_lambda(postgres_server: EmbeddedPostgres) -> None:
    server = {"auth": "local", "local_tenant": f"tenant-{uuid4().hex[:12]}"}
    async with (
        live_api(settings_for(postgres_server.app_url, server=server)) as api,
        api.client(None) as client,
    ):
        assert (await client.get("/metrics")).status_code == 200
        api.application.metrics = EmfMetrics("query")
        assert (await client.get("/metrics")).status_code == 404
