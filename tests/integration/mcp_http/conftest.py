"""A server with guides, and calls of its MCP tools."""

from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
import pytest_asyncio
from mcp import Client
from mcp_types import CallToolResult, TextContent

from tests.support.http.live_api import LiveApi, add_documents, new_collection
from tests.support.http.shared_server import SharedServer, shared_server
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}
QUESTION = {"query": "The water in the kettle boils at which degrees?"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(postgres_server: EmbeddedPostgres) -> AsyncIterator[SharedServer]:
    async with shared_server(postgres_server.app_url) as started:
        yield started


@pytest.fixture
def tenant(server: SharedServer) -> str:
    return next(server.tenants)


@pytest.fixture
def others(server: SharedServer) -> list[str]:
    return [next(server.tenants) for _ in range(3)]


@pytest.fixture
def openai(server: SharedServer) -> FakeOpenAI:
    server.vendor.reset()
    server.vendor.unscripted = Reply(texts=("It boils at 100 degrees ", "[Source 1]."), usage=(11, 7))
    return server.vendor


@pytest_asyncio.fixture(loop_scope="module")
async def api(server: SharedServer, tenant: str, openai: FakeOpenAI) -> LiveApi:
    """Return the server after ingesting the tenant's guides."""
    async with server.api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
    return server.api


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
