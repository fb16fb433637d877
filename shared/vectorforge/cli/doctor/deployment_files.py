"""What a deployment is going to make, read from what ``make synth`` wrote: CDK's cloud assembly.

The stage's settings lie in ``infra``, which the library does not import. The assembly says the same and more:
it is what CloudFormation is going to get, so a check of it cannot disagree with the deployment.
Format: https://github.com/aws/aws-cdk-cli/tree/main/packages/@aws-cdk/cloud-assembly-schema
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectorforge.errors import ConfigurationError

LEAST_BOOTSTRAP_VERSION = 6
"""What stacks with CDK's default synthesizer ask for."""
BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"


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
        """The properties of every resource of a type, e.g. "AWS::Lambda::Function"."""
        for template in self.templates.values():
            for resource in template.get("Resources", {}).values():
                if resource["Type"] == kind:
                    yield resource.get("Properties", {})

    def count(self, kind: str) -> int:
        """How many resources of a type there are."""
        return sum(1 for _ in self.of_type(kind))

    @property
    def ipv6_only(self) -> bool:
        """Whether functions reach the internet over IPv6 and not at all over IPv4."""
        return bool(self.count("AWS::EC2::EgressOnlyInternetGateway")) and not self.count(
            "AWS::EC2::NatGateway"
        )

    def code_folders(self) -> dict[str, tuple[Path, str]]:
        """Folder and Python version ("3.14") of each function's code, by the function's handler.

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
    """The clone that a folder lies in: where cdk.json is, beside infra/; None outside of one."""
    for folder in (start, *start.parents):
        if (folder / "cdk.json").is_file() and (folder / "infra" / "package.json").is_file():
            return folder
    return None


def read_assembly(folder: Path, stage: str) -> Assembly:
    """The stacks ``VectorForge-<stage>-*`` of a cloud assembly.

    Raises:
        ConfigurationError: There is none in this folder, it is broken, or it is of other stages only.
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
        raise ConfigurationError(f"{folder} holds no synthesized stacks.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigurationError(f"{folder} cannot be read as synthesized stacks.") from exc
    if not ours:
        others = ", ".join(sorted(stacks)) or "nothing"
        raise ConfigurationError(f"{folder} holds no stacks of the stage {stage}, but {others}.")
    return Assembly(folder, templates, *_deployment(ours))


def _deployment(stacks: Mapping[str, Mapping[str, Any]]) -> tuple[frozenset[str], int, str]:
    """Regions, and which bootstrap stack is needed."""
    regions = {str(stack.get("environment", "")).rpartition("/")[2] for stack in stacks.values()}
    properties = [stack.get("properties", {}) for stack in stacks.values()]
    needed = max(
        int(found.get("requiresBootstrapStackVersion", LEAST_BOOTSTRAP_VERSION)) for found in properties
    )
    parameter = str(properties[0].get("bootstrapStackVersionSsmParameter", BOOTSTRAP_PARAMETER))
    return frozenset(regions - {"", "unknown-region"}), needed, parameter
