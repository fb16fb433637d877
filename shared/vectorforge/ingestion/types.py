"""Types of ingestion: limits, parts, extracted documents and results."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Self, TypeAlias, TypedDict
from uuid import UUID

from vectorforge.errors import ExtractionError, VectorForgeError
from vectorforge.ingestion.language import language_of
from vectorforge.types import Location, StoredDocument

if TYPE_CHECKING:
    from vectorforge.config import IngestionSettings  # its import takes half of the start of extract.child

MAX_SOURCE_CHARS = 2_000
"""Longest ``source`` of a document."""
Charge: TypeAlias = Callable[[int], Awaitable[None]]
"""Called with the tokens of texts before they are embedded; raises if they exceed the tenant's limits."""


class IngestionStage(StrEnum):
    """Stages of ingesting a document, in this order."""

    EXTRACT = "extract"
    CHUNK = "chunk"
    EMBED = "embed"
    STORE = "store"


OnStage: TypeAlias = Callable[[IngestionStage], None]
"""Called when a document enters a stage."""
OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with (chunks embedded so far, chunks to embed)."""


class SpanKind(StrEnum):
    """Kinds of spans that chunking treats differently."""

    HEADING = "heading"
    """A line, part of the heading path of what follows."""
    ROW = "row"
    """A row of a table with the names of its columns; never cut unless it is longer than a chunk."""
    TEXT = "text"


class TextSpan(NamedTuple):
    """Part of an extracted text, ``text[start:end]``, and its place in the file."""

    start: int
    end: int
    kind: str = SpanKind.TEXT
    """A ``SpanKind``."""
    level: int = 0
    """1 to 6 of headings, otherwise 0."""
    location: Location | None = None
    """``{"page": n, "rect": [x0, y0, x1, y1]}``, ``{"slide": n}`` or ``{"sheet": name, "cells": [first
    column, first row, last column, last row]}``, counted from 1; rectangle, sheet or cells may be missing."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A chunk of a text, ``text[start_offset:end_offset]``."""

    index: int
    """Position, from 0; without gaps if ``chunk_text`` made it."""
    text: str
    start_offset: int
    end_offset: int
    heading: str | None = None
    """Markdown headings above it, "Install > Linux"; None without any."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the chunk, in addition to the document's; filters use both."""
    locations: Sequence[Location] = ()


class OcrOptions(NamedTuple):
    """Options of optical character recognition (OCR)."""

    enabled: bool = False
    engine: str = "auto"
    """``rapidocr``, ``tesseract`` or ``auto``: the first of them that is installed."""
    languages: str = "eng"
    """Languages of tesseract, joined by "+"."""
    max_pages: int = 100
    """Pages of one document that are recognized."""


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """Limits of a single document."""

    max_bytes: int = 25 * 1024 * 1024
    max_chars: int = 10_000_000
    """Characters of the extracted text."""
    max_chunks: int = 50_000
    """Chunks of one document."""
    max_request_chunks: int = 50_000
    """Chunks of all documents that are written together, as those of a profile."""
    timeout_s: float = 120.0
    """Seconds for the formats that are read in a child process (all but plain text, Markdown, tables and
    small HTML pages)."""
    ocr: OcrOptions = field(default_factory=OcrOptions)
    """Enabled for documents of collections with ``ocr``."""

    @classmethod
    def from_settings(cls, settings: "IngestionSettings") -> "ExtractionLimits":
        """Return the configured limits."""
        return cls(
            max_bytes=settings.max_document_bytes,
            max_chars=settings.max_document_chars,
            max_chunks=settings.max_chunks_per_document,
            max_request_chunks=settings.max_chunks_per_request,
            timeout_s=settings.extraction_timeout_s,
            ocr=OcrOptions(False, settings.ocr_engine, settings.ocr_languages, settings.ocr_max_pages),
        )

    def check_chars(self, count: int) -> None:
        """Raise ExtractionError ``too_large`` if a text has more characters than the limit."""
        if count > self.max_chars:
            raise ExtractionError(
                f"The text is longer than {self.max_chars:,} characters (VECTORFORGE_MAX_DOCUMENT_CHARS).",
                reason="too_large",
            )

    def check_chunks(self, count: int) -> None:
        """Raise ExtractionError ``too_large`` if a document has more chunks than the limit."""
        if count > self.max_chunks:
            raise ExtractionError(
                f"The document has {count:,} chunks, but may have at most {self.max_chunks:,} chunks; "
                "split it, or use a larger chunk_size.",
                reason="too_large",
            )


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """Bytes that make exactly one document: a file, or one line of a JSONL file."""

    content: bytes
    source: str
    media_type: str | None
    parent_source: str | None = None
    """The JSONL file that this is a line of."""
    fallback_title: str | None = None
    """Title of a document without one: the path of its file, relative to the ingested folder."""
    document_id: UUID | None = None
    """Id of the document if its source is new; None: a new one."""
    warnings: tuple[str, ...] = ()
    """Warnings about the file that contains it, such as a ZIP archive with unreadable files."""


class ReadText(TypedDict):
    """Result of a format's reader; JSON-compatible, because some run in a child process."""

    text: str
    title: NotRequired[str | None]
    spans: NotRequired[list[TextSpan]]
    """Ascending, without overlaps; text that needs no location may be in none."""
    warnings: NotRequired[list[str]]
    metadata: NotRequired[dict[str, Any]]
    """Found in the file itself: front matter, the headers of a mail."""


@dataclass(frozen=True, slots=True)
class ExtractedDocument:
    """The text of a document, free of NUL characters and lone surrogates."""

    source: str
    text: str
    """Stored text; the offsets of the chunks count its characters."""
    media_type: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """Replacements and guesses made while reading, as sentences."""
    spans: tuple[TextSpan, ...] = ()
    """Headings, rows and locations of the text, ascending, without overlaps."""
    parent_source: str | None = None
    """The JSONL file that this is a line of."""
    chunks: tuple[TextChunk, ...] | None = None
    """Chunks of the text; None: the pipeline cuts it."""
    document_id: UUID | None = None
    """As in ``DocumentPart``."""


@dataclass(frozen=True, slots=True)
class IngestionError:
    """Error of a failed document; code and message are safe to show."""

    code: str
    """``VectorForgeError.code``; for a document that cannot be read ``document_`` and the reason, such as
    ``document_encrypted``."""
    message: str
    retryable: bool = False
    """True if the unchanged document may succeed later."""

    @classmethod
    def of(cls, exc: VectorForgeError) -> Self:
        """Return an exception as the error of a document."""
        code = f"document_{exc.reason}" if isinstance(exc, ExtractionError) else exc.code
        return cls(code, exc.message, retryable=exc.retryable)


class DocumentStatus(StrEnum):
    """Final status of a document."""

    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    """Stored already; nothing was embedded or written."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """Result of one document of a request."""

    source: str
    status: DocumentStatus
    document_id: UUID | None = None
    chunks_added: int = 0
    chunks_kept: int = 0
    """Unchanged chunks: same id, same embedding."""
    chunks_removed: int = 0
    error: IngestionError | None = None
    warnings: tuple[str, ...] = ()
    language: str | None = None
    """Language of the document, ISO 639-1; None if unknown."""

    @classmethod
    def of(cls, document: ExtractedDocument, stored: StoredDocument) -> Self:
        """Return the result of a document that was stored or unchanged."""
        return cls(
            source=document.source,
            status=DocumentStatus.UNCHANGED if stored.unchanged else DocumentStatus.SUCCEEDED,
            document_id=stored.document_id,
            chunks_added=stored.chunks_added,
            chunks_kept=stored.chunks_kept,
            chunks_removed=stored.chunks_removed,
            language=language_of(document.metadata),
            warnings=(*document.warnings, *stored.warnings),
        )

    @classmethod
    def of_failure(cls, source: str, exc: VectorForgeError, warnings: tuple[str, ...] = ()) -> Self:
        """Return the result of a document that failed with an error."""
        return cls(source, DocumentStatus.FAILED, error=IngestionError.of(exc), warnings=warnings)


def cell_range(cells: Sequence[int]) -> str:
    """Return first column, first row, last column and last row (from 1) as "A2:C9"; one cell as "A2"."""
    first, last = (f"{_column(cells[at])}{cells[at + 1]}" for at in (0, 2))
    return first if first == last else f"{first}:{last}"


def _column(number: int) -> str:
    name = ""
    while number > 0:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("A") + letter) + name
    return name
