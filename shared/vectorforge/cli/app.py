"""The command line: its commands, and the output of usage errors."""

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # for --show-completion
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from vectorforge.cli.commands import collections, documents, erase, index, keys, limits, logs, providers
from vectorforge.cli.commands.ask import ask
from vectorforge.cli.commands.evaluate import evaluate, export
from vectorforge.cli.commands.migrate import migrate
from vectorforge.cli.commands.replay import replay
from vectorforge.cli.commands.search import search
from vectorforge.cli.commands.serve import mcp, up
from vectorforge.cli.commands.stats import stats
from vectorforge.cli.doctor.command import doctor
from vectorforge.cli.ingest.command import ingest
from vectorforge.cli.terminal import EXIT_CODE_HELP, ExitCode


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_bool_flag:
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class _Root(_Group):
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Resolve a command; "eval export" is one of its own, since "eval" takes a file."""
        if (two := " ".join(args[:2])) in self.commands:
            args = [two, *args[2:]]
        return super().resolve_command(ctx, args)


def _hide_flag_types(app: typer.Typer) -> None:
    """Show flags without a type in the help of an app and its commands: ``--json``, not ``--json <bool>``."""
    app.info.cls = _Group
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        group.cls = _Group
        if group.typer_instance is not None:
            _hide_flag_types(group.typer_instance)


class Shell(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print a script that completes commands and options in a shell.

    [bold]Examples[/bold]

        vectorforge completion bash >> ~/.bashrc

        vectorforge completion zsh > "${fpath[1]}/_vectorforge"

        vectorforge completion fish > ~/.config/fish/completions/vectorforge.fish
    """
    script = get_completion_script(
        prog_name="vectorforge", complete_var="_VECTORFORGE_COMPLETE", shell=shell.value
    )
    sys.stdout.write(f"{script}\n")


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
app.command("eval export")(export)
app.command()(replay)
app.command()(stats)
for group in (collections, documents, erase, index, keys, limits, logs, providers):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])
app.command()(doctor)
app.command()(completion)
app.command()(migrate)
_hide_flag_types(app)
app.info.cls = _Root


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        sys.stdout.write(f"vectorforge {version('vectorforge')}\n")
        raise typer.Exit


@app.callback()
def vectorforge(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Query your own documents: cited answers, on your own machine or in your AWS account.

    [bold]Start here[/bold]

        vectorforge up                      page and API on http://localhost:8000

        vectorforge ingest docs/ notes.pdf  add your own documents

        vectorforge ask "Who may approve a refund?"

    Settings come from VECTORFORGE_* variables. An embedded PostgreSQL is used
    unless VECTORFORGE_DATABASE_URL is set. Every command takes --json; results
    go to stdout, everything else to stderr.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run a command line (default: ``sys.argv``), and return its exit code."""
    try:
        return int(app(arguments, prog_name="vectorforge", standalone_mode=False) or ExitCode.OK)
    except TyperException as exc:
        message = exc.format_message()
        if message:
            context = getattr(exc, "ctx", None)  # usage errors have the context of their command
            path = context.command_path if context else "vectorforge"
            message = message.replace("Value error, ", "").rstrip(".")  # of pydantic
            end = "" if message.endswith("?") else "."
            sys.stderr.write(f"error: {message}{end} See `{path} --help`.\n")
        return ExitCode.USAGE
    except typer.Abort:
        sys.stderr.write("Aborted.\n")
        return ExitCode.INTERRUPTED
