"""The query function maps keys that API Gateway has checked to tenants by a secret. C34."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.fake_aws_faults import AwsFailure, FaultyAws
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Event, Mode, load_event, query_function, response_of
from tests.support.http.live_api import key_of
from vectorforge.local.postgres import EmbeddedPostgres

KEY_ID = "k3yidacm3e"  # in the event
KEY_EVENT = "query_apigateway_rest_api_key"
URL_EVENT = "query_function_url_query"
HEALTH = "query_apigateway_rest_health"
SECRET_ID = "vectorforge-test/gateway-keys"
DENIED = AwsFailure(400, "AccessDeniedException", "User arn:aws:sts::123456789012:canary is not allowed")
AWAY = AwsFailure(503, "ServiceUnavailable", "canary")


@pytest.fixture(scope="module")
def aws() -> Iterator[FaultyAws]:
    with FaultyAws() as server:
        yield server


@pytest.fixture
def account(aws: FaultyAws) -> FaultyAws:
    aws.reset()
    aws.recover()
    return aws


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


def function_of(
    surroundings: QuerySurroundings, aws: FaultyAws, mode: Mode = "stream", **variables: str
) -> FunctionConfiguration:
    """Configure the function with the secret's name, and no front-door key in its environment."""
    secret_settings = {"VECTORFORGE_GATEWAY_KEY_SECRET_ID": SECRET_ID, "VECTORFORGE_SECRET_MAX_AGE_S": "1"}
    return query_function(surroundings, mode, variables={**aws.environment, **secret_settings, **variables})


def query_event() -> Event:
    return load_event(KEY_EVENT, body={"query": "How long does a refund take?"})


async def ask(function: FunctionProcess, event: Event) -> tuple[int, str]:
    status, _, body = await response_of(await function.invoke(event))
    return status, body


async def sources(function: FunctionProcess) -> list[str]:
    """Query as the holder of the key: only one tenant has a document."""
    status, body = await ask(function, query_event())
    assert status == 200, body
    return [passage["source"] for passage in json.loads(body)["context"]]


@pytest.mark.parametrize("mode", ["buffered", "stream"])
async def test_key_in_secret_authenticates_its_tenant(
    surroundings: QuerySurroundings, account: FaultyAws, mode: Mode
) -> None:
    account.put_secret(SECRET_ID, {"k3yidother": "beta", KEY_ID: surroundings.tenant})
    configuration = function_of(surroundings, account, mode, VECTORFORGE_SECRET_MAX_AGE_S="300")
    async with FunctionProcess(configuration) as function:
        for _ in range(3):
            assert await sources(function) == ["refunds.txt"]
        account.put_secret(SECRET_ID, {"k3yidother": "beta"})
        assert await sources(function) == ["refunds.txt"]  # until the map is 300 s old
    assert account.calls == ["GetSecretValue"]


async def test_changed_key_map_is_read_after_max_age(
    surroundings: QuerySurroundings, account: FaultyAws
) -> None:
    account.put_secret(SECRET_ID, {"k3yidother": surroundings.tenant})
    async with FunctionProcess(function_of(surroundings, account)) as function:
        status, body = await ask(function, query_event())
        assert (status, json.loads(body)["code"]) == (401, "unauthenticated")
        account.put_secret(SECRET_ID, {KEY_ID: surroundings.tenant})
        await asyncio.sleep(1.1)
        assert await sources(function) == ["refunds.txt"]
        account.put_secret(SECRET_ID, {})
        await asyncio.sleep(1.1)
        assert (await ask(function, query_event()))[0] == 401
        assert function.starts == 1


UNUSABLE: tuple[dict[str, object] | str, ...] = (
    "canary: no JSON",
    '["canary"]',
    {"ExampleCanaryKeyOfApiGateway": "acme"},
    {KEY_ID: "canary " * 20},
    {KEY_ID: ["canary"]},
    {KEY_ID: "acme", "": "canary"},
)


@pytest.mark.slow
async def test_unusable_secret_rejects_its_keys(surroundings: QuerySurroundings, account: FaultyAws) -> None:
    async with FunctionProcess(function_of(surroundings, account)) as function:
        for content in (None, *UNUSABLE):  # at first there is no secret
            if content is not None:
                account.put_secret(SECRET_ID, content)
                await asyncio.sleep(1.1)
            status, body = await ask(function, query_event())
            problem = json.loads(body)
            assert (status, problem["code"]) == (503, "gateway_keys_unavailable"), (content, body)
            for internal in (SECRET_ID, "canary", "Secret", "arn:", "VECTORFORGE"):
                assert internal not in body
            assert (await ask(function, load_event(HEALTH)))[0] == 200
            good = load_event(URL_EVENT, x_api_key=key_of(surroundings.tenant))
            assert (await ask(function, good))[0] == 200  # a caller through another front door
            account.put_secret(SECRET_ID, {KEY_ID: surroundings.tenant})
            await asyncio.sleep(1.1)
            assert await sources(function) == ["refunds.txt"]
        assert "canary" not in function.output.text
        assert "Failed to read the tenants of API Gateway's keys: " in function.output.text


async def test_outage_retains_last_key_map_and_denial_does_not(
    surroundings: QuerySurroundings, account: FaultyAws
) -> None:
    account.put_secret(SECRET_ID, {KEY_ID: surroundings.tenant})
    async with FunctionProcess(function_of(surroundings, account)) as function:
        assert await sources(function) == ["refunds.txt"]
        account.failure = AWAY
        await asyncio.sleep(1.1)
        began = time.monotonic()
        assert await sources(function) == ["refunds.txt"]
        assert time.monotonic() - began < 5
        account.failure = DENIED
        await asyncio.sleep(1.1)
        status, body = await ask(function, query_event())
        assert (status, json.loads(body)["code"]) == (503, "gateway_keys_unavailable"), body
        assert "canary" not in body + function.output.text


async def test_credential_scopes_apply_to_key_in_secret(
    surroundings: QuerySurroundings, account: FaultyAws
) -> None:
    account.put_secret(SECRET_ID, {KEY_ID: surroundings.tenant})
    scopes = json.dumps({KEY_ID: "read"})
    configuration = function_of(surroundings, account, VECTORFORGE_CREDENTIAL_SCOPES=scopes)
    async with FunctionProcess(configuration) as function:
        assert await sources(function) == ["refunds.txt"]
        making = {**query_event(), "path": "/v1/collections", "body": json.dumps({"name": "new"})}
        status, body = await ask(function, making)
        assert (status, json.loads(body)["code"]) == (403, "insufficient_scope"), body


async def test_scope_for_unknown_key_makes_gateway_keys_unavailable(
    surroundings: QuerySurroundings, account: FaultyAws
) -> None:
    account.put_secret(SECRET_ID, {KEY_ID: surroundings.tenant})
    scopes = json.dumps({"k3yidmisspelt": "read"})
    configuration = function_of(surroundings, account, VECTORFORGE_CREDENTIAL_SCOPES=scopes)
    async with FunctionProcess(configuration) as function:
        status, body = await ask(function, query_event())
        assert (status, json.loads(body)["code"]) == (503, "gateway_keys_unavailable"), body
