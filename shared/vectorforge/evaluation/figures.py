"""Figures as people read them."""

from collections.abc import Callable, Mapping

from vectorforge.evaluation.measures import Unit
from vectorforge.evaluation.resampling import Estimate

_WRITE: Mapping[Unit, Callable[[float], str]] = {
    "share": lambda value: f"{value:.3f}",
    "ms": lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}",
    "tokens": lambda value: f"{value:,.0f}",
    "usd": lambda value: f"{value:.6f}",
}


def number(value: float, unit: Unit) -> str:
    """A value."""
    return _WRITE[unit](value)


def signed(value: float, unit: Unit) -> str:
    """A value with its sign; without one where it is 0 as written."""
    text = number(abs(value), unit)
    if not any(digit in "123456789" for digit in text):
        return text
    return f"{'-' if value < 0 else '+'}{text}"


def figure(estimate: Estimate, unit: Unit) -> str:
    """A value with its interval: ``0.512 [0.480, 0.541]``."""
    value, low, high = (number(v, unit) for v in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def change(estimate: Estimate, unit: Unit) -> str:
    """A difference with its interval, signs included: ``-0.031 [-0.052, -0.010]``."""
    values = (estimate.value, estimate.low, estimate.high)
    value, low, high = (signed(v, unit) for v in values)
    return f"{value} [{low}, {high}]"
