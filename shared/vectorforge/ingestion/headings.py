"""Headings of a text, and the path of headings above a chunk."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import SpanKind, TextSpan

WITH_MARKDOWN_HEADINGS = frozenset({media.MARKDOWN, media.HTML, media.DOCX, media.NOTEBOOK})
_HEADING = re.compile(r"(#{1,6})(?=[ \t]|$)")
_LONGEST_TITLE = 200
_FEW = 50
"""Headings looked at from the start of a chunk."""
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")


def find_headings(text: str, media_type: str, spans: Sequence[TextSpan]) -> "Headings":
    """Return the headings given as spans, else those of Markdown."""
    given = [span for span in spans if span.kind == SpanKind.HEADING]
    if given or media_type not in WITH_MARKDOWN_HEADINGS:
        return Headings(
            text, ((span.start, span.level, _title(text[span.start : span.end])) for span in given)
        )
    return Headings(text, _markdown_headings(text))


class Headings:
    """Heading paths of a text by offset.

    Args:
        text: The whole text.
        headings: Start, level and title of each heading, ascending.
    """

    def __init__(self, text: str, headings: Iterable[tuple[int, int, str]]) -> None:
        self._text = text
        self.starts: list[int] = []
        """Offset of each heading, ascending."""
        self._paths: list[str] = []
        path: list[tuple[int, str]] = []
        for start, level, title in headings:
            path = [(above, name) for above, name in path if above < level]
            path.append((level, title))
            self.starts.append(start)
            self._paths.append(" > ".join(name for _, name in path if name))

    def above(self, start: int, end: int) -> str | None:
        """Return the heading path of a chunk, including headings at its start; None without headings."""
        if not self.starts:
            return None
        position, starts = start, frozenset(self.starts[bisect_left(self.starts, start) :][:_FEW])
        for line in re.finditer(r"[^\n]+", self._text[start:end]):
            position = start + line.start()
            if line[0].strip() and position not in starts:
                break
        index = bisect_right(self.starts, position) - 1
        return self._paths[index] or None if index >= 0 else None


def _markdown_headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, level and title of the ``#`` headings outside fenced code."""
    fence = ""
    for line in re.finditer(r"[^\n]+", text):
        marker = _FENCE.match(line[0])
        if fence:
            if marker and marker[1].startswith(fence) and not line[0].strip(" \t\r" + fence[0]):
                fence = ""
        elif marker:
            fence = marker[1]
        elif heading := _HEADING.match(line[0].rstrip()):
            yield line.start(), len(heading[1]), _title(line[0])


def _title(line: str) -> str:
    return line.strip("# \t\r")[:_LONGEST_TITLE]
