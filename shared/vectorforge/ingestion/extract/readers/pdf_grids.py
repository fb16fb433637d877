"""Grids of ruled tables on a PDF page."""

from collections.abc import Iterator, Sequence
from typing import Final

from vectorforge.ingestion.extract.readers.pdf_words import Box, Page

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
