"""Progress of a tool call in the official MCP clients for Python and JavaScript."""

import asyncio
from typing import Any

import pytest
from mcp_types import CallToolResult

from tests.clients.conftest import StartNode
from tests.clients.servers import QUESTION, ServedApi
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ("It takes five", " days [Source 1].")
FIRST = ["Searching", "Passages found: 1", "Tokens written: about 3"]


def held(gate: asyncio.Event) -> Reply:
    """Script an answer whose second half waits until a client has shown progress of the first."""

    async def wait(number: int) -> None:
        if number == 1:
            await gate.wait()

    return Reply(texts=TEXTS, gate=wait)


@pytest.mark.parametrize("mode", MODES)
async def test_python_client_shows_progress_while_the_answer_is_written(
    served_api: ServedApi, mode: str
) -> None:  # issue 21
    gate, seen = asyncio.Event(), list[str | None]()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        assert (progress > len(seen), total) == (True, None)
        seen.append(message)
        if len(seen) == len(FIRST):
            gate.set()

    served_api.surroundings.vendor.script(held(gate))
    tenant = served_api.surroundings.tenant
    async with mcp_client(served_api.url, tenant, mode=mode) as client, asyncio.timeout(30):
        result = await client.call_tool("ask", {"query": QUESTION}, progress_callback=show)
    assert isinstance(result, CallToolResult)
    assert seen[: len(FIRST)] == FIRST
    assert result.structured_content["answer"] == "".join(TEXTS)


async def test_javascript_client_shows_progress_while_the_answer_is_written(
    served_api: ServedApi, start_node: StartNode
) -> None:  # issue 21
    gate, seen = asyncio.Event(), list[dict[str, Any]]()
    served_api.surroundings.vendor.script(held(gate))
    script = start_node("mcp_progress.mjs", {**served_api.options, "text": QUESTION})
    async with asyncio.timeout(60):
        while "result" not in (line := await script.read()):
            seen.append(line)
            if len(seen) == len(FIRST):
                gate.set()
        await script.end()
    assert [line["message"] for line in seen[: len(FIRST)]] == FIRST
    assert line["result"]["structuredContent"]["answer"] == "".join(TEXTS)
