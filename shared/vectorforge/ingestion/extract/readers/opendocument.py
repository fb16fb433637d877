"""ODT and ODP, by lxml; ODS is in ``sheets``."""

from collections.abc import Iterator
from typing import Any, Final

from vectorforge.ingestion.extract.blocks import Block, Reading, Row, heading, item, paragraph, table
from vectorforge.ingestion.extract.decode import open_archive, read_member
from vectorforge.ingestion.extract.readers.xml import local_name, parse_xml
from vectorforge.types import Location

_TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAW: Final = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_PRESENTATION: Final = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_OMITTED: Final = (
    "tracked-changes",
    "annotation",
    "forms",
    "sequence-decls",
    "table-of-content",
    "alphabetical-index",
)
_MAX_REPEATED: Final = 50
"""Repetitions of one cell; spreadsheets pad their rows with thousands."""


def read_odt(content: bytes) -> Reading:
    """Read headings, paragraphs, lists and tables; footnotes follow the paragraph that refers to them.

    Returns:
        ``title``: the document's property, else the first paragraph in the style Title or the first heading.

    Raises:
        ExtractionError: ``unreadable`` or ``too_large``.
    """
    body, title = _open(content)
    blocks = [*_blocks(body, None)]
    return Reading(blocks, title or next((block.text for block in blocks if block.level == 1), None))


def read_odp(content: bytes) -> Reading:
    """Read the slides in their order, each under its title, with tables and notes.

    Raises:
        ExtractionError: ``unreadable`` or ``too_large``.
    """
    body, title = _open(content)
    blocks: list[Block] = []
    for number, page in enumerate(body.iter(f"{_DRAW}page"), start=1):
        location = {"slide": number}
        titles = [frame for frame in page if frame.get(f"{_PRESENTATION}class") == "title"]
        name = " ".join(_inline(one) for frame in titles for one in frame.iter(f"{_TEXT}p")).strip()
        blocks.append(heading(name or f"Slide {number}", 1, location))
        for frame in page:
            if frame not in titles:
                blocks += _blocks(frame, location)
    return Reading(blocks, title or next((block.text for block in blocks), None))


def _open(content: bytes) -> tuple[Any, str]:
    with open_archive(content) as archive:
        body = parse_xml(read_member(archive, "content.xml"))
        title = ""
        if "meta.xml" in archive.NameToInfo:
            meta = parse_xml(read_member(archive, "meta.xml"))
            title = next((found.text or "" for found in meta.iter() if local_name(found) == "title"), "")
    return body, title.strip()


def _blocks(element: Any, location: Location | None, depth: int = -1) -> Iterator[Block]:
    """Yield the blocks within an element; libxml2 limits its depth to 256."""
    for child in element:
        name = local_name(child)
        if name == "h":
            level = child.get(f"{_TEXT}outline-level", "1")
            yield heading(_inline(child), int(level) if level.isdecimal() and len(level) < 3 else 1, location)
        elif name == "p":
            text = _inline(child)
            if child.get(f"{_TEXT}style-name") == "Title":
                yield heading(text, 1, location)
            else:
                yield item(text, depth, location) if depth >= 0 else paragraph(text, location)
            yield from _notes(child, location)
            yield from _frames(child, location)
        elif name == "list":
            yield from _blocks(child, location, depth + 1)
        elif name == "table":
            yield from _table(child, location)
        elif name not in _OMITTED:
            yield from _blocks(child, location, depth)


def _frames(element: Any, location: Location | None) -> Iterator[Block]:
    for box in element.iter(f"{_DRAW}text-box"):
        yield from _blocks(box, location)


def _notes(element: Any, location: Location | None) -> Iterator[Block]:
    for note in element.iter(f"{_TEXT}note-body"):
        yield paragraph(" ".join(_inline(one) for one in note.iter(f"{_TEXT}p")), location)


def _inline(element: Any) -> str:
    """Return the text of a paragraph, without footnotes, comments and text boxes in it."""
    parts: list[str] = [element.text or ""]
    for child in element:
        name = local_name(child)
        if name in ("s", "tab", "line-break"):
            parts.append("\n" if name == "line-break" else " ")
        elif name not in ("note", "annotation", "frame", "text-box"):
            parts.append(_inline(child))
        parts.append(child.tail or "")
    return "".join(parts).strip("\n") if local_name(element) in ("p", "h") else "".join(parts)


def _table(element: Any, location: Location | None) -> list[Block]:
    marked = next(element.iter(f"{_TABLE}table-header-rows"), None) is not None
    rows = [
        Row([*_cells(row)], location)
        for row in element.iter(f"{_TABLE}table-row")
        if next(row.iterancestors(f"{_TABLE}table"), None) is element
    ]
    return table(rows, has_header=True if marked else None)


def _cells(row: Any) -> Iterator[str]:
    for cell in row:
        if local_name(cell) in ("table-cell", "covered-table-cell"):
            repeated = cell.get(f"{_TABLE}number-columns-repeated", "1")
            times = min(int(repeated), _MAX_REPEATED) if repeated.isdecimal() and len(repeated) < 8 else 1
            yield from [" ".join(_inline(one) for one in cell.iter(f"{_TEXT}p"))] * times
