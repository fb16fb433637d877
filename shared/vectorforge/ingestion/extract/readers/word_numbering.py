"""Automatic numbers of list items and headings in DOCX, which are not part of their text."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LEVELS: Final = 9
_MAX_NUMBER: Final = 3_000
"""Roman numbers grow with their value."""
_ROMAN: Final = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_PLACE: Final = re.compile(r"%([1-9])")


class _Level(NamedTuple):
    start: int
    kind: str
    text: str


class Numbering:
    """Counters of the lists of a document, in its order."""

    def __init__(self, root: Any) -> None:
        """Read the definitions of ``numbering.xml``, or none if ``root`` is None."""
        elements = [] if root is None else [*root]
        self._levels = {
            one.get(f"{_W}abstractNumId"): dict(_levels(one))
            for one in elements
            if one.tag == f"{_W}abstractNum"
        }
        lists = [one for one in elements if one.tag == f"{_W}num"]
        self._abstract = {one.get(f"{_W}numId"): _value(one, "abstractNumId") for one in lists}
        self._restarts = {one.get(f"{_W}numId"): dict(_restarts(one)) for one in lists}
        self._counters: dict[str | None, list[int | None]] = {}

    def next_mark(self, element: Any, style: Any) -> tuple[int, str] | None:
        """Return level, from 0, and number of a paragraph, "" for a bullet; None if it is in no list."""
        number, level = _place(element, style)
        if number in ("", "0"):
            return None
        abstract = self._abstract.get(number)
        levels = self._levels.get(abstract, {})
        if level not in levels:
            return level, ""
        counters = self._counters.setdefault(abstract, [None] * _LEVELS)
        restarts = self._restarts.get(number, {})
        if level in restarts:
            counters[level] = restarts.pop(level) - 1
        for at in range(level + 1):
            if counters[at] is None:
                counters[at] = levels[at].start - (at == level) if at in levels else 1
        counters[level] = (counters[level] or 0) + 1
        counters[level + 1 :] = [None] * (_LEVELS - level - 1)
        return level, _mark(levels, level, counters)


def _mark(levels: dict[int, _Level], level: int, counters: Sequence[int | None]) -> str:
    if levels[level].kind == "bullet":
        return ""

    def number(found: re.Match[str]) -> str:
        at = int(found[1]) - 1
        return _number(counters[at] or 0, levels[at].kind if at in levels else "")

    return _PLACE.sub(number, levels[level].text).strip()


def _number(value: int, kind: str) -> str:
    name, is_upper = kind.lower(), kind.startswith("upper")
    if not 0 < value <= _MAX_NUMBER:
        return str(value)
    if name.endswith("letter"):
        text = chr(ord("a") + (value - 1) % 26) * ((value - 1) // 26 + 1)
    elif name.endswith("roman"):
        text = ""
        for size, letters in _ROMAN:
            text += letters * (value // size)
            value %= size
    else:
        return str(value)
    return text.upper() if is_upper else text


def _place(element: Any, style: Any) -> tuple[str, int]:
    """Return the list and the level of a paragraph, its own or those of its style."""
    number, level, seen = "", "", 0
    properties = element.find(f"{_W}pPr/{_W}numPr")
    while True:
        if properties is not None:
            number = number or _value(properties, "numId")
            level = level or _value(properties, "ilvl")
        if style is None or seen > _LEVELS or (number and level):
            break
        properties = style.element.find(f"{_W}pPr/{_W}numPr")
        style, seen = style.base_style, seen + 1
    return number, min(int(level), _LEVELS - 1) if level.isdecimal() and len(level) < 3 else 0


def _levels(abstract: Any) -> Iterator[tuple[int, _Level]]:
    for found in abstract.iterfind(f"{_W}lvl"):
        start = _value(found, "start")
        is_number = start.isdecimal() and len(start) < 6
        level = _Level(int(start) if is_number else 1, _value(found, "numFmt"), _value(found, "lvlText"))
        if (at := found.get(f"{_W}ilvl", "")) in set("012345678"):
            yield int(at), level


def _restarts(number: Any) -> Iterator[tuple[int, int]]:
    for found in number.iterfind(f"{_W}lvlOverride"):
        start, at = _value(found, "startOverride"), found.get(f"{_W}ilvl", "")
        if start.isdecimal() and len(start) < 6 and at in set("012345678"):
            yield int(at), int(start)


def _value(element: Any, name: str) -> str:
    found = element.find(f"{_W}{name}")
    return "" if found is None else str(found.get(f"{_W}val", ""))
