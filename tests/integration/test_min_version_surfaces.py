"""``min_version`` on every API surface: the collection's own version is searched, a later one is rejected."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.http.mcp_client import mcp_client
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import CacheSettings
from vectorforge.local.postgres import EmbeddedPostgres

QUERY = {"query": "colour of the vault door"}
MESSAGES = [{"role": "user", "content": QUERY["query"]}]
PARTS = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": QUERY["query"]}]}]
MODEL = "vectorforge/default"
SURFACES: dict[str, dict[str, Any]] = {
    "/v1/search": QUERY,
    "/v1/rag/query": QUERY,
    "/v1/collections/default/query": QUERY,
    "/v1/docrag/query": QUERY,
    "/v1/chat/completions": {"model": MODEL, "messages": MESSAGES},
    "/v1/responses": {"model": MODEL, "input": QUERY["query"]},
    "/v1/vector_stores/default/search": QUERY,
    "/api/chat": {"id": "1", "messages": PARTS},
}
IN_CONVERSATION = ("/v1/rag/query", "/v1/chat/completions", "/v1/responses", "/api/chat")
TOOLS = ("semantic_search", "semantic_search_with_context", "ask")


@dataclass(frozen=True)
class Vault:
    """A server with one document, a client of its tenant, and the version of its collection."""

    api: LiveApi
    client: httpx2.AsyncClient
    tenant: str
    version: int

    async def ask(self, path: str, min_version: Any, **more: Any) -> httpx2.Response:
        return await self.client.post(path, json={**SURFACES[path], "min_version": min_version, **more})


@pytest.fixture
async def vault(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[Vault]:
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        job = await add_documents(client, await new_collection(client), vault="The vault door is blue.")
        yield Vault(api, client, tenant, job["version"])


def check_conflict(response: httpx2.Response, version: int) -> None:
    assert response.status_code == 409, response.text
    assert f"`min_version` must be at most {version}, the collection's version." in response.text


@pytest.mark.parametrize("path", SURFACES)
async def test_version_not_reached_is_rejected_on_api_surface(vault: Vault, path: str) -> None:
    check_conflict(await vault.ask(path, vault.version + 1), vault.version)
    for wrong in (-1, "new", 2**63):
        response = await vault.ask(path, wrong)
        assert response.status_code in (400, 422), response.text  # OpenAI's paths have 400
        assert "min_version" in response.text
    answered = await vault.ask(path, vault.version)
    assert answered.status_code == 200
    assert "vault.md" in answered.text


@pytest.mark.parametrize("tier", ["memory", "database"])
async def test_cached_answer_of_older_version_is_not_returned(
    postgres_server: EmbeddedPostgres, tenant: str, tier: str
) -> None:
    memory = CacheSettings(answer_cache_memory_bytes=2**20 if tier == "memory" else 0)
    settings = settings_for(postgres_server.app_url, [tenant], cache=memory)
    model = ScriptedLLM(("Blue [Context 1].",))
    async with live_api(settings, model) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        job = await add_documents(client, collection, vault="The vault door is blue.")
        vault = Vault(api, client, tenant, job["version"])
        await vault.ask("/v1/rag/query", vault.version)
        cached = (await vault.ask("/v1/rag/query", vault.version)).json()
        assert cached["cached"]
        for stream in (False, True):
            check_conflict(await vault.ask("/v1/rag/query", vault.version + 1, stream=stream), vault.version)
        newer = await add_documents(client, collection, vault="The vault door is green now.")
        assert newer["version"] > vault.version
        again = (await vault.ask("/v1/rag/query", newer["version"])).json()
        assert not again["cached"]
        assert "green" in str(again["context"])


@pytest.mark.parametrize("path", [p for p in IN_CONVERSATION if p != "/api/chat"])
async def test_stream_of_version_not_reached_is_rejected(vault: Vault, path: str) -> None:
    check_conflict(await vault.ask(path, vault.version + 1, stream=True), vault.version)


@pytest.mark.parametrize("path", IN_CONVERSATION)
async def test_query_of_conversation_applies_version(vault: Vault, path: str) -> None:
    begun = (await vault.client.post("/v1/conversations", json={})).json()
    check_conflict(await vault.ask(path, vault.version + 1, conversation_id=begun["id"]), vault.version)
    assert (await vault.ask(path, vault.version, conversation_id=begun["id"])).status_code == 200
    shown = (await vault.client.get(f"/v1/conversations/{begun['id']}")).json()
    assert shown["message_count"] == 2


@pytest.mark.parametrize("tool", TOOLS)
async def test_mcp_tool_with_version_not_reached_reports_limit(vault: Vault, tool: str) -> None:
    async with mcp_client(vault.api.url, vault.tenant) as client:
        rejected = await client.call_tool(tool, {**QUERY, "min_version": vault.version + 1})
        negative = await client.call_tool(tool, {**QUERY, "min_version": -1})
        found = await client.call_tool(tool, {**QUERY, "min_version": vault.version})
    assert rejected.is_error
    assert f"must be at most {vault.version}" in str(rejected.content)
    assert negative.is_error
    assert "min_version" in str(negative.content)
    assert "vault.md" in str(found.content)
