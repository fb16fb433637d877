"""Output of ``vectorforge eval``: a bar while it runs, tables or JSON at its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn

from vectorforge.cli.terminal import Terminal
from vectorforge.evaluation.comparison import Difference, Summary
from vectorforge.evaluation.metrics import change, figure
from vectorforge.evaluation.run import Outcome

if TYPE_CHECKING:
    from vectorforge.evaluation.tuning import Tuning


_BAR = 40


def print_tuning(terminal: Terminal, tuning: "Tuning", collection: str, *, saved: bool) -> None:
    """Print the curve, the value of the best weight, and whether it was saved."""
    if terminal.json_output:
        terminal.json(
            {
                "collection": collection,
                "questions": tuning.questions,
                "cutoff": tuning.k,
                "current": tuning.current,
                "best": tuning.best,
                "current_ndcg": tuning.current_ndcg,
                "cross_validated_ndcg": tuning.cross_validated,
                "is_gain": tuning.is_gain,
                "saved": saved,
                "curve": [{"dense_weight": w, "ndcg": figure} for w, figure in tuning.curve.items()],
            }
        )
        return
    rows = [
        (f"{weight:g}", f"{figure:.4f}", "#" * round(figure * _BAR), _mark(tuning, weight))
        for weight, figure in tuning.curve.items()
    ]
    terminal.table(["Weight of vectors#", f"nDCG@{tuning.k}#", "", ""], rows)
    terminal.note(
        f"{tuning.questions} questions on {collection}. nDCG@{tuning.k} of the best weight, cross-validated: "
        f"{tuning.cross_validated:.4f}; of the current weight: {tuning.current_ndcg:.4f}."
    )
    if saved:
        terminal.note(f"Saved: {collection} has the weight {tuning.best:g}.")
    elif tuning.is_gain:
        terminal.note(f"Use --save to set the weight of {collection} to {tuning.best:g}.")
    else:
        terminal.note(f"No gain: {collection} keeps the weight {tuning.current:g}.")


def _mark(tuning: "Tuning", weight: float) -> str:
    marks = {tuning.current: "current", tuning.best: "best"}
    return "current, best" if weight == tuning.best == tuning.current else marks.get(weight, "")


_FEW = 30
"""Questions below which intervals are unreliable: the bootstrap needs a representative sample."""


@contextmanager
def question_progress(terminal: Terminal, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr; yields the function to call after each answer."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "[dim]left")
    with terminal.progress(SpinnerColumn(), *columns, TimeRemainingColumn()) as progress:
        yield partial(progress.advance, progress.add_task("Answering", total=total))


def print_outcome(terminal: Terminal, outcome: Outcome, summary: Summary) -> None:
    """Print figures, differences and regressions, and warnings about their reliability."""
    for text in warnings(outcome, summary):
        terminal.warn(text)
    if terminal.json_output:
        terminal.json(as_json(outcome, summary))
        return
    names = list(summary.figures)
    rows = []
    for measure in summary.measures:
        estimates = (summary.figures[name].get(measure.name) for name in names)
        rows.append((measure.name, *(figure(one, measure.unit) if one else "" for one in estimates)))
    terminal.table(["Measure", *names], rows)
    if summary.differences:
        terminal.line()
        terminal.table(
            ["Measure", "Difference", "Change", "Tolerance#", "Verdict"],
            [_difference_row(difference) for difference in summary.differences],
        )
    for difference in summary.regressions:
        terminal.error(_sentence(difference), code="regression")
    terminal.note(
        f"{len(outcome.plan.questions.questions)} questions on {outcome.collection}; "
        "in brackets: 95 % confidence intervals."
    )


def warnings(outcome: Outcome, summary: Summary) -> list[str]:
    """Return the warnings that apply to the figures."""
    questions, missing = outcome.plan.questions, outcome.missing_sources
    texts = []
    if len(questions.questions) < _FEW:
        texts.append(f"Only {len(questions.questions)} questions: the intervals are unreliable.")
    if questions.unjudged:
        texts.append(f"{questions.unjudged} questions skipped: they have no judgements.")
    if missing:
        texts.append(f"{len(missing)} sources are not in {outcome.collection}, e.g. {missing[0]}.")
    if summary.changed_questions:
        texts.append(f"{summary.changed_questions} questions are new or changed since the baseline.")
    texts += [
        f"{run.failures} questions failed under {run.variant}, e.g. "
        + next(scored.error for scored in run.scored if scored.error)
        for run in outcome.runs
        if run.failures
    ]
    return texts


def as_json(outcome: Outcome, summary: Summary) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "collection": outcome.collection,
        "questions": len(outcome.plan.questions.questions),
        "cutoff": outcome.plan.k,
        "retrieval_only": outcome.plan.retrieval_only,
        "missing_sources": len(outcome.missing_sources),
        "figures": summary.figures,
        "differences": [
            {
                "measure": difference.measure.name,
                "candidate": difference.candidate,
                "reference": difference.reference,
                "difference": difference.estimate,
                "tolerance": difference.measure.tolerance,
                "verdict": difference.verdict,
                "regression": difference.is_regression,
            }
            for difference in summary.differences
        ],
        "regressions": [difference.measure.name for difference in summary.regressions],
    }


def _difference_row(difference: Difference) -> tuple[str | float | None, ...]:
    measure = difference.measure
    verdict = f"{difference.verdict}: regression" if difference.is_regression else difference.verdict
    pair = f"{difference.candidate} - {difference.reference}"
    return measure.name, pair, change(difference.estimate, measure.unit), measure.tolerance, verdict


def _sentence(difference: Difference) -> str:
    measure = difference.measure
    return (
        f"Regression: {measure.name} of {difference.candidate} differs from {difference.reference} by "
        f"{change(difference.estimate, measure.unit)}; {measure.tolerance:g} is tolerated."
    )
