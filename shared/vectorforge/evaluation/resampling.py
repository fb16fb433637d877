"""Confidence intervals by resampling questions.

The percentile bootstrap: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13; for
retrieval measures Sakai 2006, https://doi.org/10.1145/1148170.1148261. Whole questions are resampled,
so two columns of the same questions stay paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Statistic: TypeAlias = Literal["mean", "p50", "p95"]
Column: TypeAlias = NDArray[np.float64]

_CELLS = 4_000_000
"""Values per batch: 32 MB."""
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float
    questions: int
    """Number of questions behind the figure."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Percentile bootstrap over questions; equal inputs return equal intervals.

    Args:
        resamples: Number of resamples, 100 or more; 2,000 are enough for 95 %.
        seed: Seed of the random generator.
    """

    resamples: int = 2_000
    seed: int = 20_261_122

    def estimate(self, values: Sequence[float], statistic: Statistic) -> Estimate:
        """Estimate a statistic of the values.

        Args:
            values: One for each question, at least one.
            statistic: "mean", or a percentile, between two values in proportion.
        """
        return self._estimate([np.asarray(values, dtype=np.float64)], statistic)

    def difference(
        self, candidate: Sequence[float], reference: Sequence[float], statistic: Statistic
    ) -> Estimate:
        """Estimate the candidate's statistic minus the reference's.

        Args:
            candidate: One for each question, at least one.
            reference: Of the same questions, in the same order.
            statistic: As for ``estimate``.
        """
        columns = [np.asarray(candidate, dtype=np.float64), np.asarray(reference, dtype=np.float64)]
        return self._estimate(columns, statistic)

    def _estimate(self, columns: list[Column], statistic: Statistic) -> Estimate:
        count = len(columns[0])
        drawn = self._draws(columns, statistic, count)
        tail = (1 - _CONFIDENCE) / 2 * 100
        low, high = np.percentile(drawn, [tail, 100 - tail])
        value = _contrast([_of(column[np.newaxis, :], statistic) for column in columns])[0]
        return Estimate(float(value), float(low), float(high), count)

    def _draws(self, columns: list[Column], statistic: Statistic, count: int) -> Column:
        generator = np.random.default_rng(self.seed)
        batch = max(1, _CELLS // count)
        parts = []
        for first in range(0, self.resamples, batch):
            drawn = generator.integers(0, count, size=(min(batch, self.resamples - first), count))
            parts.append(_contrast([_of(column[drawn], statistic) for column in columns]))
        return np.concatenate(parts)


def _of(rows: Column, statistic: Statistic) -> Column:
    if statistic == "mean":
        return np.asarray(rows.mean(axis=1))
    return np.asarray(np.percentile(rows, {"p50": 50, "p95": 95}[statistic], axis=1))


def _contrast(figures: list[Column]) -> Column:
    return figures[0] if len(figures) == 1 else figures[0] - figures[1]
