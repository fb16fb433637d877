"""``make verify`` rotates secrets and sees that running functions use them. F-005."""

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.verification.rotation_points import NEW_KEY
from tests.infra.verified_stage import check, reach
from tests.support.aws.fake_lambda import fake_lambda
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.scripted_aws import ScriptedAws
from vectorforge.local.postgres import EmbeddedPostgres

GATEWAY, PROVIDERS = "vectorforge-dev/gateway-keys", "vectorforge-dev/providers"
LOG = "/aws/lambda/vectorforge-dev-query"
INVOKE = "POST /2015-03-31/functions/vectorforge-dev-migrate%3Alive/invocations"
ALIAS = "GET /2015-03-31/functions/vectorforge-dev-migrate/aliases/live"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


def secret_of(aws: ScriptedAws, name: str) -> Any:
    return json.loads(aws.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])


def store_secrets(aws: ScriptedAws, surroundings: QuerySurroundings) -> None:
    secrets = aws.client("secretsmanager")
    secrets.create_secret(Name=GATEWAY, SecretString=json.dumps({"k3yidacm3e": surroundings.tenant}))
    keys = {"openai_api_key": surroundings.vendor.api_key}
    secrets.create_secret(Name=PROVIDERS, SecretString=json.dumps(keys))


def process_of(surroundings: QuerySurroundings, aws: ScriptedAws, **variables: str) -> FunctionProcess:
    """The query function with its keys and tenants in secrets that it reads again after a second."""
    stored = {
        "VECTORFORGE_GATEWAY_KEY_SECRET_ID": GATEWAY,
        "VECTORFORGE_PROVIDER_SECRET_ID": PROVIDERS,
        "VECTORFORGE_SECRET_MAX_AGE_S": "1",
        **aws.environment,
        **variables,
    }
    without = ("VECTORFORGE_OPENAI_API_KEY",)
    return FunctionProcess(query_function(surroundings, "stream", variables=stored, without=without))


async def test_running_function_accepts_new_gateway_key(
    surroundings: QuerySurroundings, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_secrets(aws, surroundings)
    async with process_of(surroundings, aws) as function, fake_lambda(function) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        status, evidence = await check("gateway-secret")
        assert (status, function.starts) == ("passed", 1), evidence
    assert evidence.startswith("version 7 of the function accepted a new key id after ")
    assert secret_of(aws, GATEWAY) == {"k3yidacm3e": surroundings.tenant}  # as before


async def test_function_that_accepts_any_key_id_fails(
    surroundings: QuerySurroundings, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_secrets(aws, surroundings)
    local = {"VECTORFORGE_AUTH": "local"}
    async with process_of(surroundings, aws, **local) as function, fake_lambda(function) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        status, evidence = await check("gateway-secret")
    assert (status, evidence) == ("failed", "a key id outside of the secret was accepted")


async def test_deployment_during_rotation_fails_and_secret_is_restored(
    surroundings: QuerySurroundings, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_secrets(aws, surroundings)
    versions = ("7", "7", "8")
    async with process_of(surroundings, aws) as function, fake_lambda(function, *versions) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        status, evidence = await check("gateway-secret")
    assert (status, evidence) == ("failed", "a deployment took place meanwhile: repeat")
    assert secret_of(aws, GATEWAY) == {"k3yidacm3e": surroundings.tenant}


async def test_running_function_takes_new_vendor_key(
    surroundings: QuerySurroundings, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_secrets(aws, surroundings)
    logs, old, new = aws.client("logs"), surroundings.vendor.api_key, "sk-second-canary"
    logs.create_log_group(logGroupName=LOG)
    logs.create_log_stream(logGroupName=LOG, logStreamName="one")
    sent = 0

    def deliver(lines: list[str]) -> None:
        nonlocal sent
        now = int(time.time() * 1000)
        events = [{"timestamp": now, "message": line} for line in lines[sent:] if line]
        sent = len(lines)
        if events:
            logs.put_log_events(logGroupName=LOG, logStreamName="one", logEvents=events)

    async with process_of(surroundings, aws) as function, fake_lambda(function, after=deliver) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        assert (await check("provider-secret"))[0] == "skipped"
        monkeypatch.setenv(NEW_KEY, json.dumps({"openai_api_key": new}))
        status, evidence = await check("provider-secret")
        assert (status, function.starts) == ("passed", 1), evidence
        assert new not in evidence + function.output.text
    assert secret_of(aws, PROVIDERS) == {"openai_api_key": old}


@pytest.mark.parametrize(
    ("pending", "status"), [("[]", "passed"), ('["0099_new"]', "failed")], ids=["login", "no login"]
)
async def test_rotated_database_password_is_used(aws: ScriptedAws, pending: str, status: str) -> None:
    secrets = aws.client("secretsmanager")
    arn = secrets.create_secret(Name="rds!db-1", SecretString='{"password": "one"}')["ARN"]
    parameter = {"Name": "/vectorforge-dev/database/owner-secret", "Value": arn, "Type": "String"}
    aws.client("ssm").put_parameter(**parameter)
    aws.answer("lambda", ALIAS, json.dumps({"FunctionVersion": "3"}))
    aws.answer("lambda", INVOKE, f'{{"pending": {pending}}}')
    found, evidence = await check("database-secret")
    assert found == status, evidence
    [version] = [
        version
        for version, labels in secrets.describe_secret(SecretId=arn)["VersionIdsToStages"].items()
        if "AWSCURRENT" in labels
    ]
    calls = [operation for _, operation in aws.calls]
    assert calls.index("RotateSecret") < calls.index(INVOKE)
    if status == "passed":
        assert f"became {version[:8]}, version 3 of the function logged in" in evidence
