"""Rich text (.rtf) by striprtf; runs in the child process only (``isolation``).

DOCX by python-docx; runs in the child process only (``isolation``).
"""

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean
from vectorforge.ingestion.types import ReadText


def extract_rtf(content: bytes) -> ReadText:
    """Read the text of a rich text file, without its pictures and its formatting.

    Raises:
        ExtractionError: ``unreadable``.
    """
    from striprtf.striprtf import rtf_to_text

    try:
        text = str(rtf_to_text(content.decode("latin-1"), errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as exc:  # whatever broken control words make it raise
        raise ExtractionError("The rich text is damaged and cannot be read.") from exc
    return {"text": clean(text)[0].strip(), "title": None, "page_starts": [], "warnings": []}


_MAX_UNCOMPRESSED_BYTES = 200 * 1024 * 1024
_MAX_MEMBERS = 10_000
_TITLE_IS_WITHIN = 50
"""Paragraphs from the start: a later one is no title of the document."""
_HEADING_STYLE = re.compile(r"heading ([1-6])", re.IGNORECASE)


def extract_docx(content: bytes, *, max_chars: int) -> ReadText:
    """Read paragraphs, headings and tables in the order of the document.

    Headings become Markdown headings, list paragraphs ``- `` lines, table rows lines of cells joined
    by " | ".

    Args:
        content: The file.
        max_chars: Reading stops when the text is longer.

    Returns:
        ``text``; ``title``: the first paragraph in the style Title, else the document's property, or None.

    Raises:
        ExtractionError: ``unreadable``, ``too_large`` or ``empty``.
    """
    _check_archive(content)
    from docx import Document

    try:
        document = Document(io.BytesIO(content))
        blocks = list(_blocks(document, max_chars))
        title = clean(_title(document))[0]
    except (ExtractionError, MemoryError):
        raise
    except Exception as exc:  # whatever python-docx, lxml, zipfile and zlib raise for broken packages
        raise ExtractionError("The DOCX file is damaged and cannot be read.") from exc
    if not blocks:
        raise ExtractionError("The document holds no text.", reason="empty")
    return {"text": "\n\n".join(blocks), "title": title or None, "page_starts": [], "warnings": []}


def _title(document: Any) -> str:
    for paragraph in document.paragraphs[:_TITLE_IS_WITHIN]:
        if paragraph.style is not None and paragraph.style.name == "Title" and paragraph.text.strip():
            return " ".join(paragraph.text.split())
    return str(document.core_properties.title or "").strip()


def _check_archive(content: bytes) -> None:
    """Against zip bombs: zipfile never inflates a member beyond the size its directory declares."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as exc:
        raise ExtractionError("The DOCX file is damaged and cannot be read.") from exc
    if len(members) > _MAX_MEMBERS or sum(member.file_size for member in members) > _MAX_UNCOMPRESSED_BYTES:
        limit = _MAX_UNCOMPRESSED_BYTES // 1024 // 1024
        raise ExtractionError(
            f"Unpacked, the document is larger than {limit} MB or has over {_MAX_MEMBERS:,} parts.",
            reason="too_large",
        )


def _blocks(document: Any, max_chars: int) -> Iterator[str]:
    total = 0
    for item in document.iter_inner_content():
        block = clean(_table(item) if hasattr(item, "rows") else _paragraph(item))[0]
        if not block.strip():
            continue
        total += len(block) + 2
        if total > max_chars:
            raise ExtractionError(f"The text is longer than {max_chars:,} characters.", reason="too_large")
        yield block


def _paragraph(paragraph: Any) -> str:
    text: str = paragraph.text.strip()
    style = (paragraph.style.name or "") if paragraph.style is not None else ""
    if heading := _HEADING_STYLE.match(style):
        return "#" * int(heading[1]) + " " + " ".join(text.split()) if text else ""
    if style == "Title":
        return f"# {' '.join(text.split())}" if text else ""
    return f"- {text}" if text and style.startswith("List") else text


def _table(table: Any) -> str:
    lines = []
    for row in table.rows:
        cells: list[str] = []
        previous = None
        for cell in row.cells:  # a merged cell is listed once for each column it covers
            if cell._tc is not previous:  # noqa: SLF001 - the only identity python-docx gives a cell
                cells.append(" ".join(cell.text.split()))
            previous = cell._tc  # noqa: SLF001 - see above
        if any(cells):
            lines.append(" | ".join(cells))
    return "\n".join(lines)
