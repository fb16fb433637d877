"""Headings of a text, the path of headings above a chunk, and contexts of chunks without a model."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import SpanKind, TextChunk, TextSpan

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


_LONGEST_SENTENCE = 150
"""Characters: title, heading path, two sentences and a chunk are what a small embedding model reads."""
_SHORTEST_LINE = 25
"""Characters; shorter lines before the first sentence are headings, dates and labels."""
_READ = 4_000
"""Characters searched for a sentence."""
_END = re.compile(r"[.!?](?=\s|$)|[。！？।؟]")
_HEADING_LINE = re.compile(r"\s*(#{1,6}\s|[-=*_|]{3,})")


def outline_contexts(text: str, chunks: Sequence[TextChunk]) -> list[str | None]:
    """Return each chunk's context: first sentences of document and section that are not in the chunk.

    Title and heading path are not repeated, since they are embedded and indexed with every chunk.

    Args:
        text: Text of the document.
        chunks: Its chunks in their order. Consecutive ones with the same heading are a section.
    """
    opening = first_sentence(text[:_READ])
    contexts: list[str | None] = []
    heading: str | None = None
    section = ""
    for number, chunk in enumerate(chunks):
        if number == 0 or chunk.heading != heading:
            heading, section = chunk.heading, first_sentence(chunk.text)
        shown = " ".join(chunk.text.split())
        parts = dict.fromkeys(part for part in (opening, section) if part and part not in shown)
        contexts.append("\n".join(parts) or None)
    return contexts


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line of at most 150 characters; empty if there is none."""
    for line in text.split("\n"):
        plain = " ".join(line.split())
        if len(plain) < _SHORTEST_LINE or _HEADING_LINE.match(line):
            continue
        end = _END.search(plain, _SHORTEST_LINE)
        sentence = plain[: end.end()] if end else plain
        if len(sentence) <= _LONGEST_SENTENCE:
            return sentence
        return sentence[:_LONGEST_SENTENCE].rpartition(" ")[0] or sentence[:_LONGEST_SENTENCE]
    return ""
