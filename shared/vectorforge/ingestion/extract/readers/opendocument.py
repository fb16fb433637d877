"""ODT and ODP, by lxml, and what python-calamine does not read of ODS; the rest of ODS is in ``sheets``."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import (
    Block,
    Reading,
    Row,
    comment,
    heading,
    is_from_right,
    item,
    paragraph,
    table,
)
from vectorforge.ingestion.extract.decode import open_archive, open_member, read_member
from vectorforge.ingestion.extract.readers.sheet_parts import MAX_COLUMNS, MAX_ROWS, SheetCells
from vectorforge.ingestion.extract.readers.slides import Box, reading_order
from vectorforge.ingestion.extract.readers.xml import local_name, parse_xml
from vectorforge.types import Location

_TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAW: Final = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_PRESENTATION: Final = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_SVG: Final = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_LENGTH: Final = re.compile(r"(-?\d{1,6}(?:\.\d{1,9})?)(cm|mm|in|pt)")
_UNITS: Final = {"cm": 360_000, "mm": 36_000, "in": 914_400, "pt": 12_700}
_OMITTED: Final = (
    "tracked-changes",
    "forms",
    "sequence-decls",
    "table-of-content",
    "alphabetical-index",
)
_APART: Final = ("note", "annotation", "frame", "text-box")  # read behind their paragraph or table
_MAX_REPEATED: Final = 50
"""Repetitions of one cell; spreadsheets pad their rows with thousands."""


def read_odt(content: bytes) -> Reading:
    """Read headings, paragraphs, lists and tables; footnotes and comments follow their paragraph or table.

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
        blocks += _blocks([frame for frame in _as_shown(page) if frame not in titles], location)
    return Reading(blocks, title or next((block.text for block in blocks), None))


def _as_shown(page: Any) -> list[Any]:
    """Return the parts of a slide in reading order, notes last."""
    notes = [part for part in page if local_name(part) == "notes"]
    shapes = [part for part in page if part not in notes]
    texts = ("".join(found.itertext()) for shape in shapes for found in shape.iter(f"{_TEXT}p"))
    order = reading_order([*map(_box, shapes)], is_from_right(texts))
    return [*(shapes[at] for at in order), *notes]


def _box(shape: Any) -> Box:
    if local_name(shape) == "g":
        inner = [*zip(*filter(None, map(_box, shape)), strict=True)]
        return (min(inner[0]), min(inner[1]), max(inner[2]), max(inner[3])) if inner else None
    found = [_LENGTH.fullmatch(shape.get(f"{_SVG}{name}", "")) for name in ("x", "y", "width", "height")]
    lengths = [round(float(one[1]) * _UNITS[one[2]]) for one in found if one]
    if len(lengths) < len(found):
        return None
    x, y, width, height = lengths
    return x, y, x + width, y + height


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
        elif name == "list":
            yield from _blocks(child, location, depth + 1)
        elif name == "table":
            yield from _table(child, location)
        elif name not in (*_OMITTED, "annotation"):
            yield from _blocks(child, location, depth)
        if name in ("h", "p", "table", "annotation"):
            yield from _attached([child], location)


def _attached(element: Any, location: Location | None) -> Iterator[Block]:
    """Yield the footnotes, comments and text boxes in elements."""
    for child in element:
        name = local_name(child)
        if name == "note-body":
            yield paragraph(" ".join(_texts(child)), location)
        elif name == "annotation":
            yield comment(" ".join(_texts(child)), child.findtext("{*}creator", ""), location)
        elif name == "text-box":
            yield from _blocks(child, location)
        else:
            yield from _attached(child, location)


def _texts(element: Any) -> Iterator[str]:
    """Yield the texts of the paragraphs in a cell, a footnote or a comment."""
    for child in element:
        name = local_name(child)
        if name in ("p", "h"):
            yield _inline(child)
        elif name not in _APART:
            yield from _texts(child)


def _inline(element: Any) -> str:
    """Return the text of a paragraph, without footnotes, comments and text boxes in it."""
    parts: list[str] = [element.text or ""]
    for child in element:
        name = local_name(child)
        if name in ("s", "tab", "line-break"):
            parts.append("\n" if name == "line-break" else " ")
        elif name not in _APART:
            parts.append(_inline(child))
        parts.append(child.tail or "")
    return "".join(parts).strip("\n") if local_name(element) in ("p", "h") else "".join(parts)


def _table(element: Any, location: Location | None) -> list[Block]:
    marked = next(element.iter(f"{_TABLE}table-header-rows"), None) is not None
    rows: list[Row] = []
    spans: dict[int, int] = {}
    for row in element.iter(f"{_TABLE}table-row"):
        if next(row.iterancestors(f"{_TABLE}table"), None) is element:
            rows.append(Row([*_cells(row, rows[-1].cells if rows else (), spans)], location))
    return table(rows, has_header=True if marked else None)


def _cells(row: Any, above: Sequence[str], spans: dict[int, int]) -> Iterator[str]:
    """Yield the texts of a row; ``spans`` has the rows that the last cell of each column covers from here."""
    column = 0
    for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
        text = " ".join(_texts(cell))
        for _ in range(min(table_number(cell, "columns-repeated"), _MAX_REPEATED)):
            is_below = local_name(cell).startswith("covered") and spans.get(column, 0) > 0
            spans[column] = (spans[column] if is_below else table_number(cell, "rows-spanned")) - 1
            yield above[column] if is_below and column < len(above) else text
            column += 1


def table_number(cell: Any, name: str) -> int:
    """Return an attribute of a table's element such as "columns-repeated"; 1 if it has none."""
    number = cell.get(f"{_TABLE}number-{name}", "1")
    return int(number) if number.isdecimal() and len(number) < 8 else 1


_OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_GROUPS: Final = (f"{_TABLE}table-row-group", f"{_TABLE}table-column-group")
_SHOWN: Final = ("float", "percentage", "currency", "time")
"""Types of cells whose text is read; dates are written in ISO 8601, as those of other workbooks."""


class OdsParts:
    """Texts of numbers, comments and hidden rows of an ODS file; none if they cannot be read."""

    def __init__(self, archive: ZipFile) -> None:
        self._sheets = _sheets(archive)

    def sheet(self, name: str) -> SheetCells:
        """Return the parts of a sheet; called in the order of the file."""
        from lxml import etree

        try:
            return next((cells for one, cells in self._sheets if one == name), SheetCells())
        except (ExtractionError, etree.XMLSyntaxError):
            return SheetCells()


def _sheets(archive: ZipFile) -> Iterator[tuple[str, SheetCells]]:
    from lxml import etree

    with open_member(archive, "content.xml") as file:
        tags = [f"{_TABLE}table", f"{_TABLE}table-row", f"{_TABLE}table-column"]
        cells, texts, row, column = SheetCells(), list[tuple[int, int, str]](), 0, 0
        for _, element in etree.iterparse(file, tag=tags, resolve_entities=False, no_network=True):
            if element.tag == f"{_TABLE}table":
                cells.formats, cells.is_text = iter(texts), True
                yield element.get(f"{_TABLE}name", ""), cells
                cells, texts, row, column = SheetCells(), [], 0, 0
            elif element.tag == f"{_TABLE}table-column":
                end = column + min(table_number(element, "columns-repeated"), MAX_COLUMNS - column)
                cells.columns.update(range(column, end) if _is_hidden(element) else ())
                column = end
            else:
                end = row + min(table_number(element, "rows-repeated"), MAX_ROWS - row)
                found = [*_number_texts(element, cells.comments, row)]
                if _is_hidden(element) and len(element):
                    cells.rows.update(range(row, end))
                texts += [
                    (at, place, text) for at in range(row, end if found else row) for place, text in found
                ]
                row = end
            element.clear()


def _is_hidden(element: Any) -> bool:
    is_grouped = next(element.iterancestors(*_GROUPS), None) is not None
    return element.get(f"{_TABLE}visibility") == "collapse" and not is_grouped


def _number_texts(row: Any, comments: dict[tuple[int, int], str], number: int) -> Iterator[tuple[int, str]]:
    """Yield the texts of a row's numbers by column, and add its comments."""
    column = 0
    for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
        times = min(table_number(cell, "columns-repeated"), MAX_COLUMNS - column)
        text = _cell_text(cell)
        if text and cell.get(f"{_OFFICE}value-type") in _SHOWN:
            yield from ((at, text) for at in range(column, column + times))
        if note := " ".join(filter(None, map(_cell_text, cell.iterchildren(f"{_OFFICE}annotation")))):
            comments[number, column] = note
        column += times


def _cell_text(element: Any) -> str:
    paragraphs = ("".join(one.itertext()) for one in element.iterchildren(f"{_TEXT}p"))
    return " ".join(" ".join(paragraphs).split())
