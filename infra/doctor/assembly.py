"""Resources of a deployment, read from CDK's cloud assembly, the output of ``make synth``.

CloudFormation gets this assembly, so a check of it cannot disagree with the deployment.
Format: https://github.com/aws/aws-cdk-cli/tree/main/packages/@aws-cdk/cloud-assembly-schema
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEAST_BOOTSTRAP_VERSION = 6
"""Version that stacks with CDK's default synthesizer require."""
BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"


class AssemblyError(Exception):
    """The folder holds no usable assembly of the stage."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The stacks of one stage."""

    folder: Path
    templates: Mapping[str, Mapping[str, Any]]
    """Template of each stack, by the stack's name."""
    regions: frozenset[str]
    """Regions that stacks are bound to; empty when they go wherever the caller deploys."""
    bootstrap_version: int
    bootstrap_parameter: str

    def of_type(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Yield the properties of every resource of a type, such as "AWS::Lambda::Function"."""
        for template in self.templates.values():
            for resource in template.get("Resources", {}).values():
                if resource["Type"] == kind:
                    yield resource.get("Properties", {})

    def count(self, kind: str) -> int:
        """Count the resources of a type."""
        return sum(1 for _ in self.of_type(kind))

    @property
    def ipv6_only(self) -> bool:
        """True if functions reach the internet over IPv6 only."""
        return bool(self.count("AWS::EC2::EgressOnlyInternetGateway")) and not self.count(
            "AWS::EC2::NatGateway"
        )

    def code_folders(self) -> dict[str, tuple[Path, str]]:
        """Return folder and Python version ("3.14") of each function's code by the function's handler.

        A function whose code is no folder, or is in another language, is left out.
        """
        found = {}
        for function in self.of_type("AWS::Lambda::Function"):
            runtime, key = function.get("Runtime", ""), function.get("Code", {}).get("S3Key")
            folder = self.folder / f"asset.{str(key).removesuffix('.zip')}"
            if str(runtime).startswith("python") and folder.is_dir():
                found[str(function.get("Handler"))] = (folder, runtime.removeprefix("python"))
        return found


def project_folder(start: Path) -> Path | None:
    """Return the checkout around a folder, which holds cdk.json and infra/; None outside of one."""
    for folder in (start, *start.parents):
        if (folder / "cdk.json").is_file() and (folder / "infra" / "package.json").is_file():
            return folder
    return None


def read_assembly(folder: Path, stage: str) -> Assembly:
    """Read the stacks ``VectorForge-<stage>-*`` of a cloud assembly.

    Raises:
        AssemblyError: The folder holds no assembly of the stage, or it is malformed.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        stacks = {
            str(artifact.get("properties", {}).get("stackName", name)): artifact
            for name, artifact in manifest["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
        ours = {name: stack for name, stack in stacks.items() if name.startswith(f"VectorForge-{stage}-")}
        templates = {
            name: json.loads((folder / stack["properties"]["templateFile"]).read_text())
            for name, stack in ours.items()
        }
    except FileNotFoundError:
        raise AssemblyError(f"{folder} holds no synthesized stacks.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise AssemblyError(f"{folder} cannot be read as synthesized stacks.") from exc
    if not ours:
        others = ", ".join(sorted(stacks)) or "nothing"
        raise AssemblyError(f"{folder} holds no stacks of the stage {stage}, but {others}.")
    return Assembly(folder, templates, *_deployment(ours))


def _deployment(stacks: Mapping[str, Mapping[str, Any]]) -> tuple[frozenset[str], int, str]:
    """Return regions, and version and parameter of the required bootstrap stack."""
    regions = {str(stack.get("environment", "")).rpartition("/")[2] for stack in stacks.values()}
    properties = [stack.get("properties", {}) for stack in stacks.values()]
    needed = max(
        int(found.get("requiresBootstrapStackVersion", LEAST_BOOTSTRAP_VERSION)) for found in properties
    )
    parameter = str(properties[0].get("bootstrapStackVersionSsmParameter", BOOTSTRAP_PARAMETER))
    return frozenset(regions - {"", "unknown-region"}), needed, parameter
