"""Types of ingestion: limits, parts, extracted documents and results."""

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NotRequired, Self, TypeAlias, TypedDict
from uuid import UUID

from vectorforge.config import IngestionSettings
from vectorforge.errors import ExtractionError, VectorForgeError
from vectorforge.types import StoredDocument

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

    @classmethod
    def from_settings(cls, settings: IngestionSettings) -> "ExtractionLimits":
        """Return the configured limits."""
        return cls(
            max_bytes=settings.max_document_bytes,
            max_chars=settings.max_document_chars,
            max_chunks=settings.max_chunks_per_document,
            max_request_chunks=settings.max_chunks_per_request,
            timeout_s=settings.extraction_timeout_s,
        )

    def check_chunks(self, count: int) -> None:
        """Hold the chunks of one document to their limit.

        Raises:
            ExtractionError: ``too_large``: there are more.
        """
        if count > self.max_chunks:
            raise ExtractionError(
                f"The document has {count:,} chunks, but may have at most {self.max_chunks:,} chunks; "
                "split it, or use a larger chunk_size.",
                reason="too_large",
            )


class Cancellation:
    """Cancellation of work that runs on another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Request the end of the work; callable repeatedly, from any thread."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """True after ``cancel``."""
        return self._event.is_set()


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


class ReadText(TypedDict):
    """Result of a format's reader; JSON-compatible, because some run in a child process."""

    text: str
    title: str | None
    page_starts: list[int]
    """Offset of each page's first character, ascending; empty when there are no pages."""
    warnings: list[str]
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
    page_starts: tuple[int, ...] = ()
    """Offset of each page's first character, ascending from page 1; empty when there are no pages."""
    parent_source: str | None = None
    """The JSONL file that this is a line of."""
    chunks: tuple[TextChunk, ...] | None = None
    """Chunks of the text; None: the pipeline cuts it."""


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
            warnings=document.warnings,
        )

    @classmethod
    def of_failure(cls, source: str, exc: VectorForgeError, warnings: tuple[str, ...] = ()) -> Self:
        """Return the result of a document that failed with an error."""
        return cls(source, DocumentStatus.FAILED, error=IngestionError.of(exc), warnings=warnings)
