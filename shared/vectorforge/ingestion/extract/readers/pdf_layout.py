"""Layout of a PDF page: columns in reading order, and the lines of paragraphs between tables."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from vectorforge.ingestion.extract.readers.pdf_tables import (
    ALIGNED,
    LARGER,
    Table,
    aligned_table,
    box_of,
    grid_table,
    grids_of,
    has_header_below,
    table_end,
)
from vectorforge.ingestion.extract.readers.pdf_words import BULLETS, Box, Page, Segment

_MIN_LINES: Final = 4
"""Lines on each side of the gap between two columns of text."""
_MAX_CANDIDATES: Final = 40


@dataclass(slots=True)
class Line:
    """Line of text outside of tables."""

    text: str
    box: Box
    height: float
    """Height of most of its letters."""
    bold: bool
    right: float
    """Right end of the lines around it."""


def arranged(page: Page) -> Iterator[list[Line] | Table]:
    """Yield the text of a page in reading order, as runs of lines and tables between them."""
    segments = list(page.segments)
    grids: dict[int, Table] = {}
    for xs, ys in grids_of(page):
        box = Box(xs[0], ys[0], xs[-1], ys[-1])
        inside = [one for one in segments if _is_in(one, box)]
        table = grid_table(inside, xs, ys, page.verticals)
        if table is not None:
            taken = {id(one) for one in inside}
            place = Segment("", *box, False)
            segments = [one for one in segments if id(one) not in taken] + [place]
            grids[id(place)] = table
    for column in _columns(segments, page.horizontals, depth=0):
        yield from _parts(column, page.horizontals, grids)


def _is_in(one: Segment, box: Box) -> bool:
    return box.x0 - 1 < (one.x0 + one.x1) / 2 < box.x1 + 1 and box.y0 - 1 < one.middle < box.y1 + 1


def _columns(segments: list[Segment], rules: Sequence[Box], depth: int) -> Iterator[list[Segment]]:
    """Yield the columns of text, from the top: what crosses the gap between two columns ends both."""
    gap = _gap(segments, rules) if depth < 4 else None
    if gap is None:
        yield segments
        return
    crossing = sorted(
        (one for one in segments if one.x0 < gap - 2 and one.x1 > gap + 2), key=lambda one: one.y0
    )
    rest = [one for one in segments if not (one.x0 < gap - 2 and one.x1 > gap + 2)]
    bands: list[tuple[float, list[Segment]]] = []
    for one in crossing:
        if bands and not any(bands[-1][0] < other.middle < one.middle for other in rest):
            bands[-1][1].append(one)
        else:
            bands.append((one.middle, [one]))
    above = float("-inf")
    for top, band in [*bands, (float("inf"), [])]:
        between = [one for one in rest if above <= one.middle < top]
        for side in ([s for s in between if s.x0 < gap - 2], [s for s in between if s.x0 >= gap - 2]):
            if side:
                yield from _columns(side, rules, depth + 1)
        if band:
            yield band
        above = top


def _gap(segments: Sequence[Segment], rules: Sequence[Box]) -> float | None:
    """Return the left edge of a column of prose that has another to its left, or None."""
    if len(segments) < 2 * _MIN_LINES:
        return None
    left, right = min(one.x0 for one in segments), max(one.x1 for one in segments)
    edges = Counter(round(one.x0) for one in segments if left + 50 < one.x0 < right - 50)
    best: tuple[int, float] | None = None
    for edge, count in edges.most_common(_MAX_CANDIDATES):
        if count < _MIN_LINES:
            break
        before = [one for one in segments if one.x1 <= edge + 1]
        after = [one for one in segments if one.x0 >= edge - 2]
        crossing = len(segments) - len(before) - len(after)
        least = min(len(before), len(after))
        if least < max(_MIN_LINES, 2 * crossing) or (best is not None and crossing >= best[0]):
            continue
        is_prose = _is_prose(before, edge - left) and _is_prose(after, right - edge)
        if (is_prose or _have_headings(before, after)) and not _is_ruled(after, edge, rules):
            best = crossing, float(edge)
    return best[1] if best else None


def _is_ruled(column: Sequence[Segment], edge: float, rules: Sequence[Box]) -> bool:
    """Return True if lines of a table cross the left edge of a column."""
    top, bottom = min(one.y0 for one in column), max(one.y1 for one in column)
    crossing = {round(rule.y0) for rule in rules if rule.x0 < edge - 20 and rule.x1 > edge + 20}
    return sum(top - 5 < y < bottom + 5 for y in crossing) > 2


def _is_prose(side: Sequence[Segment], width: float) -> bool:
    """Return True if enough lines fill a column; cells of tables are short, unless they are ruled."""
    wide = [one for one in side if len(one.text) > 20]
    lines, of_prose = ({round(one.middle / 4) for one in found} for found in (side, wide))
    return len(of_prose) >= max(3, 0.4 * len(lines)) and median(one.x1 - one.x0 for one in wide) > 0.3 * width


def _have_headings(*sides: Sequence[Segment]) -> bool:
    """Return True if each of two columns has headings at other heights than the other, as in a CV.

    A bold row or the bold names of a column's groups are of a table.
    """
    usual = median(one.height for side in sides for one in side)
    found = [
        [
            one
            for one in side
            if (one.bold or one.height > LARGER * usual)
            and one.x0 - left < ALIGNED
            and re.search(r"[^\W\d_]", one.text)
        ]
        for side, left in ((side, min(one.x0 for one in side)) for side in sides)
    ]
    alone = [
        [one for one in mine if all(abs(one.middle - it.middle) > usual / 2 for it in others)]
        for mine, others in (found, found[::-1])
    ]
    are_few = all(1 < len(mine) <= len(side) / 2 for mine, side in zip(found, sides, strict=True))
    return are_few and all(alone) and sum(map(len, alone)) > 2


def _rows(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return lines from the top, each with its segments from the left."""
    rows: list[list[Segment]] = []
    for one in sorted(segments, key=lambda one: one.middle):
        if rows and abs(one.middle - rows[-1][0].middle) < 0.5 * min(one.height, rows[-1][0].height):
            rows[-1].append(one)
        else:
            rows.append([one])
    for row in rows:
        row.sort(key=lambda one: one.x0)
        _join_close(row)
    return rows


def _join_close(row: list[Segment]) -> None:
    """Join segments that another order of drawing has cut."""
    at = 1
    while at < len(row):
        before, one = row[at - 1], row[at]
        if before.text and one.text and one.x0 - before.x1 < 0.4 * max(before.height, one.height):
            row[at - 1 : at + 1] = [
                Segment(f"{before.text} {one.text}", *box_of((before, one)), before.bold and one.bold)
            ]
        else:
            at += 1


def _parts(
    segments: Sequence[Segment], rules: Sequence[Box], grids: Mapping[int, Table]
) -> Iterator[list[Line] | Table]:
    rows = _rows(segments)
    right = max((one.x1 for row in rows for one in row), default=0.0)
    lines: list[Line] = []
    at = 0
    while at < len(rows):
        end = table_end(rows, at)
        table = next((grids[id(one)] for one in rows[at] if id(one) in grids), None)
        if table is not None:
            rows[at] = [one for one in rows[at] if id(one) not in grids]
            end = at if rows[at] else at + 1
        elif end > at + 1 and not has_header_below(rows[at:end]):
            table = aligned_table(rows[at:end], rules)
        if table is None:
            lines.append(_line(rows[at], right))
            at += 1
            continue
        if lines:
            yield lines
            lines = []
        yield table
        at = end
    if lines:
        yield lines


def _line(row: Sequence[Segment], right: float) -> Line:
    longest = max(row, key=lambda one: len(one.text))
    bold = all(one.bold for one in row if one.text not in BULLETS)
    return Line(" ".join(one.text for one in row), box_of(row), longest.height, bold, right)
