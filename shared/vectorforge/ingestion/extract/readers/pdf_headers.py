"""Headers of two rows in PDF tables: a cell that covers several columns is part of the name of each."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final

from vectorforge.ingestion.extract.blocks import NUMBER
from vectorforge.ingestion.extract.readers.pdf_words import Box, Segment

_NEAR: Final = 2.0
"""Points by which a rule may be off the edge of a column."""
_MAX_COLUMNS: Final = 16
_MAX_GROUPS: Final = 5
"""Cells over several columns without rules around them, whose columns are found by trying all."""


def runs_between(xs: Sequence[float], middle: float, verticals: Sequence[Box]) -> list[range]:
    """Return the columns of each cell of a row in a grid, as the vertical rules at its height divide them."""
    inner = [
        at
        for at, x in enumerate(xs[1:-1], start=1)
        if any(abs(rule.x0 - x) < _NEAR and rule.y0 < middle < rule.y1 for rule in verticals)
    ]
    return [range(start, stop) for start, stop in pairwise([0, *inner, len(xs) - 1])]


def runs_below(row: Sequence[Segment], columns: Sequence[tuple[float, float]]) -> list[range]:
    """Return the columns below each segment of a row, by the edge or the middle that they share with it.

    Of several possibilities, those of equal width behind one column that is not covered.
    """
    number = len(columns)
    if not len(row) < number <= _MAX_COLUMNS or len(row) > _MAX_GROUPS:
        return []
    least = 0.25 * min(sum(b) - sum(a) for a, b in pairwise(columns)) / 2
    found: list[tuple[int, int, int, list[range]]] = []
    for starts in combinations(range(number), len(row)):
        runs = [range(start, stop) for start, stop in pairwise([*starts, number])]
        errors = [
            _error(one, columns[run[0]][0], columns[run[-1]][1]) for one, run in zip(row, runs, strict=True)
        ]
        if max(errors) < least:
            widths = [*map(len, runs)]
            alone = [range(at, at + 1) for at in range(starts[0])]
            found.append((round(sum(errors)), max(widths) - min(widths), abs(starts[0] - 1), [*alone, *runs]))
    return min(found, key=lambda one: one[:3])[3] if found else []


def _error(one: Segment, left: float, right: float) -> float:
    return min(abs(one.x0 - left), abs(one.x1 - right), abs(one.x0 + one.x1 - left - right) / 2)


def joined_names(rows: Sequence[Sequence[str]], runs: Sequence[range], *, is_marked: bool) -> list[str]:
    """Return the names of columns in the first two rows, given the columns of the first row's cells, or none.

    Unless the two rows are marked, the second has no numbers and those below it do.
    """
    first, second, *rest = rows
    covered = [at for run in runs if len(run) > 1 and any(first[at] for at in run) for at in run]
    if not covered or not rest or len(runs) < 2 or not all(second[at] for at in covered):
        return []
    numbered = [any(NUMBER.fullmatch(row[at]) for row in part for at in covered) for part in ([second], rest)]
    if not is_marked and numbered != [False, True]:
        return []
    names = [" ".join(filter(None, [*(first[one] for one in run), second[at]])) for run in runs for at in run]
    return names if len({*names}) == len(names) else []
