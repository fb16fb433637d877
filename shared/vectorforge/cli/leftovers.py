"""What an earlier deployment left behind under names that a new one needs, so that it would fail."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.cli.doctor.check import Check
from vectorforge.cli.doctor.deployed_stacks import Deployed
from vectorforge.cli.doctor.deployment_files import Assembly

PERMISSIONS = "logs:DescribeLogGroups, secretsmanager:DescribeSecret and sqs:ListQueues"


def check_leftovers(clients: AwsClients, assembly: Assembly | None, deployed: Deployed, stage: str) -> Check:
    """Whether the names in the templates are free, as far as their stacks are not deployed yet.

    Args:
        clients: Of the region.
        assembly: None: the names are not known.
        deployed: Stacks whose resources are no leftovers.
        stage: For what to do.
    """
    if assembly is None:
        return Check(
            "leftovers", "warn", "not checked: the names are not known", f"Run `make synth STAGE={stage}`."
        )
    taken = [name for new in _new(assembly, deployed) for name in _taken(clients, new)]
    if not taken:
        return Check("leftovers", "ok", "every name is free")
    more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
    remedy = f"`make destroy STAGE={stage}` lists what is left, with the commands that remove it."
    return Check("leftovers", "fail", f"an earlier deployment left {taken[0]}{more}", remedy)


def _new(assembly: Assembly, deployed: Deployed) -> Iterator[Mapping[str, Any]]:
    for name, template in assembly.templates.items():
        if name not in deployed:
            yield template


def _taken(clients: AwsClients, template: Mapping[str, Any]) -> Iterator[str]:
    for resource in template.get("Resources", {}).values():
        if resource["Type"] in _LOOKS:
            key, look = _LOOKS[resource["Type"]]
            name = resource.get("Properties", {}).get(key)
            if isinstance(name, str) and look(clients, name):  # else CloudFormation makes it up
                yield name


def _is_log_group(clients: AwsClients, name: str) -> bool:
    found = clients.get("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in found)


def _is_secret(clients: AwsClients, name: str) -> bool:
    """Also one that waits for its deletion."""
    secrets = clients.get("secretsmanager")
    try:
        secrets.describe_secret(SecretId=name)
    except secrets.exceptions.ResourceNotFoundException:
        return False
    return True


def _is_queue(clients: AwsClients, name: str) -> bool:
    found = clients.get("sqs").list_queues(QueueNamePrefix=name).get("QueueUrls", [])
    return any(url.endswith(f"/{name}") for url in found)


_LOOKS: Mapping[str, tuple[str, Callable[[AwsClients, str], bool]]] = {
    "AWS::Logs::LogGroup": ("LogGroupName", _is_log_group),
    "AWS::SecretsManager::Secret": ("Name", _is_secret),
    "AWS::SQS::Queue": ("QueueName", _is_queue),
}
