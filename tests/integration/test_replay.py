"""Replay of logged queries: the rebuilt request, and what has changed since the answer."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import psycopg
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.vendor_behaviour import Reply
from vectorforge.db.repositories.query_log_repo import TenantSettingsRepository
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.prompts import without_fence_number

TEA = {"tea": "Green tea is brewed at eighty degrees."}


@pytest.fixture
async def api(app_url: str, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(app_url, [tenant]), provider) as api:
        await TenantSettingsRepository(api.application.database.for_tenant(tenant)).set_log_text("full")
        yield api


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **TEA)
        yield client


async def asked(client: httpx2.AsyncClient, path: str = "/v1/rag/query", **body: Any) -> str:
    answer = await client.post(path, json={"query": "How hot is green tea?", **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"]).removeprefix("ragq_")


async def replayed(client: httpx2.AsyncClient, query_id: str) -> tuple[str, list[str], dict[str, Any]]:
    """Return status, kinds of changes, and the whole body."""
    response = await client.get(f"/v1/queries/{query_id}/replay")
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body["status"], [change["kind"] for change in body["changes"]], body


@pytest.mark.parametrize("surface", ["rag", "collection", "docrag", "conversation"])
async def test_unchanged_request_is_rebuilt_with_the_logged_hash(
    client: httpx2.AsyncClient, openai: FakeOpenAI, surface: str
) -> None:
    collections = (await client.get("/v1/collections")).json()["collections"]
    if surface == "collection":
        query_id = await asked(client, f"/v1/collections/{collections[0]['id']}/query")
    elif surface == "docrag":
        await client.post("/v1/docrag/query", json={"query": "How hot is green tea?"})
        query_id = (await client.get("/v1/queries", params={"limit": 1})).json()["queries"][0]["id"]
    elif surface == "conversation":
        conversation = (await client.post("/v1/conversations")).json()["id"]
        await asked(client, conversation_id=conversation, rewrite=False)
        query_id = await asked(client, conversation_id=conversation, rewrite=False, query="How hot is tea?")
    else:
        query_id = await asked(client, temperature=0.25, max_tokens=99)
    sent = openai.bodies[-1]["messages"]
    status, changes, body = await replayed(client, query_id)
    assert (status, changes) == ("equal", [])
    assert body["logged_sha256"] == body["rebuilt_sha256"]
    for rebuilt, message in zip(body["messages"], sent, strict=True):
        assert rebuilt == {**message, "content": without_fence_number(message["content"])}


async def test_edited_chunk_is_named_and_its_old_text_used(client: httpx2.AsyncClient) -> None:
    query_id = await asked(client)
    collection = (await client.get("/v1/collections")).json()["collections"][0]["id"]
    await add_documents(client, collection, tea="Green tea is brewed at seventy degrees.")
    status, changes, body = await replayed(client, query_id)
    assert (status, changes) == ("equal", ["chunk_edited"])
    assert "eighty degrees" in str(body["messages"])
    await add_documents(client, collection, tea="Green tea is brewed at sixty degrees.")
    assert (await replayed(client, query_id))[:2] == ("not_rebuilt", ["chunk_deleted"])


async def test_deleted_chunk_is_named_and_nothing_rebuilt(client: httpx2.AsyncClient, api: LiveApi) -> None:
    query_id = await asked(client)
    log = (await client.get(f"/v1/queries/{query_id}")).json()
    (chunk_id,) = log["used_chunk_ids"]
    document = (await client.get(f"/v1/chunks/{chunk_id}")).json()["document"]["id"]
    assert (await client.delete(f"/v1/documents/{document}")).status_code == 200
    status, changes, body = await replayed(client, query_id)
    assert (status, changes) == ("not_rebuilt", ["chunk_deleted", "not_logged"])  # erasure empties the texts
    assert body["changes"][0]["chunk_id"] == chunk_id
    assert body["messages"] is None


async def test_own_prompt_of_a_request_is_named_as_changed(client: httpx2.AsyncClient) -> None:
    collection = (await client.get("/v1/collections")).json()["collections"][0]["id"]
    query_id = await asked(
        client, f"/v1/collections/{collection}/query", system_prompt="Answer in rhymes. {context}"
    )
    assert (await replayed(client, query_id))[:2] == ("different", ["prompt"])


async def test_changed_prompt_and_model_are_named(
    client: httpx2.AsyncClient, postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    query_id = await asked(client)
    other = "jsonb_build_object('model', 'gpt-3', 'sha256', '0', 'prompt_sha256', '0')"  # an older version's
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as superuser:
        change = f"UPDATE vectorforge.query_logs SET request = request || {other} WHERE tenant_id = %s"
        superuser.execute(change.encode(), (tenant,))
    assert (await replayed(client, query_id))[:2] == ("different", ["model", "prompt"])


@pytest.mark.parametrize(("policy", "kept"), [("off", ""), ("hash", "sha256:")])
async def test_query_without_logged_text_says_what_is_missing(
    client: httpx2.AsyncClient, app_url: str, tenant: str, openai: FakeOpenAI, policy: str, kept: str
) -> None:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(app_url, [tenant]), provider) as fresh, fresh.client(tenant) as other:
        await TenantSettingsRepository(fresh.application.database.for_tenant(tenant)).set_log_text(policy)
        query_id = await asked(other)
        assert (await other.get(f"/v1/queries/{query_id}")).json()["query_text"].startswith(kept)
        status, changes, body = await replayed(other, query_id)
        assert (status, changes) == ("not_rebuilt", ["not_logged"])
        assert (body["logged_sha256"], body["messages"]) == (None, None)  # no hash to guess a text by


async def test_exchange_erased_before_the_query_is_not_rebuilt(client: httpx2.AsyncClient) -> None:
    conversation = (await client.post("/v1/conversations")).json()["id"]
    collection = (await client.get("/v1/collections")).json()["collections"][0]["id"]
    in_conversation = {"conversation_id": conversation, "rewrite": False}
    await asked(client, **in_conversation)
    await add_documents(client, collection, milk="Milk is heated to sixty degrees.")
    await asked(client, **in_conversation, query="How hot is milk?")
    documents = (await client.get(f"/v1/collections/{collection}/documents")).json()["documents"]
    (milk,) = [one["id"] for one in documents if one["source"] == "milk.md"]
    assert (await client.delete(f"/v1/documents/{milk}")).status_code == 200
    query_id = await asked(client, **in_conversation, query="How hot is tea?")
    status, changes, body = await replayed(client, query_id)
    assert (status, changes) == ("equal", [])
    assert "How hot is green tea?" in str(body["messages"])


async def test_answer_from_the_cache_has_no_request(client: httpx2.AsyncClient, openai: FakeOpenAI) -> None:
    openai.script(Reply(("Green tea is brewed at eighty degrees [Context 1].",)))
    await asked(client)
    cached = await asked(client)
    status, changes, body = await replayed(client, cached)
    assert (status, changes) == ("not_rebuilt", ["not_called"])
    assert "cache" in body["changes"][0]["detail"]
