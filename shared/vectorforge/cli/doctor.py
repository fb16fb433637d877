"""``vectorforge doctor``."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import Terminal, command, printable

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.cli.database_checks import Check

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port that `vectorforge up` is going to use.")
    ] = 8000,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Check this machine and these settings, and say what to do about what is wrong.

    Changes no documents and makes no database. Exits with 1 when a check
    fails; warnings do not count. Keys are never printed.

    [bold]Example[/bold]

        vectorforge doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.checks import run_checks

        checks = []
        for check in run_checks(data_dir, port):
            checks.append(check)
            if not terminal.json_output:
                _print(terminal, check)
        failed = sum(check.status == "fail" for check in checks)
        if terminal.json_output:
            terminal.json({"ok": not failed, "checks": checks})
        elif failed:
            terminal.line(f"{failed} of {len(checks)} checks failed.", style="bold red")
        if failed:
            raise typer.Exit(ExitCode.INCOMPLETE)


def _print(terminal: Terminal, check: "Check") -> None:
    terminal.out.print(
        Text.assemble(
            (f"{check.status:<5}", _STYLES[check.status]), f"{check.name:<12} {printable(check.detail)}"
        )
    )
    if check.remedy:
        terminal.line(f"{'':<18}→ {check.remedy}", style="dim")
