"""``make verify`` reads egress, database, starts, alarms, queries of logs and the restore test. F-005."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from infra.setting_types import BackupSettings, NetworkSettings
from infra.settings import DEV, PROD
from infra.stage_settings import StageSettings
from tests.infra.verified_stage import check, reach
from tests.support.aws.scripted_aws import ScriptedAws

CONFIGURATION = "GET /2015-03-31/functions/vectorforge-dev-{}/configuration?Qualifier=live"
FUNCTIONS = ("query", "log-writer", "ingest", "migrate")
NAT = dataclasses.replace(DEV, network=NetworkSettings(egress="nat", nat_gateways=1))
NONE = dataclasses.replace(DEV, network=NetworkSettings(egress="none"))
TESTED = dataclasses.replace(DEV, backup=BackupSettings(restore_test=True))
PLAN = "arn:aws:backup:eu-central-1:123456789012:restore-testing-plan:vectorforge_dev-1f"
LOG = "/aws/lambda/vectorforge-dev-migrate"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


def connect(aws: ScriptedAws, *, ipv6: bool, nat: bool) -> None:
    """Create a VPC with one subnet and its route table, and functions in it."""
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", AmazonProvidedIpv6CidrBlock=ipv6)["Vpc"]
    block = vpc["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"].replace("::/56", "::/64") if ipv6 else None
    given = {"Ipv6CidrBlock": block} if block else {}
    subnet = ec2.create_subnet(VpcId=vpc["VpcId"], CidrBlock="10.0.0.0/20", **given)["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc["VpcId"])["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    if ipv6:
        gateway = ec2.create_egress_only_internet_gateway(VpcId=vpc["VpcId"])["EgressOnlyInternetGateway"]
        ec2.create_route(
            RouteTableId=table,
            DestinationIpv6CidrBlock="::/0",
            EgressOnlyInternetGatewayId=gateway["EgressOnlyInternetGatewayId"],
        )
    if nat:
        made = ec2.create_nat_gateway(SubnetId=subnet, ConnectivityType="private")["NatGateway"]
        ec2.create_route(
            RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=made["NatGatewayId"]
        )
    for function in FUNCTIONS:
        place = {"SubnetIds": [subnet], "Ipv6AllowedForDualStack": ipv6}
        aws.answer("lambda", CONFIGURATION.format(function), json.dumps({"VpcConfig": place}))


@pytest.mark.parametrize(
    ("ipv6", "nat", "settings", "expected"),
    [
        (True, False, DEV, ("passed", 'egress "dual_stack": 4 functions in 1 subnets, IPv6 outwards')),
        (False, True, NAT, ("passed", 'egress "nat": 4 functions in 1 subnets, IPv4 by NAT')),
        (False, False, NONE, ("passed", 'egress "none": 4 functions in 1 subnets, no default route')),
        (False, True, DEV, ("failed", "vectorforge-dev-query: IPv6 False")),
        (True, False, NAT, ("failed", "vectorforge-dev-query: IPv6 True")),
        (True, True, DEV, ("failed", "dual_stack: the default routes are ['IPv4 by NAT', 'IPv6 outwards']")),
        (False, True, NONE, ("failed", "none: the default routes are ['IPv4 by NAT']")),
    ],
)
async def test_ipv6_must_follow_the_egress(
    aws: ScriptedAws, ipv6: bool, nat: bool, settings: StageSettings, expected: tuple[str, str]
) -> None:
    connect(aws, ipv6=ipv6, nat=nat)
    assert await check("ipv6", settings) == expected


def restore(aws: ScriptedAws, status: str, *, began: datetime, line: str | None = None) -> None:
    """Have AWS Backup report two restore jobs, and the migrate function print a line."""
    plans = {
        "RestoreTestingPlans": [{"RestoreTestingPlanName": "vectorforge_dev", "RestoreTestingPlanArn": PLAN}]
    }
    aws.answer("backup", "GET /restore-testing/plans", json.dumps(plans))
    older = {"RestoreJobId": "1", "Status": "FAILED", "CreationDate": began.timestamp() - 86_400}
    newest = {"RestoreJobId": "2", "Status": status, "CreationDate": began.timestamp()}
    wanted = f"GET /restore-jobs/?restoreTestingPlanArn={PLAN.replace(':', '%3A')}"
    aws.answer("backup", wanted, json.dumps({"RestoreJobs": [older, newest]}))
    logs = aws.client("logs")
    logs.create_log_group(logGroupName=LOG)
    logs.create_log_stream(logGroupName=LOG, logStreamName="one")
    if line is not None:
        at = int((began + timedelta(minutes=40)).timestamp() * 1000)
        event = {"timestamp": at, "message": json.dumps({"level": "INFO", "message": line})}
        logs.put_log_events(logGroupName=LOG, logStreamName="one", logEvents=[event])


@pytest.mark.parametrize(
    ("status", "line", "expected"),
    [
        ("COMPLETED", "A restored database was read: {'pending': []}", "passed"),
        ("COMPLETED", None, "failed"),
        ("FAILED", None, "failed"),
        ("RUNNING", None, "skipped"),
    ],
)
async def test_restored_database_must_have_been_read(
    aws: ScriptedAws, status: str, line: str | None, expected: str
) -> None:
    began = datetime.now(UTC) - timedelta(hours=3)
    restore(aws, status, began=began, line=line)
    found, evidence = await check("restore-test", TESTED)
    assert found == expected, evidence
    assert f"{began:%Y-%m-%d}" in evidence
    if line is not None:
        assert evidence.endswith(line)


async def test_restore_test_without_evidence_is_skipped(aws: ScriptedAws) -> None:
    assert (await check("restore-test"))[1] == "the stage has no `backup` with restore_test"
    restore(aws, "COMPLETED", began=datetime.now(UTC) - timedelta(days=8))
    found, evidence = await check("restore-test", TESTED)
    assert (found, evidence[-11:]) == ("skipped", "has expired")


DATABASE = {
    "EngineVersion": "17.6", "StorageEncrypted": True, "IAMDatabaseAuthenticationEnabled": True,
    "DeletionProtection": False, "BackupRetentionPeriod": 1,
    "EnabledCloudwatchLogsExports": ["iam-db-auth-error", "postgresql"],
}  # fmt: skip
AURORA = dataclasses.replace(DEV, database=dataclasses.replace(DEV.database, engine="aurora"))


def describe(aws: ScriptedAws, kind: str, found: dict[str, Any]) -> None:
    """Have RDS describe an instance or a cluster."""
    fields = "".join(
        f"<{name}>{''.join(f'<member>{one}</member>' for one in v)}</{name}>" if isinstance(v, list)
        else f"<{name}>{str(v).lower()}</{name}>" for name, v in found.items()
    )  # fmt: skip
    name = f"DescribeDB{kind}s"
    body = f"<DB{kind}s><DB{kind}>{fields}</DB{kind}></DB{kind}s>"
    content = f"<{name}Response><{name}Result>{body}</{name}Result></{name}Response>"
    aws.answer("rds", name, content, kind="text/xml")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ("passed", "PostgreSQL 17.6, exports iam-db-auth-error, postgresql, {")),
        ({"EngineVersion": "18.1"}, ("failed", "PostgreSQL 18.1")),
        ({"StorageEncrypted": False}, ("failed", "{'StorageEncrypted': False} in place of ")),
        ({"DeletionProtection": True}, ("failed", "{'DeletionProtection': True} in place of ")),
        ({"EnabledCloudwatchLogsExports": ["postgresql"]}, ("failed", "not exported: iam-db-auth-error")),
    ],
)
async def test_database_must_be_as_its_settings(
    aws: ScriptedAws, changed: dict[str, Any], expected: tuple[str, str]
) -> None:
    describe(aws, "Instance", DATABASE | changed)
    status, evidence = await check("database")
    assert (status, evidence[: len(expected[1])]) == expected, evidence


async def test_aurora_has_the_settings_at_its_cluster(aws: ScriptedAws) -> None:
    describe(aws, "Cluster", DATABASE | {"EnabledCloudwatchLogsExports": ["postgresql"]})
    assert (await check("database", AURORA))[0] == "passed"


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        ("ENABLED", {"built": []}, ("passed", "built: none was missing; the rule is ENABLED rate(1 hour)")),
        ("ENABLED", {"pending": []}, ("failed", "the migrate function answered ['pending']")),
        ("DISABLED", {"built": []}, ("failed", "the rule is DISABLED rate(1 hour)")),
    ],
)
async def test_indexes_must_be_built_hourly(
    aws: ScriptedAws, state: str, answer: dict[str, Any], expected: tuple[str, str]
) -> None:
    aws.client("events").put_rule(
        Name="vectorforge-dev-index", ScheduleExpression="rate(1 hour)", State=state
    )
    invoke = "POST /2015-03-31/functions/vectorforge-dev-migrate%3Alive/invocations"
    aws.answer("lambda", invoke, json.dumps(answer))
    assert await check("index") == expected


def log(aws: ScriptedAws, group: str, *lines: dict[str, Any]) -> None:
    logs, at = aws.client("logs"), count(int(datetime.now(UTC).timestamp() * 1000))
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="one")
    events = [{"timestamp": next(at), "message": json.dumps(line)} for line in lines]
    if events:
        logs.put_log_events(logGroupName=group, logStreamName="one", logEvents=events)


@pytest.mark.parametrize(("slowest_ms", "expected"), [(1700, "passed"), (2300, "failed")])
async def test_start_without_bytecode_takes_too_long(
    aws: ScriptedAws, slowest_ms: int, expected: str
) -> None:
    lines = [
        {"type": "platform.initReport", "record": {"status": "success", "metrics": {"durationMs": ms}}}
        for ms in (900, slowest_ms)
    ]
    log(aws, "/aws/lambda/vectorforge-dev-query", *lines)
    status, evidence = await check("starts")
    assert (status, f"{slowest_ms} ms" in evidence) == (expected, True), evidence


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
async def test_runbook_queries_must_complete(aws: ScriptedAws, ended: str) -> None:
    assert await check("runbook-queries") == ("failed", "none of the runbook's log groups exists")
    log(aws, "/aws/lambda/vectorforge-dev-query")
    aws.answer("logs", "GetQueryResults", json.dumps({"results": [], "status": ended}))
    status, evidence = await check("runbook-queries")
    if ended == "Complete":
        assert (status, evidence[:19]) == ("passed", "6 queries complete;"), evidence
        assert "'/aws/lambda/vectorforge-dev-ingest'" in evidence
    else:
        assert (status, evidence[:27]) == ("failed", "Failed: filter ispresent(er"), evidence


async def test_stage_with_probe_must_have_alarm_for_outages(aws: ScriptedAws) -> None:
    """moto has no composite alarms: one of a metric has its name."""

    def put(name: str, *actions: str) -> None:
        aws.client("cloudwatch").put_metric_alarm(
            AlarmName=f"vectorforge-prod-{name}", MetricName="failures", Namespace="test", Period=60,
            EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold", Statistic="Sum",
            AlarmActions=actions,
        )  # fmt: skip

    failed = ("failed", "service-down does not exist, or notifies nobody")
    put("probe-failed")
    assert await check("alarms", PROD) == failed
    put("service-down")
    assert await check("alarms", PROD) == failed
    put("service-down", aws.client("sns").create_topic(Name="vectorforge-prod-alarms")["TopicArn"])
    assert await check("alarms", PROD) == ("passed", "2 alarms, none firing")
