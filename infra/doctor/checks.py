"""Every check of ``infra.doctor``, in a fixed order."""

import difflib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.doctor.account import (
    PERMISSIONS,
    Deployed,
    check_concurrency,
    check_leftovers,
    check_quotas,
    check_stacks,
    deployed_resources,
)
from infra.doctor.assembly import (
    BOOTSTRAP_PARAMETER,
    LEAST_BOOTSTRAP_VERSION,
    Assembly,
    AssemblyError,
    project_folder,
    read_assembly,
)
from infra.doctor.aws import AwsClients, guarded, understand
from infra.doctor.machine import check_bytecode, check_ipv6, check_tools
from infra.doctor.report import Check

_AT_ONCE = 6
_SERVICES = {"secretsmanager": "Secrets Manager", "sqs": "SQS"}
"""AWS services that functions call over the internet; S3 has a gateway endpoint."""


@dataclass(frozen=True, slots=True)
class Target:
    """Target of the deployment."""

    stage: str
    region: str
    assembly: Assembly | None
    clients: AwsClients


def run_checks(stage: str, region: str | None, assembly_folder: Path | None) -> Iterator[Check]:
    """Yield the result of every check; those of the account run concurrently.

    Args:
        stage: Stage to deploy, such as "dev".
        region: Region to deploy to; None: the choice of the CDK command line.
        assembly_folder: Output of ``make synth``; None: cdk.out of this checkout.
    """
    project = project_folder(Path.cwd())
    yield from check_tools(project)
    assembly, checks = _assembly(assembly_folder or (project or Path.cwd()) / "cdk.out", stage)
    yield from checks
    chosen, check = _region(region, assembly)
    yield check
    if chosen is None:
        return
    clients = AwsClients(chosen)
    try:
        yield from _account_checks(Target(stage, chosen, assembly, clients))
    finally:
        clients.close()
    if assembly is not None:
        yield from check_ipv6(assembly, _service_hosts(chosen))


def _assembly(folder: Path, stage: str) -> tuple[Assembly | None, list[Check]]:
    try:
        assembly = read_assembly(folder, stage)
    except AssemblyError as exc:
        remedy = f"Run `make synth STAGE={stage}` first: quotas and egress depend on what it makes."
        return None, [Check("stacks", "warn", str(exc), remedy)]
    names = ", ".join(sorted(assembly.templates))
    return assembly, [Check("stacks", "ok", f"{names} are synthesized"), check_bytecode(assembly)]


def _region(option: str | None, assembly: Assembly | None) -> tuple[str | None, Check]:
    """Choose and check the region as the CDK command line does; boto3 alone does not read AWS_REGION."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    region = option or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    try:
        region = region or session.get_config_variable("region")
        partitions = session.get_available_partitions()
        known = [name for part in partitions for name in session.get_available_regions("lambda", part)]
    except BotoCoreError as exc:  # of the profile
        failure = understand(exc, action="sts:GetCallerIdentity")
        return None, Check("credentials", "fail", failure.detail, failure.remedy)
    if not region:
        remedy = "Give --region, set AWS_REGION, or `aws configure set region`."
        return None, Check("region", "fail", "no region is configured", remedy)
    if region not in known:
        near = difflib.get_close_matches(region, known, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "See `aws account list-regions`."
        return None, Check("region", "fail", f"{region} is not a region with Lambda", remedy)
    if assembly is not None and assembly.regions - {region}:
        bound = ", ".join(sorted(assembly.regions))
        detail = f"{region}, but the stacks are bound to {bound}"
        return region, Check("region", "fail", detail, f"Give --region {bound}.")
    return region, Check("region", "ok", region)


def _service_hosts(region: str) -> dict[str, str]:
    """Return the dual-stack hosts of the services, without any call."""
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import Session

    config = Config(
        use_dualstack_endpoint=True, signature_version=UNSIGNED, ignore_configured_endpoint_urls=True
    )
    session = Session()
    hosts = {}
    for service, name in _SERVICES.items():
        client = session.create_client(service, region_name=region, config=config)
        hosts[str(client.meta.endpoint_url).removeprefix("https://")] = name
    return hosts


def _account_checks(target: Target) -> Iterator[Check]:
    identity = _identity(target.clients)
    yield identity
    if identity.status == "fail":  # nor would anything else be answered
        return
    deployed, checks = _deployed(target)
    yield from checks
    clients, assembly, stage = target.clients, target.assembly, target.stage
    looks: list[tuple[str, str, Callable[[], list[Check]]]] = [
        ("leftovers", PERMISSIONS, lambda: [check_leftovers(clients, assembly, deployed, stage)]),
        ("bootstrap", "ssm:GetParameter", lambda: [_bootstrap(target)]),
        ("concurrency", "lambda:GetAccountSettings",
         lambda: [check_concurrency(clients, assembly, deployed)]),
        *check_quotas(clients, assembly, deployed),
        ("database", "rds:DescribeOrderableDBInstanceOptions", lambda: list(_database_offers(target))),
    ]  # fmt: skip
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(lambda look: guarded(*look), looks):
            yield from found


def _identity(clients: AwsClients) -> Check:
    """Check the credentials; every problem is a failure."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        caller = clients.get("sts").get_caller_identity()
    except (BotoCoreError, ClientError, ValueError) as exc:
        failure = understand(exc, action="sts:GetCallerIdentity")
        return Check("credentials", "fail", f"{failure.detail} ({failure.code})", failure.remedy)
    arn = str(caller["Arn"])
    if arn.endswith(":root"):
        remedy = "Sign in as a role: https://docs.aws.amazon.com/IAM/latest/UserGuide/root-user-best-practices.html"
        return Check("credentials", "warn", f"the root user of account {caller['Account']}", remedy)
    return Check("credentials", "ok", f"account {caller['Account']} as {arn.rpartition(':')[2]}")


def _deployed(target: Target) -> tuple[Deployed, list[Check]]:
    deployed: Deployed = {}

    def look() -> list[Check]:
        deployed.update(deployed_resources(target.clients, target.stage))
        return check_stacks(deployed, target.stage, target.assembly)

    return deployed, guarded("deployed", "cloudformation:DescribeStacks", look)


def _bootstrap(target: Target) -> Check:
    """Check the bootstrap stack: https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-env.html."""
    assembly = target.assembly
    needed = assembly.bootstrap_version if assembly else LEAST_BOOTSTRAP_VERSION
    parameter = assembly.bootstrap_parameter if assembly else BOOTSTRAP_PARAMETER
    ssm = target.clients.get("ssm")
    remedy = f"Run `infra/node_modules/.bin/cdk bootstrap`, with AWS_REGION={target.region}, once."
    try:
        found = int(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return Check("bootstrap", "fail", f"{target.region} is not bootstrapped for CDK", remedy)
    except ValueError:
        return Check("bootstrap", "fail", f"{parameter} does not hold a version", remedy)
    if found < needed:
        return Check("bootstrap", "fail", f"version {found}, but {needed} is needed", remedy)
    return Check("bootstrap", "ok", f"version {found} (at least {needed})")


def _database_offers(target: Target) -> Iterator[Check]:
    """Check that the region offers the instance class with the template's major version of PostgreSQL."""
    wanted: list[Any] = list(target.assembly.of_type("AWS::RDS::DBInstance")) if target.assembly else []
    for instance in wanted:
        kind, version = str(instance.get("DBInstanceClass")), str(instance.get("EngineVersion"))
        pages = target.clients.get("rds").get_paginator("describe_orderable_db_instance_options")
        offers = [
            offer["EngineVersion"]
            for page in pages.paginate(Engine=str(instance.get("Engine")), DBInstanceClass=kind, Vpc=True)
            for offer in page["OrderableDBInstanceOptions"]
            if f"{offer['EngineVersion']}.".startswith(f"{version}.")
            and (offer.get("MultiAZCapable") or not instance.get("MultiAZ"))
        ]
        if offers:
            newest = max(offers, key=lambda offer: [int(number) for number in re.findall(r"\d+", offer)])
            detail = f"{kind} with PostgreSQL {version} ({newest}) is offered in {target.region}"
            yield Check("database", "ok", detail)
        else:
            detail = f"{target.region} does not offer {kind} with PostgreSQL {version}"
            remedy = "Choose another instance_type in infra/settings.py, or another region."
            yield Check("database", "fail", detail, remedy)
