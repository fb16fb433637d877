"""The query function trusts the caller's identity from its front door, never from the client."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.http_api import HttpApi
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Mode, load_event, query_function, response_of
from tests.support.aws.rest_api import RestApi
from tests.support.http.live_api import key_of, live_api, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

KEY_ID = "k3yidacm3e"
ROLE = "arn:aws:iam::123456789012:role/acme-reader"
SESSION = "arn:aws:sts::123456789012:assumed-role/acme-reader/laptop-of-ada"
KEY_EVENT = "query_apigateway_rest_api_key"
EVENTS = [KEY_EVENT, "query_apigateway_rest_iam", "query_function_url_iam"]

IAM = {"iam": {"userArn": SESSION, "callerId": "AROAIOSFODNN7EXAMPLE:laptop-of-ada"}}
CONTEXT = json.dumps({"identity": {"apiKeyId": KEY_ID, "userArn": SESSION}, "authorizer": IAM})
FORGED = {
    "x-amzn-request-context": CONTEXT,  # set by the Lambda Web Adapter
    "requestcontext": CONTEXT,
    "aws.event": json.dumps({"version": "2.0", "requestContext": json.loads(CONTEXT)}),
    "x-amzn-apigateway-api-key-id": KEY_ID,
    "x-api-key-id": KEY_ID,
    "apikeyid": KEY_ID,
    "x-amz-user-arn": SESSION,
    "userarn": SESSION,
    "x-api-key": KEY_ID,
    "cookie": f"requestContext={KEY_ID}",
}


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


def assigned(surroundings: QuerySurroundings) -> dict[str, str]:
    """Return settings that map the front doors' callers to the tenant, which has no key of ours."""
    return {
        "VECTORFORGE_API_KEYS": "{}",
        "VECTORFORGE_API_GATEWAY_KEYS": json.dumps({KEY_ID: surroundings.tenant}),
        "VECTORFORGE_IAM_TENANTS": json.dumps({ROLE: surroundings.tenant}),
    }


@pytest.mark.parametrize("mode", ["buffered", "stream"])
async def test_callers_checked_by_front_door_resolve_to_their_tenant(
    surroundings: QuerySurroundings, mode: Mode
) -> None:
    function = query_function(surroundings, mode, variables=assigned(surroundings))
    async with FunctionProcess(function) as process:
        for name in EVENTS:
            event = load_event(name, body={"query": "How long does a refund take?"})
            status, _, body = await response_of(await process.invoke(event))
            assert status == 200, (name, body)
            [passage] = json.loads(body)["context"]  # owned by this tenant only
            assert passage["source"] == "refunds.txt"
            for credential in ("Bearer wrong", "Bearer "):
                event = load_event(name, authorization=credential)
                status, _, body = await response_of(await process.invoke(event))
                if name == KEY_EVENT:  # it may be the key checked by API Gateway
                    assert status == 200, body
                else:
                    assert (status, json.loads(body)["code"]) == (401, "unauthenticated"), name


async def refused(client: httpx2.AsyncClient, url: str) -> None:
    """Check that every forgery is rejected, all together and each alone."""
    forgeries: list[dict[str, str]] = [FORGED, *({name: value} for name, value in FORGED.items())]
    for headers in forgeries:
        body: dict[str, Any] = {"query": "?", "requestContext": json.loads(CONTEXT), "version": "2.0"}
        query = {"requestContext": CONTEXT, "apiKeyId": KEY_ID, "version": "2.0"}
        response = await client.post(f"{url}/v1/rag/query", params=query, json=body, headers=headers)
        assert (response.status_code, response.json()["code"]) == (401, "unauthenticated"), headers


async def test_forged_identity_headers_are_rejected_at_front_doors(surroundings: QuerySurroundings) -> None:
    function = query_function(surroundings, "buffered", variables=assigned(surroundings))
    async with FunctionProcess(function) as process, httpx2.AsyncClient(timeout=30) as client:
        doors: list[FrontDoor] = [
            FunctionUrl(process, response_mode="buffered"),
            RestApi(process, response_mode="buffered"),
            HttpApi(process),
        ]
        for door in doors:
            async with door:
                await refused(client, door.url)


SECOND_CREDENTIAL = [("authorization", "wrong"), ("authorization", "Bearer other"), ("x-api-key", "other")]


@pytest.mark.parametrize(("name", "value"), SECOND_CREDENTIAL)
@pytest.mark.parametrize("first", [True, False])
async def test_second_credential_header_is_rejected(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], name: str, value: str, first: bool
) -> None:
    """Two readers of such a request may read different ones."""
    tenant = make_tenant()
    good = (name, key_of(tenant) if name == "x-api-key" else f"Bearer {key_of(tenant)}")
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(None) as client:
        assert (await client.get("/v1/collections", headers=[good])).status_code == 200
        both = [(name, value), good] if first else [good, (name, value)]
        response = await client.get("/v1/collections", headers=both)
        assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
        assert name in response.json()["detail"].lower()
        assert "one" in response.json()["detail"]
        assert key_of(tenant) not in response.text


async def test_joined_authorization_headers_are_rejected_behind_front_door(
    surroundings: QuerySurroundings,
) -> None:
    """Front doors of AWS join repeated headers, or list them separately."""
    good = f"Bearer {key_of(surroundings.tenant)}"
    function = query_function(surroundings, "buffered")
    async with FunctionProcess(function) as process:
        for name in ("query_function_url_query", "query_apigateway_rest_query"):
            for second in ("Bearer other", "Basic eA=="):
                event = load_event(name, x_api_key="", authorization=f"{good}, {second}")
                if "multiValueHeaders" in event:
                    event["multiValueHeaders"]["authorization"] = [good, second]
                status, _, body = await response_of(await process.invoke(event))
                assert (status, json.loads(body)["code"]) == (401, "unauthenticated"), body
                assert "more than one" in json.loads(body)["detail"]
            event = load_event(name, x_api_key="", authorization=good)
            assert (await response_of(await process.invoke(event)))[0] == 200


async def test_forged_identity_headers_are_rejected_without_front_door(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    assigned = {"api_gateway_keys": {KEY_ID: tenant}, "iam_tenants": {ROLE: tenant}}
    config = settings_for(postgres_server.app_url, server=assigned)
    async with live_api(config) as api, httpx2.AsyncClient(timeout=30) as client:
        await refused(client, api.url)
