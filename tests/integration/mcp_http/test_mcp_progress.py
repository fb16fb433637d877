"""Progress of ``ask`` over HTTP: notifications while the answer is written, then its result."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult

from tests.integration.mcp_http.conftest import QUESTION, checked_call
from tests.integration.mcp_http.test_mcp_requests import aborted, disconnected
from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import LimitSettings
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = "application/json, text/event-stream"
HALVES = ("It boils at 100 degrees", " [Source 1].")


def message(progress: Any = "t1", name: str = "ask", **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool; without a progress token if ``progress`` is None."""
    meta = {} if progress is None else {"_meta": {"progressToken": progress}}
    params = {"name": name, "arguments": {**QUESTION, **arguments}, **meta}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def post(api: LiveApi, tenant: str, body: dict[str, Any], accept: str = BOTH) -> httpx2.Response:
    async with api.client(tenant) as http:
        return await http.post("/mcp", json=body, headers={"Accept": accept})


def messages(response: httpx2.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("mode", MODES)
async def test_client_receives_progress_before_the_answer_ends(
    api: LiveApi, tenant: str, openai: FakeOpenAI, mode: str
) -> None:  # issue 21
    gate, seen = asyncio.Event(), list[tuple[float, str | None]]()

    async def hold(number: int) -> None:
        if number == 1:
            await gate.wait()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        seen.append((progress, message))
        if message and message.startswith("Tokens"):
            gate.set()  # the answer can only end after its progress has arrived

    openai.script(Reply(texts=HALVES, gate=hold))
    async with mcp_client(api.url, tenant, mode=mode) as client, asyncio.timeout(20):
        result = await client.call_tool("ask", QUESTION, progress_callback=show)
    assert isinstance(result, CallToolResult)
    assert result.structured_content["answer"] == "".join(HALVES)
    assert [text for _, text in seen][:3] == ["Searching", "Passages found: 3", "Tokens written: about 5"]
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


async def test_call_with_token_streams_notifications_then_the_response(api: LiveApi, tenant: str) -> None:
    for token in ("t1", 5):
        response = await post(api, tenant, message(token, intents=["oil of the chain"]))
        *notes, last = messages(response)
        assert {note["method"] for note in notes} == {"notifications/progress"}
        assert [note["params"]["progressToken"] for note in notes] == [token] * len(notes)
        assert any(note["params"]["message"].startswith("Search: ") for note in notes)
        assert (last["id"], last["result"]["isError"]) == (7, False)
        steps = last["result"]["structuredContent"]["steps"]
        assert steps[-1]["queries"] == ["oil of the chain"]
        assert response.headers["x-accel-buffering"] == "no"


async def test_call_without_token_or_event_stream_gets_one_document(api: LiveApi, tenant: str) -> None:
    for body, accept in (
        (message(None), BOTH),
        (message("t1"), "application/json"),
        (message("t1", name="semantic_search"), BOTH),
    ):
        response = await post(api, tenant, body, accept)
        assert response.headers["content-type"] == "application/json"
        assert int(response.headers["content-length"]) == len(response.content)
        assert (response.json()["id"], response.json()["result"]["isError"]) == (7, False)


async def test_failing_call_with_token_ends_with_an_error_result(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    refused = await post(api, tenant, message(collection="manuals"))
    assert refused.headers["content-type"] == "application/json"  # nothing was done
    assert refused.json()["result"]["isError"]
    openai.script(Reply(texts=HALVES, ending="cut"))
    *notes, last = messages(await post(api, tenant, message()))
    assert notes
    assert last["result"]["isError"]


async def test_steps_are_part_of_the_structured_result(api: LiveApi, tenant: str) -> None:  # issue 21
    async with mcp_client(api.url, tenant) as client:
        assert "steps" not in await checked_call(client, "ask", **QUESTION)
        found = await checked_call(client, "ask", **QUESTION, intents=["How long does dough rise?"])
    assert [step["kind"] for step in found["steps"]] == ["search", "search"]
    assert found["steps"][1]["origin"] == "request"


@pytest.mark.parametrize("mode", MODES)
async def test_disconnect_after_progress_stops_the_model_and_is_logged(
    api: LiveApi, tenant: str, openai: FakeOpenAI, mode: str
) -> None:  # issue 21
    reported = asyncio.Event()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        assert (progress > 0, total) == (True, None)
        if message and message.startswith("Tokens"):
            reported.set()

    async def ask() -> None:
        async with mcp_client(api.url, tenant, mode=mode) as client:
            await client.call_tool("ask", QUESTION, progress_callback=show)

    openai.script(Reply(texts=HALVES, gate=lambda number: asyncio.sleep(60 * number)))
    call = asyncio.create_task(ask())
    async with asyncio.timeout(20):
        await reported.wait()
        closed = await disconnected(openai)
        call.cancel()
        await closed.wait()
        row = await aborted(api, tenant)
        assert (row["query_text"], row["generated_response"]) == (QUESTION["query"], HALVES[0])
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_call_with_progress_counts_as_a_stream(
    postgres_server: EmbeddedPostgres, tenant: str, api: LiveApi, openai: FakeOpenAI
) -> None:
    limits = LimitSettings(limit_concurrent_streams=1)
    provider = api.application.llm_registry.get("openai")
    openai.script(Reply(texts=HALVES, gate=lambda number: asyncio.sleep(60 * number)))
    async with live_api(settings_for(postgres_server.app_url, [tenant], limits=limits), provider) as limited:
        first = asyncio.create_task(post(limited, tenant, message()))
        await disconnected(openai)
        second = await post(limited, tenant, message())
        first.cancel()
    assert "streams at a time" in second.json()["result"]["content"][0]["text"]
