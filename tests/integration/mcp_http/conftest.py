"""A server with guides, and calls of its MCP tools."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent
from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}
QUESTION = {"query": "The water in the kettle boils at which degrees?"}


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
    """Return the result's object after checking it against the server's schema."""
    schema = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}[name]
    result = await call(client, name, **arguments)
    assert not result.is_error, text_of(result)
    assert schema is not None
    assert schema["type"] == "object"
    jsonschema.validate(result.structured_content, schema, jsonschema.Draft202012Validator)
    found: dict[str, Any] = result.structured_content
    return found
