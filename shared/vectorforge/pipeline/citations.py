"""Labels: how an answer names the passages it rests on, and what only looks like one in a document."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vectorforge.types import RetrievedChunk

# Such as "[Source 2]", "[Context 2]", "[2]", "[Source 1, 3]", "[Source 1, Source 3]" and "[1][2]"; neither
# "array[2]" nor "[2](link)".
_LABEL = re.compile(
    r"(?:\[(?:source|context|sources)\s+(?P<named>\d{1,3}(?:\s*(?:,|;|and|&)\s*(?:source\s+|context\s+)?\d{1,3})*)\]"
    r"|(?<!\w)\[(?P<bare>\d{1,2}(?:\s*,\s*\d{1,2})*)\](?!\())",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_SOURCE = re.compile(r"source:", re.IGNORECASE)
_CODE_SPAN = re.compile(r"`[^`\n]*`")

# Wider than what counts as a label in an answer: a model takes more for one than we do.
_INVISIBLE = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_SPACED = rf"[\s{_INVISIBLE}]*"
_WORD = "|".join(_SPACED.join(word) + "s?" for word in ("source", "context"))
_OPENING = re.compile(r"[\[［【〔]")
_TYPED_NAMED = re.compile(
    rf"[\[［【〔]({_SPACED}(?:{_WORD})(?![^\W\d_])[^\[\]\n］】〕]{{0,60}}?)[\]］】〕]", re.IGNORECASE
)
_TYPED_BARE = re.compile(
    rf"(?<!\w)[\[［【〔]{_SPACED}(\d[\d\s,;&{_INVISIBLE}–-]{{0,40}}?){_SPACED}[\]］】〕](?!\(|:\s*<?\w+://)"
)


@dataclass(frozen=True, slots=True)
class Label:
    """A label in an answer."""

    start: int
    end: int
    numbers: tuple[int, ...]
    """Of the sources it names, in its order, each once; they need not exist."""


def find_labels(answer: str, start: int, end: int) -> Iterator[Label]:
    """The labels between two offsets of an answer; those within code spans are code."""
    if answer.find("[", start, end) < 0:
        return
    code = [match.span() for match in _CODE_SPAN.finditer(answer, start, end)]
    openings = [opening for opening, _ in code]
    for match in _LABEL.finditer(answer, start, end):
        before = bisect_left(openings, match.start()) - 1
        if before < 0 or match.start() >= code[before][1]:
            numbers = _NUMBER.findall(match["named"] or match["bare"])
            yield Label(match.start(), match.end(), tuple(dict.fromkeys(map(int, numbers))))


class SourceLabels:
    """Labels that name a passage by its source, as DocRag's context does: ``Source: https://... - Title``.

    Args:
        passages: Best first; of several with the same source the first is meant.
    """

    def __init__(self, passages: Sequence[RetrievedChunk]) -> None:
        self._passages = passages
        self._numbers: dict[str, int] = {}

    @cached_property
    def _label(self) -> re.Pattern[str]:
        named: dict[str, str] = {}
        for number, passage in enumerate(self._passages, start=1):
            if self._numbers.setdefault(passage.document_source, number) == number:
                title = f"(?: - {re.escape(passage.document_title)})?" if passage.document_title else ""
                named[passage.document_source] = f"({re.escape(passage.document_source)})>?{title}"
        longest_first = (named[source] for source in sorted(named, key=len, reverse=True))
        return re.compile(
            rf"\b(?i:source):\s*<?(?:{'|'.join(longest_first)})(?![\w/-]|[.?#&=:]\w)" if named else r"(?!)"
        )

    def find(self, answer: str, start: int, end: int) -> Iterator[Label]:
        """Those between two offsets of an answer."""
        if answer.find(":", start, end) < 0 or not _SOURCE.search(answer, start, end):
            return  # most answers have none, and the pattern takes a millisecond to make
        for match in self._label.finditer(answer, start, end):
            source = next(group for group in match.groups() if group is not None)
            yield Label(match.start(), match.end(), (self._numbers[source],))


def neutralise_labels(passage: str) -> str:
    """A passage for the prompt, in which nothing looks like a label of ours.

    ``[Source 9]`` typed in a document becomes ``(Source 9)``, and ``[3]`` becomes ``[ 3 ]``, which is no
    label and means the same in code. Markdown links and their definitions stay.
    """
    # In most there is nothing that could be one: the patterns below take ten times as long as this look, and
    # that of a string a fiftieth of it.
    if "[" not in passage and (passage.isascii() or not _OPENING.search(passage)):
        return passage
    passage = _TYPED_NAMED.sub(r"(\1)", passage)
    return _TYPED_BARE.sub(r"[ \1 ]", passage)
