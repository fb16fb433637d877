"""Where the sentences of an answer end, found while it is being written."""

import re
from collections.abc import Iterable

from vectorforge.pipeline.number_words import MONTHS

_END = re.compile(r"[.!?…]+[\"'”’»)\]*_]*(?=[\s\[])|[。！？]+[”’」』）]*|\n")
_ASCII_MARKS = ".!?\n"
"""One of which is in every end that ASCII text can have; looking for them is the fastest."""
_FENCE = re.compile(r"[ \t]*```[^\n]*\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Nos?|Nr|Art|Fig|Figs|Eq|Sec|Vol|Ch|pp|vs|cf|ca|approx|etc|al|Inc"
    r"|Ltd|Co|Corp|bzw|inkl|e\.g|i\.e|z\.\s?B|d\.\s?h|U\.S|U\.K|a\.m|p\.m))\.$",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"[ \t]*(?:\n|[-*+•>#|\[]|```|\d{1,3}[.)]\s)")
_LONGEST_MARK = 16
_WRAPPED = 50
"""Characters from which a line may be wrapped where the sentence has not ended."""
_NUMBERED = re.compile(r"(?<![\w.,])\d{1,2}\.$")
_NEXT_WORD = re.compile(r"\s*(?P<mark>[*_\"'“„(]*)(?P<word>\w*)(?P<more>.?)", re.DOTALL)


def is_fence(sentence: str) -> bool:
    """Whether it is a fenced block of code."""
    return _FENCE.match(sentence) is not None


def sentence_end(text: str, start: int, *, is_whole: bool) -> int | None:
    """Where the sentence beginning at ``start`` ends, or None as long as that cannot be told.

    A line break ends it too, unless a long line is only wrapped, and a fenced block of code is one sentence.
    Labels after the full stop are not part of it.

    Args:
        text: The answer so far.
        start: Offset of the sentence.
        is_whole: Whether nothing follows any more; then the end of the text ends a sentence.
    """
    if fence := _FENCE.match(text, start):
        closing = re.compile(r"^[ \t]*```[^\n]*(?:\n|\Z)", re.MULTILINE).search(text, fence.end())
        if closing and (closing.group().endswith("\n") or is_whole):
            return closing.end()
        return len(text) if is_whole else None
    for match in _marks(text, start):
        if match.group()[0] in "。！？":
            return match.end()
        if match.group() == "\n":
            goes_on = _goes_on(text, match.start(), is_whole=is_whole)
            if goes_on is None:
                return None
            if goes_on:
                continue
            return match.end()
        is_end = _is_end(text, start, match.end(), is_whole=is_whole)
        if is_end is None:
            return None
        if is_end:
            return match.end()
    return len(text) if is_whole else None


def _marks(text: str, start: int) -> Iterable[re.Match[str]]:
    """What may end a sentence."""
    if text.isascii() and all(text.find(mark, start) < 0 for mark in _ASCII_MARKS):
        return ()
    return _END.finditer(text, start)


def _goes_on(text: str, line_end: int, *, is_whole: bool) -> bool | None:
    """Whether a line is only wrapped; None when the start of the next one has to come first."""
    line = text[text.rfind("\n", 0, line_end) + 1 : line_end]
    if len(line) < _WRAPPED or line.endswith((":", "|")) or line.startswith("#"):
        return False
    following = text[line_end + 1 : line_end + 1 + _LONGEST_MARK]
    if len(following.lstrip(" \t")) < _LONGEST_MARK // 2 and "\n" not in following and not is_whole:
        return None
    return bool(following.strip()) and not _BLOCK.match(following)


def _is_end(text: str, start: int, end: int, *, is_whole: bool) -> bool | None:
    """Whether a full stop ends the sentence; None when the word after it has to come first."""
    following = _NEXT_WORD.match(text, end)
    if following is None:  # the pattern takes anything
        return None
    word, is_known = following["word"], bool(following["more"]) or is_whole
    before = text[start:end]
    if word[:1].islower():
        return False
    if "\n" in text[end : following.start("word")]:
        return True
    if not word and not is_known:
        return None
    if _ABBREVIATION.search(before):
        return False
    if _NUMBERED.search(before):
        if not before.rstrip(".").strip("0123456789 *#-\t\n"):
            return False  # "1." opens a list item
        return word.casefold() not in MONTHS if is_known else None
    return True
