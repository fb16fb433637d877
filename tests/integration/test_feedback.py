"""Feedback on answers: one rating per credential and query, within the tenant, erased with the log."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.rag.query_logs import make_log
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import (
    QueryLogWriter,
    TenantSettingsRepository,
)
from vectorforge.local.postgres import EmbeddedPostgres

TEA = "Green tea is brewed at eighty degrees."
DOWN = {"rating": "down", "reasons": ["incomplete"], "comment": "The wax is missing."}


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def api(app_url: str, tenants: tuple[str, str]) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(app_url, tenants)) as api:
        yield api


@pytest.fixture
async def client(api: LiveApi, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), tea=TEA)
        yield client


async def ask(client: httpx2.AsyncClient) -> tuple[str, str]:
    """Query, and return the path of its feedback and the id of the chunk it used."""
    answer = (await client.post("/v1/rag/query", json={"query": "How hot is green tea?"})).json()
    query_id = answer["id"].removeprefix("ragq_")
    log = (await client.get(f"/v1/queries/{query_id}")).json()
    return f"/v1/queries/{query_id}/feedback", log["used_chunk_ids"][0]


async def ratings(client: httpx2.AsyncClient, path: str) -> list[dict[str, Any]]:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["feedback"]
    return found


async def test_second_rating_of_a_credential_replaces_the_first(client: httpx2.AsyncClient) -> None:
    path, chunk_id = await ask(client)
    first = await client.post(path, json={"rating": "up"})
    assert first.status_code == 200, first.text
    second = await client.post(path, json={**DOWN, "should_cite": [chunk_id, chunk_id]})
    assert second.json()["should_cite"] == [chunk_id]
    (stored,) = await ratings(client, path)
    assert {name: stored[name] for name in DOWN} == DOWN
    assert stored["created_at"] == first.json()["created_at"]
    key = (await client.post("/v1/keys", json={"name": "reader", "scope": "read"})).json()
    reader = {"Authorization": f"Bearer {key['key']}"}
    assert (await client.post(path, json={"rating": "up"}, headers=reader)).status_code == 200
    assert [rating["rating"] for rating in await ratings(client, path)] == ["down", "up"]
    assert (await client.get(path, headers=reader)).status_code == 403
    statistics = (await client.get("/v1/stats")).json()
    for counted in (statistics["totals"], statistics["models"][0], statistics["variants"][0]):
        assert (counted["queries"], counted["rated_up"], counted["rated_down"]) == (1, 1, 1)


async def test_withdrawn_rating_is_deleted_and_others_stay(client: httpx2.AsyncClient) -> None:
    path, _ = await ask(client)
    await client.post(path, json=DOWN)
    assert (await client.delete(path)).status_code == 204
    assert await ratings(client, path) == []
    again = await client.delete(path)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_rating_of_another_tenants_query_is_not_found(
    api: LiveApi, client: httpx2.AsyncClient, tenants: tuple[str, str]
) -> None:
    path, chunk_id = await ask(client)
    await client.post(path, json=DOWN)
    async with api.client(tenants[1]) as other:
        assert (await other.post(path, json={"rating": "up"})).status_code == 404
        assert (await other.get(path)).status_code == 404
        assert (await other.delete(path)).status_code == 404
        await add_documents(other, await new_collection(other), tea="Black tea is boiled.")
        own, _ = await ask(other)
        foreign = await other.post(own, json={"rating": "down", "should_cite": [chunk_id]})
        assert (foreign.status_code, foreign.json()["errors"][0]["field"]) == (422, "should_cite")
        assert await ratings(other, own) == []
    assert len(await ratings(client, path)) == 1


async def test_rating_before_the_log_record_is_retryable(
    api: LiveApi, client: httpx2.AsyncClient, tenants: tuple[str, str], postgres_server: EmbeddedPostgres
) -> None:
    log = make_log()
    path = f"/v1/queries/{log.id}/feedback"
    async with Database(postgres_server.log_writer_url, pool_size=1) as database:
        writer = QueryLogWriter(database)
        for record in (None, replace(log, outcome="started")):
            if record is not None:
                await writer.write([(tenants[0], record)])
            early = await client.post(path, json=DOWN)
            assert (early.status_code, early.json()["code"]) == (404, "query_not_logged")
            assert early.headers["Retry-After"] == "2"
        await writer.write([(tenants[0], log)])
    assert (await client.post(path, json=DOWN)).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "rating"),
        ({"rating": "sideways"}, "rating"),
        ({"rating": "down", "reasons": ["ugly"]}, "reasons.0"),
        ({"rating": "down", "comment": "x" * 2001}, "comment"),
        ({"rating": "down", "should_cite": [str(uuid4())] * 21}, "should_cite"),
        ({"rating": "down", "should_cite": [str(uuid4())]}, "should_cite"),
        ({"rating": "up", "tenant_id": "another"}, "tenant_id"),
    ],
)
async def test_invalid_rating_returns_422_naming_the_field(
    client: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    path, _ = await ask(client)
    response = await client.post(path, json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field)


async def test_comment_follows_the_policy_for_logged_texts(
    app_url: str, client: httpx2.AsyncClient, tenants: tuple[str, str]
) -> None:
    path, _ = await ask(client)
    masked = await client.post(path, json={"rating": "down", "comment": "Ask jane.doe@example.com"})
    assert "jane.doe" not in masked.json()["comment"]
    assert masked.json()["comment"].startswith("Ask ")
    async with live_api(settings_for(app_url, tenants)) as fresh, fresh.client(tenants[0]) as other:
        await TenantSettingsRepository(fresh.application.database.for_tenant(tenants[0])).set_log_text("off")
        assert (await other.post(path, json=DOWN)).json()["comment"] == ""


async def test_erasure_and_retention_of_the_log_reach_feedback(
    api: LiveApi, client: httpx2.AsyncClient, tenants: tuple[str, str], superuser: psycopg.Connection[Any]
) -> None:
    path, chunk_id = await ask(client)
    await client.post(path, json=DOWN)
    document = (await client.get(f"/v1/chunks/{chunk_id}")).json()["document"]["id"]
    erased = await client.delete(f"/v1/documents/{document}")
    assert erased.status_code == 200, erased.text
    (emptied,) = await ratings(client, path)
    assert (emptied["rating"], emptied["comment"]) == ("down", "")
    assert (await client.post(path, json=DOWN)).json()["comment"] == ""  # neither later
    superuser.execute(
        "UPDATE vectorforge.query_logs SET created_at = now() - interval '99 days' WHERE tenant_id = %s",
        (tenants[0],),
    )
    await api.application.database.fetch_untenanted("SELECT vectorforge.delete_old_logs('90 days')")
    assert superuser.execute(
        "SELECT count(*) FROM vectorforge.query_feedback WHERE tenant_id = %s", (tenants[0],)
    ).fetchone() == (0,)


async def test_tenant_erasure_deletes_feedback_with_the_log(
    client: httpx2.AsyncClient, tenants: tuple[str, str]
) -> None:
    path, _ = await ask(client)
    await client.post(path, json=DOWN)
    erased = await client.delete("/v1/tenant", params={"confirm": tenants[0]})
    assert erased.json()["certificate"]["erased"]["query_feedback"] == 1


@pytest.fixture
def superuser(postgres_server: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection
