"""Cuts a passage, plain or Markdown, into pieces that can be quoted: sentences, list items, code, rows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LONGEST = 500
"""Characters of one quotation."""

_FENCE = re.compile(r"\s*(```+|~~~+)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"\s*(=+|-{2,})\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_RULE = re.compile(r"[\s|:*_=-]*$")
# Western: before white space and anything but a lower-case letter. Footnote marks may come between.
_SENTENCE_END = re.compile(r"[.!?…](?:\[\d+\])*[\"'”’)\]]*\s+(?=[^a-z\s])|[。！？](?:\[\d+\])*[”’」』）]*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Gov|Sen|Rep|No|Nos|Fig|Figs|Eq|Sec|"
    r"Vol|Ch|pp|vs|cf|ca|approx|etc|al|Inc|Ltd|Co|Corp|[Ee]\.g|[Ii]\.e|U\.S|U\.K|a\.m|p\.m))\.$"
)
_FOOTNOTES = re.compile(r"(?:\[\d{1,4}\])+$")
_LABEL_LIKE = re.compile(r"\[(?:source|sources|context)?\s*\d[\d,; ]*\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    """A verbatim part of a passage."""

    start: int
    end: int
    text: str
    """``passage[start:end]``"""
    before: str
    """The heading above and the text just before it in the same block; often says what "it" is."""
    kind: str = "prose"
    """prose | item | code | row; all but prose stand on lines of their own."""
    is_fragment: bool = False
    """Cut by the passage's edge, so it may not be a whole sentence."""


@dataclass(slots=True)
class _Block:
    start: int
    end: int
    kind: str
    """prose | item | code | row | heading"""


@dataclass(slots=True)
class _Blocks:
    """Groups lines into blocks."""

    found: list[_Block] = field(default_factory=list)
    is_open: bool = False
    fence: str = ""

    def add(self, start: int, end: int, line: str) -> None:
        if self.fence:
            self.found[-1].end = end
            if line.strip().startswith(self.fence):
                self.fence = ""
            return
        if fence := _FENCE.match(line):
            self.fence = fence[1]
            self._begin(start, end, "code", stays_open=False)
        elif self.is_open and self.found[-1].kind == "prose" and _UNDERLINE.match(line):
            self.found[-1].kind = "heading"
            self.is_open = False
        elif _RULE.match(line):
            self.is_open = False
        elif _HEADING.match(line):
            self._begin(start, end, "heading", stays_open=False)
        elif _ROW.match(line):
            self._begin(start, end, "row", stays_open=False)
        elif _ITEM.match(line):
            self._begin(start, end, "item", stays_open=True)
        elif self.is_open:
            self.found[-1].end = end
        else:
            self._begin(start, end, "prose", stays_open=True)

    def _begin(self, start: int, end: int, kind: str, *, stays_open: bool) -> None:
        self.found.append(_Block(start, end, kind))
        self.is_open = stays_open


def split(passage: str) -> list[Piece]:
    """The pieces of a passage, in its order. Headings, rules and pieces holding citation labels are left out.

    (A quoted "[Source 2]" or "[2]" would be read as our own citation.)
    """
    blocks = _Blocks()
    offset = 0
    for line in passage.splitlines(keepends=True):
        blocks.add(offset, offset + len(line.rstrip()), line)
        offset += len(line)
    pieces: list[Piece] = []
    heading = ""
    last = len(passage.rstrip())
    for block in blocks.found:
        text = passage[block.start : block.end]
        if block.kind == "heading" or _is_title(text, block, passage, last):
            heading = text.strip("# \n=-")
            continue
        for start, end in _spans(passage, block):
            quoted = passage[start:end]
            if len(quoted) < 2 or _LABEL_LIKE.search(quoted):
                continue
            before = f"{heading} {passage[max(block.start, start - 250) : start]}"
            is_fragment = block.kind == "prose" and (quoted[0].islower() or quoted[-1].isalnum())
            pieces.append(Piece(start, end, quoted, before, block.kind, is_fragment))
    return pieces


def _is_title(text: str, block: _Block, passage: str, last: int) -> bool:
    """A short line without a full stop, alone before a blank line: "Get started"."""
    if block.kind != "prose" or len(text) > 80 or "\n" in text or block.end >= last:
        return False
    return text[-1:].isalnum() and not passage[block.end : block.end + 2].strip()


def _spans(passage: str, block: _Block) -> Iterator[tuple[int, int]]:
    """Offsets of a block's pieces, without white space around them."""
    if block.kind == "code":
        spans = _lines(passage, block) if block.end - block.start > _LONGEST else [(block.start, block.end)]
    elif block.kind == "row":
        spans = [(block.start, block.end)]
    else:
        spans = list(_sentences(passage, block.start, block.end))
    for start, end in spans:
        text = passage[start:end].rstrip()
        if marks := _FOOTNOTES.search(text, max(0, len(text) - 40)):
            text = text[: marks.start()].rstrip()
        start, end = start + len(text) - len(text.lstrip()), start + len(text)
        if end - start > _LONGEST:
            end = start + (passage[start : start + _LONGEST].rfind(" ") + 1 or _LONGEST)
            end -= len(passage[start:end]) - len(passage[start:end].rstrip())
        if end > start:
            yield start, end


def _sentences(passage: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    position = start
    for match in _SENTENCE_END.finditer(passage, start, end):
        stop = match.start() + 1
        if _ABBREVIATION.search(passage, max(position, stop - 12), stop):
            continue
        if _ITEM.fullmatch(passage[position : match.end()]):  # "1." of a numbered item
            continue
        closing = re.match(r"[\"'”’)」』）]*", passage[stop:end])
        yield position, stop + (closing.end() if closing else 0)
        position = match.end()
    if position < end:
        yield position, end


def _lines(passage: str, block: _Block) -> list[tuple[int, int]]:
    """The lines of a long code block, without its fences."""
    spans = []
    offset = block.start
    for line in passage[block.start : block.end].splitlines(keepends=True):
        if not _FENCE.match(line):
            spans.append((offset, offset + len(line)))
        offset += len(line)
    return spans
