"""The pinned CDK command line, and what all commands for a stage share."""

import argparse
import difflib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.bundling.bundle import ROOT
from infra.settings import STAGES
from infra.stage_settings import StageSettings

PINNED = ROOT / "infra" / "node_modules" / ".bin" / "cdk"
ASSEMBLY = ROOT / "cdk.out"

_READ_SETTINGS = """
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.config import ServerSettings, VectorForgeConfig, known_variables
from vectorforge.errors import ConfigurationError
print(*sorted(known_variables()))
try:
    Authenticator(ServerSettings(api_keys=VectorForgeConfig.from_environment().server.api_keys))
except ConfigurationError as exc:
    print(exc.message.removeprefix("Check the VECTORFORGE_* settings: "))
"""
"""The library's settings, in a process of their own: the CDK app does without the library."""


class DeploymentError(Exception):
    """A step of a deployment or teardown failed; the text says which and what to do.

    Attributes:
        exit_code: 1: it ran and failed. 2: the command line is wrong, and nothing was tried.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Cdk:
    """The program with its stage, region and folder.

    Attributes:
        program: Path of ``cdk``.
        stage: Stage for the app.
        region: Region of stacks without one; None: the CDK's choice.
        assembly: Folder of the synthesized stacks.
        all_at_once: Skip the canary of the stage.
    """

    program: Path
    stage: str
    region: str | None
    assembly: Path
    all_at_once: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the program, and of every command for the same region."""
        # `cdk.json` says "python": this one, with the locked packages, also outside of `uv run`.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        variables: Mapping[str, str] = {
            "PATH": path,
            # Said by `vectorforge doctor --aws` in one line instead of in a box for each run.
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
            **({"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region} if self.region else {}),
        }
        return {**os.environ, **variables}

    def run(self, *arguments: str) -> None:
        """Run a command; its output goes to ours.

        Raises:
            DeploymentError: It is not there, or it failed; it has said why.
        """
        command = [str(self.program), *arguments]
        try:
            done = subprocess.run(command, cwd=ROOT, env=self.environment, check=False)  # noqa: S603 - our own words
        except OSError:
            raise DeploymentError(
                f"There is no CDK command line at {self.program}: run `npm ci --prefix infra`.", exit_code=2
            ) from None
        if done.returncode:
            raise DeploymentError(f"`cdk {arguments[0]}` failed (exit code {done.returncode}); see above.")

    def synthesize(self) -> None:
        """Write the stage's stacks to ``assembly``, without any call of AWS.

        Raises:
            DeploymentError: As ``run``.
        """
        check_environment(STAGES[self.stage])
        context = ["--context", f"stage={self.stage}"]
        if self.all_at_once:
            context += ["--context", "canary=off"]
        self.run("synth", "--quiet", "--no-notices", "--no-lookups", *context, "--output", str(self.assembly))


def check_environment(stage: StageSettings) -> None:
    """Check that a stage's environment has settings only, with values that functions accept.

    Raises:
        DeploymentError: It has another name, which functions ignore, or a value with which none starts.
    """
    if not stage.environment:
        return
    others = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    tokens = {} if stage.tokens is None else stage.tokens.environment
    printed = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", _READ_SETTINGS],
        cwd=ROOT,
        env={**others, **tokens, **stage.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    names, _, problem = printed.strip().partition("\n")
    known, place = names.split(), f"infra/settings.py, stage {stage.stage!r}: environment"
    for name in stage.environment.keys() - set(known):
        near = "".join(
            f" Did you mean {other}?" for other in difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        )
        raise DeploymentError(f"{place}.{name} is not a setting.{near}", exit_code=2)
    if problem:
        raise DeploymentError(f"{place}: {problem}", exit_code=2)


def stage_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands share."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--stage", default="dev", choices=list(STAGES), help="default: %(default)s")
    parser.add_argument("--region", help="default: AWS_REGION, AWS_DEFAULT_REGION or the profile's")
    return parser


def argument_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of commands that run the CDK."""
    parser = stage_parser(program, description)
    parser.add_argument("--cdk", type=Path, default=PINNED, metavar="PROGRAM", help="default: the pinned one")
    parser.add_argument("--assembly", type=Path, default=ASSEMBLY, metavar="FOLDER", help="default: cdk.out")
    return parser


def chosen_cdk(options: argparse.Namespace) -> Cdk:
    """Return the program that the command line selects."""
    return Cdk(options.cdk.absolute(), options.stage, options.region, options.assembly.absolute())


def aws_session(region: str | None) -> Any:
    """Return a session of boto3, which itself does not read AWS_REGION.

    Raises:
        DeploymentError: There is no region.
    """
    import boto3

    session = boto3.session.Session(region_name=region or os.environ.get("AWS_REGION"))
    if session.region_name is None:
        raise DeploymentError("No region is chosen: give --region, or set AWS_REGION.", exit_code=2)
    return session


def guarded(
    work: Callable[[], None], at_interrupt: str = "CloudFormation goes on with what it has begun."
) -> int:
    """Run the work and return its exit code; an error, also of AWS, is printed as one line on stderr."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        work()
    except DeploymentError as exc:
        message, exit_code = str(exc), exc.exit_code
    except ClientError as exc:
        code = exc.response["Error"]["Code"]
        hint = " Is the stage deployed?" if "NotFound" in code else ""
        message, exit_code = f"AWS refused {exc.operation_name} ({code}).{hint}", 1
    except NoCredentialsError:
        message, exit_code = "No AWS credentials: run `aws sso login`, or set AWS_PROFILE.", 1
    except BotoCoreError as exc:
        message, exit_code = f"AWS is unreachable ({type(exc).__name__}).", 1
    except KeyboardInterrupt:
        message, exit_code = f"Interrupted. {at_interrupt}".rstrip(), 130
    else:
        return 0
    sys.stderr.write(f"error: {message}\n")
    return exit_code
