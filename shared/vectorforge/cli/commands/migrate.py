"""``vectorforge migrate``."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from pydantic import SecretStr

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:
    from vectorforge.config import DatabaseSettings


@session_command
def migrate(
    context: CommandContext,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar="VECTORFORGE_MIGRATOR_DATABASE_URL",
            help="postgresql:// URL of a role that may make roles, the schema and the vector extension. "
            "Better in the variable: other users of the machine can read a command line.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 when migrations are pending.")
    ] = False,
    schema_only: Annotated[
        bool,
        typer.Option(
            "--schema-only", help="Leave words of passages that are still to be read to the servers."
        ),
    ] = False,
) -> None:
    """Bring the database schema up to date; safe to repeat, and to run twice at once.

    Then the words of passages from older versions are read for searches by
    words; interrupted, it goes on with the next call, or a server does it.

    The login roles (vectorforge_app, _log_writer, _eraser) are made without
    a password; those named in VECTORFORGE_DATABASE_URL,
    VECTORFORGE_LOG_WRITER_DATABASE_URL and VECTORFORGE_ERASER_DATABASE_URL
    get the one they have there.

    [bold]Examples[/bold]

        vectorforge migrate --check && echo current

        VECTORFORGE_MIGRATOR_DATABASE_URL=postgresql://admin@db/vectorforge vectorforge migrate
    """
    names, passages = _migrate(
        database_url, context.data_dir, None if check else context.terminal, schema_only=schema_only
    )
    if context.terminal.json_output:
        read = {"passages_read": passages} if passages else {}
        context.terminal.json({"pending" if check else "applied": names, **read})
    elif names:
        for name in names:
            context.terminal.line(f"{'pending' if check else 'applied'}  {name}")
    else:
        context.terminal.line("The schema is up to date.")
    if passages and not context.terminal.json_output:
        context.terminal.line(f"read     the words of {passages:,} passages")
    if check and names:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _migrate(
    database_url: str | None, data_dir: Path | None, terminal: Terminal | None, *, schema_only: bool
) -> tuple[list[str], int]:
    """Names of the migrations that were applied or, without a terminal, are pending; passages read."""
    from vectorforge.config import VectorForgeConfig
    from vectorforge.local.laptop import local_setup

    config = VectorForgeConfig.from_environment()
    if database_url is not None:
        given = {"migrator_database_url": SecretStr(database_url)}
        settings = config.database.model_copy(update=given)
        return asyncio.run(_migrate_database(settings, terminal, schema_only=schema_only))
    with local_setup(config, data_dir=data_dir) as setup:
        return asyncio.run(_migrate_database(setup.config.database, terminal, schema_only=schema_only))


async def _migrate_database(
    settings: "DatabaseSettings", terminal: Terminal | None, *, schema_only: bool
) -> tuple[list[str], int]:
    from vectorforge.aws.database_login import as_migrator
    from vectorforge.db.login import LOGIN_ROLES, login_passwords
    from vectorforge.db.schema import migrate as migrations

    async def look(conninfo: str) -> list[str]:
        return [migration.name for migration in await migrations.pending(conninfo)]

    async def apply(conninfo: str) -> list[str]:
        applied = await migrations.migrate(
            conninfo,
            login_passwords=login_passwords(settings, LOGIN_ROLES),
            tokens=settings.database_auth == "iam",
        )
        return [migration.name for migration in applied]

    if terminal is None:
        return await as_migrator(settings, look), 0
    names = await as_migrator(settings, apply)
    if schema_only:
        return names, 0
    with Reading(terminal) as reading:
        passages, complete = await as_migrator(settings, reading.read)
    if not complete:
        terminal.note("Some documents are being written; a server reads the words of the rest.")
    return names, passages


class Reading:
    """Reads words of passages, with a bar on stderr once there are some. Silent off a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("documents, [dim]left"),
            TimeRemainingColumn(),
            console=terminal.err,
            transient=True,
            disable=terminal.json_output or not terminal.err.is_terminal,
        )
        self._task = self._progress.add_task("Reading words", total=None, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    async def read(self, conninfo: str) -> tuple[int, bool]:
        """See ``read_unread_terms``."""
        from vectorforge.db.term_reading import read_unread_terms

        return await read_unread_terms(conninfo, on_progress=self._show)

    def _show(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total, visible=True)
