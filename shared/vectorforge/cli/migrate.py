"""``vectorforge migrate``."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import SecretStr

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import command

if TYPE_CHECKING:
    from vectorforge.config import DatabaseSettings


def migrate(
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
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Bring the database schema up to date; safe to repeat, and to run twice at once.

    The login roles (vectorforge_app, _log_writer, _eraser) are made without
    a password; those named in VECTORFORGE_DATABASE_URL and
    VECTORFORGE_LOG_WRITER_DATABASE_URL get the one they have there.

    [bold]Examples[/bold]

        vectorforge migrate --check && echo current

        VECTORFORGE_MIGRATOR_DATABASE_URL=postgresql://admin@db/vectorforge vectorforge migrate
    """
    with command(json_output=json_output, debug=debug) as terminal:
        names = _migrate(database_url, data_dir, check=check)
        if terminal.json_output:
            terminal.json({"pending" if check else "applied": names})
        elif names:
            for name in names:
                terminal.line(f"{'pending' if check else 'applied'}  {name}")
        else:
            terminal.line("The schema is up to date.")
        if check and names:
            raise typer.Exit(ExitCode.INCOMPLETE)


def _migrate(database_url: str | None, data_dir: Path | None, *, check: bool) -> list[str]:
    """Names of the migrations that were applied or, with ``check``, that are pending."""
    from vectorforge.config import VectorForgeConfig
    from vectorforge.local.laptop import local_setup

    config = VectorForgeConfig.from_environment()
    if database_url is not None:
        given = {"migrator_database_url": SecretStr(database_url)}
        return asyncio.run(_migrate_database(config.database.model_copy(update=given), check=check))
    with local_setup(config, data_dir=data_dir) as setup:
        return asyncio.run(_migrate_database(setup.config.database, check=check))


async def _migrate_database(settings: "DatabaseSettings", *, check: bool) -> list[str]:
    from vectorforge.aws.migrator_login import as_migrator
    from vectorforge.db import migrate as migrations
    from vectorforge.db.login_passwords import login_passwords
    from vectorforge.db.login_roles import LOGIN_ROLES

    async def look(conninfo: str) -> list[str]:
        return [migration.name for migration in await migrations.pending(conninfo)]

    async def apply(conninfo: str) -> list[str]:
        applied = await migrations.migrate(
            conninfo,
            login_passwords=login_passwords(settings, LOGIN_ROLES),
            tokens=settings.database_auth == "iam",
        )
        return [migration.name for migration in applied]

    return await as_migrator(settings, look if check else apply)
