"""Where the sentences of an answer end, found while it is being written."""

import re
from collections.abc import Iterable

from vectorforge.pipeline.citations.number_words import MONTHS

_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]*_]{0,40}+(?=[\s\[])|[。！？]+[”’」』）]*|\n")
"""What ends a sentence, behind a full stop: a run of these is looked at once, not from each of them."""
_ASCII_MARKS = ".!?\n"
"""One of which is in every end that ASCII text can have; looking for them is the fastest."""
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
"""Characters; a longer one ends there. A model may write on without ever ending one."""
_LONGEST_ABBREVIATION = 10
LOOK_AHEAD = 250
"""Characters behind a full stop that decide at most whether it ends a sentence."""
_LONGEST_OPENING = 60
"""Characters that "1." may stand behind and still open the item of a list."""
_WRAPPED = 50
"""Characters from which a line may be wrapped where the sentence has not ended."""
_NUMBERED = re.compile(r"(?<![\w.,])\d{1,2}\.$")
_NEXT_WORD = re.compile(r"\s{0,100}(?P<mark>[*_\"'“„(]{0,40})(?P<word>\w{0,40})(?P<more>.?)", re.DOTALL)


def is_fence(sentence: str) -> bool:
    """Whether it is a fenced block of code."""
    return _FENCE.match(sentence) is not None


def sentence_end(text: str, start: int, *, is_whole: bool, decided: int = 0) -> int | None:
    """Where the sentence beginning at ``start`` ends, or None as long as that cannot be told.

    A line break ends it too, unless a long line is only wrapped, and a fenced block of code is one sentence.
    Labels after the full stop are not part of it.

    Args:
        text: The answer so far.
        start: Offset of the sentence.
        is_whole: Whether nothing follows any more; then the end of the text ends a sentence.
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
            continue  # behind the end of the sentence before
        if match.end() > latest:
            break
        is_end = _ends_at(match, start, is_whole=is_whole)
        if is_end is not False:
            return match.end() if is_end else None
    if len(text) > latest:
        return latest
    return len(text) if is_whole else None


def _ends_at(match: re.Match[str], start: int, *, is_whole: bool) -> bool | None:
    """Whether the sentence ends with what may end one; None when more of the text has to come first."""
    if match.group()[:1] in _FULL_WIDTH:
        return True
    if match.group() == "\n":
        goes_on = _goes_on(match.string, match.start(), is_whole=is_whole)
        return None if goes_on is None else not goes_on
    return _is_end(match.string, start, match.end(), is_whole=is_whole)


def _marks(text: str, start: int, decided: int) -> Iterable[re.Match[str]]:
    """What may end a sentence."""
    end = start + LONGEST_SENTENCE + 1
    if text.isascii() and all(text.find(mark, decided, end) < 0 for mark in _ASCII_MARKS):
        return ()
    return _END.finditer(text, decided, end)


def _goes_on(text: str, line_end: int, *, is_whole: bool) -> bool | None:
    """Whether a line is only wrapped; None when the start of the next one has to come first."""
    line = text[text.rfind("\n", max(0, line_end - LONGEST_SENTENCE), line_end) + 1 : line_end]
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
