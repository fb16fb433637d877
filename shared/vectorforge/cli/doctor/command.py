"""``vectorforge doctor``."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import Terminal, command

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.cli.doctor.database_checks import Check

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port that `vectorforge up` is going to use.")
    ] = 8000,
    aws: Annotated[
        bool,
        typer.Option("--aws", help="Check an AWS account before a deployment, not this laptop's service."),
    ] = False,
    stage: Annotated[
        str,
        typer.Option(
            help="Stage that is going to be deployed.", metavar="NAME", rich_help_panel="With --aws"
        ),
    ] = "dev",
    region: Annotated[
        str | None,
        typer.Option(
            help="Region to deploy to.",
            metavar="NAME",
            show_default="AWS_REGION, AWS_DEFAULT_REGION or the profile's",
            rich_help_panel="With --aws",
        ),
    ] = None,
    assembly: Annotated[
        Path | None,
        typer.Option(
            help="What `make synth` wrote; tells which quotas matter.",
            show_default="cdk.out of this clone",
            rich_help_panel="With --aws",
        ),
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Check this machine and these settings, and say what to do about what is wrong.

    Changes no documents and makes no database. Exits with 1 when a check
    fails; warnings do not count. Keys are never printed. With --aws it checks
    instead whether the stage can be deployed with the credentials of this
    shell, and changes nothing in the account.

    [bold]Examples[/bold]

        vectorforge doctor --json | jq '.checks[] | select(.status != "ok")'

        vectorforge doctor --aws --stage dev --region eu-central-1
    """
    with command(json_output=json_output, debug=debug) as terminal:
        checks = []
        for check in _aws_checks(stage, region, assembly) if aws else _laptop_checks(data_dir, port):
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


def _laptop_checks(data_dir: Path | None, port: int) -> "Iterable[Check]":
    from vectorforge.cli.doctor.checks import run_checks

    return run_checks(data_dir, port)


def _aws_checks(stage: str, region: str | None, assembly: Path | None) -> "Iterable[Check]":
    from vectorforge.cli.doctor.aws_checks import run_aws_checks

    return run_aws_checks(stage, region, assembly)


def _print(terminal: Terminal, check: "Check") -> None:
    labelled = (f"{check.status:<5}", _STYLES[check.status])
    terminal.line(f"{check.name:<12} {check.detail}", label=labelled)
    if check.remedy:
        terminal.line(f"{'':<18}→ {check.remedy}", style="dim")
