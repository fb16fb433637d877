"""Events of ``/v1/responses`` of answers with tool calls that break off."""

import json
from typing import Any
from uuid import uuid4

from vectorforge.api.openai.responses.events import ResponseEventEncoder
from vectorforge.api.openai.responses.objects import ResponseFormat
from vectorforge.api.openai.responses.schemas import EchoedRequest
from vectorforge.errors import LLMStreamError
from vectorforge.llm.tools import ToolCallDelta
from vectorforge.pipeline.types import (
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    SourcesEvent,
    TokenEvent,
    ToolCallEvent,
)

ECHO = EchoedRequest(
    model="vectorforge",
    instructions=None,
    metadata={},
    temperature=None,
    top_p=None,
    max_output_tokens=5,
    tools=[],
    tool_choice="auto",
    parallel_tool_calls=True,
    previous_response_id=None,
    conversation=None,
    store=False,
)


def events_of(data: bytes) -> list[dict[str, Any]]:
    lines = data.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_broken_stream_ends_with_the_tool_calls_so_far() -> None:
    encoder = ResponseEventEncoder(ResponseFormat("How?", ECHO, has_tools=True), request_id="r")
    query: list[QueryEvent] = [
        MetaEvent(uuid4(), uuid4(), "openai", "m", extractive=False),
        SourcesEvent([], [], 0.0),
        ToolCallEvent(ToolCallDelta(0, "", "call_1", "weather")),
        TokenEvent("Let me look."),
        ToolCallEvent(ToolCallDelta(0, '{"city": "Kö')),
        ErrorEvent(LLMStreamError("It broke off."), "generate"),
    ]
    sent = [event for part in query for event in events_of(encoder.encode(part))]
    assert [e["sequence_number"] for e in sent] == list(range(len(sent)))
    places = {e["item"]["type"]: e["output_index"] for e in sent if e["type"] == "response.output_item.added"}
    assert places == {"file_search_call": 0, "function_call": 1, "message": 2}
    assert sent[-1]["type"] == "response.failed"
    output = {item["type"]: item for item in sent[-1]["response"]["output"]}
    assert output["function_call"]["arguments"] == '{"city": "Kö'
    assert output["function_call"]["status"] == output["message"]["status"] == "incomplete"


def test_broken_stream_without_text_has_no_message() -> None:
    encoder = ResponseEventEncoder(ResponseFormat("How?", ECHO, has_tools=True), request_id="r")
    for event in (MetaEvent(uuid4(), uuid4(), "openai", "m", extractive=False), SourcesEvent([], [], 0.0)):
        encoder.encode(event)
    (*_, last) = events_of(encoder.encode(ErrorEvent(LLMStreamError("It broke off."), "generate")))
    assert [item["type"] for item in last["response"]["output"]] == ["file_search_call"]
