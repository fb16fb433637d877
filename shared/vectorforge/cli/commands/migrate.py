"""``vectorforge migrate``."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from vectorforge.aws.database_login import as_migrator
from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.db.login import login_passwords
from vectorforge.db.schema import migrate as migrations
from vectorforge.db.term_reading import read_unread_terms
from vectorforge.local.laptop import local_setup


@session_command
def migrate(
    context: CommandContext,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar="VECTORFORGE_MIGRATOR_DATABASE_URL",
            help="postgresql:// URL of a role that may create roles, the schema and the vector extension. "
            "Prefer the variable: other users of the machine can read the command line.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when migrations are pending.")
    ] = False,
    schema_only: Annotated[
        bool, typer.Option("--schema-only", help="Leave unindexed words to the servers.")
    ] = False,
) -> None:
    """Migrate the database schema; safe to repeat and to run concurrently.

    Then the words of chunks from older versions are indexed for keyword
    search; after an interruption, the next call or a server resumes it.

    The login roles (vectorforge_app, _log_writer, _eraser) are created without
    a password; those named in VECTORFORGE_DATABASE_URL,
    VECTORFORGE_LOG_WRITER_DATABASE_URL and VECTORFORGE_ERASER_DATABASE_URL
    get the password of their URL.

    [bold]Examples[/bold]

        vectorforge migrate --check && echo current

        VECTORFORGE_MIGRATOR_DATABASE_URL=postgresql://admin@db/vectorforge vectorforge migrate
    """
    names, chunks = _migrate(
        database_url, context.data_dir, None if check else context.terminal, schema_only=schema_only
    )
    if context.terminal.json_output:
        read = {"passages_read": chunks} if chunks else {}
        context.terminal.json({"pending" if check else "applied": names, **read})
    elif names:
        for name in names:
            context.terminal.line(f"{'pending' if check else 'applied'}  {name}")
    else:
        context.terminal.line("The schema is up to date.")
    if chunks and not context.terminal.json_output:
        context.terminal.line(f"read     the words of {chunks:,} passages")
    if check and names:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _migrate(
    database_url: str | None, data_dir: Path | None, terminal: Terminal | None, *, schema_only: bool
) -> tuple[list[str], int]:
    """Return the applied (without a terminal: pending) migrations and the number of indexed chunks."""
    config = VectorForgeConfig.from_environment()
    if database_url is not None:
        settings = config.database.model_copy(update={"migrator_database_url": SecretStr(database_url)})
        return asyncio.run(_migrate_database(settings, terminal, schema_only=schema_only))
    with local_setup(config, data_dir=data_dir, create=True) as setup:
        return asyncio.run(_migrate_database(setup.config.database, terminal, schema_only=schema_only))


async def _migrate_database(
    settings: DatabaseSettings, terminal: Terminal | None, *, schema_only: bool
) -> tuple[list[str], int]:
    async def look(conninfo: str) -> list[str]:
        return [migration.name for migration in await migrations.pending(conninfo)]

    async def apply(conninfo: str) -> list[str]:
        applied = await migrations.migrate(
            conninfo, login_passwords=login_passwords(settings), tokens=settings.database_auth == "iam"
        )
        return [migration.name for migration in applied]

    if terminal is None:
        return await as_migrator(settings, look), 0
    names = await as_migrator(settings, apply)
    if schema_only:
        return names, 0
    chunks, complete = await _read_terms(settings, terminal)
    if not complete:
        terminal.note("Some documents are being written; a server indexes the words of the rest.")
    return names, chunks


async def _read_terms(settings: DatabaseSettings, terminal: Terminal) -> tuple[int, bool]:
    """Index the words of chunks with a bar on stderr; see ``read_unread_terms``."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "documents, [dim]left")
    with terminal.progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("Indexing words", total=None, visible=False)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        return await as_migrator(settings, partial(read_unread_terms, on_progress=show))
