"""The model that readers of structured formats produce: blocks with locations, composed to one text.

A table becomes a paragraph for each row, "column: value; column: value". So each row carries its header
wherever the text is cut, can be quoted alone, and is embedded with the names of its columns. Rows of a table
without a header are "value | value".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from unicodedata import bidirectional

from vectorforge.ingestion.extract.decode import clean, composed, without_invisible
from vectorforge.ingestion.types import ExtractionLimits, ReadText, SpanKind, TextSpan
from vectorforge.types import Location

_MAX_LEVEL: Final = 6
_CONTROLS: Final = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
NUMBER: Final = re.compile(r"[-+(]?[$€£¥]?\s*\d[\d.,' ]*\s*[%$€£¥)]?")
_MAX_HEADER_CHARS: Final = 80


_PLACEHOLDER = re.compile(
    r"(untitled( document)?|document ?\d*|word document|\(anonymous\)|(microsoft \w+ - .*)?"
    r"|\S+\.(docx?|dotx?|dvi|indd|odt|pdf|pptx?|ps|rtf|tex|tmp|xlsx?))?",
    re.IGNORECASE,
)
"""Placeholder titles of programs; the file's name is used instead."""


class BlockKind(StrEnum):
    """Kinds of blocks."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"
    TABLE = "table"
    CODE = "code"
    CAPTION = "caption"


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a table."""

    cells: Sequence[str]
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a document."""

    kind: BlockKind
    text: str = ""
    """Empty for tables; code and paragraphs may have line breaks."""
    level: int = 0
    """1 to 6 of a heading; depth of a list item, from 0."""
    location: Location | None = None
    places: Sequence[tuple[int, Location]] = ()
    """Locations of the parts of the text, each with the offset where it starts, ascending from 0; instead of
    ``location``."""
    header: Sequence[str] = ()
    """Names of a table's columns; empty if they are not known."""
    rows: Sequence[Row] = ()
    """Rows of a table below its header."""
    mark: str = "-"
    """Bullet or number of a list item."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of a reader."""

    blocks: Iterable[Block]
    """In reading order; may be a generator, which is read once."""
    title: str | None = None
    warnings: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Found in the file itself: front matter, the headers of a mail."""


def heading(text: str, level: int = 1, location: Location | None = None) -> Block:
    """Return a heading of a level from 1 (outermost) to 6."""
    return Block(BlockKind.HEADING, text, min(max(level, 1), _MAX_LEVEL), location)


def paragraph(text: str, location: Location | None = None) -> Block:
    """Return a paragraph."""
    return Block(BlockKind.PARAGRAPH, text, location=location)


def item(text: str, level: int = 0, location: Location | None = None, mark: str = "-") -> Block:
    """Return an item of a list; the outermost level is 0."""
    return Block(BlockKind.ITEM, text, level, location, mark=mark)


def comment(text: str, author: str = "", location: Location | None = None) -> Block:
    """Return a comment on the text, marked as one; empty if it has no text."""
    name = " ".join(author.split())
    marked = f"Comment{' by ' if name else ''}{name}: {' '.join(text.split())}" if text.strip() else ""
    return Block(BlockKind.CAPTION, marked, location=location)


def code(text: str, language: str = "") -> Block:
    """Return code in a fence that is longer than any in the code."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`{3,}", text)), 3)
    return Block(BlockKind.CODE, "\n".join([fence + language, *text.splitlines(), fence]))


def table(rows: Sequence[Row], *, has_header: bool | None = None) -> list[Block]:
    """Return a table whose first row is the header if ``has_header``, or, if None, if it looks like one."""
    rows = [row for row in rows if any(cell.strip() for cell in row.cells)]
    if not rows:
        return []
    if has_header is None:
        has_header = _looks_like_header(rows)
    if has_header and len(rows) > 1:
        return [Block(BlockKind.TABLE, header=rows[0].cells, rows=rows[1:])]
    return [Block(BlockKind.TABLE, rows=rows)]


def _looks_like_header(rows: Sequence[Row]) -> bool:
    """Return True if the first row names columns: different texts, of two columns above numbers only.

    Two columns of other values may as well be names with their values, "Color | blue" from the first row on.
    """
    names = [" ".join(cell.split()) for cell in rows[0].cells]
    if len(rows) < 2 or len(names) < 2 or len(set(names)) < len(names) or not all(names[1:]):
        return False
    if any(len(name) > _MAX_HEADER_CHARS or NUMBER.fullmatch(name) for name in names):
        return False
    values = (cell.strip() for row in rows[1:] for cell in row.cells[1:])
    return len(names) > 2 or all(map(NUMBER.fullmatch, values))


class _Composer:
    """Collects the text and its spans; stops at a limit."""

    def __init__(self, max_chars: int) -> None:
        self._parts: list[str] = []
        self._limits = ExtractionLimits(max_chars=max_chars)
        self._size = 0
        self._last: BlockKind | None = None
        self.spans: list[TextSpan] = []

    def add(self, block: Block) -> None:
        if block.kind is BlockKind.TABLE:
            for row in block.rows:
                self._append(block.kind, _row(block.header, row.cells), SpanKind.ROW, row.location)
            return
        text = _printable(block.text)
        text = text if block.places else without_invisible(text)
        if block.kind is BlockKind.HEADING:
            line = " ".join(text.split())
            level = block.level
            self._append(
                block.kind, "#" * level + " " + line if line else "", SpanKind.HEADING, block.location, level
            )
        elif block.kind is BlockKind.ITEM:
            line = "  " * block.level + f"{block.mark} {' '.join(text.split())}"
            self._append(block.kind, line if text.strip() else "", SpanKind.TEXT, block.location)
        elif block.places and len(text) == len(block.text):
            self._append(block.kind, text, SpanKind.TEXT, None, places=block.places)
        else:
            self._append(block.kind, text.strip("\n"), SpanKind.TEXT, block.location)

    def _append(
        self,
        kind: BlockKind,
        text: str,
        span_kind: SpanKind,
        location: Location | None,
        level: int = 0,
        places: Sequence[tuple[int, Location]] = (),
    ) -> None:
        if not text.strip():
            return
        follows_item = kind is BlockKind.ITEM and self._last is BlockKind.ITEM
        separator = "" if not self._parts else "\n" if follows_item else "\n\n"
        start = self._size + len(separator)
        end = start + len(text)
        self._limits.check_chars(end)
        self._parts += [separator, text]
        self._size, self._last = end, kind
        if places:
            stops = [*(offset for offset, _ in places[1:]), len(text)]
            self.spans += [
                TextSpan(start + offset, start + stop, span_kind, level, place)
                for (offset, place), stop in zip(places, stops, strict=True)
            ]
        elif location is not None or span_kind is not SpanKind.TEXT:
            self.spans.append(TextSpan(start, end, span_kind, level, location))

    @property
    def text(self) -> str:
        return "".join(self._parts)


def compose(reading: Reading, *, max_chars: int) -> ReadText:
    """Join blocks to a text with Markdown headings, list items and fences, a blank line between blocks.

    Empty blocks are left out.

    Raises:
        ExtractionError: ``too_large``: the text is longer than ``max_chars``.
    """
    composer = _Composer(max_chars)
    for block in reading.blocks:
        composer.add(block)
    return {
        "text": composer.text,
        "spans": composer.spans,
        "title": clean(reading.title)[0].strip() if reading.title else None,
        "warnings": list(reading.warnings),
        "metadata": dict(reading.metadata),
    }


def row_text(header: Sequence[str], cells: Sequence[str]) -> str:
    """Return a row as "column: value; column: value" without empty cells, or "value | value" if no header."""
    values = [" ".join(cell.split()) for cell in cells]
    if not header:
        while values and not values[-1]:
            values.pop()
        return " | ".join(values)
    names = [*header, *[""] * (len(values) - len(header))]
    return "; ".join(
        f"{' '.join(name.split()) or f'column {number}'}: {value}"
        for number, (name, value) in enumerate(zip(names, values, strict=False), start=1)
        if value
    )


def _row(header: Sequence[str], cells: Sequence[str]) -> str:
    return without_invisible(_printable(row_text(header, cells)))


def _printable(text: str) -> str:
    return _CONTROLS.sub("", composed(text))


def is_from_right(texts: Iterable[str]) -> bool:
    """Return True if most texts begin in a script that is written from the right."""
    kinds = (map(bidirectional, text) for text in texts)
    first = [next((kind for kind in found if kind in ("L", "R", "AL")), "") for found in kinds]
    return first.count("R") + first.count("AL") > first.count("L")


def usable_title(title: str | None) -> str | None:
    """Return a title on one line; None for placeholders of programs."""
    title = " ".join((title or "").split())
    return None if _PLACEHOLDER.fullmatch(title) else title
