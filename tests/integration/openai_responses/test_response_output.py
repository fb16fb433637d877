"""Responses in JSON and with tools of the client, over the openai package."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.integration.openai_responses.conftest import ASKED, EVENT, FRESH, MODEL
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALLS = (ToolCall("weather", {"city": "Köln"}), ToolCall("weather", {"city": "Bonn"}))
CITED = Reply(texts=("It is hot [Sou", "rce 1]."))


class Rising(BaseModel):
    """An answer in JSON."""

    hours: int
    note: str


FORMAT: Any = {"type": "json_schema", "name": "rising", "strict": True, "schema": Rising.model_json_schema()}


def reply(value: Any) -> Reply:
    text = json.dumps(value)
    return Reply(texts=(text[:9], text[9:]))


async def respond(client: AsyncOpenAI, *, stream: bool, **options: Any) -> tuple[Response, list[Any]]:
    """Return the last form of the response, and the events."""
    if not stream:
        return await client.responses.create(**{"model": MODEL, "input": ASKED, **options}), []
    created: Any = await client.responses.create(
        **{"model": MODEL, "input": ASKED, "stream": True, **options}
    )
    events = [event async for event in created]
    for event in events:
        EVENT.validate_python(event.model_dump(by_alias=True))
    return events[-1].response, events


@STREAMED
async def test_json_answer_has_clean_texts_and_its_citations_beside_it(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(reply({"hours": 2, "note": "Let it rise for two hours [Source 1]."}))
    response, events = await respond(client, stream=stream, text={"format": FORMAT})
    assert json.loads(response.output_text) == {"hours": 2, "note": "Let it rise for two hours."}
    (message,) = (item for item in response.output if item.type == "message")
    assert message.content[0].type == "output_text"
    assert message.content[0].annotations == []
    details: Any = getattr(response, "vectorforge", None)
    assert [citation["source_number"] for citation in details["citations"]] == [1]
    assert response.text is not None
    assert response.text.model_dump(by_alias=True, exclude_unset=True) == {"format": FORMAT}
    assert vendor.bodies[0]["response_format"]["json_schema"]["schema"] == FORMAT["schema"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") in (
        "",
        response.output_text,
    )


async def test_sdk_parses_json_responses_whole_and_streamed(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(*[reply({"hours": 2, "note": "Rest."})] * 2)
    parsed = await client.responses.parse(model=MODEL, input=ASKED, text_format=Rising)
    assert parsed.output_parsed == Rising(hours=2, note="Rest.")
    async with client.responses.stream(
        model=MODEL, input=ASKED, text_format=Rising, extra_headers=FRESH
    ) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == Rising(hours=2, note="Rest.")


@STREAMED
async def test_tools_are_called_and_their_outputs_reach_the_model(
    client: AsyncOpenAI, vendor: FakeOpenAI, stream: bool
) -> None:
    vendor.script(Reply(texts=(), tool_calls=CALLS, finish="tool"), CITED)
    items: list[Any] = [{"role": "user", "content": ASKED}]
    options: dict[str, Any] = {"stream": stream, "tools": [WEATHER]}
    response, events = await respond(client, input=items, **options)
    assert [item.type for item in response.output] == ["file_search_call", "function_call", "function_call"]
    assert response.status == "completed"
    calls = [item for item in response.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == [{"city": "Köln"}, {"city": "Bonn"}]
    assert [call.call_id for call in calls] == ["call_0", "call_1"]
    if stream:
        types = [event.type for event in events if "function_call" in event.type]
        one = ["response.function_call_arguments.delta"] * 2
        assert types == [*one, *one, *["response.function_call_arguments.done"] * 2]
        added = [(e.output_index, e.item.type) for e in events if e.type == "response.output_item.added"]
        assert added == [(0, "file_search_call"), (1, "function_call"), (2, "function_call")]
    items += response.output
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "hot"} for call in calls]
    answer, _ = await respond(client, input=items, **options)
    assert answer.output_text == "It is hot [1]."
    sent = vendor.bodies[1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert len(sent[2]["tool_calls"]) == 2
    assert [tool.type for tool in answer.tools] == ["function"]


async def test_streamed_text_before_a_tool_call_is_an_item_of_its_own(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    vendor.script(Reply(texts=("Let me look [Source 1].",), tool_calls=CALLS[:1], finish="tool"))
    response, events = await respond(client, stream=True, tools=[WEATHER], tool_choice="required")
    assert [item.type for item in response.output] == ["file_search_call", "message", "function_call"]
    added = [(e.output_index, e.item.type) for e in events if e.type == "response.output_item.added"]
    assert added == [(0, "file_search_call"), (1, "message"), (2, "function_call")]
    assert response.output_text == "Let me look [1]."
    assert vendor.bodies[0]["tool_choice"] == "required"


async def test_sdk_stream_helper_parses_arguments(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    class Weather(BaseModel):
        """Weather of a city."""

        city: str

    tool: Any = openai.pydantic_function_tool(Weather, name="weather")
    flat = {"type": "function", **tool["function"]}
    vendor.script(Reply(texts=(), tool_calls=CALLS[:1], finish="tool"))
    async with client.responses.stream(model=MODEL, input=ASKED, tools=[flat]) as stream:  # type: ignore[list-item]
        final = await stream.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == [{"city": "Köln"}]


async def test_required_tool_choice_is_satisfied_by_the_search(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    search: Any = {"type": "file_search", "vector_store_ids": ["handbook"]}
    await client.responses.create(
        model="vectorforge", input=ASKED, tools=[search, WEATHER], tool_choice="required"
    )
    assert vendor.bodies[0]["tool_choice"] == "auto"
