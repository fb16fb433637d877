"""``vectorforge eval``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import command
from vectorforge.errors import InvalidInputError
from vectorforge.types import SearchMode, SearchSettings

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.cli.session import Session
    from vectorforge.cli.terminal import Terminal
    from vectorforge.evaluation.run import Plan, Run

_COMPARING, _MEASURING, _TUNING = "Comparing", "Measuring", "Tuning"


def evaluate(
    questions: Annotated[
        Path,
        typer.Argument(
            help="A JSONL file of questions, or a folder with queries.jsonl and qrels.jsonl.", exists=True
        ),
    ],
    collection: CollectionOption = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="Variant to measure; may be repeated, and the others are compared with the first.",
            show_default="default",
        ),
    ] = None,
    retrieval_only: Annotated[
        bool, typer.Option("--retrieval-only", help="Only search; asks no model and logs nothing.")
    ] = False,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", "-k", min=1, help="Passages to retrieve at most.", show_default="10, or the variant's"
        ),
    ] = None,
    cutoff: Annotated[
        int, typer.Option(min=1, max=1000, help="Ranks that count: the k of recall@k, MRR@k and nDCG@k.")
    ] = 10,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many questions, always the same ones.", show_default="all"),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Questions at a time.")] = 1,
    mode: Annotated[
        SearchMode | None,
        typer.Option(help="What passages are found by.", show_default="the variant's, or the collection's"),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Learn the weight of vectors in a hybrid search; measures nothing else.",
            rich_help_panel=_TUNING,
        ),
    ] = False,
    save: Annotated[
        bool,
        typer.Option("--save", help="Keep the best weight if it is a gain.", rich_help_panel=_TUNING),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Compare with this file, too.", show_default=False, rich_help_panel=_COMPARING),
    ] = None,
    save_baseline: Annotated[
        Path | None,
        typer.Option(help="Keep the scores in this file.", show_default=False, rich_help_panel=_COMPARING),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            help="How much worse is no regression: [cyan]0.02[/cyan] for every measure of quality, or "
            "[cyan]latency_p95_ms=200[/cyan] for one. May be repeated.",
            show_default="0.01",
            rich_help_panel=_COMPARING,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with plots and the worst questions.",
            show_default=False,
            rich_help_panel=_COMPARING,
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=100, max=100_000, help="Draws behind an interval.", rich_help_panel=_MEASURING)
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of these draws.", rich_help_panel=_MEASURING)] = 1,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Measure search and answers on a set of questions, and compare variants.

    Every figure has a 95 % confidence interval. When a difference lies beyond
    its tolerance with its whole interval, the command says which and exits
    with 1. No answer comes from the cache; answers are logged as others are.

    [bold]Examples[/bold]

        vectorforge eval questions.jsonl --retrieval-only --save-baseline before.json

        vectorforge eval questions.jsonl --retrieval-only --baseline before.json

        vectorforge eval questions.jsonl --variant default --variant precise --report out.html

        vectorforge eval questions.jsonl --tune --save
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.commands.evaluation_output import Progressing, print_outcome
        from vectorforge.cli.session import run_in_session
        from vectorforge.evaluation.baseline import Baseline
        from vectorforge.evaluation.comparison import summarise
        from vectorforge.evaluation.metrics import measures_at, with_tolerances
        from vectorforge.evaluation.questions import read_questions, sample
        from vectorforge.evaluation.report import write_report
        from vectorforge.evaluation.resampling import Bootstrap
        from vectorforge.evaluation.run import Evaluation, Outcome, Plan

        plan = Plan(
            sample(read_questions(questions), limit),
            variants=list(dict.fromkeys(variant or ["default"])),
            k=cutoff,
            top_k=top_k,
            retrieval_only=retrieval_only,
            parallel=parallel,
            search_mode=mode,
        )
        if tune or save:
            if not tune:
                raise InvalidInputError("--save keeps what --tune finds.", field="--save")
            _tune(terminal, data_dir, collection, plan, save=save)
            return
        measures = with_tolerances(measures_at(cutoff), _parse_tolerances(tolerance or []))
        stored = Baseline.read(baseline, plan) if baseline else None

        async def work(session: "Session") -> Outcome:
            target = await session.collection(collection)
            evaluation = Evaluation(session.services, target, plan)
            with Progressing(terminal, len(plan.questions.questions) * len(plan.variants)) as progress:
                runs: list[Run] = await evaluation.run(progress.advance)
            return Outcome(plan, target.name, runs, evaluation.missing_sources)

        outcome = run_in_session(terminal, data_dir, work)
        summary = summarise(outcome.runs, measures, Bootstrap(resamples, seed), stored)
        if save_baseline:
            Baseline.of(outcome).write(save_baseline)
        if report:
            write_report(report, outcome, summary)
        print_outcome(terminal, outcome, summary)
        if summary.regressions:
            raise typer.Exit(ExitCode.INCOMPLETE)


def _tune(
    terminal: "Terminal", data_dir: Path | None, collection: str | None, plan: "Plan", *, save: bool
) -> None:
    from vectorforge.cli.commands.evaluation_output import Progressing, print_tuning
    from vectorforge.cli.session import run_in_session
    from vectorforge.evaluation.run import Evaluation
    from vectorforge.evaluation.tuning import tune

    async def work(session: "Session") -> None:
        target = await session.collection(collection)
        evaluation = Evaluation(session.services, target, plan)
        embeddings = session.application.embedding_registry
        with Progressing(terminal, len(plan.questions.questions)) as progress:
            tuning = await tune(evaluation, session.services, target, embeddings, progress.advance)
        saved = save and tuning.is_gain
        if saved:
            await session.services.collections.set_search(target.id, SearchSettings(dense_weight=tuning.best))
        print_tuning(terminal, tuning, target.name, saved=saved)

    run_in_session(terminal, data_dir, work)


def _parse_tolerances(given: list[str]) -> dict[str | None, float]:
    """Measure -> tolerance; None for all of quality.

    Raises:
        InvalidInputError: One is no number of 0 or more.
    """
    found: dict[str | None, float] = {}
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
        found[name if separator else None] = number
    return found
