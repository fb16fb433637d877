"""Labels of passages that were not given, taken out of an answer while it is being written."""

import re

from vectorforge.pipeline.citations import Label, find_labels

_LONGEST_LABEL = 200
"""Characters of what may become a label and is held back."""
_LONGEST_CODE = 500
"""Characters in which a backtick must follow a label for both to be code."""
_SPECIAL = re.compile(r"[\[`\n]")
_FENCE = re.compile(r"[ \t]{0,100}```")
_FENCE_BEGUN = re.compile(r"[ \t]{0,100}`{0,2}\Z")
_BEGUN = re.compile(r"\[(?:[a-z]{0,7}|(?:sources?|context)\s[\w\s,;&]*|\d[\d\s,]*)\Z", re.IGNORECASE)
_WORD = re.compile(r"\[(?:([a-z]+)\s)?", re.IGNORECASE)


class InventedLabels:
    """Passes an answer on, piece by piece, without labels that name no passage.

    ``[Source 2, 9]`` keeps its valid number. Code, links and indexes such as ``a[9]`` stay, and so do
    bare lists with a zero, which are intervals. The pieces may be cut anywhere: joined, what comes out is
    the same.

    Args:
        passages: How many passages the model was given; they are numbered from 1.
    """

    def __init__(self, passages: int) -> None:
        self._passages = passages
        self._held = ""
        self._before = ""
        """The character before what is held, as the model wrote it."""
        self._last = ""
        """The character passed on last."""
        self._at_line_start = True
        self._in_fence = False
        self._is_code_line = False
        self._in_code = False
        """Whether a backtick is open in this line."""
        self.removed = 0
        """Numbers taken out."""

    def feed(self, text: str) -> str:
        """What can be passed on with the next piece; often all of it."""
        return self._read(text, is_whole=False)

    def finish(self) -> str:
        """The rest, when the answer is complete."""
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
        """Whether it can be told yet if the line is code."""
        is_fence = _FENCE.match(seen, start) is not None
        if not is_fence and not is_whole and _FENCE_BEGUN.match(seen, start):
            return False
        self._is_code_line = is_fence or self._in_fence
        self._in_fence ^= is_fence
        self._at_line_start = self._in_code = False
        return True

    def _step(self, seen: str, start: int, *, is_whole: bool) -> tuple[str, int] | None:
        """What is written for the next characters and where these end; None: more has to be read first."""
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
        """Whether a number of it is out of range; a bare zero is a number, not a label."""
        is_bare = seen[label.start + 1].isdigit()
        if is_bare and 0 in label.numbers:
            return False
        return any(not 1 <= number <= self._passages for number in label.numbers)

    def _without_invented(self, seen: str, label: Label) -> tuple[str, int]:
        kept = [number for number in label.numbers if 1 <= number <= self._passages]
        self.removed += len(label.numbers) - len(kept)
        if kept:
            word = _WORD.match(seen, label.start)
            name = f"{word[1]} " if word and word[1] else ""
            return f"[{name}{', '.join(map(str, kept))}]", label.end
        is_between_blanks = seen[label.end : label.end + 1] == " " and (
            not self._last or self._last.isspace()
        )
        return "", label.end + is_between_blanks


def _closes_code(seen: str, start: int, *, is_whole: bool) -> bool | None:
    """Whether a backtick follows in the line, so that what was before it is code; None: not known yet."""
    line_break = seen.find("\n", start, start + _LONGEST_CODE)
    end = line_break if line_break >= 0 else start + _LONGEST_CODE
    if seen.find("`", start, end) >= 0:
        return True
    return False if is_whole or line_break >= 0 or len(seen) >= end else None


def without_invented_labels(text: str, passages: int) -> str:
    """A text that is there as a whole, as ``InventedLabels`` would pass it on."""
    labels = InventedLabels(passages)
    return labels.feed(text) + labels.finish()
