"""``vectorforge collections reembed``: change a collection's embedding model without downtime."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import YesOption, confirm
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vectorforge.embedding_switch.service import EmbeddingEstimate
    from vectorforge.embedding_switch.types import EmbeddingSwitch
    from vectorforge.evaluation.embedding_gate import GateResult
    from vectorforge.types import Collection

    Step = Callable[[Session, Terminal, Collection], Awaitable[EmbeddingSwitch | None]]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
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
    embedding_provider: Annotated[
        str | None,
        typer.Option(
            help="Embedding provider: local, openai, bedrock ...", show_default="the configured one"
        ),
    ] = None,
    embedding_model: Annotated[
        str | None, typer.Option(help="Model of that provider.", show_default="the provider's")
    ] = None,
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

    async def begin(
        session: Session, terminal: Terminal, collection: "Collection"
    ) -> "EmbeddingSwitch | None":
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
def wait_until_ready(
    context: CommandContext,
    name: NameArgument,
) -> None:
    """Embed until every chunk has both vectors, or delete the old ones, for a started model change."""
    _run(context, name, _fill)


@app.command()
@session_command
def status(
    context: CommandContext,
    name: NameArgument,
) -> None:
    """Show the progress of a model change."""

    async def look(session: Session, _: Terminal, collection: "Collection") -> "EmbeddingSwitch":
        return await session.services.model_changes.stored.get(collection.id)

    _run(context, name, look)


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

    async def compare(session: Session, terminal: Terminal, collection: "Collection") -> "EmbeddingSwitch":
        from vectorforge.evaluation.embedding_gate import EmbeddingGate, GateThresholds
        from vectorforge.evaluation.questions import read_questions

        stored = session.services.model_changes.stored
        if force and not dry_run:
            return await stored.switch(collection.id)
        chosen = None if questions is None else read_questions(questions, unjudged_too=True).questions
        thresholds = GateThresholds(cutoff, min_overlap, max_ndcg_loss)
        gate = EmbeddingGate(session.services, collection)
        if dry_run:
            found, result = await stored.get(collection.id), await gate.measure(chosen, thresholds)
        else:
            found, result = await gate.switch(chosen, thresholds)
        _print_result(terminal, result)
        return found

    _run(context, name, compare)


@app.command()
@session_command
def rollback(
    context: CommandContext,
    name: NameArgument,
) -> None:
    """Switch back to the previous model immediately; the change stays open."""

    async def roll_back(session: Session, _: Terminal, collection: "Collection") -> "EmbeddingSwitch":
        return await session.services.model_changes.stored.rollback(collection.id)

    _run(context, name, roll_back)


@app.command()
@session_command
def finish(
    context: CommandContext,
    name: NameArgument,
) -> None:
    """Finish a switched change: delete the old model's vectors. No rollback is possible afterwards."""
    _end(context, name, "finish")


@app.command()
@session_command
def cancel(
    context: CommandContext,
    name: NameArgument,
) -> None:
    """Cancel a change that was not switched: delete the new model's vectors."""
    _end(context, name, "cancel")


def _end(context: CommandContext, name: str, step: str) -> None:
    async def end(session: Session, terminal: Terminal, collection: "Collection") -> None:
        stored = session.services.model_changes.stored
        await (stored.finish if step == "finish" else stored.cancel)(collection.id)
        await _fill(session, terminal, collection)
        if terminal.json_output:
            terminal.json({"id": collection.id, "name": collection.name, "ended": True})
        else:
            terminal.line(f"The model change of {collection.name} has ended.")

    _run(context, name, end)


def _run(context: CommandContext, name: str, step: "Step") -> None:
    """Run a step for the collection with this name or id, and print the change that it returns."""

    async def work(session: Session) -> "EmbeddingSwitch | None":
        return await step(session, context.terminal, await session.collection(name))

    found = context.run(work)
    if found is not None:
        _print_switch(context.terminal, found)


async def _fill(session: Session, terminal: Terminal, collection: "Collection") -> "EmbeddingSwitch | None":
    """Process the collection's change until it is complete; returns None if it has ended."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from vectorforge.embedding_switch.types import SwitchState

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    backfill = session.application.background.backfill
    last_error: str | None = None
    with terminal.progress(*columns) as progress:
        task = progress.add_task("Embedding", total=None)
        while (found := await session.services.model_changes.stored.find(collection.id)) is not None:
            removing = found.state is SwitchState.REMOVING
            if found.complete and not removing:
                return found
            what = "Vectors left to delete" if removing else "Embedding"
            progress.update(task, description=what, total=found.passages, completed=found.vectors)
            if found.error_message and found.error_message != last_error:
                last_error = found.error_message
                terminal.warn(last_error)
            if not await backfill.step():
                await asyncio.sleep(_LOOK_S)
    return None


def _print_estimate(terminal: Terminal, estimate: "EmbeddingEstimate") -> None:
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


def _print_switch(terminal: Terminal, found: "EmbeddingSwitch") -> None:
    if terminal.json_output:
        terminal.json(asdict(found))
        return
    other = f"{found.other.provider}/{found.other.model}"
    what = "old" if found.state.value == "switched" else "new"
    terminal.line(
        f"{found.state.value}: {found.vectors:,} of {found.passages:,} chunks have a vector of the "
        f"{what} model, {other}, {found.other.dimension} dimensions."
    )
