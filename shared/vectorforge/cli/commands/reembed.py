"""``vectorforge collections reembed``: change a collection's embedding model without downtime."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from vectorforge.cli.options import EmbeddingModelOption, EmbeddingProviderOption, YesOption, confirm
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.embedding_switch.repo import EmbeddingSwitch, SwitchState
from vectorforge.embedding_switch.service import EmbeddingEstimate
from vectorforge.evaluation.questions import read_questions
from vectorforge.types import Collection

if TYPE_CHECKING:  # imports numpy
    from vectorforge.evaluation.embedding_gate import GateResult

Step: TypeAlias = Callable[[Session, Terminal, Collection], Awaitable[EmbeddingSwitch | None]]

app = typer.Typer(
    no_args_is_help=True,
    help="Change a collection's embedding model: start, switch, finish.",
)

NameArgument = Annotated[str, typer.Argument(help="Name or id of the collection.")]

_LOOK_S = 0.5
"""Interval of polling the progress of other processes."""


@app.command()
@session_command
def start(
    context: CommandContext,
    name: NameArgument,
    embedding_provider: EmbeddingProviderOption = None,
    embedding_model: EmbeddingModelOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate time and cost.")] = False,
    wait: Annotated[
        bool, typer.Option(help="Embed in this process with progress; otherwise a server's worker does.")
    ] = True,
    yes: YesOption = False,
) -> None:
    """Embed a collection with another model; queries use the old one until `switch`.

    After an interruption, `reembed wait` or a server resumes it.

    [bold]Example[/bold]

        vectorforge collections reembed start handbook --embedding-provider openai
    """

    async def begin(session: Session, terminal: Terminal, collection: Collection) -> EmbeddingSwitch | None:
        changes = session.services.model_changes
        estimate = await changes.estimate(collection, embedding_provider, embedding_model)
        _print_estimate(terminal, estimate)
        if dry_run:
            return None
        confirm(f'Embed the collection "{collection.name}" with {estimate.model}?', yes=yes)
        started = await changes.start(collection, embedding_provider, embedding_model)
        return await _fill(session, terminal, collection) if wait else started

    _run(context, name, begin)


@app.command("wait")
@session_command
def wait_until_ready(context: CommandContext, name: NameArgument) -> None:
    """Embed until every chunk has both vectors, or delete the old ones, for a started model change."""

    async def wait(session: Session, terminal: Terminal, collection: Collection) -> EmbeddingSwitch | None:
        await session.services.model_changes.stored.get(collection.id)  # an error without a change
        return await _fill(session, terminal, collection)

    _run(context, name, wait)


@app.command()
@session_command
def status(context: CommandContext, name: NameArgument) -> None:
    """Show the progress of a model change."""
    _run(context, name, lambda session, _, target: session.services.model_changes.stored.get(target.id))


@app.command()
@session_command
def switch(
    context: CommandContext,
    name: NameArgument,
    questions: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="Questions as for `vectorforge eval`; with judgements, nDCG decides.",
            show_default="the latest 100 queries",
        ),
    ] = None,
    cutoff: Annotated[int, typer.Option("--cutoff", min=1, max=100, help="Ranks to compare.")] = 10,
    min_overlap: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Minimum share of the old model's passages that the new one must find.",
            show_default="0.4; 0 with judged questions",
        ),
    ] = None,
    max_ndcg_loss: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Maximum loss of nDCG on judged questions.")
    ] = 0.02,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Switch without a comparison.")] = False,
) -> None:
    """Compare both models on questions, and switch to the new one if it finds enough of the same chunks."""

    async def compare(session: Session, terminal: Terminal, collection: Collection) -> EmbeddingSwitch:
        from vectorforge.evaluation.embedding_gate import EmbeddingGate, GateThresholds

        stored = session.services.model_changes.stored
        if force and not dry_run:
            return await stored.switch(collection.id)
        chosen = None if questions is None else read_questions(questions, unjudged_too=True).questions
        thresholds = GateThresholds(cutoff, min_overlap, max_ndcg_loss)
        gate = EmbeddingGate(session.services, collection)
        if dry_run:
            change, result = await stored.get(collection.id), await gate.measure(chosen, thresholds)
        else:
            change, result = await gate.switch(chosen, thresholds)
        _print_result(terminal, result)
        return change

    _run(context, name, compare)


@app.command()
@session_command
def rollback(context: CommandContext, name: NameArgument) -> None:
    """Switch back to the previous model immediately; the change stays open."""
    _run(context, name, lambda session, _, target: session.services.model_changes.stored.rollback(target.id))


@app.command()
@session_command
def finish(context: CommandContext, name: NameArgument) -> None:
    """Finish a switched change: delete the old model's vectors. No rollback is possible afterwards."""
    _end(context, name, "finish")


@app.command()
@session_command
def cancel(context: CommandContext, name: NameArgument) -> None:
    """Cancel a change that was not switched: delete the new model's vectors."""
    _end(context, name, "cancel")


def _end(context: CommandContext, name: str, step: str) -> None:
    async def end(session: Session, terminal: Terminal, collection: Collection) -> None:
        stored = session.services.model_changes.stored
        await (stored.finish if step == "finish" else stored.cancel)(collection.id)
        await _fill(session, terminal, collection)
        context.show(
            collection,
            lambda changed: {"id": changed.id, "name": changed.name, "ended": True},
            lambda terminal, changed: terminal.line(f"The model change of {changed.name} has ended."),
        )

    _run(context, name, end)


def _run(context: CommandContext, name: str, step: Step) -> None:
    """Run a step for the collection with this name or id, and print the change that it returns."""

    async def work(session: Session) -> EmbeddingSwitch | None:
        return await step(session, context.terminal, await session.collection(name))

    change = context.run(work)
    if change is not None:
        context.show(change, asdict, _print_switch)


async def _fill(session: Session, terminal: Terminal, collection: Collection) -> EmbeddingSwitch | None:
    """Process the collection's change until it is complete; returns None if it has ended."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    backfill = session.application.background.backfill
    last_error: str | None = None
    with terminal.progress(*columns) as progress:
        task = progress.add_task("Embedding", total=None)
        while (change := await session.services.model_changes.stored.find(collection.id)) is not None:
            removing = change.state is SwitchState.REMOVING
            if change.complete and not removing:
                return change
            what = "Vectors left to delete" if removing else "Embedding"
            progress.update(task, description=what, total=change.passages, completed=change.vectors)
            if change.error_message and change.error_message != last_error:
                last_error = change.error_message
                terminal.warn(last_error)
            if not await backfill.step():
                await asyncio.sleep(_LOOK_S)
    return None


def _print_estimate(terminal: Terminal, estimate: EmbeddingEstimate) -> None:
    time = "unknown" if estimate.seconds is None else f"{estimate.seconds:,.0f} s"
    cost = "unknown" if estimate.cost_usd is None else f"{estimate.cost_usd:,.2f} USD"
    terminal.note(
        f"{estimate.provider}/{estimate.model}, {estimate.dimension} dimensions: "
        f"{estimate.passages:,} chunks, about {estimate.tokens:,} tokens. Time: {time}. Cost: {cost}."
    )


def _print_result(terminal: Terminal, result: "GateResult") -> None:
    if terminal.json_output:
        return
    ndcg = ""
    if result.ndcg_before is not None and result.ndcg_after is not None:
        ndcg = f", nDCG@{result.k} {result.ndcg_before:.3f} before and {result.ndcg_after:.3f} after"
    refused = "" if result.passed else f" Rejected: {result.reason}"
    terminal.line(f"{result.questions} questions: overlap@{result.k} {result.overlap:.3f}{ndcg}.{refused}")


def _print_switch(terminal: Terminal, change: EmbeddingSwitch) -> None:
    other = f"{change.other.provider}/{change.other.model}"
    what = "old" if change.state.value == "switched" else "new"
    terminal.line(
        f"{change.state.value}: {change.vectors:,} of {change.passages:,} chunks have a vector of the "
        f"{what} model, {other}, {change.other.dimension} dimensions."
    )
    if change.error_message:
        terminal.warn(f"The last of {change.failures} failed attempts: {change.error_message}")
