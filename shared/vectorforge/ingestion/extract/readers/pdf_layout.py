"""Layout of a PDF page: columns in reading order, tables, and the lines of paragraphs."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from vectorforge.ingestion.extract.readers.pdf_grids import grids_of
from vectorforge.ingestion.extract.readers.pdf_words import BULLETS, Box, Page, Segment

_MIN_LINES: Final = 4
"""Lines on each side of the gap between two columns of text."""
_MAX_CANDIDATES: Final = 40
_MAX_CELL_CHARS: Final = 2_000
_ALIGNED: Final = 4.0
"""Points by which the cells of one column may differ."""


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


@dataclass(slots=True)
class TableRow:
    """Row of a table."""

    cells: list[str]
    box: Box
    bold: bool
    """True if all its cells are."""


@dataclass(slots=True)
class Table:
    """Table without merged cells: what covers several columns is in the first."""

    rows: list[TableRow] = field(default_factory=list)


def arranged(page: Page) -> Iterator[list[Line] | Table]:
    """Yield the text of a page in reading order, as runs of lines and tables between them."""
    segments = list(page.segments)
    grids: dict[int, Table] = {}
    for xs, ys in grids_of(page):
        box = Box(xs[0], ys[0], xs[-1], ys[-1])
        inside = [one for one in segments if _is_in(one, box)]
        table = _grid_table(inside, xs, ys)
        if table is not None:
            taken = {id(one) for one in inside}
            place = Segment("", *box, False)
            segments = [one for one in segments if id(one) not in taken] + [place]
            grids[id(place)] = table
    for column in _columns(segments, page.horizontals, depth=0):
        yield from _parts(column, page.horizontals, grids)


def _is_in(one: Segment, box: Box) -> bool:
    return box.x0 - 1 < (one.x0 + one.x1) / 2 < box.x1 + 1 and box.y0 - 1 < one.middle < box.y1 + 1


def _grid_table(segments: Sequence[Segment], xs: Sequence[float], ys: Sequence[float]) -> Table | None:
    """Return the table in a grid; None for a frame around text: one column or row, or a cell with a page."""
    found: dict[int, list[tuple[int, Segment]]] = {}
    for one in sorted(segments, key=lambda one: (one.middle, one.x0)):
        row = min(max(bisect_right(ys, one.middle) - 1, 0), len(ys) - 2)
        column = min(max(bisect_right(xs, (one.x0 + one.x1) / 2) - 1, 0), len(xs) - 2)
        found.setdefault(row, []).append((column, one))
    table = Table()
    for row in sorted(found):
        cells = [""] * (len(xs) - 1)
        for column, one in found[row]:
            cells[column] = f"{cells[column]} {one.text}".strip()
        if max(map(len, cells)) > _MAX_CELL_CHARS:
            return None
        bold = all(one.bold for _, one in found[row])
        table.rows.append(TableRow(cells, Box(xs[0], ys[row], xs[-1], ys[row + 1]), bold))
    used = {column for row in found.values() for column, _ in row}
    return table if len(table.rows) > 1 and len(used) > 1 else None


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
        if is_prose and not _is_ruled(after, edge, rules):
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
            joined = f"{before.text} {one.text}"
            row[at - 1 : at + 1] = [
                Segment(
                    joined,
                    before.x0,
                    min(before.y0, one.y0),
                    max(before.x1, one.x1),
                    max(before.y1, one.y1),
                    before.bold and one.bold,
                )
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
        end = _table_end(rows, at)
        table = next((grids[id(one)] for one in rows[at] if id(one) in grids), None)
        if table is not None:
            rows[at] = [one for one in rows[at] if id(one) not in grids]
            end = at if rows[at] else at + 1
        elif end > at + 1 and not _has_header_below(rows[at:end]):
            table = _table(rows[at:end], rules)
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


def box_of(parts: Sequence[Segment]) -> Box:
    """Return the rectangle around segments."""
    return Box(
        min(one.x0 for one in parts),
        min(one.y0 for one in parts),
        max(one.x1 for one in parts),
        max(one.y1 for one in parts),
    )


def _table_end(rows: Sequence[Sequence[Segment]], at: int) -> int:
    """Return the row after a run of rows with several segments; rows with one are taken between them."""
    if len(rows[at]) < 2 or rows[at][0].text in BULLETS:
        return at
    end, last = at + 1, at
    while end < len(rows) and rows[end][0].y0 - rows[end - 1][0].y1 < 2 * rows[end][0].height:
        if rows[end][0].text in BULLETS or not rows[end][0].text:
            break
        if len(rows[end]) > 1:
            last = end
        elif end - last > 4 or rows[end][0].x1 - rows[end][0].x0 > 0.7 * _width(rows[last]):
            break
        end += 1
    return last + 1


def _has_header_below(rows: Sequence[Sequence[Segment]]) -> bool:
    """Return True if the table begins further down, with a bold row: a stretched line came before it."""
    bold = [len(row) > 1 and all(one.bold for one in row) for row in rows]
    return not bold[0] and True in bold


def _width(row: Sequence[Segment]) -> float:
    return row[-1].x1 - row[0].x0


def _table(rows: Sequence[Sequence[Segment]], rules: Sequence[Box]) -> Table | None:
    """Return the rows as a table, or None if their segments are not aligned in columns."""
    full = [row for row in rows if len(row) > 1]
    number = Counter(map(len, full)).most_common(1)[0][0]
    number = max([number, *(n for n, times in Counter(map(len, full)).items() if times >= 0.4 * len(full))])
    columns = _column_ranges([row for row in full if len(row) == number])
    if len(full) < 2 or not _is_aligned(full, columns):
        return None
    if number == 2 and all(len(row[0].text) <= 3 for row in full):  # marks of a list
        return None
    table = Table()
    lines_of_rows = sorted({round(rule.y0, 1) for rule in rules if _width_over(rule, columns) > 0.5})
    above: float | None = None
    for row in rows:
        cells = [""] * number
        for one in row:
            column = _column_of(one, columns)
            cells[column] = f"{cells[column]} {one.text}".strip()
        middle = row[0].middle
        if table.rows and _continues(table.rows[-1], row, cells, above, middle, lines_of_rows):
            before = table.rows[-1]
            before.cells = [f"{a} {b}".strip() for a, b in zip(before.cells, cells, strict=True)]
            before.box = _around(before.box, box_of(row))
        else:
            table.rows.append(TableRow(cells, box_of(row), all(one.bold for one in row)))
        above = middle
    return table if len(table.rows) > 1 else None


def _continues(
    before: TableRow,
    row: Sequence[Segment],
    cells: Sequence[str],
    above: float | None,
    middle: float,
    rules: Sequence[float],
) -> bool:
    """Return True if a line continues the cells of the row above it."""
    if above is not None and len(rules) > 2:
        return not any(above < rule < middle for rule in rules)
    is_near = row[0].y0 - before.box.y1 < 0.5 * row[0].height
    return is_near and not cells[0] and len(row) < len(before.cells)


def _width_over(rule: Box, columns: Sequence[tuple[float, float]]) -> float:
    """Return the share of the first column's width, at least of one column, that a rule covers."""
    return max((min(rule.x1, right) - max(rule.x0, left)) / max(right - left, 1.0) for left, right in columns)


def _around(one: Box, other: Box) -> Box:
    return Box(min(one.x0, other.x0), min(one.y0, other.y0), max(one.x1, other.x1), max(one.y1, other.y1))


def _column_ranges(rows: Sequence[Sequence[Segment]]) -> list[tuple[float, float]]:
    return [(min(row[at].x0 for row in rows), max(row[at].x1 for row in rows)) for at in range(len(rows[0]))]


def _column_of(one: Segment, columns: Sequence[tuple[float, float]]) -> int:
    """Return the first column that a segment overlaps, else the nearest."""
    for at, (left, right) in enumerate(columns):
        if min(one.x1, right) - max(one.x0, left) > 0.3 * min(one.x1 - one.x0, right - left):
            return at
    return min(range(len(columns)), key=lambda at: abs(sum(columns[at]) / 2 - (one.x0 + one.x1) / 2))


def _is_aligned(rows: Sequence[Sequence[Segment]], columns: Sequence[tuple[float, float]]) -> bool:
    """Return True if columns do not overlap and most cells of each share an edge or their middle."""
    if any(after[0] < before[1] - 1 for before, after in pairwise(columns)):
        return False
    cells: list[list[Segment]] = [[] for _ in columns]
    for row in rows:
        for one in row:
            cells[_column_of(one, columns)].append(one)
    for column in cells:
        if not column:
            return False
        edges = zip(*((one.x0, one.x1, (one.x0 + one.x1) / 2) for one in column), strict=True)
        if not any(_share_near_median(positions) >= 0.6 for positions in edges):
            return False
    return True


def _share_near_median(positions: Sequence[float]) -> float:
    middle = median(positions)
    return sum(abs(position - middle) < _ALIGNED for position in positions) / len(positions)
