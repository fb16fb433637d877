"""One point of a verification against an emulated account."""

import asyncio
import time

import pytest

from infra.settings import DEV
from infra.stage_settings import StageSettings
from infra.verification.__main__ import POINTS
from infra.verification.points import run_point
from infra.verification.stage import DeployedStage
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import ScriptedAws

ALIAS = "GET /2015-03-31/functions/vectorforge-dev-query/aliases/live"
CONFIGURATION = "GET /2015-03-31/functions/vectorforge-dev-query/configuration?Qualifier=7"
"""Requests for the query function's alias and for the configuration of its version 7."""

_SERVICES = (
    "API_GATEWAY", "BACKUP", "BUDGETS", "CLOUDFORMATION", "CLOUDWATCH", "CLOUDWATCH_LOGS", "CODEDEPLOY",
    "EC2", "EVENTBRIDGE", "LAMBDA", "RDS", "S3", "SECRETS_MANAGER", "SFN", "SQS", "SSM", "STS",
)  # fmt: skip


def reach(account: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point boto3 to an account service by service: with one endpoint for all it would be LocalStack's."""
    variables = account.environment
    endpoint = variables.pop("AWS_ENDPOINT_URL")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for service in _SERVICES:
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", endpoint)


def log(aws: ScriptedAws, group: str, *lines: str) -> None:
    """Create a log group with these lines, written now."""
    logs = aws.client("logs")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="one")
    at = int(time.time() * 1000)
    events = [{"timestamp": at + number, "message": line} for number, line in enumerate(lines)]
    logs.put_log_events(logGroupName=group, logStreamName="one", logEvents=events)


async def check(point: str, settings: StageSettings = DEV) -> tuple[str, str]:
    """Check one point, and return its result and what was seen."""
    [chosen] = [one for one in POINTS if one.name == point]
    stage = DeployedStage(settings, REGION)
    try:
        outcome = await asyncio.to_thread(run_point, chosen, stage)
    finally:
        stage.close()
    return outcome.status, outcome.evidence
