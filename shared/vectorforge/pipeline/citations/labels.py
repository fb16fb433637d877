"""Labels: find those of an answer, neutralise those in documents, remove invented ones from a stream."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vectorforge.patterns import pattern_of
from vectorforge.types import RetrievedChunk

# Such as "[Source 2]", "[Context 2]", "[2]", "[Source 1, 3]", "[Source 1, Source 3]" and "[1][2]"; neither
# "array[2]" nor "[2](link)".
# (Patterns begin with the bracket, which is searched for quickly, and then look behind it.)
_LABEL_REGEX = (
    r"\[(?:(?:source|context|sources)\s+(?P<named>\d{1,3}(?:\s*(?:,|;|and|&)\s*(?:source\s+|context\s+)?\d{1,3})*)\]"
    r"|(?<!\w\[)(?P<bare>\d{1,2}(?:\s*,\s*\d{1,2})*)\](?!\())"
)
_LABEL = pattern_of(_LABEL_REGEX, re.IGNORECASE)
_NUMBER = pattern_of(r"\d+")
_SOURCE = pattern_of(r"source:", re.IGNORECASE)
_CODE_SPAN = pattern_of(r"`[^`\n]*`")

# Wider than the labels recognized in an answer: a model recognizes more than we do.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef"
)
_SPACED = rf"[\s{_INVISIBLE}]*"
_WORD = "|".join(_SPACED.join(word) + "s?" for word in ("source", "context"))
_OPENING = pattern_of(r"[\[［【〔]")
_TYPED_NAMED = pattern_of(
    rf"[\[［【〔]({_SPACED}(?:{_WORD})(?![^\W\d_])[^\[\]\n］】〕]{{0,60}}?)[\]］】〕]", re.IGNORECASE
)
_TYPED_BARE = pattern_of(
    rf"[\[［【〔](?<!\w[\[［【〔]){_SPACED}(\d[\d\s,;&{_INVISIBLE}–-]{{0,40}}?){_SPACED}[\]］】〕](?!\(|:\s*<?\w+://)"
)
_TYPED_SOURCE = pattern_of(rf"\b({_SPACED.join('source')}){_SPACED}:", re.IGNORECASE)
_TYPED_LABEL = pattern_of(rf"{_LABEL_REGEX}(?!:\s*<?\w+://)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Label:
    """Label in an answer."""

    start: int
    end: int
    numbers: tuple[int, ...]
    """Numbers of the sources in its order, each once; they need not exist."""


def find_labels(answer: str, start: int, end: int) -> Iterator[Label]:
    """Yield the labels between two offsets of an answer, except those within code spans."""
    if answer.find("[", start, end) < 0:
        return
    code = [match.span() for match in _CODE_SPAN.finditer(answer, start, end)]
    openings = [opening for opening, _ in code]
    for match in _LABEL.finditer(answer, start, end):
        before = bisect_left(openings, match.start()) - 1
        if before < 0 or match.start() >= code[before][1]:
            numbers = _NUMBER.findall(match["named"] or match["bare"])
            yield Label(match.start(), match.end(), tuple(dict.fromkeys(map(int, numbers))))


def replace_labels(answer: str, by: str = "") -> str:
    """Return an answer with ``by`` for each label; for nothing, the blanks before the label go as well."""
    parts, done = list[str](), 0
    for label in find_labels(answer, 0, len(answer)):
        before = answer[done : label.start]
        parts += [before if by else before.rstrip(" "), by]
        done = label.end
    return "".join([*parts, answer[done:]])


class SourceLabels:
    """Labels that name a chunk by its source, as in DocRag's context: ``Source: https://... - Title``.

    Args:
        chunks: Chunks, best first; a source stands for the first of its chunks.
    """

    def __init__(self, chunks: Sequence[RetrievedChunk]) -> None:
        self._chunks = chunks
        self._numbers: dict[str, int] = {}

    @cached_property
    def _label(self) -> re.Pattern[str]:
        named: dict[str, str] = {}
        for number, chunk in enumerate(self._chunks, start=1):
            if self._numbers.setdefault(chunk.document_source, number) == number:
                title = f"(?: - {re.escape(chunk.document_title)})?" if chunk.document_title else ""
                named[chunk.document_source] = f"({re.escape(chunk.document_source)})>?{title}"
        longest_first = (named[source] for source in sorted(named, key=len, reverse=True))
        return re.compile(
            rf"\b(?i:source):\s*<?(?:{'|'.join(longest_first)})(?![\w/-]|[.?#&=:]\w)" if named else r"(?!)"
        )

    def find(self, answer: str, start: int, end: int) -> Iterator[Label]:
        """Yield the labels between two offsets of an answer."""
        if answer.find(":", start, end) < 0 or not _SOURCE.search(answer, start, end):
            return  # most answers have none, and building the pattern takes a millisecond
        for match in self._label.finditer(answer, start, end):
            source = next(group for group in match.groups() if group is not None)
            yield Label(match.start(), match.end(), (self._numbers[source],))


def neutralise_labels(chunk: str) -> str:
    """Return the text of a chunk for the prompt, without anything that looks like a label.

    ``[Source 9]`` typed in a document becomes ``(Source 9)``, and ``[3]`` becomes ``[ 3 ]``, which is not a
    label and means the same in code. Whatever else would be read as a label of an answer, such as a list over
    several lines, gets round brackets. Markdown links and their definitions stay.
    """
    # Most texts contain no label: the patterns below take ten times as long as this check, and the check for
    # a character a fiftieth of it.
    if "[" not in chunk and (chunk.isascii() or not _OPENING.search(chunk)):
        return chunk
    chunk = _TYPED_NAMED.sub(r"(\1)", chunk)
    chunk = _TYPED_BARE.sub(r"[ \1 ]", chunk)
    return _TYPED_LABEL.sub(lambda label: f"({label[0][1:-1]})", chunk)


def neutralise_source_labels(text: str) -> str:
    """Return a text of a document for a prompt whose chunks are labeled as ``SourceLabels`` reads them."""
    return _TYPED_SOURCE.sub(r"\1 :", neutralise_labels(text))


_LONGEST_LABEL = 200
"""Characters held back because they may become a label."""
_LONGEST_CODE = 500
"""Characters in which a backtick must follow a label for both to be code."""
_SPECIAL = pattern_of(r"[\[`\n]")
_FENCE = pattern_of(r"[ \t]{0,100}```")
_FENCE_BEGUN = pattern_of(r"[ \t]{0,100}`{0,2}\Z")
_BEGUN = pattern_of(r"\[(?:[a-z]{0,7}|(?:sources?|context)\s[\w\s,;&]*|\d[\d\s,]*)\Z", re.IGNORECASE)
_LABEL_WORD = pattern_of(r"\[(?:([a-z]+)\s)?", re.IGNORECASE)


class InventedLabels:
    """Removes labels that name no chunk from an answer, piece by piece.

    ``[Source 2, 9]`` keeps its valid number. Code, links and indexes such as ``a[9]`` stay, and so do
    bare lists with a zero, which are intervals. The result does not depend on how the answer is cut.

    Args:
        chunks: Number of chunks in the prompt; they are numbered from 1.
    """

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self._held = ""
        self._before = ""
        """Character before the text held back, as the model wrote it."""
        self._last = ""
        """Last character returned."""
        self._at_line_start = True
        self._in_fence = False
        self._is_code_line = False
        self._in_code = False
        """True if a backtick is open in this line."""
        self.removed = 0
        """Count of removed numbers."""

    def feed(self, text: str) -> str:
        """Add a piece; return the text that is certain, often all of it."""
        return self._read(text, is_whole=False)

    def finish(self) -> str:
        """Return the rest of a complete answer."""
        return self._read("", is_whole=True)

    def _read(self, text: str, *, is_whole: bool) -> str:
        seen = self._before + self._held + text
        start, passed = len(self._before), list[str]()
        while start < len(seen):
            if self._at_line_start and not self._begin_line(seen, start, is_whole=is_whole):
                break
            step = self._step(seen, start, is_whole=is_whole)
            if step is None:
                break
            written, start = step
            self._last = written[-1:] or self._last
            passed.append(written)
        self._held, self._before = seen[start:], seen[max(0, start - 1) : start]
        return "".join(passed)

    def _begin_line(self, seen: str, start: int, *, is_whole: bool) -> bool:
        """Return True once it is certain whether the line is code."""
        is_fence = _FENCE.match(seen, start) is not None
        if not is_fence and not is_whole and _FENCE_BEGUN.match(seen, start):
            return False
        self._is_code_line = is_fence or self._in_fence
        self._in_fence ^= is_fence
        self._at_line_start = self._in_code = False
        return True

    def _step(self, seen: str, start: int, *, is_whole: bool) -> tuple[str, int] | None:
        """Return the text for the next characters and their end; None if more text is needed."""
        if self._is_code_line:
            end = seen.find("\n", start) + 1
            self._at_line_start = end > 0
            return seen[start : end or len(seen)], end or len(seen)
        found = _SPECIAL.search(seen, start)
        if found is None:
            return seen[start:], len(seen)
        if found.start() > start:
            return seen[start : found.start()], found.start()
        if found[0] == "[":
            return self._bracket(seen, start, is_whole=is_whole)
        self._at_line_start = found[0] == "\n"
        self._in_code ^= found[0] == "`"
        return found[0], start + 1

    def _bracket(self, seen: str, start: int, *, is_whole: bool) -> tuple[str, int] | None:
        closing = seen.find("]", start, start + _LONGEST_LABEL)
        if closing < 0:
            is_open = len(seen) - start < _LONGEST_LABEL and _BEGUN.match(seen, start) is not None
            return None if is_open and not is_whole else ("[", start + 1)
        label = next(find_labels(seen, start, closing + 2), None)
        if label is None or label.start != start or not self._names_nothing(seen, label):
            return "[", start + 1
        if not is_whole and label.end == len(seen):
            return None  # a parenthesis makes it a link
        is_code = self._in_code and _closes_code(seen, label.end, is_whole=is_whole)
        if is_code is None:
            return None
        return ("[", start + 1) if is_code else self._without_invented(seen, label)

    def _names_nothing(self, seen: str, label: Label) -> bool:
        """Return True if a number is out of range; a bare zero is a number, not a label."""
        is_bare = seen[label.start + 1].isdigit()
        if is_bare and 0 in label.numbers:
            return False
        return any(not 1 <= number <= self._chunks for number in label.numbers)

    def _without_invented(self, seen: str, label: Label) -> tuple[str, int]:
        valid = [number for number in label.numbers if 1 <= number <= self._chunks]
        self.removed += len(label.numbers) - len(valid)
        if valid:
            word = _LABEL_WORD.match(seen, label.start)
            name = f"{word[1]} " if word and word[1] else ""
            return f"[{name}{', '.join(map(str, valid))}]", label.end
        is_between_blanks = seen[label.end : label.end + 1] == " " and (
            not self._last or self._last.isspace()
        )
        return "", label.end + is_between_blanks


def _closes_code(seen: str, start: int, *, is_whole: bool) -> bool | None:
    """Return True if a backtick follows in the line, which makes the label code; None if not known yet."""
    line_break = seen.find("\n", start, start + _LONGEST_CODE)
    end = line_break if line_break >= 0 else start + _LONGEST_CODE
    if seen.find("`", start, end) >= 0:
        return True
    return False if is_whole or line_break >= 0 or len(seen) >= end else None


def without_invented_labels(text: str, chunks: int) -> str:
    """Return a complete text as ``InventedLabels`` returns it."""
    labels = InventedLabels(chunks)
    return labels.feed(text) + labels.finish()
