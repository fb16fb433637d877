"""Tables of a PDF page: rows in a grid of lines, and rows aligned in columns."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from vectorforge.ingestion.extract.blocks import NUMBER
from vectorforge.ingestion.extract.readers.pdf_headers import joined_names, runs_below, runs_between
from vectorforge.ingestion.extract.readers.pdf_words import BULLETS, Box, Page, Segment

_MAX_CELL_CHARS: Final = 2_000
ALIGNED: Final = 4.0
"""Points by which the cells of one column may differ."""
LARGER: Final = 1.12
"""Height of a heading's letters, at least, in those of the text."""


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


def grid_table(
    segments: Sequence[Segment], xs: Sequence[float], ys: Sequence[float], verticals: Sequence[Box]
) -> Table | None:
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
    if len(table.rows) < 2 or len(used) < 2:
        return None
    first = table.rows[0].box
    _join_header(table, runs_between(xs, (first.y0 + first.y1) / 2, verticals))
    return table


def _join_header(table: Table, runs: Sequence[range]) -> None:
    """Join the first two rows to one if they name the columns, given the columns of the first row's cells."""
    first, second, *rest = table.rows
    is_bold = first.bold and second.bold
    is_marked = is_bold and bool(rest) and not rest[0].bold
    if names := joined_names([row.cells for row in table.rows], runs, is_marked=is_marked):
        table.rows[:2] = [TableRow(names, _around(first.box, second.box), is_bold)]


def box_of(parts: Sequence[Segment]) -> Box:
    """Return the rectangle around segments."""
    return Box(
        min(one.x0 for one in parts),
        min(one.y0 for one in parts),
        max(one.x1 for one in parts),
        max(one.y1 for one in parts),
    )


def table_end(rows: Sequence[Sequence[Segment]], at: int) -> int:
    """Return the row after a run of rows with several segments; single ones, but no headings, are between."""
    if len(rows[at]) < 2 or rows[at][0].text in BULLETS:
        return at
    end, last = at + 1, at
    while end < len(rows) and rows[end][0].y0 - rows[end - 1][0].y1 < 2 * rows[end][0].height:
        is_heading = len(rows[end]) == 1 and rows[end][0].height > LARGER * rows[last][0].height
        if rows[end][0].text in BULLETS or not rows[end][0].text or is_heading:
            break
        if len(rows[end]) > 1:
            last = end
        elif end - last > 4 or rows[end][0].x1 - rows[end][0].x0 > 0.7 * _width(rows[last]):
            break
        end += 1
    return last + 1


def has_header_below(rows: Sequence[Sequence[Segment]]) -> bool:
    """Return True if the table begins further down, with a bold row: a stretched line came before it."""
    bold = [len(row) > 1 and all(one.bold for one in row) for row in rows]
    return not bold[0] and True in bold


def _width(row: Sequence[Segment]) -> float:
    return row[-1].x1 - row[0].x0


def aligned_table(rows: Sequence[Sequence[Segment]], rules: Sequence[Box]) -> Table | None:
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
    if len(table.rows) < 2:
        return None
    _join_header(table, runs_below(rows[0], columns))
    return table


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
    has_numbers = any(
        NUMBER.fullmatch(a) and NUMBER.fullmatch(b) for a, b in zip(before.cells, cells, strict=True)
    )
    return is_near and not cells[0] and len(row) < len(before.cells) and not has_numbers


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
    return sum(abs(position - middle) < ALIGNED for position in positions) / len(positions)


_NEAR: Final = 2.0
"""Points up to which rules touch each other, and are at the same place."""
_MAX_RULES: Final = 600
"""Rules that are compared with each other; a page with more is a drawing or has a grid per cell."""


def grids_of(page: Page) -> Iterator[tuple[list[float], list[float]]]:
    """Yield positions of vertical and of horizontal rules of each grid with two columns and rows or more."""
    rules = [*page.horizontals, *page.verticals]
    if len(rules) > _MAX_RULES:
        rules = _merged(page.horizontals) + _merged(page.verticals)
        if len(rules) > _MAX_RULES:
            return
    for group in _touching(rules):
        xs = _positions([rule.x0 for rule in group if rule.x0 == rule.x1])
        ys = _positions([rule.y0 for rule in group if rule.y0 == rule.y1])
        if len(xs) > 2 and len(ys) > 2:
            yield xs, ys


def _merged(rules: Sequence[Box]) -> list[Box]:
    """Join rules on one line that touch: Word draws the borders of each cell."""
    done: list[Box] = []
    level = rules[0].y0 == rules[0].y1 if rules else True
    for rule in sorted(rules, key=lambda one: (round(one.y0), one.x0) if level else (round(one.x0), one.y0)):
        last = done[-1] if done else None
        if last and level and abs(last.y0 - rule.y0) < 1 and rule.x0 - last.x1 < _NEAR:
            done[-1] = Box(last.x0, last.y0, max(last.x1, rule.x1), last.y0)
        elif last and not level and abs(last.x0 - rule.x0) < 1 and rule.y0 - last.y1 < _NEAR:
            done[-1] = Box(last.x0, last.y0, last.x0, max(last.y1, rule.y1))
        else:
            done.append(rule)
    return done


def _touching(rules: Sequence[Box]) -> list[list[Box]]:
    """Return the rules in groups that touch each other."""
    groups: list[list[Box]] = []
    for rule in rules:
        near = [group for group in groups if any(_touch(rule, other) for other in group)]
        joined = [rule, *(one for group in near for one in group)]
        groups = [group for group in groups if not any(group is other for other in near)] + [joined]
    return groups


def _touch(one: Box, other: Box) -> bool:
    return (
        one.x0 - _NEAR < other.x1
        and other.x0 - _NEAR < one.x1
        and one.y0 - _NEAR < other.y1
        and other.y0 - _NEAR < one.y1
    )


def _positions(values: Sequence[float]) -> list[float]:
    done: list[float] = []
    for value in sorted(values):
        if not done or value - done[-1] > _NEAR:
            done.append(value)
    return done
