"""Locations of a chunk: the spans of its text, joined by page, slide and sheet."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from vectorforge.ingestion.types import TextSpan
from vectorforge.types import Location

_MAX_PARTS: Final = 50
"""Rectangles of one page, or rows, in one chunk: more lines than 800 characters of prose have."""
_MAX_LOCATIONS: Final = 20
_PLACES: Final = ("page", "slide", "sheet")


def locations_of(
    text: str, spans: Sequence[TextSpan], start: int, end: int, heading: str | None
) -> list[Location]:
    """Return the places of ``text[start:end]`` in the file.

    Args:
        text: The document's text.
        spans: Its spans, ascending.
        start: Offset of the chunk's first character.
        end: Offset after its last one.
        heading: Its heading path, the location in files without pages, slides and sheets.

    Returns:
        One location for each page or slide and each block of cells, in order; at most 20.
    """
    found: list[dict[str, Any]] = []
    first = bisect_right(spans, start, key=attrgetter("end"))
    for span in spans[first:]:
        if span.start >= end:
            break
        if span.location and text[max(start, span.start) : min(end, span.end)].strip():
            _add(found, span.location, max(span.start, start) - start)
    if not found:
        return [{"heading": heading}] if heading else []
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


def cell_range(cells: Sequence[int]) -> str:
    """Return first column, first row, last column and last row (from 1) as "A2:C9"; one cell as "A2"."""
    first, last = (f"{_column(cells[at])}{cells[at + 1]}" for at in (0, 2))
    return first if first == last else f"{first}:{last}"


def _column(number: int) -> str:
    name = ""
    while number > 0:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("A") + letter) + name
    return name
