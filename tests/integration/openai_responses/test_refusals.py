"""Rejected, ignored and aborted requests of Responses, as the openai package sees them."""

import asyncio
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import TypeAdapter

from tests.integration.openai_responses.conftest import (
    ASKED,
    EVENT,
    FRESH,
    MODEL,
    annotations_of,
    cited,
    events_of,
    logged,
    search_of,
    valid,
)
from tests.support.http.live_api import (
    LiveApi,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.api.openai.responses.events import EVENT_TYPES

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_failed_query_stores_no_conversation(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Failure(500))
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(model=MODEL, input=ASKED, store=True)
    async with api.client(tenant) as native:
        assert (await native.get("/v1/conversations")).json()["conversations"] == []


JSON_FORMAT: dict[str, Any] = {"format": {"type": "json_schema", "name": "a", "schema": {}}}
FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}, "strict": False}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text"),
    ({"text": {"format": {**JSON_FORMAT["format"], "schema": {"type": "integre"}}}}, "text"),
    ({"text": JSON_FORMAT, "model": "docrag/handbook"}, "text"),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools"),
    ({"tools": [{**FUNCTION, "name": "no name"}]}, "tools.0.name"),
    ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools.0.name"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
    ({"tools": [FUNCTION], "model": "docrag/handbook"}, "tools"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "include"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": search_of("handbook"), "tool_choice": "none"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"tools": search_of("handbook") * 2}, "tools"),
    ({"tools": [{"type": "file_search", "vector_store_ids": ["a", "b"]}]}, "tools.0"),
    ({"tools": search_of("handbook", max_num_results=51)}, "tools.0.max_num_results"),
    ({"tools": search_of("handbook", filters={"type": "like"})}, "tools.0.filters.type"),
    ({"tools": search_of("empty")}, "tools"),
    ({"metadata": {"a": "b" * 513}}, "metadata.a"),
    ({"metadata": {"a" * 65: "b"}}, "metadata." + "a" * 65),
    ({"max_output_tokens": 1_000_000}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"extra_body": {"filters": {"kind": {"$near": 1}}}}, "filters.kind.$near"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"previous_response_id": f"resp_{uuid4().hex}{uuid4().hex}"}, "previous_response_id"),
    ({"previous_response_id": "resp_1", "conversation": str(uuid4())}, "conversation"),
    ({"conversation": str(uuid4()), "store": False}, "store"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"input": []}, "input"),
    ({"input": " "}, "input.0.content"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "input.0.content.0.type",
    ),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input.0"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.id"),
]


async def test_unsupported_parameter_is_rejected_by_name(
    client: AsyncOpenAI, vendor: FakeOpenAI, subtests: pytest.Subtests
) -> None:
    for stream in (False, True):
        for options, param in REFUSED:
            with subtests.test(msg=f"{options} {stream}"):
                with pytest.raises(openai.BadRequestError) as refused:
                    await client.responses.create(
                        **{"model": MODEL, "input": ASKED, "stream": stream, **options}
                    )
                assert refused.value.param == param
    assert vendor.bodies == []


@pytest.mark.parametrize("conversation", ["conv_nope", {"id": "nope"}, {"id": 7}])
async def test_error_of_malformed_conversation_id_says_what_an_id_is(
    client: AsyncOpenAI, conversation: Any
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model=MODEL, input=ASKED, conversation=conversation)
    assert (
        "must be a conversation's id: `conv_` and 32 hexadecimal digits, or a UUID" in refused.value.message
    )


async def test_parameters_without_effect_are_ignored(client: AsyncOpenAI) -> None:
    response = valid(
        await client.responses.create(
            model=MODEL,
            input=ASKED,
            tool_choice="auto",
            parallel_tool_calls=False,
            reasoning={"effort": "low"},
            truncation="auto",
            text={"format": {"type": "text"}, "verbosity": "low"},
            include=["reasoning.encrypted_content"],
            user="ann",
            extra_body={"colour": "red"},
        )
    )
    assert (response.tools, response.tool_choice, response.parallel_tool_calls) == ([], "auto", False)


async def test_error_before_the_stream_raises_sdk_exception_class(
    client: AsyncOpenAI, api: LiveApi, vendor: FakeOpenAI
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.responses.create(model="vectorforge/none", input=ASKED, stream=stream)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(
                model="vectorforge", input=ASKED, tools=search_of("none"), stream=stream
            )
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model=MODEL, input=ASKED, conversation=str(uuid4()), stream=stream)
    vendor.script(Failure(429, retry_after="17"))
    with pytest.raises(openai.RateLimitError) as limited:
        await client.responses.create(model=MODEL, input=ASKED)
    assert (limited.value.type, limited.value.response.headers["retry-after"]) == ("rate_limit_error", "17")
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.responses.create(model=MODEL, input=ASKED)


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_error_inside_the_stream_is_raised_after_partial_text(
    client: AsyncOpenAI, vendor: FakeOpenAI, ending: Any
) -> None:
    vendor.script(Reply(texts=("Two ", "hours [Sou"), ending=ending))
    stream = await client.responses.create(model=MODEL, input=ASKED, stream=True)
    deltas: list[str] = []

    async def read() -> None:
        async for event in stream:
            if event.type == "response.output_text.delta":
                deltas.append(event.delta)  # noqa: PERF401 - those before the error are wanted

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert "".join(deltas) == "Two hours [Sou"
    assert broken.value.code is not None
    assert broken.value.code.startswith("llm_")
    assert broken.value.type == "server_error"


async def test_failed_stream_ends_with_failed_response(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1]. ", "And"), ending="cut"))
    body = {"model": MODEL, "input": ASKED, "stream": True}
    async with api.client(tenant) as native, native.stream("POST", "/v1/responses", json=body) as response:
        lines = [line async for line in response.aiter_lines()]
    assert response.headers["content-type"].startswith("text/event-stream")
    data = [TypeAdapter[Any](Any).validate_json(line[6:]) for line in lines if line.startswith("data: ")]
    names = [line[7:] for line in lines if line.startswith("event: ")]
    assert names == [event["type"] for event in data]
    for event in data:
        EVENT.validate_python(event)
    assert set(names) <= set(EVENT_TYPES)
    error, failed = data[-2:]
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert error["message"] == error["error"]["message"] == failed["response"]["error"]["message"]
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["status"] == "failed"
    message = failed["response"]["output"][1]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "Two hours [1]. And")


async def test_truncated_answer_has_incomplete_status(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    cut = Reply(texts=("Two hours [Source 1]",), finish="length")
    vendor.script(cut, cut)
    whole: Any = valid(await client.responses.create(model=MODEL, input=ASKED))
    last = (await events_of(client, extra_headers=FRESH))[-1]
    assert last.type == "response.incomplete"
    assert annotations_of(last.response) == annotations_of(whole)  # also of a label that was withheld
    for response in (whole, last.response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (response.output_text, cited(response)) == ("Two hours [1]", [("[1]", "bread.md")])
        assert response.output[1].status == "incomplete"


async def test_client_disconnect_stops_the_model_and_is_logged(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:  # fault 15, C31
    vendor.script(Reply(texts=("one ", "two "), ending="stall"))
    stream = await client.responses.create(model=MODEL, input=ASKED, stream=True)
    async for event in stream:
        if event.type == "response.created":
            query_id = event.response.id.removeprefix("resp_")
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    async with asyncio.timeout(20):
        await vendor.requests[-1].client_closed.wait()
        async with api.client(tenant) as native:
            row = await logged(native, query_id)
    assert row["outcome"] == "aborted"
    assert row["generated_response"].startswith("one ")
