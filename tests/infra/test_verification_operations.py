"""``make verify`` reads deployments, backups, logs, dashboard and budget of a stage in operation. F-005."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from infra.bundling.database_certificates import RDS_ROOTS
from infra.setting_types import BackupSettings
from infra.settings import DEV, PROD
from infra.verification.account_points import published_roots
from infra.verification.points import Point, run_point
from infra.verification.stage import DeployedStage
from tests.infra.verified_stage import check, log, reach
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import ScriptedAws

NOW = datetime.now(UTC)
VAULT = "arn:aws:backup:eu-west-1:123456789012:backup-vault:copies"
BACKED_UP = dataclasses.replace(DEV, backup=BackupSettings(copy_vault_arn=VAULT))
QUERY_LOG = "/aws/lambda/vectorforge-dev-query"
DATABASE_LOG = "/aws/rds/instance/vectorforge-dev/postgresql"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


def deploy(aws: ScriptedAws, status: str, hook: str) -> None:
    """Have CodeDeploy report one deployment."""
    answers = {
        "ListDeployments": {"deployments": ["d-1"]},
        "GetDeployment": {
            "deploymentInfo": {"deploymentId": "d-1", "status": status, "createTime": NOW.timestamp()}
        },
        "ListDeploymentTargets": {"targetIds": ["live:1"]},
        "GetDeploymentTarget": {
            "deploymentTarget": {
                "deploymentTargetType": "LambdaFunction",
                "lambdaTarget": {
                    "lifecycleEvents": [
                        {"lifecycleEventName": "BeforeAllowTraffic", "status": hook},
                        {"lifecycleEventName": "AllowTraffic", "status": "Succeeded"},
                    ]
                },
            }
        },
    }
    for operation, answer in answers.items():
        aws.answer("codedeploy", operation, json.dumps(answer))


@pytest.mark.parametrize(
    ("status", "hook", "expected", "text"),
    [
        ("Succeeded", "Succeeded", "passed", "is Succeeded, after the probe"),
        ("Succeeded", "Skipped", "failed", "and its hook BeforeAllowTraffic is Skipped"),
        ("Stopped", "Failed", "failed", "is Stopped"),
        ("InProgress", "Pending", "skipped", "is InProgress: repeat later"),
    ],
)
async def test_probe_must_have_run_before_the_last_version(
    aws: ScriptedAws, status: str, hook: str, expected: str, text: str
) -> None:
    assert await check("canary") == ("skipped", "the stage has no canary")
    deploy(aws, status, hook)
    found, evidence = await check("canary", PROD)
    assert (found, evidence.endswith(text)) == (expected, True), evidence


async def test_first_version_shows_no_canary(aws: ScriptedAws) -> None:
    aws.answer("codedeploy", "ListDeployments", json.dumps({"deployments": []}))
    found, evidence = await check("canary", PROD)
    assert (found, evidence[:21]) == ("skipped", "no second version yet")


@pytest.fixture
def roots_url(tmp_path: Path) -> Iterator[str]:
    """URL of a server with the committed roots, and with others."""
    (tmp_path / "committed.pem").write_bytes(RDS_ROOTS.read_bytes())
    (tmp_path / "other.pem").write_bytes(RDS_ROOTS.read_bytes()[1:])
    server = HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("file", "expected"), [("committed.pem", "passed"), ("other.pem", "failed"), ("none.pem", "failed")]
)
async def test_published_roots_must_be_the_committed_ones(roots_url: str, file: str, expected: str) -> None:
    point = Point("rds-roots", "", partial(published_roots, url=f"{roots_url}/{file}"))
    outcome = await asyncio.to_thread(run_point, point, DeployedStage(DEV, REGION))
    assert outcome.status == expected, outcome.evidence


def back_up(aws: ScriptedAws, backup: str, copy: str, *, age: timedelta = timedelta(hours=9)) -> None:
    """Have AWS Backup report jobs of two stages, and older ones that failed."""
    began, earlier = (NOW - age).timestamp(), (NOW - age - timedelta(days=1)).timestamp()
    job = {"BackupVaultName": "vectorforge-dev-1a", "CreationDate": began, "State": backup}
    others = [job | {"CreationDate": earlier, "State": "FAILED"}]
    others += [job | {"BackupVaultName": "vectorforge-prod-2b", "CreationDate": NOW.timestamp()}]
    aws.answer("backup", "GET /backup-jobs/?resourceType=RDS", json.dumps({"BackupJobs": [*others, job]}))
    copied = {
        "SourceBackupVaultArn": "arn:aws:backup:eu-central-1:123456789012:backup-vault:vectorforge-dev-1a",
        "CreationDate": began,
        "State": copy,
    }
    path = f"GET /copy-jobs/?destinationVaultArn={VAULT.replace(':', '%3A')}&resourceType=RDS"
    alternative = f"GET /copy-jobs/?resourceType=RDS&destinationVaultArn={VAULT.replace(':', '%3A')}"
    for operation in (path, alternative):
        aws.answer("backup", operation, json.dumps({"CopyJobs": [copied] if copy else []}))


@pytest.mark.parametrize(
    ("backup", "copy", "expected"),
    [
        ("COMPLETED", "COMPLETED", "passed"),
        ("FAILED", "COMPLETED", "failed"),
        ("COMPLETED", "FAILED", "failed"),
        ("RUNNING", "COMPLETED", "skipped"),
        ("COMPLETED", "", "skipped"),
    ],
)
async def test_newest_backup_and_copy_must_be_complete(
    aws: ScriptedAws, backup: str, copy: str, expected: str
) -> None:
    assert await check("backups") == ("skipped", "the stage has no `backup`")
    back_up(aws, backup, copy)
    found, evidence = await check("backups", BACKED_UP)
    assert found == expected, evidence


async def test_backup_of_last_week_is_not_daily(aws: ScriptedAws) -> None:
    back_up(aws, "COMPLETED", "COMPLETED", age=timedelta(days=7))
    found, evidence = await check("backups", BACKED_UP)
    assert (found, evidence[:21]) == ("failed", "the newest job is of "), evidence


REPORT = json.dumps({"type": "platform.report", "record": {}})
EXIT = json.dumps({"message": "Error: Runtime exited", "errorType": "Runtime.ExitError"})
UNTAKEN = json.dumps({"level": "WARNING", "message": "The response was not taken. Status 400."})
SLOW = "2026-11-30 10:00:00 UTC:app@vectorforge:LOG:  duration: 1204.1 ms  statement: SELECT 1"
VALUES = "2026-11-30 10:00:00 UTC:app@vectorforge:DETAIL:  Parameters: $1 = 'Who approves?'"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [REPORT, UNTAKEN, REPORT],
            ("passed", "2 invocations in the last day, no Runtime.ExitError; 1 resp"),
        ),
        ([REPORT, EXIT], ("failed", "1 × Runtime.ExitError at 1 invocations of the last day")),
        ([UNTAKEN], ("skipped", "no invocation in the last day")),
    ],
)
async def test_processes_must_not_end_early(
    aws: ScriptedAws, lines: list[str], expected: tuple[str, str]
) -> None:
    log(aws, QUERY_LOG, *lines)
    status, evidence = await check("exits")
    assert (status, evidence[: len(expected[1])]) == expected, evidence


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([SLOW], ("passed", "1 slow statements in the last day, none with its values")),
        ([SLOW, VALUES], ("failed", "1 lines have the values of statements")),
        ([VALUES[:40]], ("skipped", "no slow statement in the last day")),
    ],
)
async def test_slow_statements_must_have_no_values(
    aws: ScriptedAws, lines: list[str], expected: tuple[str, str]
) -> None:
    log(aws, DATABASE_LOG, *lines)
    assert await check("slow-statements") == expected


async def test_dashboard_without_values_is_named(aws: ScriptedAws) -> None:
    cloudwatch = aws.client("cloudwatch")
    errors = ["AWS/Lambda", "Errors", "FunctionName", "vectorforge-dev-query", {"stat": "Sum"}]
    queries = ["VectorForge/dev", "queries", "service", "query"]
    expression = [{"expression": "m1 + m2", "id": "e1"}]
    widgets = [
        {"type": "text", "properties": {"markdown": "# Health"}},
        {"type": "metric", "properties": {"metrics": [errors, expression, queries]}},
    ]
    cloudwatch.put_dashboard(DashboardName="vectorforge-prod", DashboardBody=json.dumps({"widgets": widgets}))
    assert await check("dashboard") == ("skipped", "the stage has no dashboard")
    assert await check("dashboard", PROD) == ("failed", "no metric of the dashboard has values")

    def report(namespace: str, name: str, **dimensions: str) -> None:
        named = [{"Name": one, "Value": value} for one, value in dimensions.items()]
        data = [{"MetricName": name, "Dimensions": named, "Value": 1.0}]
        cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)

    report("VectorForge/dev", "queries", service="query")
    report("AWS/Lambda", "Errors", FunctionName="vectorforge-dev-query", Resource="another line")
    absent = "without values in two weeks, of 2: AWS/Lambda Errors"
    assert await check("dashboard", PROD) == ("skipped", absent)
    report("AWS/Lambda", "Errors", FunctionName="vectorforge-dev-query")
    assert await check("dashboard", PROD) == ("passed", "2 metrics of the dashboard have values")


def spend(aws: ScriptedAws, amount: str, *, kinds: tuple[str, ...] = ("ACTUAL", "FORECASTED")) -> None:
    """Have AWS Budgets report this much of 50 dollars as spent."""
    dollars = {"Amount": "50", "Unit": "USD"}
    spent = {"ActualSpend": {"Amount": amount, "Unit": "USD"}}
    budget = {
        "BudgetName": f"vectorforge-dev-{REGION}", "BudgetType": "COST", "TimeUnit": "MONTHLY",
        "BudgetLimit": dollars, "CalculatedSpend": spent,
    }  # fmt: skip
    rule = {"ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
    notifications = [rule | {"NotificationType": kind} for kind in kinds]
    topic = {"SubscriptionType": "SNS", "Address": "arn:aws:sns:eu-central-1:123456789012:alarms"}
    for operation, answer in {
        "DescribeBudget": {"Budget": budget},
        "DescribeNotificationsForBudget": {"Notifications": notifications},
        "DescribeSubscribersForNotification": {"Subscribers": [topic]},
    }.items():
        aws.answer("budgets", operation, json.dumps(answer))


async def test_budget_must_count_and_notify(aws: ScriptedAws) -> None:
    stage = dataclasses.replace(DEV, monthly_budget_dollars=50)
    limits = ("the limit is ", "it notifies of ['ACTUAL']", "it counts nothing yet", "12.50 $ of 50 $")
    cases: list[tuple[dict[str, Any], Any, str, str]] = [
        ({"amount": "12.5"}, dataclasses.replace(stage, monthly_budget_dollars=60), "failed", limits[0]),
        ({"amount": "12.5", "kinds": ("ACTUAL",)}, stage, "failed", limits[1]),
        ({"amount": "0.0"}, stage, "skipped", limits[2]),
        ({"amount": "12.5"}, stage, "passed", limits[3]),
    ]
    for given, settings, expected, text in cases:
        spend(aws, **given)
        found, evidence = await check("budget", settings)
        assert (found, evidence[: len(text)]) == (expected, text), evidence
