"""Extraction of text from documents; ``docs/use/file-types.md`` lists the types."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, clean_json, decode
from vectorforge.ingestion.extract.html import extract_html
from vectorforge.ingestion.extract.isolation import Reader, read_isolated
from vectorforge.ingestion.extract.markdown import read_markdown
from vectorforge.ingestion.extract.records import extract_record, extract_rows, split_records
from vectorforge.ingestion.types import (
    MAX_SOURCE_CHARS,
    Cancellation,
    DocumentPart,
    ExtractedDocument,
    ExtractionLimits,
    ReadText,
)

__all__ = ["PartReader", "extract", "split"]

_HARMLESS_HTML_BYTES = 65_536
"""Parsing time grows with the square of the nesting depth (100 s for 1 MB of ``<div>``): larger pages are
read in a child process, which costs 0.2 s."""
_MAX_TITLE_CHARS = 500
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w-]+)", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"(untitled( document)?|document ?\d*|word document|\(anonymous\)|(microsoft \w+ - .*)?"
    r"|\S+\.(docx?|dotx?|dvi|indd|odt|pdf|pptx?|ps|rtf|tex|tmp|xlsx?))?",
    re.IGNORECASE,
)
"""Placeholder titles of programs; the file's name is used instead."""


def split(
    content: bytes, *, source: str, media_type: str | None = None, limits: ExtractionLimits | None = None
) -> list[DocumentPart]:
    """Cut a file into the parts that are one document each: the lines of JSONL, else the file itself.

    Args:
        content: The file.
        source: Its path, URL or key.
        media_type: Declared media type; see ``media.detect``.
        limits: ``max_bytes`` applies.

    Raises:
        ExtractionError: ``too_large``, ``unsupported_type``, ``encrypted``, ``undecodable``, or ``empty``
            for a JSONL file without lines.
        InvalidInputError: ``source`` is empty or too long.
    """
    _check_size(content, source, limits or ExtractionLimits())
    source, _ = clean(source)
    if media.detect(content, source, media_type) != media.JSONL:
        return [DocumentPart(content, source, media_type)]
    parts = list(split_records(content, source))
    if not parts:
        raise ExtractionError("The document is empty.", reason="empty")
    return parts


def extract(
    content: bytes,
    *,
    source: str,
    media_type: str | None = None,
    limits: ExtractionLimits | None = None,
    cancellation: Cancellation | None = None,
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
        ExtractionError: With a ``reason``: ``empty``, ``encrypted``, ``too_large``, ``undecodable``,
            ``unsupported_type`` or ``unreadable``.
        InvalidInputError: ``source`` is empty or too long.
    """
    limits = limits or ExtractionLimits()
    return [
        _checked(_extract_part(part, limits, cancellation), limits)
        for part in split(content, source=source, media_type=media_type, limits=limits)
    ]


def _extract_part(
    part: DocumentPart, limits: ExtractionLimits, cancellation: Cancellation | None
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
        title=_usable_title(read["title"]),
        metadata=read.get("metadata", {}),
        warnings=tuple(read["warnings"]),
        page_starts=tuple(read["page_starts"]),
    )


def _read(
    kind: str, part: DocumentPart, limits: ExtractionLimits, cancellation: Cancellation | None
) -> ReadText:
    found = _CHARSET.search(part.media_type or "")
    charset = found[1] if found else None
    if kind == media.HTML and len(part.content) <= _HARMLESS_HTML_BYTES:
        return extract_html(part.content, charset=charset)
    isolated: dict[str, tuple[Reader, dict[str, Any]]] = {
        media.HTML: ("html", {"charset": charset}),
        media.PDF: ("pdf", {"max_chars": limits.max_chars}),
        media.DOCX: ("docx", {"max_chars": limits.max_chars}),
        media.JSON: ("json", {"max_chars": limits.max_chars}),
        media.NOTEBOOK: ("notebook", {}),
        media.MAIL: ("mail", {}),
        media.RTF: ("rtf", {}),
    }
    if kind in isolated:
        reader, arguments = isolated[kind]
        return read_isolated(reader, part.content, arguments, limits=limits, cancellation=cancellation)
    text, warnings = decode(part.content, charset)
    if kind == media.MARKDOWN:
        return read_markdown(text, warnings)
    if kind in (media.CSV, media.TSV):
        text = extract_rows(text, delimiter="\t" if kind == media.TSV else None)
    return {"text": text, "title": None, "page_starts": [], "warnings": warnings}


def _usable_title(title: str | None) -> str | None:
    title = " ".join((title or "").split())
    return None if _PLACEHOLDER.fullmatch(title) else title


def _checked(document: ExtractedDocument, limits: ExtractionLimits) -> ExtractedDocument:
    if not document.text.strip():
        raise ExtractionError("The document contains no text.", reason="empty")
    if len(document.text) > limits.max_chars:
        raise ExtractionError(f"The text is longer than {limits.max_chars:,} characters.", reason="too_large")
    return document


def _check_size(content: bytes, source: str, limits: ExtractionLimits) -> None:
    if not 0 < len(source) <= MAX_SOURCE_CHARS:
        raise InvalidInputError(f"source must have 1 to {MAX_SOURCE_CHARS:,} characters.", field="source")
    if len(content) > limits.max_bytes:
        raise ExtractionError(
            f"The document has {len(content):,} bytes; at most {limits.max_bytes:,} are read.",
            reason="too_large",
        )


class PartReader:
    """Reads files within limits.

    Args:
        limits: Of each file.
    """

    def __init__(self, limits: ExtractionLimits) -> None:
        self.limits = limits

    async def split(self, content: bytes, source: str, media_type: str | None) -> list[DocumentPart]:
        """Cut a file into its documents; see ``IngestionPipeline.split``."""
        return await asyncio.to_thread(
            split, content, source=source, media_type=media_type, limits=self.limits
        )

    async def read(
        self, part: DocumentPart, title: str | None, metadata: Mapping[str, Any]
    ) -> ExtractedDocument:
        """The text of a document, with its title and metadata as they can be stored.

        Args:
            part: The document.
            title: Overrides the title in it, but not that of a JSONL record; cut to 500 characters.
            metadata: Added to its own; overrides them, except those of a JSONL record.

        Raises:
            ExtractionError: It cannot be read.
        """
        cancellation = Cancellation()
        try:
            [document] = await asyncio.to_thread(
                extract,
                part.content,
                source=part.source,
                media_type=part.media_type,
                limits=self.limits,
                cancellation=cancellation,
            )
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        if part.media_type == media.RECORD:
            found, fields = document.title or title, {**metadata, **document.metadata}
        else:
            found, fields = title or document.title, {**document.metadata, **metadata}
        chosen, in_title = clean(found or part.fallback_title or "")
        cleaned, in_metadata = clean_json(fields)
        replaced = in_title + in_metadata
        warning = f"Replaced {replaced} characters of title and metadata that cannot be stored."
        warnings = (*document.warnings, warning) if replaced else document.warnings
        return replace(
            document,
            title=chosen.strip()[:_MAX_TITLE_CHARS] or None,
            metadata=cleaned,
            warnings=warnings,
            parent_source=part.parent_source,
        )
