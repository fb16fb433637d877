"""The command line: its commands, and the output of usage errors."""

import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # for --show-completion
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

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


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")]) -> None:
    """Print a script that completes commands and options in a shell.

    [bold]Examples[/bold]

        vectorforge completion bash >> ~/.bashrc

        vectorforge completion zsh > "${fpath[1]}/_vectorforge"

        vectorforge completion fish > ~/.config/fish/completions/vectorforge.fish
    """
    script = get_completion_script(prog_name="vectorforge", complete_var="_VECTORFORGE_COMPLETE", shell=shell)
    sys.stdout.write(f"{script}\n")


COMMANDS = {
    "up": "commands.serve:up",
    "ingest": "ingest.command:ingest",
    "ask": "commands.ask:ask",
    "search": "commands.search:search",
    "mcp": "commands.serve:mcp",
    "eval": "commands.evaluate:evaluate",
    "eval export": "commands.evaluate:export",
    "replay": "commands.replay:replay",
    "stats": "commands.stats:stats",
    "collections": "commands.collections:app",
    "documents": "commands.documents:app",
    "erase": "commands.erase:app",
    "index": "commands.index:app",
    "keys": "commands.keys:app",
    "limits": "commands.limits:app",
    "logs": "commands.logs:app",
    "providers": "commands.providers:app",
    "doctor": "doctor.command:doctor",
    "completion": "app:completion",
    "migrate": "commands.migrate:migrate",
}
"""Commands and groups of commands: module of this package, and attribute."""


def command_line(names: Collection[str] = COMMANDS.keys()) -> typer.Typer:
    """Return the command line with these commands, whose modules are imported."""
    app = typer.Typer(
        name="vectorforge",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EXIT_CODE_HELP,
    )
    app.callback()(vectorforge)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"vectorforge.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    _hide_flag_types(app)
    app.info.cls = _Root
    return app


def _named(words: Sequence[str]) -> Collection[str]:
    """Return the command that these words name; all commands, if they ask for help or name none."""
    for name in (" ".join(words[:2]), *words[:1]):
        if name in COMMANDS:
            return (name,)
    return () if words[:1] == ["--version"] else COMMANDS.keys()


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        sys.stdout.write(f"vectorforge {version('vectorforge')}\n")
        raise typer.Exit


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
    app = command_line(_named(sys.argv[1:] if arguments is None else arguments))
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
