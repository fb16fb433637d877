"""``vectorforge index``."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.db.schema.index_building import BuildProgress
    from vectorforge.db.schema.vector_indexes import SpaceIndex

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Show and build the HNSW indexes of the vectors."
)


@app.command("list")
@session_command
def list_spaces(
    context: CommandContext,
) -> None:
    """List the partitions of the vectors with their sizes and index states.

    Needs the role that owns the schema (VECTORFORGE_MIGRATOR_DATABASE_URL).
    """
    from vectorforge.db.schema.vector_indexes import list_indexes
    from vectorforge.types import EXACT_SCAN_LIMIT

    found = _as_migrator(context.data_dir, list_indexes)
    if context.terminal.json_output:
        spaces = [{**_as_json(index), "pays": index.pays(EXACT_SCAN_LIMIT)} for index in found]
        context.terminal.json({"spaces": spaces})
    else:
        context.terminal.table(
            ["Space", "Vectors#", "Largest collection#", "Vectors MB#", "Index", "Index MB#"],
            [
                (
                    index.space,
                    index.vectors,
                    index.largest,
                    _megabytes(index.table_bytes),
                    _describe(index, index.pays(EXACT_SCAN_LIMIT)),
                    _megabytes(index.index_bytes),
                )
                for index in found
            ],
        )


@app.command()
@session_command
def build(
    context: CommandContext,
    spaces: Annotated[
        list[str] | None,
        typer.Argument(
            help="Build exactly these, regardless of size.",
            metavar="[SPACE]...",
            show_default="those above 10,000 vectors",
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
            min=0,
            max=64,
            help="Parallel workers of the build.",
            show_default="one for each core, up to 8",
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
    from vectorforge.db.schema.index_building import BuildResources, build_indexes
    from vectorforge.types import EXACT_SCAN_LIMIT

    resources = BuildResources(None if memory_mb is None else memory_mb * 2**20, workers)
    with _bars(context.terminal) as on_progress:

        async def work(conninfo: str) -> "list[SpaceIndex]":
            return await build_indexes(
                conninfo,
                larger_than=EXACT_SCAN_LIMIT,
                spaces=spaces or (),
                resources=resources,
                on_progress=on_progress,
            )

        built = _as_migrator(context.data_dir, work)
    if context.terminal.json_output:
        context.terminal.json({"built": [_as_json(index) for index in built]})
    elif not built:
        context.terminal.line("No index is missing.")
    for index in [] if context.terminal.json_output else built:
        size = _megabytes(index.index_bytes)
        context.terminal.line(f"Built {index.space}: {index.vectors} vectors, {size} MB.")


def _as_migrator(data_dir: Path | None, work: Callable[[str], Awaitable[T]]) -> T:
    from vectorforge.aws.database_login import as_migrator
    from vectorforge.config import VectorForgeConfig
    from vectorforge.local.laptop import local_setup

    with local_setup(VectorForgeConfig.from_environment(), data_dir=data_dir) as setup:
        return asyncio.run(as_migrator(setup.config.database, work))


@contextmanager
def _bars(terminal: Terminal) -> "Iterator[Callable[[BuildProgress], None]]":
    """Show a bar on stderr for each phase of each build."""
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = terminal.progress(*columns)
    tasks: dict[str, TaskID] = {}

    def show(seen: "BuildProgress") -> None:
        name = f"{seen.space}: {seen.phase}"
        if name not in tasks:
            tasks[name] = progress.add_task(name, total=1.0)
        progress.update(tasks[name], completed=seen.fraction)

    with progress:
        yield show


def _as_json(index: "SpaceIndex") -> dict[str, object]:
    from dataclasses import asdict

    return asdict(index)


def _describe(index: "SpaceIndex", pays: bool) -> str:
    from vectorforge.db.schema.vector_indexes import IndexState

    if not index.possible:
        return "not possible"
    if index.state is IndexState.NONE:
        return "missing" if pays else "not needed"
    return "being built, or invalid" if index.state is IndexState.INVALID else "ready"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
