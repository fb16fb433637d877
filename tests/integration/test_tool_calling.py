"""A model calls the tools of a profile: each vendor's SDK, both tools' schemas, real searches."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.http.live_api import live_api, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_bedrock import FakeBedrock
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor, Reply
from tests.support.vendors.tool_round_trips import (
    RunTool,
    anthropic_round_trip,
    bedrock_round_trip,
    openai_round_trip,
)
from tests.support.vendors.vendor_behaviour import ToolCall
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.tools.schemas import anthropic_tools, bedrock_tools, openai_tools
from vectorforge.tools.semantic_search_tools import ProfileToolbox

TENANT = "tenant-tool-calling"
QUESTION = "Has she led a team?"
CALLS = (
    ToolCall("semantic_search", {"query": "led a team of engineers", "top_k": 3}),
    ToolCall("semantic_search_with_context", {"query": "led a team of engineers", "max_length": 500}),
)


@dataclass(frozen=True)
class Vendor:
    """A vendor's fake, and its SDK over the conversation."""

    fake: Callable[[], FakeVendor]
    connect: Callable[[FakeVendor], Any]
    converse: Callable[..., Awaitable[str]]
    tools: Callable[[], list[dict[str, Any]]]


def _boto3_client(server: FakeVendor) -> Any:
    session = boto3.session.Session("AKIATEST", server.api_key, region_name="eu-central-1")
    return session.client("bedrock-runtime", endpoint_url=server.base_url)


VENDORS = {
    "openai": Vendor(
        FakeOpenAI,
        lambda server: AsyncOpenAI(api_key=server.api_key, base_url=server.base_url, max_retries=0),
        openai_round_trip,
        openai_tools,
    ),
    "anthropic": Vendor(
        FakeAnthropic,
        lambda server: AsyncAnthropic(auth_token=server.api_key, base_url=server.base_url, max_retries=0),
        anthropic_round_trip,
        anthropic_tools,
    ),
    "bedrock": Vendor(FakeBedrock, _boto3_client, bedrock_round_trip, bedrock_tools),
}


@asynccontextmanager
async def conversation(
    vendor: Vendor, tools: list[dict[str, Any]] | None = None
) -> AsyncIterator[tuple[FakeVendor, Callable[..., Awaitable[str]]]]:
    """Start the vendor's fake, with ``ask(run, stream=...)``."""
    async with vendor.fake() as server:
        client = vendor.connect(server)
        yield server, partial(vendor.converse, client, tools or vendor.tools(), QUESTION)
        if (closed := client.close()) is not None:
            await closed


@pytest.fixture
async def run_tool(postgres_server: EmbeddedPostgres) -> AsyncIterator[RunTool]:
    """Return the tools of one profile, over a real database."""
    server = {"auth": "local", "local_tenant": TENANT}
    async with (
        live_api(settings_for(postgres_server.app_url, server=server)) as api,
        api.client(None) as client,
    ):
        for profile, text in ((1, "She led a team of engineers in Oslo."), (2, "Led a team of engineers.")):
            body = {"text": text, "source_type": "cv", "source_id": "7"}
            response = await client.post(f"/v1/profiles/{profile}/documents", json=body)
            response.raise_for_status()
        pipeline = await api.application.for_tenant(TENANT).profiles.retrieval()
        yield ProfileToolbox(pipeline, 1).call


# C-021 C-022 C17
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_both_tools_are_called_and_results_returned(
    run_tool: RunTool, vendor: str, stream: bool
) -> None:
    results: dict[str, str] = {}

    async def run(name: str, arguments: Any) -> str:
        results[name] = await run_tool(name, arguments)
        return results[name]

    async with conversation(VENDORS[vendor]) as (server, ask):
        server.script(Reply(texts=(), tool_calls=CALLS, finish="tool"), Reply(texts=("Yes, in Oslo.",)))
        assert await ask(run, stream=stream) == "Yes, in Oslo."
    assert results.keys() == {"semantic_search", "semantic_search_with_context"}
    assert all("Oslo" in result for result in results.values())
    first, second = server.bodies
    assert str(first).count("semantic_search_with_context") >= 1
    for result in results.values():  # the second request has the tools' results
        assert any(result == text for text in texts_of(second))


@pytest.mark.parametrize("vendor", VENDORS)
async def test_custom_tool_schema_is_accepted(vendor: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    described: dict[str, dict[str, Any]] = {
        "openai": {"type": "function", "function": {"name": "weather", "parameters": schema}},
        "anthropic": {"name": "weather", "input_schema": schema},
        "bedrock": {"toolSpec": {"name": "weather", "inputSchema": {"json": schema}}},
    }
    sent_calls = []

    async def run(name: str, arguments: Any) -> str:
        sent_calls.append(name)
        return "Rain"

    async with conversation(VENDORS[vendor], [described[vendor]]) as (server, ask):
        calls = (ToolCall("weather", {"city": "Oslo"}),)
        server.script(Reply(texts=(), tool_calls=calls, finish="tool"), Reply(texts=("It rains.",)))
        assert await ask(run, stream=True) == "It rains."
    assert sent_calls == ["weather"]


@pytest.mark.parametrize("vendor", VENDORS)
async def test_tool_in_other_provider_format_is_rejected(vendor: str) -> None:
    async def run(name: str, arguments: Any) -> str:
        raise AssertionError(name)

    other = {"openai": "bedrock", "anthropic": "bedrock", "bedrock": "openai"}[vendor]
    async with conversation(VENDORS[vendor], VENDORS[other].tools()) as (server, ask):
        with pytest.raises(Exception, match=r"(?i)invalid|validation"):
            await ask(run, stream=False)
        assert all("weather" not in str(body) for body in server.bodies)


def texts_of(value: Any) -> list[str]:
    """Yield every text anywhere in a JSON value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in texts_of(part)]
