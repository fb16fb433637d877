"""What ``vectorforge doctor --aws`` looks at before a deployment.

No check raises, changes anything or costs money.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from vectorforge.aws.clients import AwsClients
from vectorforge.cli.doctor.aws_failures import understand
from vectorforge.cli.doctor.aws_quotas import check_concurrency, check_quotas
from vectorforge.cli.doctor.check import Check
from vectorforge.cli.doctor.deployed_stacks import Deployed, check_stacks, deployed_resources
from vectorforge.cli.doctor.deployment_files import (
    BOOTSTRAP_PARAMETER,
    LEAST_BOOTSTRAP_VERSION,
    Assembly,
    project_folder,
    read_assembly,
)
from vectorforge.cli.doctor.deployment_tools import check_bytecode, check_tools
from vectorforge.cli.doctor.vendor_addresses import check_ipv6
from vectorforge.cli.leftovers import PERMISSIONS, check_leftovers
from vectorforge.errors import ConfigurationError

_AT_ONCE = 6
_SERVICES = {"secretsmanager": "Secrets Manager", "sqs": "SQS"}
"""Of AWS, what functions call over the internet; S3 has a gateway endpoint."""

Look: TypeAlias = Callable[[], list[Check]]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stage is going to be deployed."""

    stage: str
    region: str
    assembly: Assembly | None
    clients: AwsClients


def run_aws_checks(stage: str, region: str | None, assembly_folder: Path | None) -> Iterator[Check]:
    """Every check, in a fixed order; the account's are asked for at the same time.

    Args:
        stage: E.g. "dev".
        region: None: as the CDK command line would choose it.
        assembly_folder: What ``make synth`` wrote; None: cdk.out of this clone.
    """
    project = project_folder(Path.cwd())
    yield from check_tools(project)
    assembly, checks = _assembly(assembly_folder or (project or Path.cwd()) / "cdk.out", stage)
    yield from checks
    chosen, check = _region(region, assembly)
    yield check
    if chosen is None:
        return
    clients = AwsClients(connect_timeout_s=3, read_timeout_s=10, region=chosen)
    try:
        yield from _account_checks(Target(stage, chosen, assembly, clients))
    finally:
        clients.close()
    if assembly is not None:
        yield from check_ipv6(assembly, _service_hosts(chosen))


def _assembly(folder: Path, stage: str) -> tuple[Assembly | None, list[Check]]:
    try:
        assembly = read_assembly(folder, stage)
    except ConfigurationError as exc:
        remedy = f"Run `make synth STAGE={stage}` first: quotas and egress depend on what it makes."
        return None, [Check("stacks", "warn", exc.message, remedy)]
    names = ", ".join(sorted(assembly.templates))
    return assembly, [Check("stacks", "ok", f"{names} are synthesized"), check_bytecode(assembly)]


def _region(option: str | None, assembly: Assembly | None) -> tuple[str | None, Check]:
    """As the CDK command line chooses it, and what is wrong with it; boto3 alone does not read AWS_REGION."""
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
        return None, Check("region", "fail", "none is chosen", remedy)
    if region not in known:
        near = difflib.get_close_matches(region, known, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "See `aws account list-regions`."
        return None, Check("region", "fail", f"{region} is no region that has Lambda", remedy)
    if assembly is not None and assembly.regions - {region}:
        bound = ", ".join(sorted(assembly.regions))
        detail = f"{region}, but the stacks are bound to {bound}"
        return region, Check("region", "fail", detail, f"Give --region {bound}.")
    return region, Check("region", "ok", region)


def _service_hosts(region: str) -> dict[str, str]:
    """The dual-stack hosts of the services, which need no call and no credentials to know."""
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
    looks: list[tuple[str, str, Look]] = [
        (
            "leftovers",
            PERMISSIONS,
            lambda: [check_leftovers(target.clients, target.assembly, deployed, target.stage)],
        ),
        ("bootstrap", "ssm:GetParameter", lambda: [_bootstrap(target)]),
        (
            "concurrency",
            "lambda:GetAccountSettings",
            lambda: [check_concurrency(target.clients, target.assembly, deployed)],
        ),
        *check_quotas(target.clients, target.assembly, deployed),
        ("database", "rds:DescribeOrderableDBInstanceOptions", lambda: list(_database_offers(target))),
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(lambda look: guarded(*look), looks):
            yield from found


def guarded(name: str, action: str, look: Look) -> list[Check]:
    """The checks, or one that says why AWS did not tell."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return look()
    except (BotoCoreError, ClientError, ConfigurationError) as exc:
        failure = understand(exc, action=action)
        return [
            Check(
                name,
                "fail" if failure.identity else "warn",
                f"not checked: {failure.detail} ({failure.code})",
                failure.remedy,
            )
        ]


def _identity(clients: AwsClients) -> Check:
    """Whose credentials these are; whatever goes wrong here is a failure."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        caller = clients.get("sts").get_caller_identity()
    except (BotoCoreError, ClientError, ConfigurationError) as exc:
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
        return check_stacks(deployed, target.stage)

    return deployed, guarded("deployed", "cloudformation:DescribeStacks", look)


def _bootstrap(target: Target) -> Check:
    """https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-env.html."""
    assembly = target.assembly
    needed = assembly.bootstrap_version if assembly else LEAST_BOOTSTRAP_VERSION
    parameter = assembly.bootstrap_parameter if assembly else BOOTSTRAP_PARAMETER
    ssm = target.clients.get("ssm")
    remedy = f"Run `infra/node_modules/.bin/cdk bootstrap`, with AWS_REGION={target.region}, once."
    try:
        found = int(ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return Check("bootstrap", "fail", f"CDK was never set up in {target.region}", remedy)
    except ValueError:
        return Check("bootstrap", "fail", f"{parameter} holds no version", remedy)
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
