"""The command line: which commands there are, and how usage errors look."""

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from vectorforge.cli.commands import collections, documents, erase, index, keys, limits, logs, providers
from vectorforge.cli.commands.ask import ask
from vectorforge.cli.commands.evaluate import evaluate
from vectorforge.cli.commands.mcp import mcp
from vectorforge.cli.commands.migrate import migrate
from vectorforge.cli.commands.search import search
from vectorforge.cli.commands.stats import stats
from vectorforge.cli.commands.up import up
from vectorforge.cli.doctor.command import doctor
from vectorforge.cli.exit_codes import EXIT_CODE_HELP, ExitCode
from vectorforge.cli.ingest.command import ingest
from vectorforge.cli.terminal import hide_flag_types

app = typer.Typer(
    name="vectorforge",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODE_HELP,
)
app.command()(up)
app.command()(ingest)
app.command()(ask)
app.command()(search)
app.command()(mcp)
app.command("eval")(evaluate)
app.command()(stats)
app.add_typer(collections.app, name="collections")
app.add_typer(documents.app, name="documents")
app.add_typer(erase.app, name="erase")
app.add_typer(index.app, name="index")
app.add_typer(keys.app, name="keys")
app.add_typer(limits.app, name="limits")
app.add_typer(logs.app, name="logs")
app.add_typer(providers.app, name="providers")
app.command()(doctor)
app.command()(migrate)
hide_flag_types(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"vectorforge {version('vectorforge')}\n")
        raise typer.Exit


@app.callback()
def vectorforge(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Ask your own documents: cited answers, from your own machine or your own AWS account.

    [bold]Start here[/bold]

        vectorforge up                      page and API on http://localhost:8000

        vectorforge ingest docs/ notes.pdf  add your own documents

        vectorforge ask "Who may approve a refund?"

    Settings come from VECTORFORGE_* variables. An embedded PostgreSQL is used
    unless VECTORFORGE_DATABASE_URL is set. Every command takes --json; results
    go to stdout, everything else to stderr.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run one command line; returns its exit code. None takes ``sys.argv``."""
    try:
        return int(app(arguments, prog_name="vectorforge", standalone_mode=False) or ExitCode.OK)
    except TyperException as exc:
        message = exc.format_message()
        if message:
            context = getattr(exc, "ctx", None)  # of usage errors: the command that was misused
            path = context.command_path if context else "vectorforge"
            sys.stderr.write(f"error: {message} `{path} --help` shows how.\n")
        return ExitCode.USAGE
    except typer.Abort:
        sys.stderr.write("Aborted.\n")
        return ExitCode.INTERRUPTED
