"""Statuses of stored responses: a retrieved one has the status with which the response itself ended."""

import asyncio
from typing import Any
from uuid import UUID

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.openai_responses.conftest import ASKED, FRESH, MODEL, events_of, logged, valid
from tests.integration.openai_responses.test_response_output import CALLS, STREAMED, WEATHER, respond
from tests.support.http.live_api import LiveApi
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FinishWord, Reply
from vectorforge.api.openai.ids import parse_response_id

pytestmark = pytest.mark.asyncio(loop_scope="module")


@STREAMED
@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("refusal", "content_filter")]
)
async def test_incomplete_response_is_retrieved_as_incomplete(
    client: AsyncOpenAI, vendor: FakeOpenAI, finish: FinishWord, reason: str, stream: bool
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1]",), finish=finish))
    made, _ = await respond(client, stream=stream, store=True)
    found: Any = valid(await client.responses.retrieve(made.id))
    assert (found.status, found.incomplete_details.reason) == ("incomplete", reason)
    assert (found.status, found.incomplete_details) == (made.status, made.incomplete_details)
    assert found.to_dict()["completed_at"] is None
    assert [(item.id, item.status) for item in found.output] == [(i.id, i.status) for i in made.output]  # type: ignore[union-attr]
    assert found.output_text == made.output_text == "Two hours [1]"


async def test_failed_stream_is_retrieved_as_failed(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1]. ", "And"), ending="cut"))
    stream = await client.responses.create(model=MODEL, input=ASKED, store=True, stream=True)
    begun: Any = (await anext(aiter(stream))).response  # type: ignore[union-attr]
    with pytest.raises(openai.APIError):
        [event async for event in stream]
    found: Any = valid(await client.responses.retrieve(begun.id))
    assert (found.status, found.error.code) == ("failed", "server_error")
    assert "in the stage generate" in found.error.message
    assert (found.output[1].status, found.output_text) == ("incomplete", "Two hours [1]. And")
    async with api.client(tenant) as native:
        conversation = UUID(found.conversation.id.removeprefix("conv_"))
        await native.delete(f"/v1/conversations/{conversation}")
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(begun.id)


async def test_canceled_stream_leaves_no_conversation(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1]. ", "And"), ending="stall"))
    stream: Any = await client.responses.create(model=MODEL, input=ASKED, store=True, stream=True)
    begun = (await anext(aiter(stream))).response
    query_id, conversation_id = parse_response_id(begun.id)
    async with api.client(tenant) as native, asyncio.timeout(20):
        (conversation,) = (await native.get("/v1/conversations")).json()["conversations"]
        assert conversation["id"] == str(conversation_id)
        await stream.close()
        assert (await logged(native, str(query_id)))["outcome"] == "aborted"
        while True:  # it is deleted concurrently with the end of the log
            if not (await native.get("/v1/conversations")).json()["conversations"]:
                break
            await asyncio.sleep(0.02)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(begun.id)


@STREAMED
async def test_response_with_calls_is_retrieved_with_calls(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(Reply(texts=(), tool_calls=CALLS, finish="tool"))
    made, _ = await respond(client, stream=stream, store=True, tools=[WEATHER])
    found = valid(await client.responses.retrieve(made.id))
    calls = [item for item in found.output if item.type == "function_call"]
    assert calls == [item for item in made.output if item.type == "function_call"]
    assert len(calls) == 2
    assert found.output_text == ""
    with pytest.raises(openai.BadRequestError, match="send the conversation") as refused:
        await client.responses.create(model=MODEL, input="And?", previous_response_id=made.id)
    assert refused.value.param == "previous_response_id"


async def test_conversation_with_calls_continues_without_blank_answer(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(Reply(texts=(), tool_calls=CALLS[:1], finish="tool"))
    made = await client.responses.create(model=MODEL, input=ASKED, store=True, tools=[WEATHER])
    assert made.conversation is not None
    await client.responses.create(model=MODEL, input="And then?", conversation=made.conversation.id)
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == ["And then?"]


async def test_stored_response_uses_earlier_input_and_is_not_continued_without_it(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    turns: Any = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": "Two hours."},
        {"role": "user", "content": "And then?"},
    ]
    made = (await events_of(client, turns, store=True, extra_headers=FRESH))[-1].response
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == [ASKED, "Two hours.", "And then?"]
    assert (await client.responses.retrieve(made.id)).output_text == made.output_text
    with pytest.raises(openai.BadRequestError, match="earlier messages"):
        await client.responses.create(model=MODEL, input="Why?", previous_response_id=made.id)
