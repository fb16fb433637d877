"""``/mcp`` through the query function, streamed by our runtime or buffered by Mangum."""

import asyncio
from collections.abc import AsyncIterator, Callable

import jsonschema
import pytest
from mcp_types import CallToolResult, TextContent

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Mode, query_function
from tests.support.aws.rest_api import RestApi
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

QUESTION = {"query": "How long does a refund take?"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
TOOLS = ("semantic_search", "semantic_search_with_context", "ask")
RESPONSE_MODES = pytest.mark.parametrize(
    "response_mode", [pytest.param("buffered", marks=pytest.mark.slow), "stream"]
)


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@RESPONSE_MODES
async def test_mcp_client_calls_every_tool_repeatedly(
    surroundings: QuerySurroundings, response_mode: Mode
) -> None:
    function = query_function(surroundings, response_mode)
    async with FunctionProcess(function) as process:
        doors: list[FrontDoor] = [
            FunctionUrl(process, response_mode=response_mode),
            RestApi(process, response_mode=response_mode),
        ]
        for door in doors:
            async with door:
                for mode in MODES:
                    await every_tool(door.url, surroundings.tenant, mode)
        assert process.starts == 1


async def every_tool(url: str, tenant: str, mode: str) -> None:
    async with mcp_client(url, tenant, mode=mode) as client:
        assert client.protocol_version == MODES[mode]
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name in TOOLS:
            result = await client.call_tool(name, QUESTION)
            assert isinstance(result, CallToolResult)
            jsonschema.validate(result.structured_content, tools[name].output_schema or {})
            assert "refunds.txt" in text_of(result)
        wrong = await client.call_tool("ask", {**QUESTION, "collection": "manuals"})
        assert isinstance(wrong, CallToolResult)
        assert wrong.is_error
        assert "one of these: default." in text_of(wrong)


@RESPONSE_MODES
async def test_mcp_call_ends_before_function_timeout(
    surroundings: QuerySurroundings, response_mode: Mode
) -> None:
    variables = {"VECTORFORGE_DEGRADED_ANSWERS": "false"}
    function = query_function(surroundings, response_mode, variables=variables, timeout_s=6.0)
    async with (
        FunctionProcess(function) as process,
        FunctionUrl(process, response_mode=response_mode) as door,
        surroundings.client(door.url) as http,
        asyncio.timeout(90),
    ):
        while (await http.post("/mcp", json=PING)).status_code != 200:  # so that the time is the tool's,
            pass  # not that of importing the package on a busy machine
        await late_and_in_time(door.url, surroundings)
        assert process.starts == 1


async def late_and_in_time(url: str, surroundings: QuerySurroundings) -> None:
    async with mcp_client(url, surroundings.tenant) as client:
        surroundings.vendor.script(Reply(pause_s=60))
        late = await client.call_tool("ask", QUESTION)
        assert isinstance(late, CallToolResult)
        assert late.is_error
        assert "time" in text_of(late)
        again = await client.call_tool("ask", QUESTION)
        assert not again.is_error
