"""Paragraphs, items and headings of a PDF, from the lines of a column and the sizes of their fonts."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from vectorforge.ingestion.extract.blocks import Block, BlockKind
from vectorforge.ingestion.extract.readers.pdf_layout import Line
from vectorforge.ingestion.extract.readers.pdf_tables import LARGER
from vectorforge.ingestion.extract.readers.pdf_words import HYPHEN, Box, Page, Segment
from vectorforge.types import Location

_MAX_TITLES: Final = 20_000
_MAX_LEVEL: Final = 6
_NUMBER: Final = re.compile(
    r"(?:(?:chapter|part|appendix|section|kapitel|teil|anhang|chapitre|annexe)\s+)?"
    r"(?:\d{1,3}|[A-Z]|[IVXLC]{1,6})(?:\.\d{1,3})*[.:)]?\s+(?=\S)",
    re.IGNORECASE,
)


class Outline:
    """Headings by page and title; empty for a PDF without an outline."""

    def __init__(self, pdf: Any) -> None:
        self._levels: dict[tuple[int, str], int] = {}
        self._above = 0
        for item, _ in zip(pdf.get_toc(), range(_MAX_TITLES), strict=False):
            target = item.get_dest()
            page = target.get_index() if target is not None else None
            if page is not None:
                for key in _keys(item.get_title()):
                    self._levels.setdefault((page + 1, key), min(item.level + 1, _MAX_LEVEL))

    def level(self, page: int, text: str, by_font: int | None) -> int | None:
        """Return the level of a heading, 1 to 6, or None for other text; called in the document's order.

        Args:
            page: Page number, from 1.
            text: Text of a block.
            by_font: Level by the block's font, None if that is no heading's. Such a heading that the outline
                does not have is below the last one that it has.
        """
        if self._levels:
            found = next((level for key in _keys(text) if (level := self._levels.get((page, key)))), None)
            if found is not None:
                self._above = found
                return found
        return None if by_font is None else min(max(by_font, self._above + 1), _MAX_LEVEL)


def _keys(title: str) -> list[str]:
    """Return what a title is compared by: its letters and digits, with and without its number."""
    plain = " ".join(title.split())
    keys = ["".join(re.findall(r"\w+", text.casefold())) for text in (plain, _NUMBER.sub("", plain, count=1))]
    return [key.replace("_", "") for key in dict.fromkeys(keys) if key]


_BULLET: Final = re.compile("[•▪◦‣●○■□➢✓\uf0b7\uf0a7*–—-]\\s+(?=\\S)")
_NUMBERED: Final = re.compile(r"(?:\(?(?:\d{1,3}|[a-z])[.)]|\d+(?:\.\d+)+\.?)\s+\S")
_CAPTION: Final = re.compile(r"(?:figure|fig\.|table|listing|abbildung|tabelle)\s+\d", re.IGNORECASE)
_LEADER: Final = re.compile(r"(?:\s?[.·…]){4,}")
"""Dots from an entry of a table of contents to its page."""
_MAX_HEADING_CHARS: Final = 200
_MAX_HEADING_LINES: Final = 3


class FontSizes:
    """Heights of the document's fonts: the text's, and those of headings with their levels."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        chars: Counter[float] = Counter()
        for one in segments:
            chars[_rounded(one.height)] += len(one.text)
        self.body = chars.most_common(1)[0][0] if chars else 1.0
        larger = sorted((size for size in chars if size >= LARGER * self.body), reverse=True)
        self._levels = {size: min(level, 5) for level, size in enumerate(larger, start=1)}
        self.below = min(len(larger) + 1, 6)
        """Level of bold headings in the size of the text."""

    def level(self, height: float) -> int | None:
        """Return the level of a heading in a font of a height, None if it is not larger than the text."""
        return self._levels.get(_rounded(height))


def _rounded(height: float) -> float:
    return round(height * 2) / 2


class Paragraphs:
    """Joins the lines of a column to blocks."""

    def __init__(self, page: Page, number: int, sizes: FontSizes, outline: Outline) -> None:
        self._page = page
        self._number = number
        self._sizes = sizes
        self._outline = outline

    def of(self, lines: Sequence[Line]) -> Iterator[Block]:
        """Yield the blocks of consecutive lines."""
        gaps = [(b.box.y1 - a.box.y1, b.height) for a, b in pairwise(lines)]
        usual = [gap for gap, height in gaps if 0.7 * height < gap < 1.45 * height]
        self._leading = median(usual) if usual else 0.0
        run: list[Line] = []
        for line in lines:
            if run and self._begins(run, line):
                yield self._block(run)
                run = []
            run.append(line)
        if run:
            yield self._block(run)

    def _begins(self, run: Sequence[Line], line: Line) -> bool:
        before = run[-1]
        height = line.height
        is_other_font = abs(height - before.height) > 0.08 * height or before.bold != line.bold
        distance = line.box.y1 - before.box.y1
        if (
            is_other_font
            or distance > max(1.25 * self._leading + 1, 1.1 * height)
            or distance < 0
            or self._starts_item(line, run)
        ):
            return True
        is_short = before.box.x1 < before.right - 0.2 * (before.right - before.box.x0)
        is_indented = line.box.x0 > before.box.x0 + 0.6 * height and len(run) > 1
        return before.text[-1:] in ".!?:" and (is_short or is_indented)

    def _starts_item(self, line: Line, run: Sequence[Line]) -> bool:
        if _BULLET.match(line.text):
            return True
        return bool(_NUMBERED.match(line.text)) and line.box.x0 <= run[0].box.x0 + 2

    def _block(self, run: Sequence[Line]) -> Block:
        text, places = "", list[tuple[int, Location]]()
        for line in run:
            shown = _LEADER.sub(" …", line.text)
            text = with_line(text, shown)
            offset = len(text) - len(shown)
            places.append((offset if places else 0, location(line.box, self._page, self._number)))
        text = text.replace(HYPHEN, "-")
        bullet = _BULLET.match(text)
        level = None if bullet else self._heading_level(run, text)
        if level is not None:
            return Block(BlockKind.HEADING, text, level, places[0][1])
        if bullet:
            rest = text[bullet.end() :]
            moved = [(max(0, offset - bullet.end()), place) for offset, place in places]
            return Block(BlockKind.ITEM, rest, places=moved)
        return Block(BlockKind.CAPTION if _CAPTION.match(text) else BlockKind.PARAGRAPH, text, places=places)

    def _heading_level(self, run: Sequence[Line], text: str) -> int | None:
        if len(run) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING_CHARS or " … " in text:
            return None
        if not re.search(r"[^\W\d_]", text):
            return None
        return self._outline.level(self._number, text, self._level_by_font(run, text))

    def _level_by_font(self, run: Sequence[Line], text: str) -> int | None:
        level = self._sizes.level(run[0].height)
        if level is not None:
            return level
        is_title = run[0].bold and len(run) == 1 and len(text) <= 100 and text[-1] not in ".,;:"
        is_body = _rounded(run[0].height) >= self._sizes.body
        return self._sizes.below if is_title and is_body else None


def with_line(text: str, line: str) -> str:
    """Join a line with the text before it; a hyphen at the line's end is dropped within a word."""
    if not text:
        return line
    if text[-1] in ("-", HYPHEN) and line[:1].islower() and text[-2:-1].isalpha():
        return text[:-1] + line
    return f"{text} {line}"


def location(box: Box, page: Page, number: int) -> Location:
    """Return page and rectangle of a box, as shares of the page between 0 and 1."""
    box = page.as_shown(box)
    shares = (box.x0 / page.width, box.y0 / page.height, box.x1 / page.width, box.y1 / page.height)
    return {"page": number, "rect": [round(min(max(share, 0.0), 1.0), 4) for share in shares]}
