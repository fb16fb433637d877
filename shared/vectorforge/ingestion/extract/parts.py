"""Documents of a file: the lines of JSONL, the files of a ZIP archive, or the file itself."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.extract.decode import clean, open_archive, read_member
from vectorforge.ingestion.extract.readers.records import split_records
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, DocumentPart, ExtractionLimits

_MAX_FILES = 1_000
"""Documents of a ZIP file."""


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
    parts = list(
        split_records(content, source) if kind == media.JSONL else split_archive(content, source, limits)
    )
    if not parts:
        raise ExtractionError("The document is empty.", reason="empty")
    return parts


def split_archive(content: bytes, source: str, limits: ExtractionLimits) -> Iterator[DocumentPart]:
    """Yield a part for each file of a ZIP archive, in its order, with the source ``<archive>#<path>``.

    Folders, hidden files, archives within and files whose extension means that they cannot be read are left
    out.

    Raises:
        ExtractionError: ``unreadable`` or ``encrypted``; ``too_large``: over 200 MB unpacked, 1,000 files, or
            a file over the limit of one document.
    """
    with open_archive(content) as archive:
        names = [name for name in dict.fromkeys(archive.namelist()) if _is_wanted(name)]
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


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    extension = path.suffix.lower()
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    unreadable = extension == ".zip" or extension in media.UNREADABLE or extension in media.REFUSED
    return not (name.endswith("/") or hidden or unreadable)


def _check_size(content: bytes, source: str, limits: ExtractionLimits) -> None:
    if not 0 < len(source) <= MAX_SOURCE_CHARS:
        raise InvalidInputError(f"source must have 1 to {MAX_SOURCE_CHARS:,} characters.", field="source")
    if len(content) > limits.max_bytes:
        raise ExtractionError(
            f"The document has {len(content):,} bytes; at most {limits.max_bytes:,} are read.",
            reason="too_large",
        )
