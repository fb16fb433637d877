"""``make verify`` calls through the REST API and through a signed function URL. F-005."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import unquote

import httpx2
import pytest
from aiohttp import web

from infra.settings import DEV
from infra.verification.temporary_collection import FACT
from tests.infra.verified_stage import check, reach
from tests.support.aws.aws_signature import is_signed
from tests.support.aws.scripted_aws import ScriptedAws
from tests.support.http.live_api import LiveApi, key_of, live_api, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.local.postgres import EmbeddedPostgres

BOTH = dataclasses.replace(DEV, front_door="both", query=dataclasses.replace(DEV.query, max_concurrency=9))
PIECE_S = 0.2
PIECES = (FACT, " That is so.", " It is green. [Source 1]")


class Pace(asyncio.Semaphore):
    """A gate that lets a piece pass every 0.2 s."""

    async def acquire(self) -> Literal[True]:
        await asyncio.sleep(PIECE_S)
        return True


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[LiveApi]:
    """A served API whose model writes a piece every 0.2 s."""
    settings = settings_for(postgres_server.app_url, [tenant])
    async with live_api(settings, ScriptedLLM(PIECES, gate=Pace()), ScriptedLLM(name="extractive")) as served:
        yield served


@asynccontextmanager
async def front_door(
    api: str,
    tenant: str,
    *,
    signed: bool = True,
    streams: bool = True,
    decodes: bool = False,
    resumes: bool = True,
    stops: bool = True,
) -> AsyncIterator[str]:
    """Serve a front door at which every caller is the tenant.

    Args:
        signed: As a function URL with AWS_IAM: 403 without a valid signature.
        streams: False: responses are buffered.
        decodes: Paths are forwarded decoded.
        resumes: False: ``Last-Event-ID`` is not forwarded.
        stops: False: requests to stop an answer are accepted and dropped.
    """

    async def forward(request: web.Request) -> web.StreamResponse:
        data = await request.read()
        if signed and not is_signed(request, data, secret="testing", service="lambda"):
            return web.json_response({"Message": "Forbidden"}, status=403)
        if not stops and request.path.endswith("/stop"):
            return web.Response(status=202)
        path = unquote(request.rel_url.raw_path_qs) if decodes else request.rel_url.raw_path_qs
        headers = {"x-api-key": key_of(tenant), "content-type": request.content_type}
        if resumes and "last-event-id" in request.headers:
            headers["last-event-id"] = request.headers["last-event-id"]
        async with (
            httpx2.AsyncClient(timeout=30) as client,
            client.stream(request.method, f"{api}{path}", content=data, headers=headers) as answer,
        ):
            kind = {"content-type": answer.headers.get("content-type", "")}
            if not streams:
                return web.Response(status=answer.status_code, body=await answer.aread(), headers=kind)
            response = web.StreamResponse(status=answer.status_code, headers=kind)
            await response.prepare(request)
            async for piece in answer.aiter_bytes():
                await response.write(piece)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def deploy(aws: ScriptedAws, **outputs: str) -> None:
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    aws.client("cloudformation").create_stack(
        StackName="VectorForge-dev-App", TemplateBody=json.dumps(template)
    )


def deploy_rest_api(aws: ScriptedAws, url: str, tenant: str, **outputs: str) -> None:
    deploy(aws, ApiUrl=url, **outputs)
    key = aws.client("apigateway").create_api_key(name=tenant, value=key_of(tenant), enabled=True)
    secret = json.dumps({key["id"]: tenant})
    aws.client("secretsmanager").create_secret(Name="vectorforge-dev/gateway-keys", SecretString=secret)


@pytest.mark.parametrize("streams", [True, False])
async def test_tokens_through_signed_function_url_are_spread_in_time(
    api: LiveApi, tenant: str, aws: ScriptedAws, streams: bool
) -> None:
    async with front_door(api.url, tenant, streams=streams) as url:
        deploy(aws, FunctionUrl=url)
        status, evidence = await check("streamed-by-url", BOTH)
    if streams:
        assert (status, evidence[:14]) == ("passed", "3 tokens over "), evidence
    else:
        assert (status, evidence[:19]) == ("failed", "3 tokens came withi"), evidence


async def test_tokens_through_rest_api_are_spread_in_time(
    api: LiveApi, tenant: str, aws: ScriptedAws
) -> None:
    deploy_rest_api(aws, api.url, tenant)
    status, evidence = await check("streamed")
    assert (status, evidence[:14]) == ("passed", "3 tokens over "), evidence


async def test_credentials_of_no_tenant_do_not_show_streaming(
    api: LiveApi, tenant: str, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    async with front_door(api.url, tenant) as url:
        deploy(aws, FunctionUrl=url)
        status, evidence = await check("streamed-by-url", BOTH)
    assert (status, "iam_tenants" in evidence) == ("skipped", True)
    assert await check("streamed-by-url") == ("skipped", "the stage has no function URL")


@pytest.mark.parametrize("decodes", [False, True])
async def test_slash_of_a_name_must_stay_encoded_in_front_doors(
    api: LiveApi, tenant: str, aws: ScriptedAws, decodes: bool
) -> None:
    async with front_door(api.url, tenant, decodes=decodes) as url:
        deploy(aws, FunctionUrl=url)
        by_url = await check("slash-by-url", BOTH)
    aws.client("cloudformation").delete_stack(StackName="VectorForge-dev-App")
    async with front_door(api.url, tenant, signed=False, decodes=decodes) as url:
        deploy_rest_api(aws, url, tenant)
        assert await check("slash") == by_url
    if decodes:
        assert by_url == ("failed", "GET by the encoded name: 404, not 200")
    else:
        assert by_url == ("passed", "GET by a name with %2F and %20: 200")


@pytest.mark.parametrize("later", [FACT, "No."])
async def test_queries_after_an_abandoned_one_must_be_answered(
    postgres_server: EmbeddedPostgres, tenant: str, aws: ScriptedAws, later: str
) -> None:
    model, extractive = ScriptedLLM(PIECES, gate=Pace()), ScriptedLLM((later,), name="extractive")
    async with live_api(settings_for(postgres_server.app_url, [tenant]), model, extractive) as api:
        deploy_rest_api(aws, api.url, tenant)
        found = await check("abandoned")
    if later == FACT:
        assert found == ("passed", "closed after the first token; 3 queries after it were answered")
    else:
        assert found == ("failed", "the answer of query 1 after it is 'No.'")


@pytest.mark.parametrize(
    ("resumes", "expected"),
    [
        (True, ("passed", 'read to event 3, then from another response to 8: done, "stop"')),
        (False, ("failed", "after event 3 came [1, 2, 3, 4, 5, 6, 7, 8]")),
    ],
)
async def test_resumable_answer_must_continue_after_a_disconnect(
    api: LiveApi, tenant: str, aws: ScriptedAws, resumes: bool, expected: tuple[str, str]
) -> None:
    async with front_door(api.url, tenant, signed=False, resumes=resumes) as url:
        deploy_rest_api(aws, url, tenant)
        assert await check("resumed") == expected


@pytest.mark.parametrize(
    ("stops", "expected"), [(True, ("passed", '"stopped" ')), (False, ("failed", '"stop" '))]
)
async def test_stop_must_end_a_resumable_answer(
    postgres_server: EmbeddedPostgres, tenant: str, aws: ScriptedAws, stops: bool, expected: tuple[str, str]
) -> None:
    model = ScriptedLLM((FACT, *[" It is green."] * 15), gate=Pace())
    async with (
        live_api(settings_for(postgres_server.app_url, [tenant]), model) as api,
        front_door(api.url, tenant, signed=False, stops=stops) as url,
    ):
        deploy_rest_api(aws, url, tenant)
        status, evidence = await check("stopped")
    assert (status, evidence[: len(expected[1])]) == expected, evidence


async def test_answer_that_ends_before_its_stop_shows_nothing(
    api: LiveApi, tenant: str, aws: ScriptedAws
) -> None:
    async with front_door(api.url, tenant, signed=False, streams=False) as url:
        deploy_rest_api(aws, url, tenant)
        status, evidence = await check("stopped")
    assert (status, evidence[-24:]) == ("skipped", "could be stopped: repeat")
