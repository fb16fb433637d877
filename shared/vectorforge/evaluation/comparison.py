"""Which questions went worst, and what had been expected of them.

What an evaluation says: figures of each variant, differences between them, and which are regressions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vectorforge.evaluation.baseline import Baseline
from vectorforge.evaluation.metrics import Measure
from vectorforge.evaluation.questions import Question
from vectorforge.evaluation.resampling import Bootstrap, Estimate
from vectorforge.evaluation.run import Run
from vectorforge.evaluation.scoring import Scored

_QUALITY = ("answer_containment", "ndcg", "answer_in_passages", "citation_precision", "recall")
_SHOWN_CHARS = 300


def worst_questions(scored: Sequence[Scored], limit: int) -> list[Scored]:
    """The questions with the lowest mean over the measures of quality that each has, without perfect ones.

    Args:
        scored: Of one run.
        limit: So many at most, the worst first; failed ones before all.
    """
    with_means = [(_mean(one), number, one) for number, one in enumerate(scored)]
    return [one for mean, _, one in sorted(with_means, key=lambda row: row[:2])[:limit] if mean < 1]


def describe(question: Question) -> Iterator[str]:
    """What was expected: answers, documents, passages; a line for each."""
    if question.answers:
        yield "Answer: " + " / ".join(question.answers)
    if question.reference:
        yield "In other words: " + question.reference[:_SHOWN_CHARS]
    for relevant in question.relevant:
        if relevant.text is not None:
            yield f"Passage: {relevant.text[:_SHOWN_CHARS]}"
        elif relevant.start is not None:
            yield f"Source: {relevant.source}, characters {relevant.start} to {relevant.end}"
        else:
            yield f"Source: {relevant.source}"


def _mean(scored: Scored) -> float:
    if scored.error is not None:
        return -1.0
    values = [scored.values[name] for name in _QUALITY if name in scored.values]
    return sum(values) / len(values) if values else 1.0


Verdict: TypeAlias = Literal["worse", "better", "same", "unclear"]
"""Where the whole interval of the difference is: beyond the tolerance on one side, within it, or neither."""


@dataclass(frozen=True, slots=True)
class Column:
    """The scores of one run by question: what is compared."""

    name: str
    values: Mapping[str, Mapping[str, float]]
    """Question -> column of ``measures`` -> value."""

    @classmethod
    def of(cls, run: Run) -> "Column":
        """The run's scores."""
        return cls(run.variant, {scored.question.id: scored.values for scored in run.scored})


@dataclass(frozen=True, slots=True)
class Difference:
    """How one run's figure differs from another's, over the questions that both have."""

    measure: Measure
    candidate: str
    reference: str
    estimate: Estimate
    """Candidate less reference."""
    verdict: Verdict

    @property
    def is_regression(self) -> bool:
        """Whether it is worse than its measure tolerates."""
        return self.measure.tolerance is not None and self.verdict == "worse"


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that is printed, stored and drawn."""

    measures: Sequence[Measure]
    """Those that at least one run has."""
    figures: Mapping[str, Mapping[str, Estimate]]
    """Run -> measure -> figure; a baseline's name ends in " (baseline)"."""
    differences: Sequence[Difference]
    baselines: Sequence[Column] = ()
    """What the runs were compared with beside the first of them."""
    changed_questions: int = 0
    """Questions that the baseline lacks, or has otherwise: they are not compared with it."""

    @property
    def compared(self) -> set[tuple[str, str]]:
        """Candidate and reference of all differences."""
        return {(difference.candidate, difference.reference) for difference in self.differences}

    @property
    def regressions(self) -> list[Difference]:
        """What makes the evaluation fail."""
        return [difference for difference in self.differences if difference.is_regression]


def summarise(
    runs: Sequence[Run],
    measures: Sequence[Measure],
    bootstrap: Bootstrap,
    baseline: Baseline | None = None,
) -> Summary:
    """Compare every run with the first, and each with its own in the baseline.

    Args:
        runs: One for each variant.
        measures: What to look at.
        bootstrap: Makes the intervals.
        baseline: Of an earlier evaluation. A variant that it does not hold is compared with its only one.

    Raises:
        InvalidInputError: The baseline has nothing to compare with; see ``Baseline.column_for``.
    """
    columns = [Column.of(run) for run in runs]
    pairs = [(column, columns[0]) for column in columns[1:]]
    stored: dict[str, Column] = {}
    changed = 0
    if baseline is not None:
        fingerprints = {scored.question.id: scored.question.fingerprint for scored in runs[0].scored}
        for column in columns:
            name, scores = baseline.column_for(column.name, fingerprints)
            reference = Column(f"{name} (baseline)", scores)
            stored[reference.name] = reference
            pairs.append((column, reference))
            changed = max(changed, len(column.values.keys() - scores.keys()))
    shown = [*columns, *stored.values()]
    figures = {
        column.name: {
            measure.name: bootstrap.estimate(values, measure.statistic)
            for measure in measures
            if (values := [v[measure.column] for v in column.values.values() if measure.column in v])
        }
        for column in shown
    }
    present = [m for m in measures if any(m.name in of_run for of_run in figures.values())]
    differences = [
        difference
        for measure in present
        for candidate, reference in pairs
        if (difference := _difference(measure, candidate, reference, bootstrap)) is not None
    ]
    return Summary(present, figures, differences, list(stored.values()), changed)


def paired(candidate: Column, reference: Column, column: str) -> list[tuple[str, float, float]]:
    """Question, candidate's value, reference's value: of the questions that have both."""
    return [
        (question, values[column], reference.values[question][column])
        for question, values in candidate.values.items()
        if column in values and column in reference.values.get(question, {})
    ]


def _difference(
    measure: Measure, candidate: Column, reference: Column, bootstrap: Bootstrap
) -> Difference | None:
    pairs = paired(candidate, reference, measure.column)
    if not pairs:
        return None
    estimate = bootstrap.difference([c for _, c, _ in pairs], [r for _, _, r in pairs], measure.statistic)
    return Difference(measure, candidate.name, reference.name, estimate, judge(estimate, measure))


def judge(estimate: Estimate, measure: Measure) -> Verdict:
    """What a difference's interval says against the measure's tolerance; 0 for a measure without one."""
    tolerance = measure.tolerance or 0.0
    below, above = estimate.high < -tolerance, estimate.low > tolerance
    if below or above:
        return "better" if above == measure.higher_is_better else "worse"
    return "same" if -tolerance <= estimate.low and estimate.high <= tolerance else "unclear"
