"""The stacks of a stage as they are in the account: what an update does not make again, what stops it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from vectorforge.aws.clients import AwsClients
from vectorforge.cli.doctor.check import Check

_DELETE_FIRST = {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}
_STUCK = "UPDATE_ROLLBACK_FAILED"


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """One stack."""

    status: str
    """E.g. "UPDATE_COMPLETE"."""
    resources: Mapping[str, int]
    """How many of each type it holds."""


Deployed: TypeAlias = dict[str, DeployedStack]
"""By name; empty before the first deployment."""


def deployed_resources(clients: AwsClients, stage: str) -> Deployed:
    """The stacks ``VectorForge-<stage>-*`` of the region."""
    cloudformation = clients.get("cloudformation")
    found: Deployed = {}
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            name, status = str(stack["StackName"]), str(stack["StackStatus"])
            if name.startswith(f"VectorForge-{stage}-") and status != "DELETE_COMPLETE":
                pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
                counted = Counter(
                    str(resource["ResourceType"])
                    for resources in pages
                    for resource in resources["StackResourceSummaries"]
                )
                found[name] = DeployedStack(status, counted)
    return found


def count(deployed: Deployed, kind: str) -> int:
    """How many resources of a type the stage has already."""
    return sum(stack.resources.get(kind, 0) for stack in deployed.values())


def check_stacks(deployed: Deployed, stage: str) -> list[Check]:
    """Whether CloudFormation would take an update."""
    if not deployed:
        return [Check("deployed", "ok", f"nothing of the stage {stage} yet")]
    return [_check(name, stack.status) for name, stack in sorted(deployed.items())]


def _check(name: str, status: str) -> Check:
    if status in _DELETE_FIRST:
        remedy = f"Delete it first: `aws cloudformation delete-stack --stack-name {name}`."
        return Check("deployed", "fail", f"{name} is {status} and cannot be updated", remedy)
    if status == _STUCK:
        remedy = f"Run `aws cloudformation continue-update-rollback --stack-name {name}`."
        return Check("deployed", "fail", f"{name} is {status}", remedy)
    if status.endswith("_IN_PROGRESS"):
        return Check("deployed", "fail", f"{name} is {status}", "Wait until it is done.")
    return Check("deployed", "ok", f"{name} is {status}")
