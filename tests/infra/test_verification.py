"""``make verify`` against a served API and an emulated account: points, evidence, report. F-005."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from infra.bundling.bundle import ROOT
from infra.verification.__main__ import POINTS, main
from tests.infra.verified_stage import reach
from tests.support.aws.fake_aws import REGION, aws_environment
from tests.support.aws.scripted_aws import CANARY, ScriptedAws
from tests.support.http.live_api import LiveApi, key_of, live_api, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

PREFIX = "vectorforge-dev"
HTTP_POINTS = ("keys", "bearer", "tenants", "cited", "slash")
RECURSION = "GET /2024-08-31/functions/vectorforge-dev-{}/recursion-config"
INVOKE = "POST /2015-03-31/functions/vectorforge-dev-query%3Alive/invocations"
UNVERIFIED = ROOT / "docs" / "results" / "unverified.md"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> list[str]:
    return [make_tenant(), make_tenant()]


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, tenants: list[str], aws: ScriptedAws
) -> AsyncIterator[LiveApi]:
    """A served API whose keys are those of the emulated API Gateway."""
    async with live_api(settings_for(postgres_server.app_url, tenants)) as served:
        deploy(aws, served.url, tenants)
        yield served


def deploy(aws: ScriptedAws, url: str, tenants: list[str]) -> None:
    """Create what a verification looks up: the outputs of the stack, the keys and their tenants."""
    template = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}, "Outputs": {"ApiUrl": {"Value": url}}}
    stack = "VectorForge-dev-App"
    aws.client("cloudformation").create_stack(StackName=stack, TemplateBody=json.dumps(template))
    gateway = aws.client("apigateway")
    keys = {
        gateway.create_api_key(name=tenant, value=key_of(tenant), enabled=True)["id"]: tenant
        for tenant in tenants
    }
    secrets = aws.client("secretsmanager")
    secrets.create_secret(Name=f"{PREFIX}/gateway-keys", SecretString=json.dumps(keys))


async def verify(report: Path, *points: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Run the command; return its exit code, and result and evidence by point."""
    arguments = ["--region", REGION, "--yes", "--report", str(report), "--only", *points]
    code = await asyncio.to_thread(main, arguments)
    checked, _, _ = (await asyncio.to_thread(report.read_text)).partition("## For a person")
    lines = checked.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line[:2] == "| "]
    return code, {row[0]: (row[2], row[3]) for row in rows if row[0] != "point"}


async def test_working_service_passes_every_point_of_callers(
    api: LiveApi, tenants: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.md"
    code, found = await verify(report, *HTTP_POINTS)
    assert {point: result for point, (result, _) in found.items()} == dict.fromkeys(HTTP_POINTS, "passed")
    assert code == 0
    assert found["cited"][1].endswith("cited, and logged as answered")
    printed = capsys.readouterr().out
    assert "less than $0.01" in printed
    assert f"4/5 ok       cited            {found['cited'][1]}" in printed
    for tenant in tenants:
        assert key_of(tenant) not in report.read_text() + printed
        async with api.client(tenant) as client:
            assert (await client.get("/v1/collections")).json()["collections"] == []  # nothing stays


async def test_service_that_admits_callers_without_key_fails(
    postgres_server: EmbeddedPostgres, aws: ScriptedAws, tmp_path: Path
) -> None:
    settings = settings_for(postgres_server.app_url, server={"auth": "local"})
    async with live_api(settings) as served:
        deploy(aws, served.url, ["tenant-number-one-of-two", "tenant-number-two-of-two"])
        code, found = await verify(tmp_path / "report.md", "keys", "tenants")
    assert code == 1
    assert found["keys"] == ("failed", "without a key: 200, not 401")
    assert found["tenants"] == ("failed", "another tenant's collection: 200, not 404")


async def test_extractive_stream_does_not_show_streaming(api: LiveApi, tmp_path: Path) -> None:
    _, found = await verify(tmp_path / "report.md", "streamed")
    assert found["streamed"] == ("skipped", "no model is configured: an extractive answer is sent at once")


@pytest.mark.parametrize(
    ("transactions", "status", "health", "one_round_trip"),
    [
        ("one round trip", 200, "passed", "passed"),
        ("BEGIN and COMMIT", 200, "passed", "failed"),
        ("one round trip", 401, "failed", "failed"),
    ],
)
async def test_health_is_read_from_the_function_itself(
    aws: ScriptedAws, tmp_path: Path, transactions: str, status: int, health: str, one_round_trip: str
) -> None:
    """API Gateway passes no key's id on for /health, so that the function would reject ``deep=1``."""
    secret = json.dumps({"k3yidacm3e": "acme"})
    aws.client("secretsmanager").create_secret(Name=f"{PREFIX}/gateway-keys", SecretString=secret)
    parts = [{"name": "database.transactions", "healthy": True, "detail": transactions}]
    answer = {"statusCode": status, "body": json.dumps({"status": "ok", "components": parts})}
    aws.answer("lambda", INVOKE, json.dumps(answer))
    _, found = await verify(tmp_path / "report.md", "health", "one-round-trip")
    assert (found["health"][0], found["one-round-trip"][0]) == (health, one_round_trip)
    if status == 401:
        assert found["health"][1].startswith("GET /health: 401")


async def test_unhealthy_part_fails(aws: ScriptedAws, tmp_path: Path) -> None:
    secret = json.dumps({"k3yidacm3e": "acme"})
    aws.client("secretsmanager").create_secret(Name=f"{PREFIX}/gateway-keys", SecretString=secret)
    parts = [{"name": "llm.openai", "healthy": False, "detail": "rejected the key"}]
    body = json.dumps({"status": "degraded", "components": parts}).encode()
    streamed = json.dumps({"statusCode": 200}).encode() + b"\0" * 8 + body
    aws.answer("lambda", INVOKE, streamed.decode())
    _, found = await verify(tmp_path / "report.md", "health")
    assert found["health"] == ("failed", "llm.openai: rejected the key")


@pytest.mark.parametrize(("ingest", "expected"), [("Allow", "passed"), ("Terminate", "failed")])
async def test_recursion_setting_of_functions_is_read(
    aws: ScriptedAws, tmp_path: Path, ingest: str, expected: str
) -> None:
    for function, setting in (("ingest", ingest), ("query", "Terminate")):
        aws.answer("lambda", RECURSION.format(function), json.dumps({"RecursiveLoop": setting}))
    _, found = await verify(tmp_path / "report.md", "recursion")
    assert found["recursion"][0] == expected


async def test_firing_alarm_and_endless_log_fail(aws: ScriptedAws, tmp_path: Path) -> None:
    cloudwatch, logs = aws.client("cloudwatch"), aws.client("logs")
    template = {"Resources": {"Api": {"Type": "AWS::ApiGateway::RestApi", "Properties": {"Name": "dev"}}}}
    aws.client("cloudformation").create_stack(
        StackName="VectorForge-dev-App", TemplateBody=json.dumps(template)
    )
    [gateway] = aws.client("apigateway").get_rest_apis()["items"]
    cloudwatch.put_metric_alarm(
        AlarmName=f"{PREFIX}-query-faults", MetricName="faults", Namespace="VectorForge/dev", Period=60,
        EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold", Statistic="Sum",
    )  # fmt: skip
    logs.create_log_group(logGroupName=f"/aws/lambda/{PREFIX}-query")
    logs.put_retention_policy(logGroupName=f"/aws/lambda/{PREFIX}-query", retentionInDays=7)
    code, found = await verify(tmp_path / "report.md", "alarms", "log-retention")
    assert (code, found["alarms"]) == (0, ("passed", "1 alarms, none firing"))
    assert found["log-retention"] == ("passed", "1 log groups, each with a retention")
    cloudwatch.set_alarm_state(AlarmName=f"{PREFIX}-query-faults", StateValue="ALARM", StateReason="test")
    endless = [
        f"/aws/lambda/{PREFIX}-ingest",
        f"/aws/rds/instance/{PREFIX}/postgresql",
        f"/aws/rds/proxy/{PREFIX}",
        f"API-Gateway-Execution-Logs_{gateway['id']}/dev",
    ]
    for name in endless:
        logs.create_log_group(logGroupName=name)
    code, found = await verify(tmp_path / "report.md", "alarms", "log-retention")
    assert (code, found["alarms"]) == (1, ("failed", f"firing: {PREFIX}-query-faults"))
    assert found["log-retention"] == ("failed", f"kept for ever: {', '.join(endless)}")


async def test_failed_call_is_reported_without_its_text(aws: ScriptedAws, tmp_path: Path) -> None:
    aws.fail("lambda", RECURSION.format("ingest"), "AccessDeniedException", status=403)
    code, found = await verify(tmp_path / "report.md", "recursion")
    assert code == 1
    assert found["recursion"] == ("failed", "the check ended with ClientError (AccessDeniedException)")
    assert CANARY not in (tmp_path / "report.md").read_text()


async def test_points_that_need_aws_are_skipped_in_an_emulator(
    aws: ScriptedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws_environment(aws.url)["AWS_ENDPOINT_URL"])
    names = [point.name for point in POINTS if point.needs_aws]
    code, found = await verify(tmp_path / "report.md", *names)
    assert code == 0
    assert set(found.values()) == {("skipped", "needs AWS")}
    assert "in LocalStack: 0 passed, 0 failed" in (tmp_path / "report.md").read_text()


def test_points_are_those_that_list_of_unverified_marks() -> None:
    marks = re.findall(r"\(`make verify`[^:]*: (.*?)\)", UNVERIFIED.read_text())
    marked = {name for mark in marks for name in re.findall(r"`([a-z0-9-]+)`", mark)}
    assert marked == {point.name for point in POINTS}


async def test_report_lists_rows_that_no_point_checks(aws: ScriptedAws, tmp_path: Path) -> None:
    await verify(tmp_path / "report.md", "recursion")
    rest = (tmp_path / "report.md").read_text().partition("## For a person")[2]
    rows = [line for line in UNVERIFIED.read_text().splitlines() if line.startswith("| `make destroy`")]
    assert rows
    assert all(row in rest for row in rows)
    assert "(`make verify`" not in rest
    assert "](docs/operate/erasure.md)" in rest


def test_verification_without_region_or_terminal_changes_nothing(
    aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--region", REGION]) == 2
    assert "without a terminal use --yes" in capsys.readouterr().err
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert main(["--yes"]) == 2
    assert "There is no region" in capsys.readouterr().err
    assert aws.calls == []
