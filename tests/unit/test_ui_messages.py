"""Messages of the AI SDK as a query with its history, and the parts of a UI message stream."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from vectorforge.api.ui_chat.encoder import UIMessageEncoder
from vectorforge.api.ui_chat.routes import UIChatRequest, history_of, question_of
from vectorforge.errors import InvalidInputError, LLMTimeoutError
from vectorforge.pipeline.types import (
    Citation,
    CitationEvent,
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    HistoryMessage,
    MetaEvent,
    QueryEvent,
    QueryResult,
    SourceCitation,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)

CHUNK, DOCUMENT = UUID(int=1), UUID(int=2)


def message(role: str, *texts: str, **more: Any) -> dict[str, Any]:
    return {"id": "m", "role": role, "parts": [{"type": "text", "text": text} for text in texts], **more}


def request(*messages: dict[str, Any], **fields: Any) -> UIChatRequest:
    return UIChatRequest.model_validate({"id": "chat", "messages": list(messages), **fields})


def passage(source: str = "guide.pdf", title: str | None = None) -> SourceCitation:
    return SourceCitation(
        document_source=source,
        chunk_index=0,
        score=0.5,
        snippet="The dough…",
        truncated=False,
        chunk_id=CHUNK,
        document_id=DOCUMENT,
        title=title,
        heading=None,
        start_offset=0,
        end_offset=10,
        text="The dough rises for two hours.",
    )


def result(finish_reason: str = "stop") -> QueryResult:
    return QueryResult(
        query="q",
        answer="",
        retrieved_chunks=[],
        sources=[],
        retrieval_latency_ms=1.0,
        generation_latency_ms=1.0,
        total_latency_ms=2.0,
        llm_response=None,
        request_id=uuid4(),
        collection_id=uuid4(),
        finish_reason=finish_reason,
    )


def parts_of(*events: QueryEvent) -> list[dict[str, Any]]:
    """Return the stream's parts after checking that it ends with ``[DONE]``."""
    encoder = UIMessageEncoder(request_id="r-1")
    sent = b"".join(encoder.encode(event) for event in events).decode()
    *parts, done, rest = sent.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_last_message_is_query_and_other_texts_are_history() -> None:
    tool = {"type": "tool-search", "toolCallId": "1", "state": "output-available", "output": {"a": [1]}}
    body = request(
        message("system", "Be brief."),
        message("user", "Hello", "again"),
        message("assistant"),  # failed before its first word
        {"role": "assistant", "parts": [tool, {"type": "step-start"}, {"type": "text", "text": "Good day"}]},
        message("user", "How long?"),
    )
    assert question_of(body.messages) == "How long?"
    assert history_of(body.messages) == (
        HistoryMessage("system", "Be brief."),
        HistoryMessage("user", "Hello\nagain"),
        HistoryMessage("assistant", "Good day"),
    )


def test_long_chat_uses_last_hundred_messages() -> None:
    body = request(*(message("user", str(number)) for number in range(300)))
    history = history_of(body.messages)
    assert (len(history), history[0].content, history[-1].content) == (100, "199", "298")
    with pytest.raises(ValidationError, match="at most 1000"):
        request(*(message("user", "?") for _ in range(1001)))


@pytest.mark.parametrize(
    ("last", "expected_error"),
    [
        (message("assistant", "Hello"), "must have the role `user`"),
        (message("user", " "), "has no text"),
        (message("user"), "has no text"),
        ({"role": "user", "parts": [{"type": "file", "url": "data:,", "mediaType": "image/png"}]}, "Files"),
    ],
)
def test_invalid_last_message_is_rejected_by_field(last: dict[str, Any], expected_error: str) -> None:
    with pytest.raises(InvalidInputError, match=expected_error) as caught:
        question_of(request(message("user", "Hello"), last).messages)
    assert (caught.value.field or "").startswith("messages.1")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "tool", "parts": []}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "parts": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "parts": ["Hello"]}]},
        {"messages": [{"role": "user", "parts": [{"type": "text", "text": "x" * 100_001}]}]},
        {"messages": [message("user", "?")], "trigger": "delete"},
        {"messages": [message("user", "?")], "preset": "profile"},
    ],
)
def test_malformed_body_is_rejected(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        UIChatRequest.model_validate(body)


def test_vectorforge_fields_in_body_set_query_config() -> None:
    expected_error = request(
        message("user", "?"), messageId="m-1", model="theirs", preset="rag_query", top_k=3, filters={"a": 1}
    )
    config = expected_error.config(())
    assert (config.preset, config.top_k, config.filters) == ("rag_query", 3, {"a": 1})
    assert config.max_tokens == 2048  # the preset's own
    assert (config.llm_model, config.use_cache, config.stream) == (None, True, True)
    unset = request(message("user", "?"), top_k=None, max_tokens=None, min_score=None).config(())
    assert (unset.top_k, unset.max_tokens, unset.min_score) == (10, 1024, None)  # null scores drop nothing
    assert not request(message("user", "?"), trigger="regenerate-message").config(()).use_cache
    history = (HistoryMessage("user", "Hello"),)
    assert request(message("user", "?")).config(history).history == history
    stored = request(message("user", "?"), conversation_id=str(uuid4()))
    assert stored.config(history).history == ()  # the server's stored text is used


def test_web_page_source_is_url_and_other_source_document() -> None:
    sources = [passage("https://a.example/x", "X"), passage("notes.MD", None), passage("table")]
    sent = parts_of(
        SourcesEvent(sources, [], 1.0),
        TokenEvent("So [Source 1][Source 2]."),
        CitationEvent(Citation(1, 3, 13, CHUNK, DOCUMENT, "supported")),
        CitationEvent(Citation(2, 13, 23, CHUNK, DOCUMENT)),
        UsageEvent(1, 2, 3),
        DoneEvent(result()),
    )
    retrieval, url, notes, table = sent[:4]
    assert (retrieval["type"], retrieval["transient"]) == ("data-retrieval", True)
    assert (url["type"], url["url"], url["title"]) == ("source-url", "https://a.example/x", "X")
    assert (notes["type"], notes["mediaType"]) == ("source-document", "text/markdown")
    assert notes["title"] == "notes.MD"
    assert table["mediaType"] == "text/plain"
    (end,) = (part for part in sent if part["type"] == "text-end")
    assert [(c["startIndex"], c["endIndex"]) for c in end["citations"]] == [(3, 6), (6, 9)]
    assert [c["source"]["sourceType"] for c in end["citations"]] == ["url", "document"]
    assert end["citations"][0]["citedText"] == "The dough rises for two hours."


def test_text_withheld_for_label_is_sent_before_error() -> None:
    sent = parts_of(
        TokenEvent("Half [Sou"), ErrorEvent(LLMTimeoutError("Too slow."), "generate", "Half [Sou")
    )
    assert "".join(part["delta"] for part in sent if part["type"] == "text-delta") == "Half [Sou"
    assert [part["type"] for part in sent][-4:] == ["text-end", "data-problem", "error", "finish"]
    problem = sent[-3]["data"]
    assert (problem["status"], problem["stage"], problem["requestId"]) == (504, "generate", "r-1")
    assert sent[-2]["errorText"] == "Too slow."


def test_failure_before_first_token_sends_no_text() -> None:
    sent = parts_of(ErrorEvent(LLMTimeoutError(), "generate"))
    assert [part["type"] for part in sent] == ["data-problem", "error", "finish"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("stop", "stop"), ("empty", "stop"), ("length", "length"), ("content_filter", "content-filter"),
     ("deadline", "interrupted"), ("else", "other")],
)  # fmt: skip
def test_finish_reason_maps_to_sdk_value(ours: str, theirs: str) -> None:
    (finish,) = parts_of(DoneEvent(result(ours)))
    assert finish["finishReason"] == theirs


def test_metadata_and_degradation_parts_are_camel_case() -> None:
    meta = MetaEvent(uuid4(), uuid4(), "openai", "m", extractive=False, conversation_id=uuid4())
    sent = parts_of(
        meta,
        DegradedEvent("passages", "llm_error", None, None, extractive=True),
        TokenEvent("\u2028So"),
        UsageEvent(1, 2, 3, estimated=True),
        DoneEvent(result()),
    )
    start, degraded = sent[:2]
    assert start["messageId"] == start["messageMetadata"]["requestId"] == str(meta.request_id)
    assert start["messageMetadata"]["conversationId"] == str(meta.conversation_id)
    assert (degraded["type"], degraded["data"]["step"]) == ("data-degraded", "passages")
    assert "transient" not in degraded
    metadata = sent[-1]["messageMetadata"]
    assert metadata["usage"] == {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "estimated": True}
    assert metadata["latency"]["totalMs"] == 2.0
    assert not [key for key in json.loads(json.dumps(metadata)) if "_" in key]
