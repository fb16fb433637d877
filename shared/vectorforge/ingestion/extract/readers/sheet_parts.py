"""Parts of sheets that python-calamine does not read: texts of numbers, comments, hidden rows and columns.

Those of ODS are in ``opendocument``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import open_member, read_member
from vectorforge.ingestion.extract.readers.number_formats import BUILT_IN, FormattedNumber, format_number
from vectorforge.ingestion.extract.readers.xml import parse_xml, relations

MAX_ROWS: Final = 1 << 20
MAX_COLUMNS: Final = 1 << 14
_MAIN: Final = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_R: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_WORKBOOK: Final = "xl/workbook.xml"
_STYLES: Final = "xl/styles.xml"
_SHEET: Final = re.compile(r"xl/worksheets/[^/]+\.xml$")
_BLOCK_BYTES: Final = 1 << 18
"""Far more than the longest formula of 8,192 characters."""
_UNSTORED: Final = re.compile(rb"<c\b[^<>]*>\s*<f\b[^<>]*>(?:[^<]*</f>)?\s*(?:<v\s*/>|<v></v>)?\s*</c>")
"""Cells whose formula has no value, as of programs that write workbooks without calculating them."""
_CELL: Final = re.compile(rb"<(?:\w+:)?(row|col|c|autoFilter|filterColumn)\b([^<>]*)>")
_HIDDEN: Final = re.compile(rb'\bhidden="(?:1|true)"')
_GROUPED: Final = re.compile(rb'\boutlineLevel="[1-9]')
_BETWEEN: Final = re.compile(rb'\b(?:min|max)="(\d{1,5})"')
_FILTERED: Final = re.compile(rb'\bref="[A-Z]{1,3}(\d{1,7})(?::[A-Z]{1,3}(\d{1,7}))?"')
_NAME: Final = re.compile(rb'\br="([A-Z]{0,3})(\d{1,7})"')
_REFERENCE: Final = re.compile(rb"([A-Z]{1,3})(\d{1,7})")
_STYLE: Final = re.compile(rb'\bs="(\d{1,5})"')


@dataclass(slots=True)
class SheetCells:
    """Parts of a sheet; rows and columns from 0."""

    formats: Iterator[tuple[int, int, str]] = field(default_factory=lambda: iter(()))
    """Row, column and format of cells; read to its end, it has filled the other fields."""
    is_text: bool = False
    """True if the formats are the texts shown instead, as in ODS."""
    comments: dict[tuple[int, int], str] = field(default_factory=dict)
    """By row and column."""
    rows: set[int] = field(default_factory=set)
    """Hidden rows, except those of a filter or a closed group, which a click shows."""
    columns: set[int] = field(default_factory=set)
    """Hidden columns, with the same exception."""

    def shown(self, value: Any, code: str) -> Any:
        """Return a cell's value as its format shows it."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return code if self.is_text and str(value).startswith("PT") else value  # a duration
        text = code if self.is_text else format_number(value, code)
        return value if text is None else FormattedNumber(value, text)


def unstored_formulas(archive: ZipFile) -> int:
    """Return the number of formulas whose value is not stored."""
    sheets = filter(_SHEET.match, archive.namelist())
    blocks = (block for name in sheets for block in _blocks(archive, name, b"</c>"))
    return sum(1 for block in blocks for _ in _UNSTORED.finditer(block))


def _blocks(archive: ZipFile, name: str, end: bytes) -> Iterator[bytes]:
    """Yield a member's bytes in blocks that end with ``end``; what is longer than a block is cut."""
    rest = b""
    with open_member(archive, name) as file:
        while block := file.read(_BLOCK_BYTES):
            rest += block
            whole, found, after = rest.rpartition(end)
            yield whole + found
            rest = after[-_BLOCK_BYTES:]


class SheetParts:
    """Number formats, comments and hidden rows of an XLSX file; none if they cannot be read."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._paths: dict[str, str] = {}
        self._formats: Mapping[int, str] = {}
        if _WORKBOOK not in archive.NameToInfo:
            return
        try:
            targets = relations(archive, _WORKBOOK)
            for sheet in parse_xml(read_member(archive, _WORKBOOK)).iter(f"{_MAIN}sheet"):
                self._paths[sheet.get("name", "")] = targets.get(sheet.get(f"{_R}id", ""), ("", ""))[1]
            self._formats = _formats(parse_xml(read_member(archive, _STYLES)))
        except ExtractionError:
            return

    def sheet(self, name: str) -> SheetCells:
        """Return the parts of a sheet."""
        cells = SheetCells(comments=self._comments(name))
        path = self._paths.get(name, "")
        if path in self._archive.NameToInfo:
            cells.formats = self._formats_of(name, path, cells)
        return cells

    def _formats_of(self, name: str, path: str, cells: SheetCells) -> Iterator[tuple[int, int, str]]:
        row, column, area = -1, -1, b""
        for block in _blocks(self._archive, path, b">"):
            for kind, attributes in _CELL.findall(block):
                if kind == b"c":
                    place = _NAME.search(attributes)
                    column = _column(place[1]) if place else column + 1
                    style = _STYLE.search(attributes)
                    if style and (code := self._formats.get(int(style[1]))):
                        yield row, column, code
                elif kind == b"row":
                    place = _NAME.search(attributes)
                    row, column = int(place[2]) - 1 if place else row + 1, -1
                    cells.rows.update([row] if _is_hidden(attributes) else ())
                elif kind == b"col":
                    cells.columns.update(_columns_of(attributes) if _is_hidden(attributes) else ())
                elif kind == b"autoFilter":
                    area = attributes
                else:
                    cells.rows -= _rows_of(area)
        for found in self._related(name, "/table", "{*}autoFilter"):
            if found.find("{*}filterColumn") is not None:
                cells.rows -= _rows_of(f'ref="{found.get("ref", "")}"'.encode())

    def _comments(self, name: str) -> dict[tuple[int, int], str]:
        texts: dict[tuple[int, int], str] = {}
        for kind in ("/comments", "/threadedComment"):  # the former tell older programs of the latter
            found: dict[tuple[int, int], list[str]] = {}
            for comment in self._related(name, kind, "{*}comment", "{*}threadedComment"):
                place = _REFERENCE.match(comment.get("ref", "").encode())
                if place and (text := " ".join("".join(comment.itertext()).split())):
                    found.setdefault((int(place[2]) - 1, _column(place[1])), []).append(text)
            texts |= {place: " / ".join(thread) for place, thread in found.items()}
        return texts

    def _related(self, name: str, kind: str, *tags: str) -> Iterator[Any]:
        """Yield the elements with given tags of the parts that a sheet is related to."""
        try:
            for found, path in relations(self._archive, self._paths[name]).values():
                if found.endswith(kind):
                    yield from parse_xml(read_member(self._archive, path)).iter(*tags)
        except (ExtractionError, KeyError):
            return


def _formats(styles: Any) -> Mapping[int, str]:
    """Return the formats by the index of their style, without "General"."""
    custom = {one.get("numFmtId"): one.get("formatCode", "") for one in styles.iter(f"{_MAIN}numFmt")}
    ids = [one.get("numFmtId", "") for one in styles.iterfind(f"{_MAIN}cellXfs/{_MAIN}xf")]
    codes = enumerate(custom.get(one) or BUILT_IN.get(one, "") for one in ids)
    return {index: code for index, code in codes if code and code.lower() != "general"}


def _is_hidden(attributes: bytes) -> bool:
    """Return True for a hidden row or column, except of a closed group."""
    is_grouped = _GROUPED.search(attributes) is not None
    return b"hidden" in attributes and _HIDDEN.search(attributes) is not None and not is_grouped


def _columns_of(attributes: bytes) -> range:
    ends = [min(int(number), MAX_COLUMNS) for number in _BETWEEN.findall(attributes)]
    return range(min(ends, default=1) - 1, max(ends, default=0))


def _rows_of(area: bytes) -> set[int]:
    found = _FILTERED.search(area)
    return set(range(int(found[1]) - 1, min(int(found[2] or found[1]), MAX_ROWS))) if found else set()


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number - 1
