"""Which figures an evaluation has, which way is better, and how far each may fall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.resampling import Statistic

Unit: TypeAlias = Literal["share", "ms", "tokens", "usd"]

DEFAULT_TOLERANCE = 0.01
"""Of every measure of quality, which is a share."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run."""

    name: str
    column: str
    """Which value of each question it is made of."""
    statistic: Statistic
    unit: Unit
    higher_is_better: bool
    meaning: str
    tolerance: float | None = None
    """What it may get worse by before that is a regression; None: it is shown and never one."""


def measures_at(k: int) -> list[Measure]:
    """All measures, those of rankings at the first ``k``."""
    quality = [
        (f"recall@{k}", "recall", f"relevant items among the first {k}"),
        (f"mrr@{k}", "mrr", "one over the rank of the first relevant item"),
        (f"ndcg@{k}", "ndcg", "relevant items, the higher up the better"),
        (f"answer_in_passages@{k}", "answer_in_passages", "an expected answer stands in the passages"),
        ("citation_precision", "citation_precision", "citations that name a relevant passage"),
        ("answer_containment", "answer_containment", "an expected answer stands in the answer"),
    ]
    return [
        *(
            Measure(name, column, "mean", "share", True, meaning, DEFAULT_TOLERANCE)
            for name, column, meaning in quality
        ),
        Measure("failures", "failed", "mean", "share", False, "questions that failed", DEFAULT_TOLERANCE),
        Measure("degraded", "degraded", "mean", "share", False, "less than a full one", DEFAULT_TOLERANCE),
        Measure("latency_p50_ms", "latency_ms", "p50", "ms", False, "half the questions take longer"),
        Measure("latency_p95_ms", "latency_ms", "p95", "ms", False, "one question in twenty takes longer"),
        Measure("tokens", "tokens", "mean", "tokens", False, "tokens of prompt and answer, a question"),
        Measure("cost_usd", "cost_usd", "mean", "usd", False, "cost of a question by the price list"),
    ]


def with_tolerances(measures: Sequence[Measure], given: Mapping[str | None, float]) -> list[Measure]:
    """The measures with these tolerances.

    Args:
        measures: As ``measures_at`` gives them.
        given: Name -> tolerance in the measure's unit, 0 or more; None stands for every measure of quality.

    Raises:
        InvalidInputError: There is no measure of a name; the text lists those there are.
    """
    names = [measure.name for measure in measures]
    if unknown := [name for name in given if name is not None and name not in names]:
        raise InvalidInputError(
            f"--tolerance: there is no measure {unknown[0]}; there are: {', '.join(names)}.",
            field="--tolerance",
        )
    every = given.get(None)
    found = []
    for measure in measures:
        general = measure.tolerance if every is None or measure.tolerance is None else every
        found.append(replace(measure, tolerance=given.get(measure.name, general)))
    return found
