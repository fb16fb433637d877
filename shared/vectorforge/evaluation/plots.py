"""Plots as SVG without scripts, fonts or links; colors come from the page's style sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from vectorforge.evaluation.metrics import Estimate, Measure, change, figure, number, signed

_WIDTH = 420.0
"""Width of a plot, in pixels at full size."""
_LABEL = 120.0
_RIGHT = 70.0
_ROW = 34.0
_BAR = 16.0
_MAX_STRIPS = 600
"""Maximum number of bars; larger sets are sampled evenly after sorting."""
_LONGEST_NAME = 15


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to horizontal positions of a plot."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the position of a value, in units from the left edge."""
        span = (self.high - self.low) or 1.0
        share = min(1.0, max(0.0, (value - self.low) / span))
        return _LABEL + share * (_WIDTH - _LABEL - _RIGHT)


def bars(measure: Measure, figures: Sequence[tuple[str, Estimate]]) -> str:
    """Plot one bar with its interval for each named run; shares are drawn from 0 to 1."""
    top = 1.0 if measure.unit == "share" else max([e.high for _, e in figures] + [1e-9])
    scale = Scale(0.0, top)
    rows = []
    for row, (name, estimate) in enumerate(figures):
        middle = row * _ROW + _ROW / 2
        text = figure(estimate, measure.unit)
        width = scale.at(estimate.value) - scale.at(0)
        rows.append(
            f"<g><title>{escape(name)}: {text}</title>{_name(name, middle)}"
            f'<rect class="bar series{row % 6}" x="{scale.at(0):.1f}" y="{middle - _BAR / 2:.1f}" '
            f'width="{width:.1f}" height="{_BAR:.1f}" rx="2"/>{_whisker(scale, estimate, middle)}'
            f"{_value(number(estimate.value, measure.unit), middle)}</g>"
        )
    label = f"{measure.name}: " + "; ".join(f"{n} {figure(e, measure.unit)}" for n, e in figures)
    return _svg("".join(rows), len(figures) * _ROW, label)


def differences(measure: Measure, pairs: Sequence[tuple[str, Estimate]]) -> str:
    """Plot a mark with its interval for each named comparison around zero; the tolerated loss is shaded."""
    tolerance = measure.tolerance or 0.0
    reach = max([abs(v) for _, e in pairs for v in (e.low, e.high)] + [tolerance * 2, 1e-9]) * 1.05
    scale = Scale(-reach, reach)
    height = len(pairs) * _ROW
    first, second = sorted((0.0, -tolerance if measure.higher_is_better else tolerance))
    shade = (
        f'<rect class="tolerated" x="{scale.at(first):.1f}" y="0" '
        f'width="{scale.at(second) - scale.at(first):.1f}" height="{height:.1f}"/>'
    )
    zero = f'<line class="zero" x1="{scale.at(0):.1f}" x2="{scale.at(0):.1f}" y1="0" y2="{height:.1f}"/>'
    rows = []
    for row, (name, estimate) in enumerate(pairs):
        middle = row * _ROW + _ROW / 2
        rows.append(
            f"<g><title>{escape(name)}: {change(estimate, measure.unit)}</title>{_name(name, middle)}"
            f"{_whisker(scale, estimate, middle)}"
            f'<circle class="mark" cx="{scale.at(estimate.value):.1f}" cy="{middle:.1f}" r="5"/>'
            f"{_value(signed(estimate.value, measure.unit), middle)}</g>"
        )
    label = f"Differences in {measure.name}: " + "; ".join(f"{n} {change(e, measure.unit)}" for n, e in pairs)
    return _svg(shade + zero + "".join(rows), height, label)


def strips(name: str, changes: Sequence[tuple[str, float]]) -> str:
    """Plot the difference of each question (a loss is below 0), from the largest loss to the largest gain."""
    ordered = sorted(changes, key=lambda pair: pair[1])
    step = max(1.0, len(ordered) / _MAX_STRIPS)
    drawn = [ordered[int(n * step)] for n in range(int(len(ordered) / step))]
    height, middle = 120.0, 60.0
    reach = max([abs(value) for _, value in drawn] + [1e-9])
    width = _WIDTH / max(1, len(drawn))
    rows = []
    for place, (question, value) in enumerate(drawn):
        size = abs(value) / reach * (middle - 4)
        top = middle if value < 0 else middle - size
        kind = "loss" if value < 0 else "gain"
        rows.append(
            f'<rect class="{kind}" x="{place * width:.2f}" y="{top:.1f}" '
            f'width="{max(0.6, width * 0.9):.2f}" height="{size:.1f}">'
            f"<title>{escape(question)}: {value:+.3f}</title></rect>"
        )
    zero = f'<line class="zero" x1="0" x2="{_WIDTH:.0f}" y1="{middle:.0f}" y2="{middle:.0f}"/>'
    worse, better = sum(v < 0 for _, v in changes), sum(v > 0 for _, v in changes)
    label = f"{name}: {worse} questions lost, {better} gained, {len(changes) - worse - better} are as before"
    return _svg("".join(rows) + zero, height, label)


def _svg(content: str, height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{content}</svg>"
    )


def _name(name: str, middle: float) -> str:
    shown = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return f'<text x="{_LABEL - 8:.0f}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(shown)}</text>'


def _value(text: str, middle: float) -> str:
    return f'<text x="{_WIDTH:.0f}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(text)}</text>'


def _whisker(scale: Scale, estimate: Estimate, middle: float) -> str:
    low, high = scale.at(estimate.low), scale.at(estimate.high)
    ends = f"M{low:.1f} {middle - 5:.1f}v10M{high:.1f} {middle - 5:.1f}v10"
    return f'<path class="whisker" d="{ends}M{low:.1f} {middle:.1f}H{high:.1f}"/>'
