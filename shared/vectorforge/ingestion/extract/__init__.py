"""Extraction of text from documents; ``docs/use/file-types.md`` lists the types."""

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.blocks import usable_title
from vectorforge.ingestion.extract.decode import clean, clean_json, decode
from vectorforge.ingestion.extract.isolation import read_isolated
from vectorforge.ingestion.extract.parts import split
from vectorforge.ingestion.extract.readers.markdown import read_markdown
from vectorforge.ingestion.extract.readers.records import extract_record
from vectorforge.ingestion.extract.reading import has_reader, read_text
from vectorforge.ingestion.language import with_language
from vectorforge.ingestion.types import (
    DocumentPart,
    ExtractedDocument,
    ExtractionLimits,
    ReadText,
)

__all__ = ["PartReader", "extract", "split"]

_HARMLESS_HTML_BYTES = 65_536
"""Parsing time grows with the square of the nesting depth (100 s for 1 MB of ``<div>``): larger pages are
read in a child process, which costs 0.2 s."""
_HARMLESS = frozenset({media.CSV, media.TSV})
"""Types that are read in this process, in time that grows with their size."""
_MAX_TITLE_CHARS = 500
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w-]+)", re.IGNORECASE)


def extract(
    content: bytes,
    *,
    source: str,
    media_type: str | None = None,
    limits: ExtractionLimits | None = None,
    cancellation: threading.Event | None = None,
) -> list[ExtractedDocument]:
    """Read a file; blocks, for most formats until their child process is done.

    Args:
        content: The file.
        source: Its path, URL or key; identifies the document in its collection, at most 2,000 characters.
        media_type: Declared media type; default: detected by extension and first bytes.
        limits: Default: 25 MB, 10 million characters, 120 seconds.
        cancellation: Stops a child process early.

    Returns:
        One document, several for JSONL (one a line, in order). To get past bad lines, ``split`` first and
        extract each part.

    Raises:
        ExtractionError: With a ``reason``: ``empty``, ``encrypted``, ``not_deployed`` (no engine for OCR),
            ``too_large``, ``undecodable``, ``unsupported_type`` or ``unreadable``.
        InvalidInputError: ``source`` is empty or too long.
    """
    limits = limits or ExtractionLimits()
    return [
        _checked(_extract_part(part, limits, cancellation), limits)
        for part in split(content, source=source, media_type=media_type, limits=limits)
    ]


def _extract_part(
    part: DocumentPart, limits: ExtractionLimits, cancellation: threading.Event | None
) -> ExtractedDocument:
    kind = media.detect(part.content, part.source, part.media_type)
    if not part.content.strip():
        raise ExtractionError("The document is empty.", reason="empty")
    if kind == media.RECORD:
        return extract_record(part.content, part.source)
    read = _read(kind, part, limits, cancellation)
    return ExtractedDocument(
        source=part.source,
        text=read["text"],
        media_type=kind,
        title=usable_title(read.get("title")),
        metadata=read.get("metadata", {}),
        warnings=tuple(read.get("warnings", ())),
        spans=tuple(read.get("spans", ())),
    )


def _read(
    kind: str, part: DocumentPart, limits: ExtractionLimits, cancellation: threading.Event | None
) -> ReadText:
    declared = _CHARSET.search(part.media_type or "")
    charset = declared[1] if declared else None
    arguments: dict[str, Any] = {"max_chars": limits.max_chars, "charset": charset, "ocr": limits.ocr}
    if kind in _HARMLESS or (kind == media.HTML and len(part.content) <= _HARMLESS_HTML_BYTES):
        return read_text(kind, part.content, **arguments)
    if has_reader(kind):
        return read_isolated(kind, part.content, arguments, limits=limits, cancellation=cancellation)
    text, warnings = decode(part.content, charset)
    if kind == media.MARKDOWN:
        return read_markdown(text, warnings)
    return {"text": text, "warnings": warnings}


def _checked(document: ExtractedDocument, limits: ExtractionLimits) -> ExtractedDocument:
    if not document.text.strip():
        raise ExtractionError("The document contains no text.", reason="empty")
    limits.check_chars(len(document.text))
    return document


class PartReader:
    """Reads files within limits."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self.limits = limits

    async def split(self, content: bytes, source: str, media_type: str | None) -> list[DocumentPart]:
        """Cut a file into its documents; see ``IngestionPipeline.split``."""
        return await asyncio.to_thread(
            split, content, source=source, media_type=media_type, limits=self.limits
        )

    async def read(
        self, part: DocumentPart, metadata: Mapping[str, Any], *, ocr: bool = False
    ) -> ExtractedDocument:
        """Read one document, as ``read_all`` does.

        Raises:
            ExtractionError: It cannot be read.
        """
        [result] = await self.read_all([(part, None, metadata)], ocr=ocr)
        if isinstance(result, Exception):
            raise result
        return result

    async def read_all(
        self, items: Sequence[tuple[DocumentPart, str | None, Mapping[str, Any]]], *, ocr: bool = False
    ) -> "list[ExtractedDocument | Exception]":
        """The text of each document, with its title and metadata as they can be stored, or its error.

        All in one thread, which for a document of one chunk costs as much as reading it does.

        Args:
            items: The document; a title that overrides the one in it, but not that of a JSONL record, cut to
                500 characters; and metadata added to its own, which override them, except a JSONL record's.
            ocr: Recognize images, and pages of PDFs without a text layer.
        """
        cancellation = threading.Event()
        limits = replace(self.limits, ocr=self.limits.ocr._replace(enabled=ocr))

        def read() -> list[ExtractedDocument | Exception]:
            results: list[ExtractedDocument | Exception] = []
            for part, title, metadata in items:
                try:
                    results.append(self._read(part, title, metadata, limits, cancellation))
                except Exception as exc:  # noqa: BLE001 - a bug with one document must not fail the others
                    results.append(exc)
            return results

        try:
            return await asyncio.to_thread(read)
        except asyncio.CancelledError:
            cancellation.set()
            raise

    def _read(
        self,
        part: DocumentPart,
        title: str | None,
        metadata: Mapping[str, Any],
        limits: ExtractionLimits,
        cancellation: threading.Event,
    ) -> ExtractedDocument:
        [document] = extract(
            part.content,
            source=part.source,
            media_type=part.media_type,
            limits=limits,
            cancellation=cancellation,
        )
        if part.media_type == media.RECORD:
            preferred, fields = document.title or title, {**metadata, **document.metadata}
        else:
            preferred, fields = title or document.title, {**document.metadata, **metadata}
        chosen, in_title = clean(preferred or part.fallback_title or "")
        cleaned, in_metadata = clean_json(fields)
        replaced = in_title + in_metadata
        warning = f"Replaced {replaced} characters of title and metadata that cannot be stored."
        warnings = (*document.warnings, warning) if replaced else document.warnings
        return replace(
            document,
            title=chosen.strip()[:_MAX_TITLE_CHARS] or None,
            metadata=with_language(cleaned, document.text),
            warnings=warnings,
            parent_source=part.parent_source,
            document_id=part.document_id,
        )
