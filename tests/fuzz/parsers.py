"""Parsers of foreign bytes as functions of bytes, each of which raises only on a defect.

An error of ours that is reported to callers is expected of a parser, and accepted; any other exception is a
finding, as is a result that violates the parser's contract.
"""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from tests.fuzz.credential_parsers import CREDENTIAL_PARSERS
from tests.fuzz.request_parsers import REQUEST_PARSERS
from tests.fuzz.vendor_parsers import VENDOR_PARSERS
from tests.support.formats.office import odt, slides, slides_of_opendocument, small_workbook
from tests.support.formats.others import book
from vectorforge.aws.handlers.ingest_events import ListedObjects, Message
from vectorforge.aws.query_log_record import parse_message
from vectorforge.errors import ExtractionError, FilterError, InvalidInputError
from vectorforge.ingestion.chunk import chunk_text
from vectorforge.ingestion.extract import extract, media, split
from vectorforge.ingestion.extract.readers.pdf_image import is_image, render_page
from vectorforge.ingestion.extract.reading import read_text as read_document
from vectorforge.ingestion.types import ExtractionLimits, ReadText
from vectorforge.llm.http import events
from vectorforge.pipeline.citations.labels import find_labels, neutralise_labels
from vectorforge.pipeline.structured import AnswerReader
from vectorforge.runtime.errors import UnsupportedEventError
from vectorforge.runtime.http_event import read_event
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import MAX_SQL_LENGTH, parse
from vectorforge.vectorstore.filters.sql import FilterCompiler

_MAX_CHARS: Final = 1_000_000


def _storable(text: str) -> None:
    assert "\x00" not in text
    text.encode()  # no lone surrogates


def read_text(content: bytes) -> None:
    """Read plain text in an unknown encoding."""
    _extract(content, "a.txt")


def read_csv(content: bytes) -> None:
    """Read a CSV table."""
    _extract(content, "a.csv")


def read_records(content: bytes) -> None:
    """Read JSON Lines, one document per line."""
    _extract(content, "a.jsonl")


def read_archive(content: bytes) -> None:
    """Unpack a ZIP file to the documents in it."""
    try:
        parts = split(content, source="a.zip", limits=ExtractionLimits(max_bytes=_MAX_CHARS))
    except (ExtractionError, InvalidInputError):
        return
    for part in parts:
        _storable(part.source)
        assert len(part.content) <= _MAX_CHARS


def read_markdown(content: bytes) -> None:
    """Read Markdown with front matter and comments."""
    _extract(content, "a.md")


def without_child(kind: str) -> Callable[[bytes], None]:
    """Return the reader of a media type without its child process."""

    def read(content: bytes) -> None:
        try:
            _check(read_document(kind, content, max_chars=_MAX_CHARS))
        except ExtractionError:
            return

    return read


def within(kind: str, document: Callable[[], bytes], member: str) -> Callable[[bytes], None]:
    """Return the reader of a ZIP-based format for one member of a valid file."""
    read = without_child(kind)

    def read_member(content: bytes) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(document())) as valid, zipfile.ZipFile(out, "w") as changed:
            for name in valid.namelist():
                changed.writestr(name, content if name == member else valid.read(name))
        read(out.getvalue())

    return read_member


def read_image(content: bytes) -> None:
    """Decode an image for OCR, and render it."""
    try:
        render_page(content if is_image(content) else b"\xff\xd8\xff" + content, page=1, width=100)
    except ExtractionError:
        return


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
    _storable(read.get("title") or "")
    _storable(json.dumps(read.get("metadata", {}), ensure_ascii=False))
    end = 0
    for span in read.get("spans", ()):
        assert end <= span.start <= span.end <= len(read["text"])
        end = span.end
        json.dumps(span.location, allow_nan=False)


def cut_passages(content: bytes) -> None:
    """Split any text as Markdown: offsets match the chunks, and no text is lost."""
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
    """Parse a filter as JSON: rejected, or of bounded SQL, with every value bound."""
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
    """Parse a model's JSON answer: equal results in pieces and as a whole."""
    text = content[1:].decode("utf-8", "replace")
    size = 1 + (content[0] % 7 if content else 0)
    whole, pieces = AnswerReader(), AnswerReader()
    joined = whole.feed(text) + whole.finish()
    parts = [pieces.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(parts) + pieces.finish() == joined == whole.text == pieces.text
    assert whole.object() == pieces.object()


class _Body:
    """A vendor's response that arrives in pieces of one size."""

    def __init__(self, content: bytes, size: int) -> None:
        self._pieces = [content[at : at + size] for at in range(0, len(content), size)]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def _events(content: bytes, size: int) -> list[bytes]:
    """Return all events; the body never waits, so that no event loop is needed."""
    found: list[bytes] = []
    generator = events(_Body(content, size).chunk)
    while True:
        try:
            generator.__anext__().send(None)
        except StopIteration as arrived:
            found += arrived.value
        except StopAsyncIteration:
            return found


def read_vendor_events(content: bytes) -> None:
    """Parse a vendor's event stream: equal results in pieces and as a whole."""
    size = 1 + (content[0] % 11 if content else 0)
    assert _events(content[1:], size) == _events(content[1:], 1 + len(content))


def find_citations(content: bytes) -> None:
    """Find labels in an answer, and in chunks that must have none."""
    text = content.decode("utf-8", "replace")
    for label in find_labels(text, 0, len(text)):
        assert 0 <= label.start < label.end <= len(text)
    assert not list(find_labels(neutralise_labels(text), 0, len(neutralise_labels(text))))


def read_log_message(content: bytes) -> None:
    """Parse a message of the query log's queue."""
    try:
        parse_message(content)
    except InvalidInputError as exc:
        _storable(exc.message)


def read_queue_message(content: bytes) -> None:
    """Parse a message of the ingestion queue: a job, or a notification of S3."""
    try:
        found = Message("id", "receipt", 1, content.decode("utf-8", "replace")).content()
    except InvalidInputError:
        return
    for upload in found if isinstance(found, list) else ():
        _storable(upload.source)


def read_bulk_batch(content: bytes) -> None:
    """Parse a batch of a bulk load."""
    event = _json(content)
    if isinstance(event, dict):
        try:
            ListedObjects.of(event)
        except InvalidInputError:
            return


def read_http_event(content: bytes) -> None:
    """Parse the event of a front door."""
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


MEMBERS: Final[Mapping[str, tuple[str, Callable[[], bytes], str]]] = {
    "pptx-slide": (media.PPTX, cache(lambda: slides(1).content), "ppt/slides/slide1.xml"),
    "xlsx-sheet": (media.XLSX, small_workbook, "xl/worksheets/sheet1.xml"),
    "odt-content": (media.ODT, cache(lambda: odt(1).content), "content.xml"),
    "odp-content": (media.ODP, slides_of_opendocument, "content.xml"),
    "epub-package": (media.EPUB, cache(lambda: book(1).content), "OEBPS/book.opf"),
}
"""Members of ZIP-based formats, whose checksums would reject nearly all changed bytes."""

PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "text": read_text,
    "csv": read_csv,
    "jsonl": read_records,
    "markdown": read_markdown,
    "html": without_child(media.HTML),
    "docx": without_child(media.DOCX),
    "pptx": without_child(media.PPTX),
    "workbook": without_child(media.XLSX),
    "odt": without_child(media.ODT),
    "odp": without_child(media.ODP),
    "epub": without_child(media.EPUB),
    "xml": without_child(media.XML),
    "transcript": without_child(media.VTT),
    "calendar": without_child(media.CALENDAR),
    **{name: within(kind, document, member) for name, (kind, document, member) in MEMBERS.items()},
    "pdf": without_child(media.PDF),
    "image": read_image,
    "mail": without_child(media.MAIL),
    "outlook": without_child(media.OUTLOOK),
    "notebook": without_child(media.NOTEBOOK),
    "json": without_child(media.JSON),
    "rtf": without_child(media.RTF),
    "rst": without_child(media.RST),
    "zip": read_archive,
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
"""Parsers by their names on the command line."""
