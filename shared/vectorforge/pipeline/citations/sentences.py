"""Ends of the sentences of an answer, found while it is streamed."""

import re
from collections.abc import Iterable

from vectorforge.pipeline.citations.number_words import MONTHS

_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]*_]{0,40}+(?=[\s\[])|[。！？]+[”’」』）]*|\n")
"""End of a sentence after a full stop: a run of these is matched once."""
_ASCII_MARKS = ".!?\n"
"""Every end of a sentence in ASCII text contains one of these; searching for them is the fastest."""
_FENCE = re.compile(r"[ \t]*```[^\n]*\n")
_FULL_WIDTH = frozenset("。！？")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Nos?|Nr|Art|Fig|Figs|Eq|Sec|Vol|Ch|pp|vs|cf|ca|approx|etc|al|Inc"
    r"|Ltd|Co|Corp|bzw|inkl|e\.g|i\.e|z\.\s?B|d\.\s?h|U\.S|U\.K|a\.m|p\.m))\.$",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"[ \t]*(?:\n|[-*+•>#|\[]|```|\d{1,3}[.)]\s)")
_LONGEST_MARK = 16
LONGEST_SENTENCE = 4_000
"""Characters; a longer sentence is cut there, because a model may never end one."""
_LONGEST_ABBREVIATION = 10
LOOK_AHEAD = 250
"""Characters after a full stop that can decide whether it ends a sentence."""
_LONGEST_OPENING = 60
"""Characters before a "1." that still opens a list item."""
_WRAPPED = 50
"""Shortest line that may be wrapped within a sentence, in characters."""
_NUMBERED = re.compile(r"(?<![\w.,])\d{1,2}\.$")
_NEXT_WORD = re.compile(r"\s{0,100}(?P<mark>[*_\"'“„(]{0,40})(?P<word>\w{0,40})(?P<more>.?)", re.DOTALL)


def is_fence(sentence: str) -> bool:
    """Return True for a fenced block of code."""
    return _FENCE.match(sentence) is not None


def sentence_end(text: str, start: int, *, is_whole: bool, decided: int = 0) -> int | None:
    """Return the end of the sentence that begins at ``start``, or None if more text is needed.

    A line break ends it too, unless a long line is only wrapped, and a fenced block of code is one sentence.
    Labels after the full stop are not part of it.

    Args:
        text: The answer so far.
        start: Offset of the sentence.
        is_whole: The answer is complete; the end of the text ends a sentence.
        decided: Offset before which no end was found earlier.
    """
    if fence := _FENCE.match(text, start):
        closing = re.compile(r"^[ \t]*```[^\n]*(?:\n|\Z)", re.MULTILINE).search(text, fence.end())
        if closing and (closing.group().endswith("\n") or is_whole):
            return closing.end()
        return len(text) if is_whole else None
    latest = start + LONGEST_SENTENCE
    for match in _marks(text, start, max(start, decided)):
        if match.end() == start:
            continue  # after the end of the previous sentence
        if match.end() > latest:
            break
        is_end = _ends_at(match, start, is_whole=is_whole)
        if is_end is not False:
            return match.end() if is_end else None
    if len(text) > latest:
        return latest
    return len(text) if is_whole else None


def _ends_at(match: re.Match[str], start: int, *, is_whole: bool) -> bool | None:
    """Return True if the sentence ends at this match; None if more text is needed."""
    if match.group()[:1] in _FULL_WIDTH:
        return True
    if match.group() == "\n":
        goes_on = _goes_on(match.string, match.start(), is_whole=is_whole)
        return None if goes_on is None else not goes_on
    return _is_end(match.string, start, match.end(), is_whole=is_whole)


def _marks(text: str, start: int, decided: int) -> Iterable[re.Match[str]]:
    """Return the possible ends of the sentence."""
    end = start + LONGEST_SENTENCE + 1
    if text.isascii() and all(text.find(mark, decided, end) < 0 for mark in _ASCII_MARKS):
        return ()
    return _END.finditer(text, decided, end)


def _goes_on(text: str, line_end: int, *, is_whole: bool) -> bool | None:
    """Return True if a line is only wrapped; None if the next line is needed."""
    line = text[text.rfind("\n", max(0, line_end - LONGEST_SENTENCE), line_end) + 1 : line_end]
    if len(line) < _WRAPPED or line.endswith((":", "|")) or line.startswith("#"):
        return False
    following = text[line_end + 1 : line_end + 1 + _LONGEST_MARK]
    if len(following.lstrip(" \t")) < _LONGEST_MARK // 2 and "\n" not in following and not is_whole:
        return None
    return bool(following.strip()) and not _BLOCK.match(following)


def _is_end(text: str, start: int, end: int, *, is_whole: bool) -> bool | None:
    """Return True if a full stop ends the sentence; None if the next word is needed."""
    following = _NEXT_WORD.match(text, end)
    if following is None:  # the pattern matches any text
        return None
    word, is_known = following["word"], bool(following["more"]) or is_whole
    begin = max(start, end - _LONGEST_ABBREVIATION)
    if word[:1].islower():
        return False
    if "\n" in text[end : following.start("word")]:
        return True
    if not word and not is_known:
        return None
    if _ABBREVIATION.search(text, begin, end):
        return False
    if _NUMBERED.search(text, begin, end):
        before = text[start:end] if end - start <= _LONGEST_OPENING else "x"
        if not before.rstrip(".").strip("0123456789 *#-\t\n"):
            return False  # "1." opens a list item
        return word.casefold() not in MONTHS if is_known else None
    return True
