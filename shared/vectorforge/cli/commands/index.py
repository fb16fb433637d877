"""``vectorforge index``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.db.schema.index_building import BuildProgress, BuildResources, build_indexes
from vectorforge.db.schema.vector_indexes import IndexState, SpaceIndex, list_indexes
from vectorforge.types import EXACT_SCAN_LIMIT

app = typer.Typer(no_args_is_help=True, help="Show and build the HNSW indexes of the vectors.")


@app.command("list")
@session_command
def list_spaces(context: CommandContext) -> None:
    """List the partitions of the vectors with their sizes and index states.

    Needs the role that owns the schema (VECTORFORGE_MIGRATOR_DATABASE_URL).
    """
    context.show(
        context.run_as_migrator(list_indexes),
        lambda indexes: {"spaces": [{**asdict(index), "missing": len(index.missing())} for index in indexes]},
        _print_list,
    )


@app.command()
@session_command
def build(
    context: CommandContext,
    spaces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Build one index of each of these for all its collections, regardless of size.",
            metavar="[SPACE]...",
            show_default="one for each collection above 10,000 vectors",
        ),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Memory of the build on the database server.",
            show_default="what the index needs, up to a quarter of the server's",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=64, help="Parallel workers of the build.", show_default="one for each core, up to 8"
        ),
    ] = None,
) -> None:
    """Build the missing HNSW indexes; queries and ingestion continue.

    Collections with up to 10,000 vectors are searched without an index, which is
    exact and fast. `vectorforge up` builds indexes above that automatically.
    Needs the role that owns the schema (VECTORFORGE_MIGRATOR_DATABASE_URL),
    and a connection without a pooler.

    [bold]Examples[/bold]

        vectorforge index list

        vectorforge index build --memory-mb 4000
    """
    resources = BuildResources(None if memory_mb is None else memory_mb * 2**20, workers)
    with _bars(context.terminal) as on_progress:

        async def work(conninfo: str) -> list[SpaceIndex]:
            return await build_indexes(
                conninfo,
                larger_than=EXACT_SCAN_LIMIT,
                spaces=spaces or (),
                resources=resources,
                on_progress=on_progress,
            )

        built = context.run_as_migrator(work)
    context.show(built, lambda built: {"built": [asdict(index) for index in built]}, _print_built)


@contextmanager
def _bars(terminal: Terminal) -> Iterator[Callable[[BuildProgress], None]]:
    """Show a bar on stderr for each phase of each build."""
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TimeElapsedColumn

    progress = terminal.progress("{task.description}", BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}

    def show(progressed: BuildProgress) -> None:
        name = f"{progressed.space}: {progressed.phase}"
        if name not in tasks:
            tasks[name] = progress.add_task(name, total=1.0)
        progress.update(tasks[name], completed=progressed.fraction)

    with progress:
        yield show


def _print_list(terminal: Terminal, indexes: list[SpaceIndex]) -> None:
    rows = [
        (
            index.space,
            index.vectors,
            index.largest,
            _megabytes(index.table_bytes),
            _describe(index),
            _megabytes(index.index_bytes),
        )
        for index in indexes
    ]
    terminal.table(["Space", "Vectors#", "Largest collection#", "Vectors MB#", "Index", "Index MB#"], rows)


def _print_built(terminal: Terminal, built: list[SpaceIndex]) -> None:
    if not built:
        terminal.line("No index is missing.")
    for index in built:
        size = _megabytes(index.index_bytes)
        terminal.line(f"Built {index.space}: {index.vectors} vectors, {size} MB.")


def _describe(index: SpaceIndex) -> str:
    if not index.possible:
        return "not possible"
    if IndexState.INVALID in index.states:
        return "being built, or invalid"
    if missing := len(index.missing()):
        return f"{missing} missing"
    return "ready" if IndexState.READY in index.states else "not needed"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
