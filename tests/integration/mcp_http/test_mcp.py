"""``/mcp`` as the official client sees it: tools, results that match their schemas, errors, tenants."""

import asyncio
from typing import Any

import jsonschema
import pytest
from mcp import MCPError
from pydantic import SecretStr

from tests.integration.mcp_http.conftest import QUESTION, call, checked_call, text_of
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.llm.providers.openai import OpenAIProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEARCHES = ["semantic_search", "semantic_search_with_context", "ask"]
NAMES = [*SEARCHES, "list_collections", "list_documents", "read_document", "find_in_document"]


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
        assert await checked_call(client, "semantic_search", **QUESTION, top_k=2, mmr_lambda=1) == found
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
        for name in SEARCHES:
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
        ({"tenant_id": "other"}, "tenant_id: This field is unknown."),
        ({"topk": 3}, "topk: This field is unknown. Did you mean `top_k`?"),
    ]
    async with mcp_client(api.url, tenant, mode=mode) as client:
        for name in SEARCHES:
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
            for name in SEARCHES * 2:
                found = await checked_call(client, name, query="What is the secret?")
                sources = {hit["source"] for hit in found.get("passages") or found["sources"]}
                assert sources == {f"of-{tenant}.md"}

    openai.unscripted = Reply(texts=("It is so ", "[Source 1]."), pause_s=0.05)
    await asyncio.gather(*map(fill, others))
    async with asyncio.timeout(60):
        await asyncio.gather(*map(ask, others * 2))
