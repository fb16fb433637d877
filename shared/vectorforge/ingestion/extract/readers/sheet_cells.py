"""Parts of sheets that python-calamine does not read: texts of numbers, comments, hidden rows and columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import open_member
from vectorforge.ingestion.extract.readers.number_formats import FormattedNumber, format_number
from vectorforge.ingestion.extract.readers.opendocument import table_number


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


_T: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_GROUPS: Final = (f"{_T}table-row-group", f"{_T}table-column-group")
_SHOWN: Final = ("float", "percentage", "currency", "time")
"""Types of cells whose text is read; dates are written in ISO 8601, as those of other workbooks."""
MAX_ROWS: Final = 1 << 20
MAX_COLUMNS: Final = 1 << 14


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
        tags = [f"{_T}table", f"{_T}table-row", f"{_T}table-column"]
        cells, texts, row, column = SheetCells(), list[tuple[int, int, str]](), 0, 0
        for _, element in etree.iterparse(file, tag=tags, resolve_entities=False, no_network=True):
            if element.tag == f"{_T}table":
                cells.formats, cells.is_text = iter(texts), True
                yield element.get(f"{_T}name", ""), cells
                cells, texts, row, column = SheetCells(), [], 0, 0
            elif element.tag == f"{_T}table-column":
                end = column + min(table_number(element, "columns-repeated"), MAX_COLUMNS - column)
                cells.columns.update(range(column, end) if _is_hidden(element) else ())
                column = end
            else:
                end = row + min(table_number(element, "rows-repeated"), MAX_ROWS - row)
                found = [*_texts(element, cells.comments, row)]
                if _is_hidden(element) and len(element):
                    cells.rows.update(range(row, end))
                texts += [
                    (at, place, text) for at in range(row, end if found else row) for place, text in found
                ]
                row = end
            element.clear()


def _is_hidden(element: Any) -> bool:
    is_grouped = next(element.iterancestors(*_GROUPS), None) is not None
    return element.get(f"{_T}visibility") == "collapse" and not is_grouped


def _texts(row: Any, comments: dict[tuple[int, int], str], number: int) -> Iterator[tuple[int, str]]:
    """Yield the texts of a row's numbers by column, and add its comments."""
    column = 0
    for cell in row.iterchildren(f"{_T}table-cell", f"{_T}covered-table-cell"):
        times = min(table_number(cell, "columns-repeated"), MAX_COLUMNS - column)
        text = _text(cell)
        if text and cell.get(f"{_OFFICE}value-type") in _SHOWN:
            yield from ((at, text) for at in range(column, column + times))
        if note := " ".join(filter(None, map(_text, cell.iterchildren(f"{_OFFICE}annotation")))):
            comments[number, column] = note
        column += times


def _text(element: Any) -> str:
    paragraphs = ("".join(one.itertext()) for one in element.iterchildren(f"{_TEXT}p"))
    return " ".join(" ".join(paragraphs).split())
