"""Comparison of evaluations: figures of each variant, differences between them, regressions, baselines."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.metrics import Bootstrap, Estimate, Measure
from vectorforge.evaluation.run import Outcome, Plan, Run

_FIELD = "--baseline"


def write_file(path: Path, text: str, *, field: str) -> None:
    """Write a text, and replace an existing file; raises InvalidInputError if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be written ({type(exc).__name__}).", field=field) from exc


def check_writable(path: Path, *, field: str) -> None:
    """Raise InvalidInputError before the first question if a file cannot be written."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInputError(
            f"{path} cannot be written; {field} names a file in an existing folder.", field=field
        )


class StoredScores(BaseModel):
    """Scores of one question."""

    fingerprint: str
    values: dict[str, float]


class Baseline(BaseModel):
    """The scores of each variant."""

    model_config = ConfigDict(allow_inf_nan=False)

    format: Literal["vectorforge-baseline-1"] = "vectorforge-baseline-1"
    created_at: datetime
    collection: str
    questions: str
    k: int = Field(ge=1)
    retrieval_only: bool
    variants: dict[str, dict[str, StoredScores]] = Field(min_length=1)
    """Variant -> id of a question -> scores."""

    @classmethod
    def of(cls, outcome: Outcome) -> "Baseline":
        """Return the scores of an evaluation as a baseline."""
        plan = outcome.plan
        return cls(
            created_at=datetime.now(UTC),
            collection=outcome.collection,
            questions=plan.questions.name,
            k=plan.k,
            retrieval_only=plan.retrieval_only,
            variants={
                run.variant: {
                    scored.question.id: StoredScores(
                        fingerprint=scored.question.fingerprint, values=dict(scored.values)
                    )
                    for scored in run.scored
                }
                for run in outcome.runs
            },
        )

    @classmethod
    def read(cls, path: Path, plan: Plan) -> "Baseline":
        """Read a file.

        Raises:
            InvalidInputError: It cannot be read, is not a baseline, or has another ``k`` or mode.
        """
        try:
            baseline = cls.model_validate_json(path.read_bytes())
        except OSError as exc:
            raise InvalidInputError(f"{path} cannot be read ({type(exc).__name__}).", field=_FIELD) from exc
        except ValidationError as exc:
            raise InvalidInputError(f"{path} is not a baseline of this version.", field=_FIELD) from exc
        if baseline.k != plan.k:
            raise InvalidInputError(
                f"{path} was made with --cutoff {baseline.k}; its rankings cannot be compared with those at "
                f"{plan.k}.",
                field=_FIELD,
            )
        if baseline.retrieval_only != plan.retrieval_only:
            made = "with" if baseline.retrieval_only else "without"
            raise InvalidInputError(
                f"{path} was made {made} --retrieval-only; latencies cannot be compared.", field=_FIELD
            )
        return baseline

    def write(self, path: Path) -> None:
        """Write it to a file, and replace an existing one.

        Raises:
            InvalidInputError: The file cannot be written.
        """
        write_file(path, self.model_dump_json(indent=1) + "\n", field="--save-baseline")

    def column_for(
        self, variant: str, fingerprints: Mapping[str, str]
    ) -> tuple[str, dict[str, dict[str, float]]]:
        """Return the stored scores for a variant, under its name or the only ones, without changed questions.

        Returns:
            Name of the stored variant, and its values by question.

        Raises:
            InvalidInputError: There is neither, or no question matches.
        """
        name = variant if variant in self.variants else next(iter(self.variants))
        if variant not in self.variants and len(self.variants) > 1:
            raise InvalidInputError(
                f"The baseline has no variant {variant}; it has: {', '.join(self.variants)}.", field=_FIELD
            )
        same = {
            question: stored.values
            for question, stored in self.variants[name].items()
            if fingerprints.get(question) == stored.fingerprint
        }
        if not same:
            raise InvalidInputError("The baseline has none of these questions.", field=_FIELD)
        return name, same


Verdict: TypeAlias = Literal["worse", "better", "same", "unclear"]
"""Position of the whole interval: beyond the tolerance on one side, within it, or neither."""


@dataclass(frozen=True, slots=True)
class Column:
    """Scores of one run by question, for comparison."""

    name: str
    values: Mapping[str, Mapping[str, float]]
    """Question -> column of ``measures`` -> value."""

    @classmethod
    def of(cls, run: Run) -> "Column":
        """Return the scores of a run."""
        return cls(run.variant, {scored.question.id: scored.values for scored in run.scored})


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two runs in one measure, over the questions that both have."""

    measure: Measure
    candidate: str
    reference: str
    estimate: Estimate
    """Candidate minus reference."""
    verdict: Verdict

    @property
    def is_regression(self) -> bool:
        """True if the loss exceeds the measure's tolerance."""
        return self.measure.tolerance is not None and self.verdict == "worse"


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures, differences and baselines of an evaluation."""

    measures: Sequence[Measure]
    """Measures that at least one run has."""
    figures: Mapping[str, Mapping[str, Estimate]]
    """Run -> measure -> figure; a baseline's name ends in " (baseline)"."""
    differences: Sequence[Difference]
    pairs: Sequence[tuple[Column, Column]] = ()
    """Candidates and references that were compared."""
    changed_questions: int = 0
    """Questions that are missing or different in the baseline, and not compared with it."""

    @property
    def regressions(self) -> list[Difference]:
        """Differences that fail the evaluation."""
        return [difference for difference in self.differences if difference.is_regression]


def summarize(
    runs: Sequence[Run], measures: Sequence[Measure], bootstrap: Bootstrap, baseline: Baseline | None = None
) -> Summary:
    """Compare every run with the first, and each with its own in the baseline.

    A variant that the baseline does not have is compared with its only one.

    Raises:
        InvalidInputError: The baseline has no matching scores; see ``Baseline.column_for``.
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
    return Summary(present, figures, differences, pairs, changed)


def paired(candidate: Column, reference: Column, column: str) -> list[tuple[str, float, float]]:
    """Return question, candidate's value and reference's value of the questions that have both."""
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
    """Compare a difference's interval with the measure's tolerance (0 for a measure without one)."""
    tolerance = measure.tolerance or 0.0
    below, above = estimate.high < -tolerance, estimate.low > tolerance
    if below or above:
        return "better" if above == measure.higher_is_better else "worse"
    return "same" if -tolerance <= estimate.low and estimate.high <= tolerance else "unclear"
