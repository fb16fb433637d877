"""Quotable pieces of chunks (sentences, list items, code, rows) and their words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from vectorforge.llm.types import GroundingSource

_LONGEST = 500
"""Characters of one quotation."""

_FENCE = re.compile(r"\s*(```+|~~~+)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"\s*(=+|-{2,})\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
# Of Markdown; "column: value; column: value" and "value | value" of other files (ingestion.extract.blocks).
_ROW = re.compile(r"\s*\|.*\|\s*$|[^:;|]{1,80}: [^\n]*; [^:;|]{1,80}: \S|[^|]{1,200} \| \S")
_RULE = re.compile(r"[\s|:*_=-]*$")
# Western: before white space and anything but a lower-case letter; footnote marks may follow.
_SENTENCE_END = re.compile(r"[.!?…](?:\[\d+\])*[\"'”’)\]]*\s+(?=[^a-z\s])|[。！？](?:\[\d+\])*[”’」』）]*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Gov|Sen|Rep|No|Nos|Fig|Figs|Eq|Sec|"
    r"Vol|Ch|pp|vs|cf|ca|approx|etc|al|Inc|Ltd|Co|Corp|[Ee]\.g|[Ii]\.e|U\.S|U\.K|a\.m|p\.m))\.$"
)
_FOOTNOTES = re.compile(r"(?:\[\d{1,4}\])+$")
_LABEL_LIKE = re.compile(r"\[(?:source|sources|context)?\s*\d[\d,; ]*\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    """Verbatim part of a chunk that can be quoted."""

    start: int
    end: int
    text: str
    """``chunk[start:end]``"""
    before: str
    """Heading above and preceding text of the same block, which often define what "it" refers to."""
    kind: str = "prose"
    """prose | item | code | row; all but prose are on lines of their own."""
    is_fragment: bool = False
    """True if the chunk's edge may have cut the sentence."""


@dataclass(slots=True)
class _Block:
    start: int
    end: int
    kind: str
    """prose | item | code | row | heading"""


@dataclass(slots=True)
class _Blocks:
    """Grouping of lines into blocks."""

    items: list[_Block] = field(default_factory=list)
    is_open: bool = False
    fence: str = ""

    def add(self, start: int, end: int, line: str) -> None:
        if self.fence:
            self.items[-1].end = end
            if line.strip().startswith(self.fence):
                self.fence = ""
            return
        if fence := _FENCE.match(line):
            self.fence = fence[1]
            self._begin(start, end, "code", stays_open=False)
        elif self.is_open and self.items[-1].kind == "prose" and _UNDERLINE.match(line):
            self.items[-1].kind = "heading"
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
            self.items[-1].end = end
        else:
            self._begin(start, end, "prose", stays_open=True)

    def _begin(self, start: int, end: int, kind: str, *, stays_open: bool) -> None:
        self.items.append(_Block(start, end, kind))
        self.is_open = stays_open


def split(chunk: str) -> list[Piece]:
    """Return the pieces of a chunk, in order, without headings, rules and pieces with citation labels.

    A quoted "[Source 2]" or "[2]" would be read as our own citation.
    """
    blocks = _Blocks()
    offset = 0
    for line in chunk.splitlines(keepends=True):
        blocks.add(offset, offset + len(line.rstrip()), line)
        offset += len(line)
    pieces: list[Piece] = []
    heading = ""
    last = len(chunk.rstrip())
    for block in blocks.items:
        text = chunk[block.start : block.end]
        if block.kind == "heading" or _is_title(text, block, chunk, last):
            heading = text.strip("# \n=-")
            continue
        for start, end in _spans(chunk, block):
            quoted = chunk[start:end]
            if len(quoted) < 2 or _LABEL_LIKE.search(quoted):
                continue
            before = f"{heading} {chunk[max(block.start, start - 250) : start]}"
            is_fragment = block.kind == "prose" and (quoted[0].islower() or quoted[-1].isalnum())
            pieces.append(Piece(start, end, quoted, before, block.kind, is_fragment))
    return pieces


def _is_title(text: str, block: _Block, chunk: str, last: int) -> bool:
    """Return True for a short line without a full stop before a blank line: "Get started"."""
    if block.kind != "prose" or len(text) > 80 or "\n" in text or block.end >= last:
        return False
    return text[-1:].isalnum() and not chunk[block.end : block.end + 2].strip()


def _spans(chunk: str, block: _Block) -> list[tuple[int, int]]:
    """Return the offsets of a block's pieces, without surrounding white space."""
    if block.kind == "code":
        spans = _lines(chunk, block) if block.end - block.start > _LONGEST else [(block.start, block.end)]
    elif block.kind == "row":
        spans = [(block.start, block.end)]
    else:
        spans = _sentences(chunk, block.start, block.end)
    trimmed: list[tuple[int, int]] = []
    for start, end in spans:
        text = chunk[start:end].rstrip()
        if marks := _FOOTNOTES.search(text, max(0, len(text) - 40)):
            text = text[: marks.start()].rstrip()
        start, end = start + len(text) - len(text.lstrip()), start + len(text)
        if end - start > _LONGEST:
            end = start + (chunk[start : start + _LONGEST].rfind(" ") + 1 or _LONGEST)
            end -= len(chunk[start:end]) - len(chunk[start:end].rstrip())
        if end > start:
            trimmed.append((start, end))
    return trimmed


def _sentences(chunk: str, start: int, end: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    position = start
    for match in _SENTENCE_END.finditer(chunk, start, end):
        stop = match.start() + 1
        if _ABBREVIATION.search(chunk, max(position, stop - 12), stop):
            continue
        if _ITEM.fullmatch(chunk[position : match.end()]):  # "1." of a numbered item
            continue
        closing = re.match(r"[\"'”’)」』）]*", chunk[stop:end])
        spans.append((position, stop + (closing.end() if closing else 0)))
        position = match.end()
    return [*spans, (position, end)] if position < end else spans


def _lines(chunk: str, block: _Block) -> list[tuple[int, int]]:
    """Return the lines of a long code block, without its fences."""
    spans = []
    offset = block.start
    for line in chunk[block.start : block.end].splitlines(keepends=True):
        if not _FENCE.match(line):
            spans.append((offset, offset + len(line)))
        offset += len(line)
    return spans


WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts without spaces between words, and Korean, whose words have many endings."""
_STOPWORDS = frozenset(
    """
    a about an and any are as at be been but by can could d did do does doing for from had has have he
    her him his how i if in into is it its ll many may me might more most much must my no not of off on
    or our s shall she should so some such t than that the their them then there these they this those
    to too up us was we were what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905 - a list would take a line a word
)
# Longest first; at least three letters stay. Coarser than Porter's: it only has to match the forms of a
# query and its answer.
_SUFFIXES = (
    ("ations", "at"), ("ation", "at"), ("ments", ""), ("ment", ""), ("ingly", ""), ("ings", ""), ("ies", "y"),
    ("ied", "y"), ("ing", ""), ("ion", ""), ("ions", ""), ("edly", ""), ("ers", ""), ("ed", ""), ("er", ""),
    ("es", ""), ("ly", ""), ("s", ""), ("e", ""),
)  # fmt: skip
_ENDINGS = tuple(suffix for suffix, _ in _SUFFIXES)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Piece of a source, with its words."""

    source: int
    """Position in the list of sources, best source first."""
    piece: Piece
    terms: frozenset[str]
    before: frozenset[str]
    relevance: float = 0.0
    """Relevance of its source as a share of the best source's, 0 to 1; 0 if unknown."""


@lru_cache(maxsize=16_384)  # chunks share their words; at most about 2 MB
def stem(word: str) -> str:
    """Return a lower-case word without its ending; at least three letters stay."""
    for suffix, replacement in _SUFFIXES if word.endswith(_ENDINGS) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]  # running, runs
    return word.removesuffix("e") if len(word) > 3 else word


def terms(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning; of scripts without spaces, pairs of characters."""
    words = set(WORD.findall(text.lower()))
    if text.isascii():
        return frozenset(map(stem, words - _STOPWORDS))
    stems: set[str] = set()
    for word in words:
        if runs := _UNSPACED.findall(word):
            stems.update(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))
        elif word not in _STOPWORDS:
            stems.add(stem(word))
    return frozenset(stems)


def candidates(sources: Sequence[GroundingSource], pieces: Iterable[tuple[int, Piece]]) -> list[Candidate]:
    """Return pieces with their words; a piece in several sources counts for the best source only."""
    best = max((source.relevance or 0.0 for source in sources), default=0.0)
    result: dict[str, Candidate] = {}
    for number, piece in pieces:
        key = " ".join(piece.text.split()).casefold()
        if key not in result:
            source = sources[number]
            before = terms(f"{source.title or ''} {piece.before}")
            share = max(0.0, source.relevance or 0.0) / best if best > 0 else 0.0
            result[key] = Candidate(number, piece, terms(piece.text), before, share)
    return list(result.values())
