"""Unmodified clients at uvicorn's door and at our Lambda runtime's: the same answers, errors and ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI

from functions.authorizer.handler import handler as authorize
from tests.clients.conftest import NodeScript, RunNode
from tests.clients.doors import SETTINGS, Door, ServerKind, open_door
from vectorforge.local.lambda_service.front_doors import RestApi
from vectorforge.local.lambda_service.function_process import FunctionProcess
from vectorforge.local.lambda_service.proxy_events import ProxyRequest
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.event_stream import ReceivedEvent, check_order, read_events
from vectorforge.testing.fake_vendor import Reply
from vectorforge.testing.live_query_function import QuerySurroundings, query_surroundings
from vectorforge.testing.query_events import query_function

QUESTION = "How long does a refund take?"
ASKED: Any = [{"role": "user", "content": QUESTION}]
MODEL = "vectorforge/default"
TEXTS = ("It takes five", " days [Sou", "rce 1].")
ANSWER = "It takes five days [1]."
BROKEN = Reply(texts=("It takes", " five"), ending="cut")
GATEWAY_KEY, GATEWAY_KEY_ID = "ExampleKeyOfApiGateway0123456789", "k3yidacm3e"


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture(params=["uvicorn", "lambda"])
async def door(
    request: pytest.FixtureRequest, surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Door]:
    async with open_door(cast("ServerKind", request.param), surroundings, monkeypatch) as opened:
        yield opened


@pytest.fixture
async def client(door: Door) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{door.url}/v1", api_key=door.key, max_retries=0) as opened:
        yield opened


async def check_end(door: Door, query_id: str, text: str) -> None:
    """What becomes of an answer whose reader has gone, and that others are still answered.

    uvicorn tells the application, which closes the vendor's stream within a second. Lambda does not: the
    function goes on to the answer's end, as AWS documents it.
    """
    vendor = door.surroundings.vendor
    if door.kind == "uvicorn":
        async with asyncio.timeout(1):
            await vendor.requests[-1].client_closed.wait()
    outcome = "aborted" if door.kind == "uvicorn" else "answered"
    async with door.surroundings.client(door.url) as native, asyncio.timeout(20):
        while True:
            response = await native.get(f"/v1/queries/{query_id}")
            if response.status_code == 200 and response.json()["outcome"] != "started":
                break
            await asyncio.sleep(0.02)
        row = response.json()
        assert row["outcome"] == outcome
        assert row["generated_response"].startswith(text)
        again = await native.post("/v1/rag/query", json={"query": QUESTION})
        assert again.json()["response"] == "The answer is 42 [Source 1]."


def held_back(door: Door) -> Reply:
    """An answer that does not end by itself; on Lambda it does when the client has had time to go."""
    gone = asyncio.Event()

    async def gate(number: int) -> None:
        if number == 1:
            if door.kind == "lambda":
                asyncio.get_running_loop().call_later(1, gone.set)
            await gone.wait()

    return Reply(texts=("It takes five", " days [Source 1]."), gate=gate)


# -- a plain reader of server-sent events


async def asked_natively(door: Door, **body: Any) -> tuple[int, list[ReceivedEvent]]:
    async with (
        door.surroundings.client(door.url) as native,
        native.stream("POST", "/v1/rag/query", json={"query": QUESTION, "stream": True, **body}) as response,
    ):
        if response.status_code != 200:
            return response.status_code, [ReceivedEvent("problem", json.loads(await response.aread()))]
        assert response.headers["content-type"].startswith("text/event-stream")
        return 200, [event async for event in read_events(response.aiter_lines())]


async def test_a_plain_reader(door: Door) -> None:
    vendor = door.surroundings.vendor
    vendor.script(Reply(texts=TEXTS))
    _, events = await asked_natively(door)
    check_order(events)
    found = {event.name: event.data for event in events}
    assert found["done"]["answer"] == "".join(TEXTS)
    assert found["sources"]["sources"][0]["document_source"] == "refunds.txt"
    assert (found["citation"]["source_number"], found["citation"]["verdict"]) == (1, "supported")
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (11, 7)

    status, [problem] = await asked_natively(door, collection="nowhere")
    assert (status, problem.data["code"]) == (404, "not_found")
    vendor.script(BROKEN)
    _, events = await asked_natively(door)
    check_order(events)
    assert [event.name for event in events][-3:] == ["token", "token", "error"]
    assert events[-1].data["code"] == "llm_stream_broken"


async def test_a_plain_reader_that_goes_away(door: Door) -> None:
    door.surroundings.vendor.script(held_back(door))
    async with (
        door.surroundings.client(door.url) as native,
        native.stream("POST", "/v1/rag/query", json={"query": QUESTION, "stream": True}) as response,
    ):
        async for event in read_events(response.aiter_lines()):
            if event.name == "meta":
                query_id = event.data["request_id"]
            if event.name == "token":
                break
    await check_end(door, query_id, "It takes five")


# -- the openai package


async def test_the_openai_client_chats(door: Door, client: AsyncOpenAI) -> None:
    vendor = door.surroundings.vendor
    vendor.script(Reply(texts=TEXTS), Reply(texts=TEXTS))
    whole = await client.chat.completions.create(model=MODEL, messages=ASKED)
    message = whole.choices[0].message
    assert message.content == ANSWER
    assert message.annotations
    place = message.annotations[0].url_citation
    assert (ANSWER[place.start_index : place.end_index], place.title) == ("[1]", "refunds.txt")
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (11, 7)

    async with client.chat.completions.stream(
        model=MODEL, messages=ASKED, stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == ANSWER
    assert final.choices[0].message.annotations == message.annotations
    assert final.usage == whole.usage


async def test_the_openai_client_is_told_of_errors(door: Door, client: AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="vectorforge/none", messages=ASKED, stream=stream)
        assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    door.surroundings.vendor.script(BROKEN)
    said: list[str | None] = []
    answer = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)

    async def read() -> None:
        async for chunk in answer:
            said.append(chunk.choices[0].delta.content)  # noqa: PERF401 - those before the error are wanted

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert "".join(text or "" for text in said) == "It takes five"
    assert broken.value.code == "llm_stream_broken"


async def test_the_openai_client_cancels(door: Door, client: AsyncOpenAI) -> None:
    door.surroundings.vendor.script(held_back(door))
    stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await check_end(door, chunk.id.removeprefix("chatcmpl-"), "It takes five")


class KeyedRestApi(RestApi):
    """A REST API whose key comes from ``functions/authorizer``, and is checked as by a usage plan."""

    def event(self, request: ProxyRequest) -> dict[str, Any]:
        """With the id of the key, where API Gateway has found one."""
        event = super().event(request)
        answer = authorize({"methodArn": "arn:aws:execute-api:...", "headers": event["headers"]}, None)
        if answer.get("usageIdentifierKey") == GATEWAY_KEY:
            event["requestContext"]["identity"]["apiKeyId"] = GATEWAY_KEY_ID
        return event


async def test_a_key_of_api_gateway_is_enough_for_the_openai_client(surroundings: QuerySurroundings) -> None:
    keys = {"VECTORFORGE_API_KEYS": "{}"}
    keys["VECTORFORGE_API_GATEWAY_KEYS"] = json.dumps({GATEWAY_KEY_ID: surroundings.tenant})
    function = query_function(surroundings, "stream", variables={**SETTINGS, **keys})
    in_x_api_key: Any = {"api_key": "-", "default_headers": {"x-api-key": GATEWAY_KEY}}
    async with FunctionProcess(function) as process, KeyedRestApi(process) as entrance:
        for options in ({"api_key": GATEWAY_KEY}, in_x_api_key):
            async with AsyncOpenAI(base_url=f"{entrance.url}/v1", max_retries=0, **options) as client:
                completion = await client.chat.completions.create(model=MODEL, messages=ASKED)
                assert completion.choices[0].message.content == "The answer is 42 [1]."
        async with AsyncOpenAI(base_url=f"{entrance.url}/v1", api_key="wrong", max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(model=MODEL, messages=ASKED)


# -- the AI SDK


async def test_the_ai_sdk_chats(door: Door, run_node: RunNode) -> None:
    vendor = door.surroundings.vendor
    vendor.script(Reply(texts=TEXTS), BROKEN)
    said = await run_node("ui_stream.mjs", {**door.options, "text": QUESTION})
    assert said["errors"] == []
    message = said["message"]
    [source] = [part for part in message["parts"] if part["type"] == "source-document"]
    [text] = [part for part in message["parts"] if part["type"] == "text"]
    assert (text["text"], source["filename"]) == (ANSWER, "refunds.txt")
    [citation] = text["citations"]
    assert citation["source"]["id"] == source["sourceId"]
    usage = message["metadata"]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (11, 7)

    broken = await run_node("ui_stream.mjs", {**door.options, "text": QUESTION})
    assert broken["errors"] == ["The answer of provider openai broke off before its end"]
    assert [part["text"] for part in broken["message"]["parts"] if part["type"] == "text"] == [
        "It takes five"
    ]

    nowhere = {**door.options, "text": QUESTION, "body": {"collection": "nowhere"}}
    refused = (await run_node("ui_stream.mjs", nowhere))["failed"]
    assert (refused["name"], refused["status"]) == ("AI_APICallError", 404)


async def test_the_ai_sdk_aborts(door: Door, start_node: Callable[..., Awaitable[NodeScript]]) -> None:
    door.surroundings.vendor.script(held_back(door))
    script = await start_node("ui_stream.mjs", {**door.options, "text": QUESTION, "abortAtText": True})
    async with asyncio.timeout(60):
        query_id = (await script.read())["aborting"]
        assert (await script.read())["readingEndedWith"] == "AbortError"
        await script.end()
    await check_end(door, query_id, "It takes five")
