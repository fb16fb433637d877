"""What reads bytes that others wrote, as functions of bytes: each raises only when something is wrong.

An error of ours that callers are told is what a parser should raise, and is taken; whatever else comes out
is a finding, as is a result that breaks what the parser promises.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.fuzz.credential_parsers import CREDENTIAL_PARSERS
from tests.fuzz.request_parsers import REQUEST_PARSERS
from tests.fuzz.vendor_parsers import VENDOR_PARSERS
from vectorforge.aws.handlers.ingest_events import ListedObjects, Message
from vectorforge.aws.query_log_record import parse_message
from vectorforge.errors import ExtractionError, FilterError, InvalidInputError
from vectorforge.ingestion.chunk import chunk_text
from vectorforge.ingestion.extract import extract, media
from vectorforge.ingestion.extract.html import extract_html
from vectorforge.ingestion.extract.markdown import extract_notebook
from vectorforge.ingestion.extract.office import extract_docx, extract_mail, extract_pdf, extract_rtf
from vectorforge.ingestion.extract.records import extract_json
from vectorforge.ingestion.types import ReadText
from vectorforge.llm.http import events
from vectorforge.pipeline.citations.labels import find_labels, neutralise_labels
from vectorforge.pipeline.structured import AnswerReader
from vectorforge.runtime.http_event import read_event
from vectorforge.runtime.invocation import UnsupportedEventError
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import MAX_SQL_LENGTH, parse
from vectorforge.vectorstore.filters.sql import FilterCompiler

_MAX_CHARS: Final = 1_000_000


def _storable(text: str) -> None:
    assert "\x00" not in text
    text.encode()  # no lone surrogates


def read_text(content: bytes) -> None:
    """Plain text in an unknown encoding."""
    _extract(content, "a.txt")


def read_csv(content: bytes) -> None:
    """A table."""
    _extract(content, "a.csv")


def read_records(content: bytes) -> None:
    """JSON Lines, a document each."""
    _extract(content, "a.jsonl")


def read_markdown(content: bytes) -> None:
    """Markdown with front matter and comments."""
    _extract(content, "a.md")


def without_child(reader: Callable[..., ReadText], **arguments: Any) -> Callable[[bytes], None]:
    """A reader that runs in a child process, here without it."""

    def read(content: bytes) -> None:
        try:
            _check(reader(content, **arguments))
        except ExtractionError:
            return

    return read


def _extract(content: bytes, source: str) -> None:
    try:
        documents = extract(content, source=source)
    except (ExtractionError, InvalidInputError):
        return
    for document in documents:
        assert document.text.strip()
        _storable(document.text)
        _storable(document.source)
        _storable(document.title or "")
        json.dumps(document.metadata, allow_nan=False)


def _check(read: ReadText) -> None:
    _storable(read["text"])
    _storable(read["title"] or "")
    _storable(json.dumps(read.get("metadata", {}), ensure_ascii=False))
    assert all(0 <= start <= len(read["text"]) for start in read["page_starts"])


def cut_passages(content: bytes) -> None:
    """Any text as Markdown, cut: the offsets are those of the passages, and nothing is lost."""
    try:
        text = content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = content.decode("utf-8", "replace")
    covered = bytearray(len(text))
    for chunk in chunk_text(text, media_type=media.MARKDOWN):
        assert text[chunk.start_offset : chunk.end_offset] == chunk.text
        covered[chunk.start_offset : chunk.end_offset] = b"\x01" * len(chunk.text)
    assert not "".join(c for c, mark in zip(text, covered, strict=True) if not mark).strip()


def read_filter(content: bytes) -> None:
    """A filter as JSON: refused, or of bounded SQL, with every value bound."""
    raw = _json(content)
    if not isinstance(raw, dict):
        return
    try:
        condition = parse(raw)
    except FilterError as exc:
        _storable(exc.message)
        return
    compiler = FilterCompiler("f.metadata", prefix="p")
    sql = compiler.compile(condition)
    assert len(sql) <= MAX_SQL_LENGTH + 100
    assert isinstance(matches(condition, raw), bool)


def read_answer(content: bytes) -> None:
    """A model's JSON answer: in pieces as in one."""
    text = content[1:].decode("utf-8", "replace")
    size = 1 + (content[0] % 7 if content else 0)
    whole, pieces = AnswerReader(), AnswerReader()
    told = whole.feed(text) + whole.finish()
    parts = [pieces.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(parts) + pieces.finish() == told == whole.text == pieces.text
    assert whole.object() == pieces.object()


class _Body:
    """A vendor's response that arrives in pieces of a size."""

    is_read = True

    def __init__(self, content: bytes, size: int) -> None:
        self._pieces = [content[at : at + size] for at in range(0, len(content), size)]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def read(self) -> bytes:
        return b"".join(self._pieces)


def _events(content: bytes, size: int) -> list[bytes]:
    """All events; the body never waits, so that no event loop is needed."""
    found: list[bytes] = []
    generator = events(_Body(content, size))
    while True:
        try:
            generator.__anext__().send(None)
        except StopIteration as arrived:
            found += arrived.value
        except StopAsyncIteration:
            return found


def read_vendor_events(content: bytes) -> None:
    """A vendor's stream of events: in pieces as in one."""
    size = 1 + (content[0] % 11 if content else 0)
    assert _events(content[1:], size) == _events(content[1:], 1 + len(content))


def find_citations(content: bytes) -> None:
    """Labels in an answer, and passages that must hold none."""
    text = content.decode("utf-8", "replace")
    for label in find_labels(text, 0, len(text)):
        assert 0 <= label.start < label.end <= len(text)
    assert not list(find_labels(neutralise_labels(text), 0, len(neutralise_labels(text))))


def read_log_message(content: bytes) -> None:
    """A message of the query log's queue."""
    try:
        parse_message(content)
    except InvalidInputError as exc:
        _storable(exc.message)


def read_queue_message(content: bytes) -> None:
    """A message of the ingestion queue: a job, or a notification of S3."""
    try:
        found = Message("id", "receipt", 1, content.decode("utf-8", "replace")).content()
    except InvalidInputError:
        return
    for upload in found if isinstance(found, list) else ():
        _storable(upload.source)


def read_bulk_batch(content: bytes) -> None:
    """A batch of a bulk load."""
    event = _json(content)
    if isinstance(event, dict):
        try:
            ListedObjects.of(event)
        except InvalidInputError:
            return


def read_http_event(content: bytes) -> None:
    """The event of a front door."""
    try:
        request = read_event(_json(content), None, "/")
    except UnsupportedEventError:
        return
    assert isinstance(request.scope["path"], str)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "text": read_text,
    "csv": read_csv,
    "jsonl": read_records,
    "markdown": read_markdown,
    "html": without_child(extract_html, charset=None),
    "docx": without_child(extract_docx, max_chars=_MAX_CHARS),
    "pdf": without_child(extract_pdf, max_chars=_MAX_CHARS),
    "mail": without_child(extract_mail),
    "notebook": without_child(extract_notebook),
    "json": without_child(extract_json, max_chars=_MAX_CHARS),
    "rtf": without_child(extract_rtf),
    "passages": cut_passages,
    "filter": read_filter,
    "answer": read_answer,
    "vendor-events": read_vendor_events,
    "citations": find_citations,
    "log-message": read_log_message,
    "queue-message": read_queue_message,
    "bulk-batch": read_bulk_batch,
    "http-event": read_http_event,
    **CREDENTIAL_PARSERS,
    **REQUEST_PARSERS,
    **VENDOR_PARSERS,
}
"""By the names that the command takes."""
