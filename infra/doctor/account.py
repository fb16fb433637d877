"""Checks of the account: stacks of the stage, names left by earlier deployments, and quotas."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from infra.doctor.assembly import Assembly
from infra.doctor.aws import AwsClients
from infra.doctor.report import Check

_DELETE_FIRST = {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}
_STUCK = "UPDATE_ROLLBACK_FAILED"


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """One stack."""

    status: str
    """E.g. "UPDATE_COMPLETE"."""
    resources: Mapping[str, int]
    """Number of resources by type."""


Deployed: TypeAlias = dict[str, DeployedStack]
"""Stacks by name; empty before the first deployment."""


def deployed_resources(clients: AwsClients, stage: str) -> Deployed:
    """Return the stacks ``VectorForge-<stage>-*`` of the region."""
    cloudformation = clients.get("cloudformation")
    found: Deployed = {}
    for stack in cloudformation.get_paginator("describe_stacks").paginate().search("Stacks[]"):
        name, status = str(stack["StackName"]), str(stack["StackStatus"])
        if name.startswith(f"VectorForge-{stage}-") and status != "DELETE_COMPLETE":
            pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
            counted = Counter(pages.search("StackResourceSummaries[].ResourceType"))
            found[name] = DeployedStack(status, counted)
    return found


def count(deployed: Deployed, kind: str) -> int:
    """Count the deployed resources of a type."""
    return sum(stack.resources.get(kind, 0) for stack in deployed.values())


def check_stacks(deployed: Deployed, stage: str, assembly: Assembly | None) -> list[Check]:
    """Check that CloudFormation would accept an update."""
    if not deployed:
        return [Check("deployed", "ok", f"stage {stage} is not deployed")]
    stacks = [_stack(name, stack.status) for name, stack in sorted(deployed.items())]
    return stacks if assembly is None else [*stacks, *_engine(deployed, assembly)]


def _engine(deployed: Deployed, assembly: Assembly) -> Iterator[Check]:
    """Yield a failure if the database would be replaced by an empty one of another engine."""
    engines = [
        "aurora" if clusters else "rds"
        for clusters in (count(deployed, "AWS::RDS::DBCluster"), assembly.count("AWS::RDS::DBCluster"))
    ]
    has, wants = engines
    if has != wants and count(deployed, "AWS::RDS::DBInstance"):
        detail = f'the database has engine "{has}", and the settings say "{wants}": data would not move'
        remedy = f'Set engine to "{has}", or move: docs/operate/readers.md#move-from-rds-to-aurora.'
        yield Check("deployed", "fail", detail, remedy)


def _stack(name: str, status: str) -> Check:
    if status in _DELETE_FIRST:
        remedy = f"Delete it first: `aws cloudformation delete-stack --stack-name {name}`."
        return Check("deployed", "fail", f"{name} is {status} and cannot be updated", remedy)
    if status == _STUCK:
        remedy = f"Run `aws cloudformation continue-update-rollback --stack-name {name}`."
        return Check("deployed", "fail", f"{name} is {status}", remedy)
    if status.endswith("_IN_PROGRESS"):
        return Check("deployed", "fail", f"{name} is {status}", "Wait until it is done.")
    return Check("deployed", "ok", f"{name} is {status}")


PERMISSIONS = "logs:DescribeLogGroups, secretsmanager:DescribeSecret and sqs:ListQueues"


def check_leftovers(clients: AwsClients, assembly: Assembly | None, deployed: Deployed, stage: str) -> Check:
    """Check that the names in templates of new stacks are free."""
    if assembly is None:
        return Check(
            "leftovers", "warn", "not checked: the names are unknown", f"Run `make synth STAGE={stage}`."
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
    """Return whether the secret exists, or waits for its deletion."""
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


_UNRESERVED = 100
"""Lambda refuses to leave less to the functions without a reservation
(https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html)."""
_INTERFACES = 50
"""Estimate for a stage: Lambda, RDS, its proxy and endpoints create network interfaces on their own."""


@dataclass(frozen=True, slots=True)
class _Quota:
    """A quota; its code is in https://docs.aws.amazon.com/general/latest/gr/vpc-service.html."""

    name: str
    what: str
    service: str
    code: str
    kind: str
    """The type of resource that counts against it; "" where CloudFormation has none."""
    action: str
    used: Callable[[AwsClients], int]


def _number_of(operation: str, key: str) -> Callable[[AwsClients], int]:
    def counted(clients: AwsClients) -> int:
        pages = clients.get("ec2").get_paginator(operation).paginate(PaginationConfig={"PageSize": 1000})
        return sum(len(page[key]) for page in pages)

    return counted


def _addresses(clients: AwsClients) -> int:
    return len(clients.get("ec2").describe_addresses()["Addresses"])


_QUOTAS = (
    _Quota("vpcs", "VPCs", "vpc", "L-F678F1CE", "AWS::EC2::VPC", "ec2:DescribeVpcs",
           _number_of("describe_vpcs", "Vpcs")),
    _Quota("addresses", "elastic IPs", "ec2", "L-0263D0A3", "AWS::EC2::EIP", "ec2:DescribeAddresses",
           _addresses),
    _Quota("interfaces", "network interfaces", "vpc", "L-DF5E4CA3", "", "ec2:DescribeNetworkInterfaces",
           _number_of("describe_network_interfaces", "NetworkInterfaces")),
)  # fmt: skip


def check_quotas(
    clients: AwsClients, assembly: Assembly | None, deployed: Deployed
) -> Iterator[tuple[str, str, Callable[[], list[Check]]]]:
    """Yield name, permission and function of each check."""
    for quota in _QUOTAS:
        missing = _missing(quota.kind, assembly, deployed) if quota.kind else _INTERFACES
        if quota.name == "addresses" and not missing:
            continue  # only a stage with NAT has any
        yield (
            quota.name,
            f"servicequotas:GetServiceQuota and {quota.action}",
            lambda quota=quota, missing=missing: [_room(clients, quota, missing)],  # type: ignore[misc]
        )
    instances = _missing("AWS::RDS::DBInstance", assembly, deployed)
    yield "instances", "rds:DescribeAccountAttributes", lambda: [_database_instances(clients, instances)]


def _missing(kind: str, assembly: Assembly | None, deployed: Deployed) -> int:
    """Count the resources of a type that the deployment adds."""
    return max(0, assembly.count(kind) - count(deployed, kind)) if assembly is not None else 0


def _room(clients: AwsClients, quota: _Quota, missing: int) -> Check:
    limit, used = _limit(clients.get("service-quotas"), quota), quota.used(clients)
    remedy = (
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} "
        f"--quota-code {quota.code} --desired-value {limit * 2}"
    )
    return _weighed(quota.name, quota.what, used, limit, missing, remedy)


def _limit(service_quotas: Any, quota: _Quota) -> int:
    """Return the quota of the account, or the default if the service has no other."""
    codes = {"ServiceCode": quota.service, "QuotaCode": quota.code}
    try:
        answer = service_quotas.get_service_quota(**codes)
    except service_quotas.exceptions.NoSuchResourceException:
        answer = service_quotas.get_aws_default_service_quota(**codes)
    return int(answer["Quota"]["Value"])


def _database_instances(clients: AwsClients, missing: int) -> Check:
    quotas = clients.get("rds").describe_account_attributes()["AccountQuotas"]
    [found] = [quota for quota in quotas if quota["AccountQuotaName"] == "DBInstances"]
    remedy = (
        "Ask for more DB instances: https://console.aws.amazon.com/servicequotas/home/services/rds/quotas"
    )
    return _weighed("instances", "RDS instances", int(found["Used"]), int(found["Max"]), missing, remedy)


def _weighed(name: str, what: str, used: int, limit: int, missing: int, remedy: str) -> Check:
    detail = f"{used} of {limit} {what} in use, {missing} more needed"
    fits = used + missing <= limit
    return Check(name, "ok" if fits else "fail", detail, "" if fits else remedy)


def check_concurrency(clients: AwsClients, assembly: Assembly | None, deployed: Deployed) -> Check:
    """Check Lambda's concurrent executions; a new account has 10 instead of 1,000."""
    limits = clients.get("lambda").get_account_settings()["AccountLimit"]
    limit, unreserved = int(limits["ConcurrentExecutions"]), int(limits["UnreservedConcurrentExecutions"])
    # What a deployed stage has reserved is no longer among the unreserved.
    wanted = 0 if assembly is None or count(deployed, "AWS::Lambda::Function") else _reserved(assembly)
    detail = f"{unreserved} of {limit} concurrent executions are unreserved"
    remedy = (
        "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
        "--desired-value 1000"
    )
    if wanted and unreserved - wanted < _UNRESERVED:
        detail += f"; the stage reserves {wanted}, and Lambda requires {_UNRESERVED} unreserved"
        return Check("concurrency", "fail", detail, remedy)
    if limit < _UNRESERVED:
        return Check("concurrency", "warn", f"{detail}, which limits concurrent queries and jobs", remedy)
    return Check("concurrency", "ok", detail)


def _reserved(assembly: Assembly) -> int:
    """Sum the reserved and provisioned executions of all functions."""
    functions = assembly.of_type("AWS::Lambda::Function")
    total = sum(int(function.get("ReservedConcurrentExecutions", 0)) for function in functions)
    for alias in assembly.of_type("AWS::Lambda::Alias"):
        provisioned = alias.get("ProvisionedConcurrencyConfig", {})
        total += int(provisioned.get("ProvisionedConcurrentExecutions", 0))
    return total
