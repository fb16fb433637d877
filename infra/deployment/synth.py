"""``make synth``: synthesizes a stage without any call of AWS, and prints the sizes of its functions.

python -m infra.deployment.synth --stage prod
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.bundling.bundle import BUNDLE_BUDGETS, OPERATOR
from infra.deployment.cdk_command import Cdk, argument_parser, chosen_cdk, guarded


@dataclass(frozen=True, slots=True)
class CodeAsset:
    """Code of one function as uploaded."""

    function: str
    """A folder of ``functions/``, or ``OPERATOR``."""
    size_bytes: int
    compiled: bool

    def __str__(self) -> str:
        budget = BUNDLE_BUDGETS[self.function]
        line = f"{self.function:<12} {self.size_bytes / 1e6:6.1f} MB of {budget / 1e6:g} MB"
        return line if self.compiled else f"{line}, no bytecode: cold starts compile"


def templates(assembly: Path) -> dict[str, dict[str, Any]]:
    """Return the template of each stack by the stack's name."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    return {
        str(artifact.get("properties", {}).get("stackName", name)): json.loads(
            (assembly / artifact["properties"]["templateFile"]).read_text()
        )
        for name, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }


def code_assets(assembly: Path) -> Iterator[CodeAsset]:
    """Yield the code of every function of the project and of its hosts, without that of CDK itself."""
    for host in assembly.glob("asset.*/host"):
        yield _weighed(OPERATOR, host.parent)
    for template in templates(assembly).values():
        for resource in template["Resources"].values():
            handler = str(resource.get("Properties", {}).get("Handler", ""))
            if resource["Type"] == "AWS::Lambda::Function" and handler.startswith("functions."):
                key = str(resource["Properties"]["Code"]["S3Key"])
                yield _weighed(handler.split(".")[1], assembly / f"asset.{key.removesuffix('.zip')}")


def _weighed(function: str, folder: Path) -> CodeAsset:
    files = [file for file in folder.rglob("*") if file.is_file()]
    compiled = any(file.suffix == ".pyc" for file in files)
    return CodeAsset(function, sum(file.stat().st_size for file in files), compiled)


def synthesize(cdk: Cdk) -> None:
    """Synthesize and report.

    Raises:
        DeploymentError: The CDK failed, as it does when a function is over its budget.
    """
    started = time.monotonic()
    cdk.synthesize()
    stacks = templates(cdk.assembly)
    for name, template in stacks.items():
        sys.stdout.write(f"{name}: {len(template['Resources'])} resources\n")
    for asset in sorted(code_assets(cdk.assembly), key=lambda found: found.function):
        sys.stdout.write(f"{asset}\n")
    sys.stdout.write(f"Synthesized to {cdk.assembly} in {time.monotonic() - started:.0f} s.\n")
    sys.stdout.flush()  # before the next program writes


def main(arguments: Sequence[str] | None = None) -> int:
    """Synthesize; return 0, 1 on failure, 2 if the command line is wrong."""
    options = argument_parser("infra.deployment.synth", __doc__.partition("\n")[0]).parse_args(arguments)
    return guarded(lambda: synthesize(chosen_cdk(options)), at_interrupt="")


if __name__ == "__main__":
    sys.exit(main())
