"""Storage caps per tenant, paginated lists, and conversations per key (security 29)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, live_api, settings_for
from vectorforge.config import IngestionSettings, QuerySettings
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[tuple[LiveApi, str]]:
    tenant = make_tenant()
    config = settings_for(
        postgres_server.app_url,
        [tenant],
        ingestion=IngestionSettings(max_collections=5),
        query=QuerySettings(max_conversations=6, max_conversations_per_key=3),
    )
    async with live_api(config) as started:
        yield started, tenant


async def new_key(client: httpx2.AsyncClient, name: str) -> dict[str, str]:
    """Create a read key; return its header."""
    made = await client.post("/v1/keys", json={"name": name, "scope": "read"})
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['key']}"}


async def test_collection_above_the_cap_is_rejected_on_every_surface(api: tuple[LiveApi, str]) -> None:
    started, tenant = api
    async with started.client(tenant) as client:
        bodies: list[dict[str, Any]] = [{"name": f"c{number}"} for number in range(5)]
        made = await asyncio.gather(*(client.post("/v1/collections", json=body) for body in bodies))
        assert [response.status_code for response in made] == [201] * 5
        refused = await client.post("/v1/collections", json={"name": "c5"})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "at most 5 collections" in refused.json()["detail"]
        assert "delete one" in refused.json()["detail"].lower()
        taken = await client.post("/v1/collections", json={"name": "c1"})
        assert "named 'c1'" in taken.json()["detail"]
        store = await client.post("/v1/vector_stores", json={"name": "s"})
        assert store.status_code == 409
        assert "at most 5 collections" in store.json()["error"]["message"]
        gone = made[0].json()["id"]
        assert (await client.delete(f"/v1/collections/{gone}")).status_code == 200
        assert (await client.post("/v1/vector_stores", json={"name": "s"})).status_code == 200


@pytest.mark.parametrize("path", ["collections", "keys"])
async def test_list_is_paginated(api: tuple[LiveApi, str], path: str) -> None:
    started, tenant = api
    async with started.client(tenant) as client:
        for number in range(5):
            body = {"name": f"n{number}"} | ({"scope": "read"} if path == "keys" else {})
            assert (await client.post(f"/v1/{path}", json=body)).status_code == 201
        pages = [
            (await client.get(f"/v1/{path}", params={"limit": 2, "offset": offset})).json()
            for offset in (0, 2, 4, 6)
        ]
        names = [[row["name"] for row in page[path]] for page in pages]
        assert [len(found) for found in names] == [2, 2, 1, 0]
        everything = (await client.get(f"/v1/{path}")).json()
        assert [name for found in names for name in found] == [row["name"] for row in everything[path]]
        assert (pages[1]["limit"], pages[1]["offset"]) == (2, 2)
        for wrong in ({"limit": 0}, {"limit": 201}, {"offset": -1}):
            assert (await client.get(f"/v1/{path}", params=wrong)).status_code == 422


async def test_conversation_cap_applies_per_key(api: tuple[LiveApi, str]) -> None:
    started, tenant = api
    async with started.client(tenant) as client:
        greedy, other = await new_key(client, "greedy"), await new_key(client, "other")
        made = [await client.post("/v1/conversations", headers=greedy) for _ in range(4)]
        assert [response.status_code for response in made] == [201, 201, 201, 409]
        detail = made[-1].json()["detail"]
        assert "at most 3 conversations" in detail
        assert "delete one" in detail.lower()
        for _ in range(3):
            assert (await client.post("/v1/conversations", headers=other)).status_code == 201
        full = await client.post("/v1/conversations")  # the tenant's own cap still applies
        assert full.status_code == 409
        assert "6 conversations" in full.json()["detail"]
        gone = made[0].json()["id"]
        assert (await client.delete(f"/v1/conversations/{gone}")).status_code == 204
        assert (await client.post("/v1/conversations", headers=greedy)).status_code == 201
