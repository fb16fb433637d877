"""Unmodified clients of uvicorn and of the Lambda runtime: the same answers, errors and ends."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio
from mcp import Client
from openai import AsyncOpenAI

from tests.clients.conftest import RunNode, StartNode
from tests.clients.servers import QUESTION, ServedApi, check_end, held_back
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONVERSATION: Any = [{"role": "user", "content": QUESTION}]
MODEL = "vectorforge/default"
TEXTS = ("It takes five", " days [Sou", "rce 1].")
ANSWER = "It takes five days [1]."
BROKEN = Reply(texts=("It takes", " five"), ending="cut")


@pytest_asyncio.fixture(loop_scope="module")
async def client(served_api: ServedApi) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{served_api.url}/v1", api_key=served_api.key, max_retries=0) as opened:
        yield opened


# -- a plain reader of server-sent events


async def native_query(served_api: ServedApi, **body: Any) -> tuple[int, list[ReceivedEvent]]:
    async with (
        served_api.surroundings.client(served_api.url) as native,
        native.stream("POST", "/v1/rag/query", json={"query": QUESTION, "stream": True, **body}) as response,
    ):
        if response.status_code != 200:
            return response.status_code, [ReceivedEvent("problem", json.loads(await response.aread()))]
        assert response.headers["content-type"].startswith("text/event-stream")
        return 200, [event async for event in read_events(response.aiter_lines())]


async def test_sse_reader_receives_answer_and_errors(served_api: ServedApi) -> None:
    vendor = served_api.surroundings.vendor
    vendor.script(Reply(texts=TEXTS))
    _, events = await native_query(served_api)
    check_order(events)
    found = {event.name: event.data for event in events}
    assert found["done"]["answer"] == "".join(TEXTS)
    assert found["sources"]["sources"][0]["document_source"] == "refunds.txt"
    assert (found["citation"]["source_number"], found["citation"]["verdict"]) == (1, "supported")
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (11, 7)

    status, [problem] = await native_query(served_api, collection="nowhere")
    assert (status, problem.data["code"]) == (404, "not_found")
    vendor.script(BROKEN)
    _, events = await native_query(served_api)
    check_order(events)
    assert "".join(event.data["text"] for event in events if event.name == "token") == "It takes five"
    assert events[-1].name == "error"
    assert events[-1].data["code"] == "llm_stream_broken"


async def test_sse_reader_disconnect_aborts_query_and_logs_partial_answer(served_api: ServedApi) -> None:
    served_api.surroundings.vendor.script(held_back(served_api))
    async with (
        served_api.surroundings.client(served_api.url) as native,
        native.stream("POST", "/v1/rag/query", json={"query": QUESTION, "stream": True}) as response,
    ):
        async for event in read_events(response.aiter_lines()):
            if event.name == "meta":
                query_id = event.data["request_id"]
            if event.name == "token":
                break
    await check_end(served_api, query_id, "It takes five")


# -- the openai package


async def test_openai_chat_completions_return_answer_with_annotations(
    served_api: ServedApi, client: AsyncOpenAI
) -> None:
    vendor = served_api.surroundings.vendor
    vendor.script(Reply(texts=TEXTS), Reply(texts=TEXTS))
    whole = await client.chat.completions.create(model=MODEL, messages=CONVERSATION)
    message = whole.choices[0].message
    assert message.content == ANSWER
    assert message.annotations
    place = message.annotations[0].url_citation
    assert (ANSWER[place.start_index : place.end_index], place.title) == ("[1]", "refunds.txt")
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (11, 7)

    async with client.chat.completions.stream(
        model=MODEL, messages=CONVERSATION, stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == ANSWER
    assert final.choices[0].message.annotations == message.annotations
    assert final.usage == whole.usage


async def test_openai_chat_errors_raise_typed_exceptions(served_api: ServedApi, client: AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(
                model="vectorforge/none", messages=CONVERSATION, stream=stream
            )
        assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    served_api.surroundings.vendor.script(BROKEN)
    answers: list[str | None] = []
    answer = await client.chat.completions.create(model=MODEL, messages=CONVERSATION, stream=True)

    async def read() -> None:
        async for chunk in answer:
            answers.append(chunk.choices[0].delta.content)  # noqa: PERF401 - those before the error are wanted

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert "".join(text or "" for text in answers) == "It takes five"
    assert broken.value.code == "llm_stream_broken"


async def test_openai_chat_stream_close_aborts_the_query(served_api: ServedApi, client: AsyncOpenAI) -> None:
    served_api.surroundings.vendor.script(held_back(served_api))
    stream = await client.chat.completions.create(model=MODEL, messages=CONVERSATION, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await check_end(served_api, chunk.id.removeprefix("chatcmpl-"), "It takes five")


async def test_openai_responses_return_answer_citations_and_errors(
    served_api: ServedApi, client: AsyncOpenAI
) -> None:
    vendor = served_api.surroundings.vendor
    vendor.script(Reply(texts=TEXTS), Reply(texts=TEXTS), BROKEN)
    whole = await client.responses.create(model=MODEL, input=QUESTION)
    assert whole.output_text == ANSWER
    message: Any = whole.output[-1]
    [citation] = message.content[0].annotations
    assert (citation.type, citation.filename) == ("file_citation", "refunds.txt")
    assert ANSWER[citation.index :].startswith("[1]")
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (11, 7)

    async with client.responses.stream(model=MODEL, input=QUESTION) as stream:
        types = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    assert (final.output_text, final.usage) == (ANSWER, whole.usage)

    answers = ""
    events = await client.responses.create(model=MODEL, input=QUESTION, stream=True)

    async def read() -> None:
        nonlocal answers
        async for event in events:
            if event.type == "response.output_text.delta":
                answers += event.delta

    with pytest.raises(openai.APIError, match="broke off before its end"):
        await read()
    assert answers == "It takes five"
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="vectorforge/none", input=QUESTION, stream=True)


async def test_openai_response_stream_close_aborts_the_query(
    served_api: ServedApi, client: AsyncOpenAI
) -> None:
    served_api.surroundings.vendor.script(held_back(served_api))
    stream = await client.responses.create(model=MODEL, input=QUESTION, stream=True)
    query_id = ""
    async for event in stream:
        if event.type == "response.created":
            query_id = str(uuid.UUID(event.response.id.removeprefix("resp_")))
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    await check_end(served_api, query_id, "It takes five")


# -- the official MCP client


@pytest.mark.parametrize("mode", MODES)
async def test_mcp_client_calls_tools_and_receives_errors(served_api: ServedApi, mode: str) -> None:
    vendor, tenant = served_api.surroundings.vendor, served_api.surroundings.tenant
    vendor.script(Reply(texts=TEXTS), Failure(500))
    async with mcp_client(served_api.url, tenant, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[:3] == ["semantic_search", "semantic_search_with_context", "ask"]
        found = await called(client, "semantic_search", query=QUESTION)
        assert found.structured_content["passages"][0]["source"] == "refunds.txt"
        answer = (await called(client, "ask", query=QUESTION)).structured_content
        assert answer["answer"] == "".join(TEXTS)
        assert (answer["citations"][0]["source_number"], answer["usage"]["total_tokens"]) == (1, 18)
        unknown = await called(client, "ask", query=QUESTION, collection="nowhere")
        assert unknown.is_error
        assert "Call again with one of these: default." in str(unknown.content)
        failed = await called(client, "ask", query=QUESTION)
        assert failed.is_error
    async with httpx2.AsyncClient() as http:
        without_key = await http.post(
            f"{served_api.url}/mcp", json={"jsonrpc": "2.0", "method": "ping", "id": 1}
        )
    assert without_key.status_code == 401


async def test_mcp_client_cancel_leaves_server_usable(served_api: ServedApi) -> None:
    """The server still works; a call has one answer, so no part of it is stored."""
    vendor = served_api.surroundings.vendor
    vendor.script(Reply(texts=TEXTS, pause_s=0.3))
    async with mcp_client(served_api.url, served_api.surroundings.tenant) as client:
        given_up = asyncio.create_task(called(client, "ask", query=QUESTION))
        async with asyncio.timeout(20):
            while not vendor.requests:  # noqa: ASYNC110 - the vendor has no event for it
                await asyncio.sleep(0.02)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
    await asyncio.sleep(1 if served_api.kind == "lambda" else 0)  # one query at a time, and is not notified
    async with mcp_client(served_api.url, served_api.surroundings.tenant) as client:
        answer = await called(client, "ask", query=QUESTION)
    assert answer.structured_content["answer"] == "The answer is 42 [Source 1]."


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool, and return its result."""
    return await client.call_tool(tool, arguments)


# -- the AI SDK


async def test_ai_sdk_chat_receives_answer_sources_and_errors(
    served_api: ServedApi, run_node: RunNode
) -> None:
    vendor = served_api.surroundings.vendor
    vendor.script(Reply(texts=TEXTS), BROKEN)
    answers = await run_node("ui_stream.mjs", {**served_api.options, "text": QUESTION})
    assert answers["errors"] == []
    message = answers["message"]
    [source] = [part for part in message["parts"] if part["type"] == "source-document"]
    [text] = [part for part in message["parts"] if part["type"] == "text"]
    assert (text["text"], source["filename"]) == (ANSWER, "refunds.txt")
    [citation] = text["citations"]
    assert citation["source"]["id"] == source["sourceId"]
    usage = message["metadata"]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (11, 7)

    broken = await run_node("ui_stream.mjs", {**served_api.options, "text": QUESTION})
    assert broken["errors"] == ["The answer of provider openai broke off before its end"]
    assert [part["text"] for part in broken["message"]["parts"] if part["type"] == "text"] == [
        "It takes five"
    ]

    nowhere = {**served_api.options, "text": QUESTION, "body": {"collection": "nowhere"}}
    refused = (await run_node("ui_stream.mjs", nowhere))["failed"]
    assert (refused["name"], refused["status"]) == ("AI_APICallError", 404)


async def test_ai_sdk_abort_aborts_the_query(served_api: ServedApi, start_node: StartNode) -> None:
    served_api.surroundings.vendor.script(held_back(served_api))
    script = start_node("ui_stream.mjs", {**served_api.options, "text": QUESTION, "abortAtText": True})
    async with asyncio.timeout(60):
        query_id = (await script.read())["aborting"]
        assert (await script.read())["readingEndedWith"] == "AbortError"
        await script.end()
    await check_end(served_api, query_id, "It takes five")
