"""OpenAI's messages as a query and its history."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from vectorforge.api.openai.models import Conversation
from vectorforge.api.openai.request_schemas import ClientMessages
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import HistoryMessage

MESSAGES = TypeAdapter(ClientMessages)


def conversation(*messages: dict[str, Any], **options: Any) -> Conversation:
    return Conversation.of(MESSAGES.validate_python(list(messages)), **options)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": "42", "tool_call_id": call_id}


def test_messages_after_the_query_follow_it() -> None:
    read = conversation(user("Hello"), called("1"), result("1"), user("How long?"), called("2"), result("2"))
    assert read.question == "How long?"
    assert [m.role for m in read.history] == ["user", "assistant", "tool"]
    assert [(m.role, m.content, m.tool_call_id) for m in read.following] == [
        ("assistant", "", None),
        ("tool", "42", "2"),
    ]
    assert conversation(user("x"), {"role": "assistant", "content": "It is"}).following[0].content == "It is"


def test_neighboring_tool_calls_become_one_message() -> None:
    read = conversation(user("x"), called("1"), called("2"), result("2"), result("1"))
    assert [[call.id for call in message.tool_calls] for message in read.following] == [["1", "2"], [], []]


def test_last_user_message_becomes_query_and_rest_history() -> None:
    read = conversation(
        {"role": "developer", "content": "Be brief."},
        user("Hello"),
        {"role": "assistant", "content": "Good day", "refusal": None, "annotations": [], "audio": None},
        {"role": "assistant", "content": None},
        {"name": "ann", **user("How long?")},
        {"role": "system", "content": "Answer in German."},
    )
    assert read.question == "How long?"
    assert read.history == (
        HistoryMessage("system", "Be brief."),
        HistoryMessage("user", "Hello"),
        HistoryMessage("assistant", "Good day"),
        HistoryMessage("system", "Answer in German."),
    )


@pytest.mark.parametrize("type_", ["text", "input_text", "output_text"])
def test_text_parts_are_joined(type_: str) -> None:
    read = conversation(user([{"type": type_, "text": "How"}, {"type": type_, "text": "long?"}]))
    assert read == Conversation("How\nlong?")


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([user("  \n")], "messages.0.content"),
        ([user([])], "messages.0.content"),
        ([{"role": "system", "content": "Be brief."}], "messages"),
        ([{"role": "assistant", "content": "Once upon"}], "messages"),
        ([user("x"), {"role": "tool", "content": "42", "tool_call_id": "1"}, user("y")], "messages.1"),
        ([user("x"), called("1"), user("y")], "messages"),
        ([user("x"), called("1", "2"), result("1")], "messages"),
        ([user("x"), called("1"), result("1"), result("1")], "messages.3"),
        ([user("x"), {"role": "function", "content": "42"}], "messages.1.role"),
        ([user([{"type": "image_url", "image_url": {"url": "x"}}])], "messages.0.content.0.type"),
        ([user([{"type": "text", "text": "x"}, {"type": "input_audio"}])], "messages.0.content.1.type"),
        ([user([{"type": "text"}])], "messages.0.content.0.text"),
        ([user([{"type": "text", "text": "x" * 60_000}] * 2)], "messages.0.content"),
    ],
)
def test_unanswerable_conversation_is_rejected_by_field(messages: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        conversation(*messages)
    assert refused.value.field == field


def test_conversation_without_query_is_rejected_with_the_role_to_send() -> None:
    with pytest.raises(InvalidInputError, match=r"role `user`: send the query .* `input`"):
        conversation({"role": "assistant", "content": "Once upon"}, field="input")


def test_conversation_error_names_field_of_the_router() -> None:
    with pytest.raises(InvalidInputError) as refused:
        conversation(user(""), field="input")
    assert refused.value.field == "input.0.content"


@pytest.mark.parametrize(
    "messages", [[], [user("x")] * 1001, [user("x" * 100_001)], [user([{"type": "text", "text": ""}] * 101)]]
)
def test_conversation_size_is_limited(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        MESSAGES.validate_python(messages)
