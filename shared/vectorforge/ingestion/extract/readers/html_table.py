"""Tables of HTML as blocks."""

from typing import TYPE_CHECKING

from vectorforge.ingestion.extract import blocks
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Row

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

BLOCKS = frozenset(
    {
        "address",
        "article",
        "blockquote",
        "body",
        "caption",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "header",
        "hr",
        "html",
        "li",
        "main",
        "ol",
        "option",
        "p",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    }
)
_MAX_SPAN = 50
"""Columns or rows of one cell."""


class HtmlTable:
    """Collects the cells of a table; one that covers several rows is repeated in each."""

    def __init__(self, table_id: int) -> None:
        self.id = table_id
        self._caption: list[Block] = []
        self._rows: list[list[str]] = []
        self._begun: tuple[int, int] | None = None
        """Columns and rows of the cell that is being read."""
        self._below: dict[int, tuple[str, int]] = {}
        """Column -> text of the cell above it that continues, and in how many more rows."""
        self._has_header: bool | None = None

    def enter(self, node: "LexborNode", line: list[str]) -> None:
        """Begin an element of the table; ``line`` is the text before it."""
        tag = node.tag or ""
        if tag in ("td", "th", "tr", "caption", "thead", "tbody", "tfoot"):
            self._end_cell(line)
        if tag == "tr":
            self._fill()
            self._rows.append([])
        elif tag in ("td", "th"):
            if not self._rows:
                self._rows.append([])
            if tag == "th" and len(self._rows) == 1:
                self._has_header = True
            self._fill()
            self._begun = self._number(node, "colspan"), self._number(node, "rowspan")
        elif tag in BLOCKS or tag == "br":
            line.append(" ")

    def finish(self, line: list[str]) -> list[Block]:
        """Return caption and rows; ``line`` is the text of the last cell."""
        self._end_cell(line)
        return [
            *self._caption,
            *blocks.table([Row(cells) for cells in self._rows], has_header=self._has_header),
        ]

    @staticmethod
    def _number(node: "LexborNode", name: str) -> int:
        value = (node.attributes.get(name) or "").strip()
        return min(max(int(value), 1), _MAX_SPAN) if value.isdecimal() and len(value) < 5 else 1

    def _end_cell(self, line: list[str]) -> None:
        text = " ".join("".join(line).split())
        line.clear()
        if self._begun is None:
            if text:
                self._caption.append(Block(BlockKind.CAPTION, text))
            return
        columns, rows = self._begun
        self._begun = None
        row = self._rows[-1]
        if rows > 1:
            self._below[len(row)] = text, rows - 1
        row += [text, *[""] * (columns - 1)]

    def _fill(self) -> None:
        """Repeat the cells above that cover the next columns of the current row."""
        row = self._rows[-1] if self._rows else []
        while len(row) in self._below:
            column = len(row)
            text, left = self._below.pop(column)
            if left > 1:
                self._below[column] = text, left - 1
            row.append(text)
