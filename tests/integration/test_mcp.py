"""``/mcp`` as the official client sees it: tools, results that fit their schemas, errors, tenants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import jsonschema
import pytest
from mcp import Client, MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}
NAMES = ["semantic_search", "semantic_search_with_context", "ask"]
QUESTION = {"query": "The water in the kettle boils at which degrees?"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
def others(make_tenant: Callable[[], str]) -> list[str]:
    return [make_tenant() for _ in range(3)]


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        server.unscripted = Reply(texts=("It boils at 100 degrees ", "[Source 1]."), usage=(11, 7))
        yield server


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, tenant: str, others: list[str], openai: FakeOpenAI
) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    config = settings_for(postgres_server.app_url, [tenant, *others])
    async with live_api(config, provider) as running, running.client(tenant) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        yield running


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def call(client: Client, name: str, **arguments: Any) -> CallToolResult:
    result = await client.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    return result


async def checked_call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The result's object, held to the schema that the server advertises."""
    schema = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}[name]
    result = await call(client, name, **arguments)
    assert not result.is_error, text_of(result)
    assert schema is not None
    assert schema["type"] == "object"
    jsonschema.validate(result.structured_content, schema, jsonschema.Draft202012Validator)
    found: dict[str, Any] = result.structured_content
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_official_client_lists_the_tools(api: LiveApi, tenant: str, mode: str) -> None:
    async with mcp_client(api.url, tenant, mode=mode) as client:
        assert client.protocol_version == MODES[mode]
        assert "semantic_search" in (client.instructions or "")
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert not tool.annotations.destructive_hint
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["additionalProperties"] is False
        assert "tenant" not in str(tool.input_schema)


@pytest.mark.parametrize("mode", MODES)
async def test_tools_return_object_matching_schema_and_text(api: LiveApi, tenant: str, mode: str) -> None:
    async with mcp_client(api.url, tenant, mode=mode) as client:
        found = await checked_call(client, "semantic_search", **QUESTION, top_k=2)
        assert found["passages"][0]["source"] == "kettle.md"
        assert len(found["passages"]) == 2
        assert found["passages"][0]["metadata"]["kind"] == "kettle"

        context = await checked_call(client, "semantic_search_with_context", **QUESTION, max_length=200)
        assert context["context"].startswith("[Source 1] kettle.md › Kettle\n")
        assert len(context["context"]) <= 200
        assert (len(context["sources"]), context["left_out"]) == (1, 2)

        answer = await checked_call(client, "ask", **QUESTION)
        assert answer["answer"] == "It boils at 100 degrees [Source 1]."
        assert answer["sources"][0]["source"] == "kettle.md"
        (citation,) = answer["citations"]
        assert (citation["source_number"], citation["verdict"]) == (1, "supported")
        assert answer["answer"][citation["start"] : citation["end"]] == "[Source 1]"
        assert answer["usage"] == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        assert (answer["degraded"], answer["outcome"]) == ([], "answered")
        text = text_of(await call(client, "ask", **QUESTION))
        assert text.endswith("Sources:\n\n[Source 1] kettle.md › Kettle")


@pytest.mark.parametrize("mode", MODES)
async def test_tools_apply_filters_and_profile(api: LiveApi, tenant: str, mode: str) -> None:
    async with api.client(tenant) as http:
        for number in (1, 2):
            body = {"profile_summary": f"Engineer number {number}."}
            (await http.post(f"/v1/profiles/{number}", json=body)).raise_for_status()
    async with mcp_client(api.url, tenant, mode=mode) as client:
        for filters in ({"kind": "bike"}, '{"kind": "bike"}'):  # some hosts send objects as texts
            found = await checked_call(client, "semantic_search", **QUESTION, filters=filters)
            assert [p["source"] for p in found["passages"]] == ["bike.md"]
        answer = await checked_call(client, "ask", **QUESTION, filters={"kind": {"$in": ["bike", "bread"]}})
        assert {source["source"] for source in answer["sources"]} == {"bike.md", "bread.md"}
        for name in NAMES:
            found = await checked_call(client, name, query="Which number has the engineer?", profile_id=2)
            assert found["collection"] == "profiles"
            assert "number 2" in str(found)
            assert "number 1" not in str(found)


@pytest.mark.parametrize("mode", MODES)
async def test_tool_error_result_states_the_remedy(api: LiveApi, tenant: str, mode: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"collection": "manuals"},
            "no collection 'manuals'. Call again with one of these: default.",
        ),
        ({"query": ""}, "query: String should have at least 1 character"),
        ({"query": "x" * 10_001}, "query: String should have at most 10000 characters"),
        ({"top_k": 21}, "top_k: Input should be less than or equal to 20"),
        ({"collection": "x" * 201}, "collection: String should have at most 200 characters"),
        ({"filters": {"$nor": []}}, "$nor"),
        ({"filters": {"a": "x" * 20_000}}, "filters must be at most 16384 bytes"),
        ({"profile_id": -1}, "profile_id: Input should be greater than or equal to 0"),
        ({"tenant_id": "other"}, "tenant_id: Extra inputs are not permitted"),
    ]
    async with mcp_client(api.url, tenant, mode=mode) as client:
        for name in NAMES:
            for arguments, text in cases:
                result = await call(client, name, **{**QUESTION, **arguments})
                assert result.is_error
                assert text in text_of(result)
                assert len(text_of(result)) < 500
        result = await call(client, "semantic_search_with_context", **QUESTION, max_length=20_001)
        assert "max_length: Input should be less than or equal to 20000" in text_of(result)
        with pytest.raises(MCPError, match="available: semantic_search, semantic_search_with_context, ask"):
            await client.call_tool("delete_everything", {})


async def test_provider_error_is_returned_without_its_text(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    config = api.application.config
    strict = config.model_copy(update={"query": config.query.model_copy(update={"degraded_answers": False})})
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(strict, provider) as running, mcp_client(running.url, tenant) as client:
        openai.script(Failure(500, message="postgresql://admin:hunter2@10.0.0.1 is down"))
        result = await call(client, "ask", **QUESTION)
        assert result.is_error
        assert "hunter2" not in text_of(result)
        assert "Try again" in text_of(result)
        openai.script(Failure(429, retry_after="17"))
        assert "Try again in 17 seconds." in text_of(await call(client, "ask", **QUESTION))


@pytest.mark.parametrize("mode", MODES)
async def test_concurrent_tenants_receive_own_results_only(
    api: LiveApi, others: list[str], openai: FakeOpenAI, mode: str
) -> None:
    async def fill(tenant: str) -> None:
        async with api.client(tenant) as http:
            collection_id = await new_collection(http)
            await add_documents(http, collection_id, **{f"of-{tenant}": f"The secret of {tenant}."})

    async def ask(tenant: str) -> None:
        async with mcp_client(api.url, tenant, mode=mode) as client:
            for name in NAMES * 2:
                found = await checked_call(client, name, query="What is the secret?")
                sources = {hit["source"] for hit in found.get("passages") or found["sources"]}
                assert sources == {f"of-{tenant}.md"}

    openai.unscripted = Reply(texts=("It is so ", "[Source 1]."), pause_s=0.05)
    await asyncio.gather(*map(fill, others))
    async with asyncio.timeout(60):
        await asyncio.gather(*map(ask, others * 2))


async def aborted(api: LiveApi, tenant: str) -> dict[str, Any]:
    async with api.client(tenant) as http:
        while True:
            if rows := (await http.get("/v1/queries?outcome=aborted")).json()["queries"]:
                return dict(rows[0])
            await asyncio.sleep(0.02)


async def asked(openai: FakeOpenAI) -> asyncio.Event:
    """Set when the model's client has gone."""
    while not openai.requests:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0.01)
    return openai.requests[-1].client_closed


@pytest.mark.parametrize("mode", MODES)
async def test_client_disconnect_stops_the_model_and_is_logged(
    api: LiveApi, tenant: str, openai: FakeOpenAI, mode: str
) -> None:
    async def ask_and_wait() -> None:
        async with mcp_client(api.url, tenant, mode=mode) as client:
            await client.call_tool("ask", QUESTION)

    openai.script(Reply(pause_s=60))
    asking = asyncio.create_task(ask_and_wait())
    async with asyncio.timeout(20):
        closed = await asked(openai)
        asking.cancel()
        await closed.wait()
        assert (await aborted(api, tenant))["query_text"] == QUESTION["query"]
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_cancelled_call_stops_the_model_and_client_continues(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    openai.script(Reply(pause_s=60))
    async with mcp_client(api.url, tenant) as client, asyncio.timeout(20):
        call_of_ask = asyncio.create_task(client.call_tool("ask", QUESTION))
        closed = await asked(openai)
        call_of_ask.cancel()
        await closed.wait()
        assert (await aborted(api, tenant))["query_text"] == QUESTION["query"]
        with pytest.raises(asyncio.CancelledError):
            await call_of_ask
        assert (await checked_call(client, "ask", **QUESTION))["outcome"] == "answered"


async def test_mcp_request_without_key_returns_401_problem(api: LiveApi) -> None:
    async with api.client(None) as http:
        for path in ("/mcp", "/mcp/"):
            response = await http.post(path, json=INITIALIZE)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
            assert response.json()["code"] == "unauthenticated"
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True):
        async with mcp_client(api.url, None):
            pass


async def test_mcp_path_with_or_without_slash_is_served_without_redirect(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as http:
        for path in ("/mcp", "/mcp/"):
            response = await http.post(path, json=INITIALIZE)
            assert response.status_code == 200
            assert response.json()["result"]["protocolVersion"] == "2025-11-25"
            assert response.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in response.headers
            assert response.headers["x-request-id"]
            assert response.headers["cache-control"] == "no-store"
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await http.post(path, json=done)).status_code == 202
            for method in ("GET", "DELETE"):  # no stream of its own, no session to end
                refused = await http.request(method, path, headers={"accept": "text/event-stream"})
                assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_mcp_message_limits_return_413_or_415(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as http:
        response = await http.post("/mcp", json={**INITIALIZE, "more": "x" * 1024 * 1024})
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")
        response = await http.post("/mcp", content=b"{", headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)
        for named in ("text/plain", "", "application/ld+json"):
            response = await http.post("/mcp", content=b"{}", headers={"content-type": named})
            assert response.status_code == 415
            assert response.headers["content-type"] == "application/problem+json"


async def test_mcp_query_is_logged_under_its_result_id(api: LiveApi, tenant: str) -> None:
    async with mcp_client(api.url, tenant) as client, api.client(tenant) as http:
        answer = await checked_call(client, "ask", **QUESTION)
        row = (await http.get(f"/v1/queries/{answer['query_id']}")).json()
        assert (row["outcome"], row["query_text"]) == ("answered", QUESTION["query"])


async def test_cross_site_page_cannot_call_tools_of_local_server(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    local = {"auth": "local", "local_tenant": tenant, "allowed_hosts": ["127.0.0.1"]}
    config = settings_for(postgres_server.app_url, server=local)
    async with live_api(config) as running, running.client(None) as http:
        assert (await http.post("/mcp", json=INITIALIZE)).status_code == 200
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            response = await http.post("/mcp", json=INITIALIZE, headers=headers)
            assert (response.status_code, response.json()["code"]) == (403, "cross_site")
        rebound = await http.post("/mcp", json=INITIALIZE, headers={"host": "evil.example"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "wrong_host")
