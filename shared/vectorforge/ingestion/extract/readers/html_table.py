"""Tables of HTML as blocks."""

from typing import TYPE_CHECKING

from vectorforge.ingestion.extract import blocks
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Row

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

BLOCKS = frozenset({
    "address", "article", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "header", "hr", "html", "li", "main", "ol", "option", "p", "section",
    "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_MAX_SPAN = 50
"""Columns or rows of one cell."""


class HtmlTable:
    """Collects the cells of a table; one that covers several rows is repeated in each."""

    def __init__(self, table_id: int) -> None:
        self.id = table_id
        self._caption: list[Block] = []
        self._rows: list[list[str]] = []
        self._begun: tuple[str, int, int] | None = None
        """Tag, columns and rows of the cell that is being read."""
        self._below: dict[int, tuple[str, int]] = {}
        """Column -> text of the cell above it that continues, and in how many more rows."""
        self._in_head = False
        self._cells: list[dict[str, bool]] = []
        """Tags of the cells of each row, True for those with text; "thead" for a row of it."""

    def enter(self, node: "LexborNode", line: list[str]) -> None:
        """Begin an element of the table; ``line`` is the text before it."""
        tag = node.tag or ""
        if tag in ("td", "th", "tr", "caption", "thead", "tbody", "tfoot"):
            self._end_cell(line)
        if tag in ("thead", "tbody", "tfoot"):
            self._in_head = tag == "thead"
        elif tag == "tr":
            self._begin_row()
        elif tag in ("td", "th"):
            if not self._rows:
                self._begin_row()
            self._fill()
            self._begun = tag, _span(node, "colspan"), _span(node, "rowspan")
        elif tag in BLOCKS or tag == "br":
            line.append(" ")

    def finish(self, line: list[str]) -> list[Block]:
        """Return caption and rows; ``line`` is the text of the last cell."""
        self._end_cell(line)
        count = next((at for at, cells in enumerate(self._cells) if not _are_names(cells)), 1)
        names, rows = self._rows[:count], self._rows[count:]
        while names and rows and len(names[0]) > 1 and len({*names[0]}) == 1:
            self._caption.append(Block(BlockKind.CAPTION, names.pop(0)[0]))
        width = max(map(len, names), default=0)
        columns = [[row[at] for row in names if at < len(row) and row[at]] for at in range(width)]
        header = [Row([" ".join(dict.fromkeys(column)) for column in columns])] if names else []
        unnamed = self._cells[:1] and "th" in self._cells[0]
        return [
            *self._caption,
            *blocks.table(
                [*header, *map(Row, rows)], has_header=True if header else False if unnamed else None
            ),
        ]

    def _begin_row(self) -> None:
        self._fill()
        self._rows.append([])
        self._cells.append({"thead": True} if self._in_head else {})

    def _end_cell(self, line: list[str]) -> None:
        text = " ".join("".join(line).split())
        line.clear()
        if self._begun is None:
            if text:
                self._caption.append(Block(BlockKind.CAPTION, text))
            return
        tag, columns, rows = self._begun
        self._begun = None
        row, cells = self._rows[-1], self._cells[-1]
        cells[tag] = cells.get(tag, False) or bool(text)
        if rows > 1:
            self._below[len(row)] = text, rows - 1
        row += [text, *[text if _are_names(cells) else ""] * (columns - 1)]

    def _fill(self) -> None:
        """Repeat the cells above that cover the next columns of the current row."""
        row = self._rows[-1] if self._rows else []
        while len(row) in self._below:
            column = len(row)
            text, left = self._below.pop(column)
            if left > 1:
                self._below[column] = text, left - 1
            row.append(text)


def _are_names(cells: dict[str, bool]) -> bool:
    return "thead" in cells or ("th" in cells and not cells.get("td"))


def _span(node: "LexborNode", name: str) -> int:
    return min(max(integer(node, name), 1), _MAX_SPAN)


def integer(node: "LexborNode", name: str) -> int:
    """Return an attribute that is a number of up to four digits, else 1."""
    value = (node.attributes.get(name) or "").strip()
    return int(value) if value.isdecimal() and len(value) < 5 else 1
