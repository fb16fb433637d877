"""Place of a chunk in its document: locations in the file, headings above it, contexts without a model."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import SpanKind, TextChunk, TextSpan, cell_range
from vectorforge.types import Location

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

    def locations(self, start: int, end: int) -> list[Location]:
        """Return the heading paths of a chunk, several with the offset in the chunk where each begins."""
        found: list[Location] = []
        below = self.starts[bisect_right(self.starts, start) : bisect_left(self.starts, end)]
        for begin in [start, *below]:
            path = self.above(begin, end)
            if path and (not found or found[-1]["heading"] != path):
                found.append({"heading": path, "offsets": [begin - start]})
        if not found or found[0]["offsets"] != [0]:
            return []
        return found if len(found) > 1 else [{"heading": found[0]["heading"]}]


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

    Title and heading path are not repeated, since they are embedded and indexed with every chunk. Consecutive
    chunks with the same heading are a section.
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


_MAX_PARTS: Final = 50
"""Rectangles of one page, or rows, in one chunk: more lines than 800 characters of prose have."""
_MAX_LOCATIONS: Final = 20
_PLACES: Final = ("page", "slide", "sheet")


def locations_of(
    text: str, spans: Sequence[TextSpan], start: int, end: int, headings: Headings
) -> list[Location]:
    """Return the places of ``text[start:end]`` in the file, at most 20.

    They are pages, slides and blocks of cells, or ``headings`` in files without these.
    """
    found: list[dict[str, Any]] = []
    first = bisect_right(spans, start, key=attrgetter("end"))
    for span in spans[first:]:
        if span.start >= end:
            break
        if span.location and text[max(start, span.start) : min(end, span.end)].strip():
            _add(found, span.location, max(span.start, start) - start)
    if not found:
        return headings.locations(start, end)[:_MAX_LOCATIONS]
    if len(found) == 1 and len(found[0]["offsets"]) == 1:
        del found[0]["offsets"]  # a single part
    return [_shown(location) for location in found[:_MAX_LOCATIONS]]


def place_of(locations: Sequence[Location]) -> dict[str, Any]:
    """Return the first location without its details, as metadata that filters can use."""
    first = locations[0] if locations else {}
    return {name: first[name] for name in _PLACES if name in first}


def _add(found: list[dict[str, Any]], location: Mapping[str, Any], offset: int) -> None:
    """Join a location with the last one if it is on the same page or slide, or continues its cells.

    ``offset`` is where its text begins in the chunk; pages have one for each rectangle, cells for each row.
    """
    rect, cells = location.get("rect"), location.get("cells")
    place = {name: location[name] for name in _PLACES if name in location}
    last = found[-1] if found else {}
    is_apart = bool(cells and "cells" in last and cells[1] > last["cells"][3] + 1)
    if not found or is_apart or {name: last[name] for name in _PLACES if name in last} != place:
        found.append({**place, "offsets": [offset]})
    elif (rect or cells) and not ("rects" in last or "cells" in last):
        last["offsets"] = [offset]  # before were only names, as of the sheet
    elif (rect or cells) and len(last["offsets"]) < _MAX_PARTS:
        last["offsets"].append(offset)
    last = found[-1]
    if rect:
        rects = last.setdefault("rects", [])
        if len(rects) < _MAX_PARTS:
            rects.append(list(rect))
    if cells:
        before = last.get("cells", cells)
        last["cells"] = [*map(min, before[:2], cells[:2]), *map(max, before[2:], cells[2:])]


def _shown(location: Mapping[str, Any]) -> Location:
    rest = {name: value for name, value in location.items() if name != "cells"}
    return {**rest, "range": cell_range(location["cells"])} if "cells" in location else rest
