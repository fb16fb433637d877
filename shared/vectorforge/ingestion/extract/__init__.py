"""Extraction of text from documents; ``docs/use/file-types.md`` lists the types."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, cast

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.blocks import usable_title
from vectorforge.ingestion.extract.decode import (
    clean,
    clean_json,
    decode,
    open_archive,
    read_member,
    replaced_warning,
    unread_warning,
)
from vectorforge.ingestion.extract.isolation import run_isolated
from vectorforge.ingestion.extract.readers.markdown import read_markdown
from vectorforge.ingestion.extract.readers.records import extract_record, split_records
from vectorforge.ingestion.extract.reading import WITHOUT_CHILD, has_reader, packages, read_text
from vectorforge.ingestion.language import with_language
from vectorforge.ingestion.types import (
    MAX_SOURCE_CHARS,
    DocumentPart,
    ExtractedDocument,
    ExtractionLimits,
    ReadText,
    TextSpan,
)
from vectorforge.names import one_line

__all__ = ["PartReader", "extract", "split"]

_HARMLESS_HTML_BYTES = 65_536
"""Parsing time grows with the square of the nesting depth (100 s for 1 MB of ``<div>``): larger pages are
read in a child process, which costs 0.2 s."""
_MAX_FILES = 1_000
"""Documents of a ZIP file."""
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
        ExtractionError: With a ``reason``: ``empty``, ``encrypted``, ``not_deployed`` (a package is missing),
            ``too_large``, ``undecodable``, ``unsupported_type`` or ``unreadable``.
        InvalidInputError: ``source`` is empty or too long.
    """
    limits = limits or ExtractionLimits()
    return [
        _extract_part(part, limits, cancellation)
        for part in split(content, source=source, media_type=media_type, limits=limits)
    ]


def _extract_part(
    part: DocumentPart, limits: ExtractionLimits, cancellation: threading.Event | None
) -> ExtractedDocument:
    kind = media.detect(part.content, part.source, part.media_type)
    if not part.content.strip():
        raise ExtractionError("The document is empty.", reason="empty")
    if kind == media.RECORD:
        document = extract_record(part.content, part.source)
    else:
        read = _read(kind, part, limits, cancellation)
        document = ExtractedDocument(
            source=part.source,
            text=read["text"],
            media_type=kind,
            title=usable_title(read.get("title")),
            metadata=read.get("metadata", {}),
            warnings=tuple(read.get("warnings", ())),
            spans=tuple(read.get("spans", ())),
        )
    if not document.text.strip():
        raise ExtractionError("The document contains no text.", reason="empty")
    limits.check_chars(len(document.text))
    return replace(document, warnings=(*part.warnings, *document.warnings))


def _read(
    kind: str, part: DocumentPart, limits: ExtractionLimits, cancellation: threading.Event | None
) -> ReadText:
    declared = _CHARSET.search(part.media_type or "")
    charset = declared[1] if declared else None
    arguments: dict[str, Any] = {"max_chars": limits.max_chars, "charset": charset, "ocr": limits.ocr}
    if kind in WITHOUT_CHILD or (kind == media.HTML and len(part.content) <= _HARMLESS_HTML_BYTES):
        return read_text(kind, part.content, **arguments)
    if has_reader(kind):
        read = run_isolated(kind, part.content, arguments, limits=limits, cancellation=cancellation)
        return cast("ReadText", {**read, "spans": [TextSpan(*span) for span in read["spans"]]})
    text, warnings = decode(part.content, charset)
    if kind == media.MARKDOWN:
        with packages():
            return read_markdown(text, warnings)
    return {"text": text, "warnings": warnings}


class PartReader:
    """Reads files within limits."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self.limits = limits

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
        import asyncio  # not by the child process, which starts 30 ms sooner

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
        warnings = [*part.warnings, *document.warnings]
        if replaced:
            warnings.append(replaced_warning(replaced, "of title and metadata that cannot be stored"))
        return replace(
            document,
            title=one_line(chosen)[:_MAX_TITLE_CHARS] or None,
            metadata=with_language(cleaned, document.text),
            warnings=tuple(dict.fromkeys(warnings)),
            parent_source=part.parent_source,
            document_id=part.document_id,
        )


def split(
    content: bytes, *, source: str, media_type: str | None = None, limits: ExtractionLimits | None = None
) -> list[DocumentPart]:
    """Cut a file into parts that are one document each: lines of JSONL, files of a ZIP, or itself.

    Raises:
        ExtractionError: ``too_large``, ``unsupported_type``, ``encrypted``, ``undecodable``, or ``empty``
            for a JSONL file without lines.
        InvalidInputError: ``source`` is empty or too long.
    """
    limits = limits or ExtractionLimits()
    _check_size(content, source, limits)
    source, _ = clean(source)
    kind = media.detect(content, source, media_type)
    if kind not in (media.JSONL, media.ZIP):
        return [DocumentPart(content, source, media_type)]
    unread: list[str] = []
    parts = list(
        split_records(content, source)
        if kind == media.JSONL
        else split_archive(content, source, limits, unread)
    )
    warnings = (unread_warning("Files of the archive", unread),) if unread else ()
    if not parts:
        raise ExtractionError(" ".join(["The document is empty.", *warnings]), reason="empty")
    return [replace(parts[0], warnings=warnings), *parts[1:]]


def split_archive(
    content: bytes, source: str, limits: ExtractionLimits, unread: list[str]
) -> Iterator[DocumentPart]:
    """Yield a part for each file of a ZIP archive, in its order, with the source ``<archive>#<path>``.

    Folders and hidden files are left out; so are archives within and files whose extension means that they
    cannot be read, whose names are added to ``unread``.

    Raises:
        ExtractionError: ``unreadable`` or ``encrypted``; ``too_large``: over 200 MB unpacked, 1,000 files, or
            a file over the limit of one document.
    """
    with open_archive(content) as archive:
        shown = [name for name in dict.fromkeys(archive.namelist()) if not _is_hidden(name)]
        names = [name for name in shown if _is_readable(name)]
        unread += [name for name in shown if not _is_readable(name)]
        if len(names) > _MAX_FILES:
            raise ExtractionError(
                f"The archive has {len(names):,} files; at most {_MAX_FILES:,} are read. Split it.",
                reason="too_large",
            )
        for name in names:
            path, size = clean(name)[0], archive.getinfo(name).file_size
            if size > limits.max_bytes:
                raise ExtractionError(
                    f"{path[:200]} in the archive has {size:,} bytes; at most {limits.max_bytes:,} are read.",
                    reason="too_large",
                )
            member = read_member(archive, name)
            part = DocumentPart(member, f"{source}#{path}"[:MAX_SOURCE_CHARS], None, source, path)
            if media.EXTENSIONS.get(PurePosixPath(name).suffix.lower()) == media.JSONL:
                for record in split_records(member, part.source):
                    yield replace(record, parent_source=source)
            else:
                yield part


def _is_hidden(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return name.endswith("/") or any(part.startswith((".", "__MACOSX")) for part in parts)


def _is_readable(name: str) -> bool:
    extension = PurePosixPath(name).suffix.lower()
    return not (extension == ".zip" or extension in media.UNREADABLE or extension in media.REFUSED)


def _check_size(content: bytes, source: str, limits: ExtractionLimits) -> None:
    if not 0 < len(source) <= MAX_SOURCE_CHARS:
        raise InvalidInputError(f"source must have 1 to {MAX_SOURCE_CHARS:,} characters.", field="source")
    if len(content) > limits.max_bytes:
        raise ExtractionError(
            f"The document has {len(content):,} bytes; at most {limits.max_bytes:,} are read.",
            reason="too_large",
        )
