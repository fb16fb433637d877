"""``vectorforge eval`` and ``vectorforge eval export``."""

import json
import math
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vectorforge.cli.options import AnswerTopKOption, CollectionOption, TenantOption
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode
from vectorforge.errors import InvalidInputError
from vectorforge.evaluation.questions import read_questions, sample
from vectorforge.types import SearchMode, SearchSettings

if TYPE_CHECKING:
    from vectorforge.evaluation.questions import FeedbackQuestions
    from vectorforge.evaluation.run import Outcome, Plan


_comparing = partial(typer.Option, rich_help_panel="Comparing")
_measuring = partial(typer.Option, rich_help_panel="Measuring")
_tuning = partial(typer.Option, rich_help_panel="Tuning")

QuestionsArgument = Annotated[
    Path,
    typer.Argument(
        help="A JSONL file of questions, or a folder with queries.jsonl and qrels.jsonl.", exists=True
    ),
]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Variant to measure; may be repeated, and the others are compared with the first.",
        show_default="default",
    ),
]
RetrievalOnlyOption = Annotated[
    bool, typer.Option("--retrieval-only", help="Only search; calls no model and logs nothing.")
]
CutoffOption = Annotated[
    int, typer.Option(min=1, max=1000, help="Ranks that count: the k of recall@k, MRR@k and nDCG@k.")
]
SampleOption = Annotated[
    int | None, typer.Option(min=1, help="Use a fixed sample of this many questions.", show_default="all")
]
EvaluatedModeOption = Annotated[
    SearchMode | None, typer.Option(help="Search mode.", show_default="the variant's, or the collection's")
]
TuneOption = Annotated[
    bool, _tuning("--tune", help="Learn the weight of vectors in a hybrid search; measures nothing else.")
]
SaveOption = Annotated[bool, _tuning("--save", help="Save the best weight if it improves the search.")]
BaselineOption = Annotated[Path | None, _comparing(help="Also compare with this file.", show_default=False)]
SaveBaselineOption = Annotated[
    Path | None, _comparing(help="Write the scores to this file.", show_default=False)
]
ToleranceOption = Annotated[
    list[str] | None,
    _comparing(
        help="Loss that is no regression: [cyan]0.02[/cyan] for every measure of quality, or "
        "[cyan]latency_p95_ms=200[/cyan] for one. May be repeated.",
        show_default="0.01",
    ),
]
ReportOption = Annotated[
    Path | None, _comparing(help="Write a page with plots and the worst questions.", show_default=False)
]
ResamplesOption = Annotated[
    int, _measuring(min=100, max=100_000, help="Bootstrap resamples for each interval.")
]
SeedOption = Annotated[int, _measuring(min=0, help="Seed of the bootstrap.")]


@session_command
def evaluate(
    context: CommandContext,
    questions: QuestionsArgument,
    collection: CollectionOption = None,
    variant: VariantOption = None,
    retrieval_only: RetrievalOnlyOption = False,
    top_k: AnswerTopKOption = None,
    cutoff: CutoffOption = 10,
    limit: SampleOption = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Concurrent questions.")] = 1,
    mode: EvaluatedModeOption = None,
    tune: TuneOption = False,
    save: SaveOption = False,
    baseline: BaselineOption = None,
    save_baseline: SaveBaselineOption = None,
    tolerance: ToleranceOption = None,
    report: ReportOption = None,
    resamples: ResamplesOption = 2000,
    seed: SeedOption = 1,
) -> None:
    """Measure search and answers on a set of questions, and compare variants.

    Every figure has a 95 % confidence interval. When a difference lies beyond
    its tolerance with its whole interval, the command reports a regression and
    exits with 1. Answers never come from the cache; queries are logged as usual.

    [bold]Examples[/bold]

        vectorforge eval questions.jsonl --retrieval-only --save-baseline before.json

        vectorforge eval questions.jsonl --retrieval-only --baseline before.json

        vectorforge eval questions.jsonl --variant default --variant precise --report out.html

        vectorforge eval questions.jsonl --tune --save

        vectorforge eval export --from feedback -o rated.jsonl
    """
    from vectorforge.evaluation.run import Plan

    if save and not tune:
        raise InvalidInputError("--save requires --tune.", field="--save")
    variants = list(dict.fromkeys(variant or ["default"]))
    chosen = sample(read_questions(questions), limit)
    plan = Plan(
        chosen,
        variants,
        cutoff,
        top_k=top_k,
        retrieval_only=retrieval_only,
        parallel=parallel,
        search_mode=mode,
    )
    if tune:
        _tune(context, collection, plan, save=save)
        return
    from vectorforge.cli.commands.evaluation_output import print_outcome
    from vectorforge.evaluation.comparison import Baseline, check_writable, summarize
    from vectorforge.evaluation.metrics import Bootstrap, measures_at, with_tolerances
    from vectorforge.evaluation.report import write_report

    measures = with_tolerances(measures_at(cutoff), _parse_tolerances(tolerance or []))
    stored = Baseline.read(baseline, plan) if baseline else None
    for field, path in (("--save-baseline", save_baseline), ("--report", report)):
        if path:
            check_writable(path, field=field)
    outcome = _measure(context, collection, plan)
    summary = summarize(outcome.runs, measures, Bootstrap(resamples, seed), stored)
    if save_baseline:
        Baseline.of(outcome).write(save_baseline)
    if report:
        write_report(report, outcome, summary)
    print_outcome(context.terminal, outcome, summary)
    if summary.regressions:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _measure(context: CommandContext, collection: str | None, plan: "Plan") -> "Outcome":
    from vectorforge.cli.commands.evaluation_output import question_progress
    from vectorforge.evaluation.run import Evaluation, Outcome

    async def work(session: Session) -> Outcome:
        target = await session.collection(collection)
        evaluation = Evaluation(session.services, target, plan)
        questions = len(plan.questions.questions) * len(plan.variants)
        with question_progress(context.terminal, questions) as on_answer:
            runs = await evaluation.run(on_answer)
        return Outcome(plan, target.name, runs, evaluation.missing_sources)

    return context.run(work)


def _tune(context: CommandContext, collection: str | None, plan: "Plan", *, save: bool) -> None:
    from vectorforge.cli.commands.evaluation_output import print_tuning, question_progress
    from vectorforge.evaluation.run import Evaluation
    from vectorforge.evaluation.tuning import tune

    async def work(session: Session) -> None:
        target = await session.collection(collection)
        evaluation = Evaluation(session.services, target, plan)
        embeddings = session.application.embedding_registry
        with question_progress(context.terminal, len(plan.questions.questions)) as on_answer:
            tuning = await tune(evaluation, session.services, target, embeddings, on_answer)
        saved = save and tuning.is_gain
        if saved:
            await session.services.collections.set_search(target.id, SearchSettings(dense_weight=tuning.best))
        print_tuning(context.terminal, tuning, target.name, saved=saved)

    context.run(work)


def _parse_tolerances(given: list[str]) -> dict[str | None, float]:
    """Return the tolerance by measure; None for all of quality."""
    tolerances: dict[str | None, float] = {}
    for text in given:
        name, separator, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (number >= 0 and math.isfinite(number)):
            raise InvalidInputError(
                f"--tolerance must be a number of 0 or more, or MEASURE=NUMBER, not {text!r}.",
                field="--tolerance",
            )
        tolerances[name if separator else None] = number
    return tolerances


@session_command
def export(
    context: CommandContext,
    origin: Annotated[Literal["feedback"], typer.Option("--from", help="Source of the questions.")],
    collection: CollectionOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write.", show_default="stdout")
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Write rated queries as a question set that [cyan]vectorforge eval[/cyan] reads.

    The chunks that should have been cited are the judgments, or the cited ones if
    every rating is "up". A query rated "down" without such chunks is written
    without judgments; [cyan]eval[/cyan] skips it until you add them. Queries whose
    text the query log does not have are left out.

    [bold]Examples[/bold]

        vectorforge eval export --from feedback -c handbook -o rated.jsonl

        vectorforge eval rated.jsonl -c handbook --retrieval-only
    """

    async def work(session: Session) -> "FeedbackQuestions":
        from vectorforge.evaluation.questions import read_feedback

        return await read_feedback(session.services.feedback, (await session.collection(collection)).id)

    questions = context.run(work, tenant=tenant)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in questions.lines)
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise InvalidInputError(f"{output}: {exc.strerror}.", field="--output") from exc
    if context.terminal.json_output:
        context.terminal.json(asdict(questions))
    elif output is None:
        sys.stdout.write(text)
    context.terminal.note(
        f"{origin}: {len(questions.lines)} questions, {questions.unjudged} of them without judgments; "
        f"{questions.without_text} left out because their text is not logged."
    )
    if not questions.lines:
        raise typer.Exit(ExitCode.INCOMPLETE)
