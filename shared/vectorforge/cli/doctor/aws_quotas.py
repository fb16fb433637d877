"""Whether the account has room for what a deployment makes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.cli.doctor.check import Check
from vectorforge.cli.doctor.deployed_stacks import Deployed, count
from vectorforge.cli.doctor.deployment_files import Assembly

_UNRESERVED = 100
"""Lambda refuses to leave less to the functions without a reservation
(https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html)."""
_INTERFACES = 50
"""What a stage may need: Lambda, RDS and its proxy, and endpoints make theirs as they like."""


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
    """Name, permission and work of each check.

    Args:
        clients: Of the region.
        assembly: None: what is going to be made is not known, so only what is used is said.
        deployed: What an update finds there already.
    """
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
    """How many more of a type there will be."""
    return max(0, assembly.count(kind) - count(deployed, kind)) if assembly is not None else 0


def _room(clients: AwsClients, quota: _Quota, missing: int) -> Check:
    limit, used = _limit(clients.get("service-quotas"), quota), quota.used(clients)
    remedy = (
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} "
        f"--quota-code {quota.code} --desired-value {limit * 2}"
    )
    return _weighed(quota.name, quota.what, used, limit, missing, remedy)


def _limit(service_quotas: Any, quota: _Quota) -> int:
    """What applies to the account; the default where the service does not tell more."""
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
    """Lambda's concurrent executions; a young account has 10 instead of 1,000."""
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
        detail += f"; the stage reserves {wanted}, and Lambda wants {_UNRESERVED} to be left"
        return Check("concurrency", "fail", detail, remedy)
    if limit < _UNRESERVED:
        return Check("concurrency", "warn", f"{detail}: as many questions and jobs at a time", remedy)
    return Check("concurrency", "ok", detail)


def _reserved(assembly: Assembly) -> int:
    """Reserved and provisioned executions of all functions."""
    functions = assembly.of_type("AWS::Lambda::Function")
    total = sum(int(function.get("ReservedConcurrentExecutions", 0)) for function in functions)
    for alias in assembly.of_type("AWS::Lambda::Alias"):
        provisioned = alias.get("ProvisionedConcurrencyConfig", {})
        total += int(provisioned.get("ProvisionedConcurrentExecutions", 0))
    return total
