"""``vectorforge doctor``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from vectorforge.cli.doctor.check import Check
from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import ExitCode


@session_command
def doctor(
    context: CommandContext,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for `vectorforge up`.")] = 8000,
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
            help="Output of `make synth`; decides which quotas are checked.",
            show_default="cdk.out of this clone",
            rich_help_panel="With --aws",
        ),
    ] = None,
) -> None:
    """Check this machine and the settings, and print a remedy for each problem.

    Changes no documents and creates no database. Exits with 1 when a check
    fails; warnings do not count. Keys are never printed. With --aws it checks
    instead whether the stage can be deployed with the credentials of this
    shell, and changes nothing in the account.

    [bold]Examples[/bold]

        vectorforge doctor --json | jq '.checks[] | select(.status != "ok")'

        vectorforge doctor --aws --stage dev --region eu-central-1
    """
    if aws:
        raise typer.Exit(_check_account(stage, region, assembly, json_output=context.terminal.json_output))
    checks = []
    for check in _laptop_checks(context.data_dir, port):
        checks.append(check)
        if not context.terminal.json_output:
            check.print(context.terminal)
    failed = sum(check.status == "fail" for check in checks)
    if context.terminal.json_output:
        context.terminal.json({"ok": not failed, "checks": checks})
    elif failed:
        context.terminal.line(f"{failed} of {len(checks)} checks failed.", style="bold red")
    if failed:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _laptop_checks(data_dir: Path | None, port: int) -> Iterable[Check]:
    from vectorforge.cli.doctor.checks import run_checks

    return run_checks(data_dir, port)


def _check_account(stage: str, region: str | None, assembly: Path | None, *, json_output: bool) -> int:
    """Run ``python -m infra.doctor`` of the checkout, which deploys; return its exit code.

    Raises:
        ConfigurationError: This is an installation without a checkout.
    """
    import os
    import subprocess
    import sys

    import vectorforge
    from vectorforge.errors import ConfigurationError

    here = Path.cwd()
    candidates = (here, *here.parents, *Path(vectorforge.__file__).parents)
    checkout = next((one for one in candidates if (one / "infra" / "doctor" / "__main__.py").is_file()), None)
    if checkout is None:
        raise ConfigurationError(
            "--aws needs a checkout of VectorForge, which holds infra/: clone it, and run the command there."
        )
    arguments = ["--stage", stage, *(["--region", region] if region else [])]
    arguments += [*(["--assembly", str(assembly)] if assembly else []), *(["--json"] if json_output else [])]
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(  # noqa: S603 - fixed words and the options of this command
        [sys.executable, "-m", "infra.doctor", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    ).returncode
