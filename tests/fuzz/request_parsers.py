"""Parsers of requests outside the schemas, and filters of streamed answers."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from tests.fuzz.event_loop import result_of
from tests.support.rag.chunks import make_chunk
from vectorforge.api.mcp.tools import TOOLS
from vectorforge.api.native.document_uploads import read_job_items
from vectorforge.api.native.queries import read_cursor
from vectorforge.api.openai.ids import read_page
from vectorforge.api.openai.labels import LabelRewriter
from vectorforge.api.openai.request_schemas import AttributeFilter
from vectorforge.aws.query_log_lines import find_records
from vectorforge.aws.uploads import UploadKey
from vectorforge.config import IngestionSettings
from vectorforge.errors import FilterError, InvalidInputError
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.guardrails.links import LinkFilter
from vectorforge.pipeline.guardrails.log_text import redact
from vectorforge.tools.schemas import check_arguments
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import FilterCompiler

_BOUNDARY: Final = "b"
_TYPES: Final = (f"multipart/form-data; boundary={_BOUNDARY}", "application/json", "multipart/form-data", "")
_PASSAGE: Final = "A refund takes five working days: https://shop.example/refund?id=1 (since 2 May 2024)."
_ATTRIBUTES: Final = TypeAdapter(AttributeFilter)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def read_documents(content: bytes) -> None:
    """Parse a body with documents, as files or as JSON by the first byte."""
    media_type = _TYPES[content[0] % len(_TYPES)] if content else ""
    messages: list[Message] = [{"type": "http.request", "body": content[1:], "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "app": None}
    headers = [(b"content-type", media_type.encode())]
    try:
        items = result_of(
            read_job_items(Request({**scope, "headers": headers}, receive), IngestionSettings())
        )
    except (HTTPException, RequestValidationError, InvalidInputError):
        return
    assert items
    for item in items:
        for text in (item.source, item.title or "", json.dumps(item.metadata, ensure_ascii=False)):
            assert "\x00" not in text
            text.encode()


def read_log_cursor(content: bytes) -> None:
    """Parse ``after`` of the query log's pages."""
    try:
        moment, _ = read_cursor(_text(content))
    except InvalidInputError:
        return
    assert moment.tzinfo is not None


def read_openai_cursor(content: bytes) -> None:
    """Parse ``after`` and ``before`` of OpenAI's lists, one line each."""
    after, _, before = _text(content).partition("\n")
    try:
        result_of(read_page(20, "desc", after or None, before or None))
    except InvalidInputError:
        return


def read_attributes(content: bytes) -> None:
    """Convert an OpenAI filter to one of ours."""
    try:
        condition = parse(_ATTRIBUTES.validate_json(content).translated())
    except (ValidationError, FilterError):
        return
    FilterCompiler("f.metadata", prefix="p").compile(condition)


def read_arguments(content: bytes) -> None:
    """Parse arguments of tools: MCP's as parsed JSON, a model's as text."""
    for name, tool in TOOLS.items():
        with suppress(ValidationError):
            tool.arguments.model_validate(_json(content))
        try:
            check_arguments(name, _text(content))
        except InvalidInputError:
            continue


def read_upload_key(content: bytes) -> None:
    """Parse the key of an uploaded object: its owner is unambiguous."""
    key = _text(content)
    try:
        parsed = UploadKey.parse(key)
    except InvalidInputError:
        return
    assert "\0" not in key
    assert key.partition("/")[0] == parsed.tenant_id
    assert "/" not in parsed.tenant_id + parsed.collection_name


def read_log_lines(content: bytes) -> None:
    """Parse lines of a function's log that include query logs."""
    for line in _text(content).splitlines():
        for record in find_records(line):
            assert isinstance(record, str)


def _in_pieces(text: str, size: int, feed: Callable[[str], Any], finish: Callable[[], Any]) -> list[Any]:
    return [*(feed(text[at : at + size]) for at in range(0, len(text), size)), finish()]


def watch_answer(content: bytes) -> None:
    """Filter links, labels and citations of an answer: equal in pieces and as a whole."""
    text, size = _text(content[1:]), 1 + (content[0] % 13 if content else 0)
    passages = [make_chunk(_PASSAGE, title="Refunds")]
    for make in (lambda: LinkFilter(lambda: [_PASSAGE]), lambda: LabelRewriter(passages)):
        whole, pieces = make(), make()
        told = "".join(_in_pieces(text, len(text) + 1, whole.feed, whole.finish))
        assert "".join(_in_pieces(text, size, pieces.feed, pieces.finish)) == told
    checked = [CitationChecker("How long?", passages) for _ in range(2)]
    found = [
        list(chain(*_in_pieces(text, length, checker.feed, checker.finish)))
        for checker, length in zip(checked, (len(text) + 1, size), strict=True)
    ]
    assert found[0] == found[1]
    assert redact(redact(text)) == redact(text)


REQUEST_PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "documents": read_documents,
    "log-cursor": read_log_cursor,
    "openai-cursor": read_openai_cursor,
    "attributes": read_attributes,
    "tool-arguments": read_arguments,
    "upload-key": read_upload_key,
    "log-lines": read_log_lines,
    "written-answer": watch_answer,
}
"""Parsers by their names on the command line."""

_ID: Final = "0192a0c4-5b1e-7c3a-9d2f-111111111111"
_FORM: Final = (
    b'0--b\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n'
    b"Content-Type: text/markdown\r\n"
    b'\r\nText.\r\n--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{"year": 2024}\r\n--b--\r\n'
)
_RECORD: Final = '{"type": "vectorforge.query_log", "id": "1", "tenant_id": "a", "query": "x"}'


def request_inputs(parser: str) -> Sequence[bytes]:
    """Return valid inputs of the parsers here."""
    attributes = {"type": "gte", "key": "year", "value": 2024}
    return {
        "documents": [
            _FORM,
            b'1{"documents": [{"source": "a.md", "text": "Text.", "metadata": {"y": 1}, "title": "T"}]}',
        ],
        "log-cursor": [urlsafe_b64encode(f"2026-11-23T06:00:00+00:00/{_ID}".encode()).rstrip(b"=")],
        "openai-cursor": [_ID.encode(), b"\n" + _ID.encode()],
        "attributes": [
            json.dumps(attributes).encode(),
            json.dumps(
                {"type": "or", "filters": [attributes, {"type": "and", "filters": [attributes]}]}
            ).encode(),
        ],
        "tool-arguments": [
            b'{"query": "refund", "top_k": 3, "filters": "{\\"year\\": 2024}", "search_mode": "hybrid"}',
            b'{"query": "refund", "collection": "a", "profile_id": 7, "max_length": 900}',
        ],
        "upload-key": [b"acme/handbook/a/b.md", b"acme/ handbook /x"],
        "log-lines": [
            _RECORD.encode(),
            f"2026-11-23T06:00:00.000Z {_RECORD}".encode(),
            json.dumps({"events": [{"message": _RECORD, "timestamp": 1}]}).encode(),
            b'1,"' + _RECORD.replace('"', '""').encode() + b'"',
        ],
        "written-answer": [
            b"2Five working days [Source 1], since 2 May 2024. See [it](https://shop.example/refund?id=1).",
            b"3![x](https://evil.example/?q=1) <img src=https://evil.example> www.evil.example `[1]` 1. A",
            b"4Card 4111 1111 1111 1111, DE89370400440532013000, a@b.example. In May 2024 [Source 1, 2].",
        ],
    }[parser]


_NESTED: Final = "[" * 2000
REQUEST_FOUND: Final[Mapping[str, Sequence[bytes]]] = {
    "tool-arguments": [json.dumps({"query": "q", "filters": _NESTED}).encode()],
}
"""Inputs of earlier findings."""
