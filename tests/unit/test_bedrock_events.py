"""AWS event streams: messages as botocore decodes them, and the keep-alive of a silent answer."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from tests.support.aws.aws_events import aws_event, aws_exception
from vectorforge.api.bedrock.answers import AnswerEventEncoder, event_message, exception_message
from vectorforge.api.streaming.stream import OpenedQuery, QueryEventResponse
from vectorforge.errors import DatabaseUnavailableError, LLMRateLimitError
from vectorforge.pipeline.types import ErrorEvent, QueryEvent, TokenEvent


def decoded(data: bytes, cuts: Sequence[int] = ()) -> list[tuple[dict[str, Any], Any]]:
    """Return headers and payloads of messages that arrive cut at these offsets."""
    buffer = EventStreamBuffer()
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        buffer.add_data(data[start:end])
    return [(message.headers, json.loads(message.payload)) for message in buffer]


@given(text=st.text(max_size=300), data=st.data())
def test_messages_are_decoded_by_botocore_however_they_are_cut(text: str, data: st.DataObject) -> None:
    payload = json.dumps({"text": text}, ensure_ascii=False)
    encodable = payload.encode("utf-8", "replace").decode()
    stream = event_message("output", encodable) + exception_message("throttlingException", encodable)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    (event, first), (exception, second) = decoded(stream, cuts)
    assert first == second == json.loads(encodable)
    assert event == {
        ":event-type": "output",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    assert exception == {
        ":exception-type": "throttlingException",
        ":content-type": "application/json",
        ":message-type": "exception",
    }


def test_messages_equal_those_of_the_fake_of_bedrock() -> None:
    assert event_message("citation", '{"a": 1}') == aws_event("citation", {"a": 1})
    assert exception_message("x", '{"message": "m"}') == aws_exception("x", "m")


def test_changed_byte_is_detected_by_its_checksum() -> None:
    message = bytearray(event_message("output", '{"text": "Dough"}'))
    message[-6] ^= 1
    with pytest.raises(ChecksumMismatch):
        decoded(bytes(message))


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (LLMRateLimitError("slow down"), "throttlingException"),
        (DatabaseUnavailableError("no database"), "internalServerException"),
    ],
)
def test_error_ends_the_stream_as_exception_of_the_service_model(error: Any, name: str) -> None:
    encoder = AnswerEventEncoder("s", request_id="r")
    data = encoder.encode(TokenEvent("Two [Sou")) + encoder.encode(ErrorEvent(error, "generate"))
    *outputs, (headers, payload) = decoded(data)
    assert "".join(output["text"] for _, output in outputs) == "Two [Sou"
    assert headers[":exception-type"] == name
    assert payload == {"message": error.message, "code": error.code}


async def test_silent_stream_is_kept_alive_by_empty_output() -> None:
    go_on = asyncio.Event()
    sent: list[Any] = []

    async def events() -> AsyncGenerator[QueryEvent, None]:
        yield TokenEvent("Dough")
        await go_on.wait()
        raise LLMRateLimitError("slow down")

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        if sum(len(m.get("body", b"")) for m in sent) > 300:
            go_on.set()

    encoder = AnswerEventEncoder("the-session", request_id="r")
    response = QueryEventResponse(OpenedQuery([], events()), encoder)
    response.ping_interval_s = 0.02
    async with asyncio.timeout(10):
        await response({"type": "http"}, receive, send)
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"] == b"application/vnd.amazon.eventstream"
    assert headers[b"x-amzn-bedrock-knowledge-base-session-id"] == b"the-session"
    (_, first), *silent, (last, _) = decoded(b"".join(m.get("body", b"") for m in sent))
    assert first == {"text": "Dough"}
    assert silent
    assert all(payload == {"text": ""} for _, payload in silent)
    assert last[":exception-type"] == "throttlingException"
