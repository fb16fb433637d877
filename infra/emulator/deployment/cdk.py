"""Commands of a deployment: synthesize the production templates, change and deploy them."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.bundling.bundle import ROOT
from infra.deployment.synth import templates
from infra.emulator.aws_emulator import REGION
from infra.emulator.cloudformation.assembly import write_assembly
from infra.emulator.cloudformation.template import EmulationError, emulate
from vectorforge.errors import ConfigurationError

_LOG_TAIL = 15
"""Lines of a failed command that are shown."""


@dataclass(frozen=True, slots=True)
class Cdk:
    """CDK's command line, over this checkout.

    Attributes:
        folder: Folder of the deployment, with the assemblies.
        log: File for the output of commands.
        stage: A stage of infra/settings.py.
    """

    folder: Path
    log: Path
    stage: str

    @property
    def production(self) -> Path:
        """Assembly that ``synthesize`` writes."""
        return self.folder / "cdk.out"

    @property
    def emulated(self) -> Path:
        """Assembly that ``turn`` writes."""
        return self.folder / "cdk.out.local"

    def synthesize(self, environment: Mapping[str, str]) -> None:
        """Write the production templates, and the functions' bundles for this machine and Python.

        Args:
            environment: Variables added to the functions.

        Raises:
            ConfigurationError: The command failed.
        """
        architecture = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
        context = {
            "stage": self.stage,
            "architecture": architecture,
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "environment": json.dumps(environment),
        }
        arguments = ["synth", "--quiet", "--output", str(self.production)]
        for name, value in context.items():
            arguments += ["--context", f"{name}={value}"]
        self._cdk(arguments, _environment())

    def turn(self, references: Mapping[str, str]) -> str:
        """Write the emulator's templates from the production ones (``infra.emulator.cloudformation``).

        Args:
            references: Values for attributes of dropped resources.

        Returns:
            A report of the changes.

        Raises:
            ConfigurationError: A template has a resource that the emulator does not know.
        """
        try:
            emulated, report = emulate(templates(self.production), references)
        except EmulationError as exc:
            raise ConfigurationError(str(exc)) from exc
        write_assembly(self.production, self.emulated, emulated)
        return "\n".join(report.lines()) + "\n"

    def deploy(self, endpoint_url: str) -> None:
        """Deploy all stacks into LocalStack.

        Raises:
            ConfigurationError: The command failed.
        """
        arguments = ["deploy", "--all", "--app", str(self.emulated), "--method", "direct"]
        arguments += ["--require-approval", "never", "--progress", "events"]
        self._cdk(arguments, _environment(endpoint_url))

    def delete_former_code(self) -> None:
        """Delete the bundles of earlier deployments, from which no function runs any more."""
        listed = "".join(file.read_text() for file in self.production.glob("*.assets.json"))
        for folder in self.production.glob("asset.*"):
            if folder.name not in listed:
                shutil.rmtree(folder)

    def stacks(self) -> list[str]:
        """Return the names of the emulator's stacks."""
        return list(templates(self.emulated))

    def _cdk(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        program = ROOT / "infra" / "node_modules" / "aws-cdk" / "bin" / "cdk"
        if not program.exists():
            if shutil.which("npm") is None:
                raise ConfigurationError("CDK's command line needs Node.js and npm: https://nodejs.org")
            self._run(["npm", "ci", "--no-fund", "--no-audit", "--prefix", "infra"], environment)
        self._run(["node", str(program), *arguments], environment)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        finished = subprocess.run(  # noqa: S603 - our own words
            command,
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{finished.stdout}\n")
        if finished.returncode:
            last = "\n".join(finished.stdout.strip().splitlines()[-_LOG_TAIL:])
            raise ConfigurationError(
                f"{' '.join(command[:4])} ... failed; all of it is in {self.log}:\n{last}"
            )


def _environment(endpoint_url: str | None = None) -> dict[str, str]:
    """Return the environment of the commands, without anything that leads to a real account."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VECTORFORGE_"))
    }
    own = str(Path(sys.executable).parent)  # cdk.json says python
    account = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CI": "true",  # progress as lines, to stdout
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        "PATH": f"{own}:{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": "shared:.",
    }
    return {**kept, **account, **({"AWS_ENDPOINT_URL": endpoint_url} if endpoint_url else {})}
