"""Number formats of XLSX: percentages, currencies, decimals and thousands as spreadsheets show them."""

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, NamedTuple, Self

BUILT_IN: Final = {
    **dict.fromkeys(("3", "37", "38", "41"), "#,##0"),
    **dict.fromkeys(("4", "39", "40", "43"), "#,##0.00"),
    **dict.fromkeys(("5", "6", "42"), '"$"#,##0'),
    **dict.fromkeys(("7", "8", "44"), '"$"#,##0.00'),
    "1": "0",
    "2": "0.00",
    "9": "0%",
    "10": "0.00%",
}
"""Formats by the numbers that files use instead of their text."""
_TOKEN: Final = re.compile(
    r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[(?:black|blue|cyan|green|magenta|red|white|yellow|color ?\d+)\]'
    r"|[_*].|([0#?](?:,*[0#?])*(?:\.[0#?]+)?|\.[0#?]+)(,*)|([$€£¥%+\-()/: ])",
    re.IGNORECASE,
)
_SECTION: Final = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[_*].|[^;"\\\[_*])*')
_MAX_FORMAT_CHARS: Final = 255
_MAX_DECIMALS: Final = 9
"""With the digits of 1e15 and a percentage, fewer than a Decimal has."""


class FormattedNumber(float):
    """Number of a cell, with the text that is shown."""

    shown: str

    def __new__(cls, value: float, shown: str) -> Self:
        """Return the number with its text."""
        number = super().__new__(cls, value)
        number.shown = shown
        return number


class _Section(NamedTuple):
    before: str
    digits: str
    after: str
    scale: int
    """Power of ten by which the value is multiplied: 2 for percentages, -3 for thousands."""

    def shown(self, value: Decimal) -> str:
        """Return a number that is not negative as text."""
        whole, _, fraction = self.digits.partition(".")
        number = value.scaleb(self.scale).quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_UP)
        left, _, right = f"{number:f}".partition(".")
        left = left.lstrip("0").rjust(whole.replace(",", "").count("0"), "0")
        if "," in whole:
            left = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", left)
        least = len(fraction.rstrip("#?"))
        right = right[:least] + right[least:].rstrip("0")
        return f"{self.before}{left}{'.' + right if right else ''}{self.after}"


def format_number(value: float, code: str) -> str | None:
    """Return the text of a number in a format, or None if the format is not supported."""
    sections = [_section(part) for part in _sections(code)]
    at = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    section = sections[at] if sections else None
    if section is None or not abs(value) < 1e15:
        return None
    if not section.digits:
        return section.before.strip() or None
    shown = section.shown(abs(Decimal(repr(value))))
    sign = "-" if value < 0 and at == 0 and re.search("[1-9]", shown) else ""
    return sign + " ".join(shown.split())


def _sections(code: str) -> Sequence[str]:
    parts: list[str] = []
    at = 0
    while len(code) <= _MAX_FORMAT_CHARS and len(parts) < 4 and (found := _SECTION.match(code, at)):
        parts.append(found[0])
        at = found.end() + 1
        if at > len(code):
            return parts
    return []


def _section(code: str) -> _Section | None:
    texts, digits, scale, at = ["", ""], "", 0, 0
    while at < len(code):
        found = _TOKEN.match(code, at)
        if found is None or (found[4] and digits):
            return None
        at = found.end()
        if found[4]:
            digits, scale = found[4], scale - 3 * len(found[5])
        else:
            texts[bool(digits)] += found[1] or found[2] or found[3] or found[6] or ""
            scale += 2 if found[6] == "%" else 0
    if scale > 2 or len(digits.partition(".")[2]) > _MAX_DECIMALS:
        return None
    return _Section(texts[0], digits, texts[1], scale)
