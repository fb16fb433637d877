"""Chat completions: rejected and ignored fields, and chunks of unusual streams."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError
from starlette.types import Message

from tests.support.rag.chunks import make_chunk
from vectorforge.api.openai.chat import REFUSED, ChatChunkEncoder, ChatFormat
from vectorforge.api.openai.chat_schemas import ChatCompletionRequest
from vectorforge.api.openai.labels import sources_footer, without_sources_footer
from vectorforge.api.openai.models import reject_options
from vectorforge.api.streaming.stream import OpenedQuery, QueryEventResponse
from vectorforge.errors import InvalidInputError, LLMStreamError
from vectorforge.pipeline.context import cite
from vectorforge.pipeline.types import Citation, ErrorEvent, MetaEvent, QueryEvent, TokenEvent

MESSAGES = [{"role": "user", "content": "How long?"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def request(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate({"model": "vectorforge", "messages": MESSAGES, **fields})


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def nested(levels: int) -> dict[str, Any]:
    return {"items": nested(levels - 1)} if levels else {}


def large_tool(number: int) -> dict[str, Any]:
    function = {"name": f"f{number}", "parameters": {"description": "x" * 30_000}}
    return {"type": "function", "function": function}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", 0),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "ash", "format": "mp3"}),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("logit_bias", {"50256": -100}),
        ("web_search_options", {"search_context_size": "low"}),
    ],
)
def test_unsupported_option_is_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        reject_options(request(**{field: value}), REFUSED)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 1, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"functions": [], "function_call": "none"},
        {"modalities": ["text"], "logprobs": False, "response_format": {"type": "text"}, "stop": []},
        {"n": None, "stop": None, "logit_bias": {}, "audio": None, "stream_options": {"x": 1}},
        {"seed": 1, "user": "ann", "store": True, "metadata": {"a": "b"}, "frequency_penalty": 0.5, "x": {}},
    ],
)
def test_options_without_effect_are_ignored(fields: dict[str, Any]) -> None:
    body = request(**fields)
    reject_options(body, REFUSED)
    assert body.options() == {}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools.0.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [large_tool(n) for n in range(5)]}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": schema_format({"type": "integre"})}, "response_format"),
        ({"response_format": schema_format({"enum": ["x" * 33_000]})}, "response_format"),
        ({"response_format": schema_format({"$ref": "https://example.org/schema"})}, "response_format"),
        ({"response_format": schema_format({"patternProperties": {"^a": {}}})}, "response_format"),
    ],
)
def test_impossible_tool_or_schema_is_rejected_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        request(**fields).options()
    assert refused.value.field == field


def test_schema_may_name_a_property_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"patternProperties": {"type": "string"}}, "examples": [{}]}
    assert request(response_format=schema_format(schema)).options()["response_format"].schema == schema


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ["a"] * 5},
        {"stop": ""},
        {"stop": "x" * 257},
        {"tools": [TOOL] * 129},
        {"tools": [{"type": "function", "function": {"name": "not a name"}}]},
        {"response_format": {"type": "yaml"}},
        {"response_format": schema_format(nested(70))},
    ],
)
def test_output_options_are_limited(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**fields)


def test_chat_request_options_map_to_query_options() -> None:
    conversation_id = uuid4()
    body = request(
        temperature=0,
        top_p=None,
        max_tokens=5,
        max_completion_tokens=7,
        top_k=3,
        filters={"a": 1},
        conversation_id=str(conversation_id),
        variant="precise",
        append_sources=True,
    )
    assert body.options() == {
        "temperature": 0,
        "max_tokens": 7,
        "top_k": 3,
        "filters": {"a": 1},
        "conversation_id": conversation_id,
    }
    assert body.limit_field == "max_completion_tokens"


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.1},
        {"top_p": -0.1},
        {"max_tokens": 0},
        {"top_k": 0},
        {"model": "x" * 300},
        {"model": None},
        {"filters": {"a": "x" * 20_000}},
        {"messages": "How long?"},
    ],
)
def test_chat_request_fields_are_limited(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**fields)


def chunks(data: bytes) -> list[Any]:
    found = [line.removeprefix("data: ") for line in data.decode().split("\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in found]


def test_failed_stream_emits_withheld_text_before_error() -> None:
    encoder = ChatChunkEncoder(ChatFormat("vectorforge", "http://x"), request_id="r")
    meta = MetaEvent(uuid4(), uuid4(), "openai", "m", extractive=False)
    sent = chunks(encoder.encode(meta) + encoder.encode(TokenEvent("a\u2028b [Source 1")))
    assert [c["choices"][0]["delta"].get("content") for c in sent] == ["", "a\u2028b "]
    held, error, end = chunks(encoder.encode(ErrorEvent(LLMStreamError(), "generate")))
    assert held["choices"][0]["delta"] == {"content": "[Source 1"}
    assert (error["error"]["code"], end) == ("llm_stream_broken", "[DONE]")


async def test_unexpected_failure_hides_its_message() -> None:
    async def failing() -> AsyncGenerator[QueryEvent, None]:
        for event in list[QueryEvent]():
            yield event
        raise RuntimeError("hunter2")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.extend(message.get("body", b""))

    sent = bytearray()
    encoder = ChatChunkEncoder(ChatFormat("vectorforge", "http://x"), request_id="r")
    response = QueryEventResponse(OpenedQuery([], failing()), encoder)
    await response({"type": "http"}, receive, send)
    error, end = chunks(bytes(sent))
    assert (error["error"]["type"], error["error"]["code"], end) == (
        "server_error",
        "internal_error",
        "[DONE]",
    )
    assert "hunter2" not in error["error"]["message"]


def test_unicode_line_separators_are_escaped() -> None:
    encoder = ChatChunkEncoder(ChatFormat("vectorforge", "http://x"), request_id="r")
    assert b"a\\u2028b" in encoder.encode(TokenEvent("a\u2028b"))


def test_sources_footer_lists_cited_sources_once_and_is_removable() -> None:
    passages = [
        make_chunk("x", source="https://example.org/a (b)", title="A [x]\n# y"),
        make_chunk("x", source="b_c.md"),
        make_chunk("x", source="d.md", title="D"),
    ]
    sources = [cite(passage) for passage in passages]
    citations = [Citation(n, 0, 3, uuid4(), uuid4()) for n in (3, 1, 2, 1)]
    footer = sources_footer(citations, sources)
    assert footer.split("\n") == [
        "",
        "",
        "**Sources**",
        "",
        "- [1] [A \\[x\\] # y](https://example.org/a%28b%29)",
        "- [2] b\\_c.md",
        "- [3] D (d.md)",
    ]
    assert sources_footer([], sources) == ""
    assert without_sources_footer(f"So it is [1].{footer}\n") == "So it is [1]."
    source_list = "**Sources**\n\n- [1] are many"
    assert without_sources_footer(source_list) == source_list
