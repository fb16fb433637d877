"""Bar charts as SVG, drawn like those of ``vectorforge eval``: no script, no font, no address."""

from collections.abc import Sequence
from html import escape

_WIDTH, _LABEL, _VALUE = 720, 190, 90
_ROW, _BAR, _HEAD = 26, 16, 44
_OURS, _OTHERS = "#2563eb", "#94a3b8"


def bars(title: str, unit: str, rows: Sequence[tuple[str, float]], *, ours: str) -> str:
    """Draw one bar for each row, from zero.

    Args:
        title: Title above the bars.
        unit: Unit after the title.
        rows: Labels with values of at least 0.
        ours: Prefix of labels in another color.
    """
    height = _HEAD + _ROW * len(rows) + 10
    longest = max((value for _, value in rows), default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<g font-family="sans-serif" font-size="13">',
        f'<text x="12" y="26" font-size="15" fill="#0f172a">{escape(title)}, {escape(unit)}</text>',
    ]
    for number, (label, value) in enumerate(rows):
        top = _HEAD + number * _ROW
        length = round((_WIDTH - _LABEL - _VALUE) * value / longest, 1)
        middle = top + _BAR - 3
        colour = _OURS if label.startswith(ours) else _OTHERS
        parts += [
            f'<text x="{_LABEL - 10}" y="{middle}" text-anchor="end" fill="#0f172a">{escape(label)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length}" height="{_BAR}" rx="2" fill="{colour}"/>',
            f'<text x="{_LABEL + length + 8}" y="{middle}" fill="#334155">{_figure(value)}</text>',
        ]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
