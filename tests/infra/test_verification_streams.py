"""``make verify`` streams through the REST API and through a signed function URL. F-005."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

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
    async with live_api(settings, ScriptedLLM(PIECES, gate=Pace())) as served:
        yield served


@asynccontextmanager
async def function_url(api: str, tenant: str, *, streams: bool) -> AsyncIterator[str]:
    """Serve a function URL with AWS_IAM: 403 without a valid signature, else the caller is the tenant."""

    async def forward(request: web.Request) -> web.StreamResponse:
        data = await request.read()
        if not is_signed(request, data, secret="testing", service="lambda"):
            return web.json_response({"Message": "Forbidden"}, status=403)
        headers = {"x-api-key": key_of(tenant), "content-type": request.content_type}
        async with (
            httpx2.AsyncClient(timeout=30) as client,
            client.stream(request.method, f"{api}{request.path_qs}", content=data, headers=headers) as answer,
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


@pytest.mark.parametrize("streams", [True, False])
async def test_tokens_through_signed_function_url_are_spread_in_time(
    api: LiveApi, tenant: str, aws: ScriptedAws, streams: bool
) -> None:
    async with function_url(api.url, tenant, streams=streams) as url:
        deploy(aws, FunctionUrl=url)
        status, evidence = await check("streamed-by-url", BOTH)
    if streams:
        assert (status, evidence[:15]) == ("passed", "3 tokens over 0"), evidence
    else:
        assert (status, evidence[:19]) == ("failed", "3 tokens came withi"), evidence


async def test_tokens_through_rest_api_are_spread_in_time(
    api: LiveApi, tenant: str, aws: ScriptedAws
) -> None:
    deploy(aws, ApiUrl=api.url)
    key = aws.client("apigateway").create_api_key(name=tenant, value=key_of(tenant), enabled=True)
    secret = json.dumps({key["id"]: tenant})
    aws.client("secretsmanager").create_secret(Name="vectorforge-dev/gateway-keys", SecretString=secret)
    status, evidence = await check("streamed")
    assert (status, evidence[:15]) == ("passed", "3 tokens over 0"), evidence


async def test_credentials_of_no_tenant_do_not_show_streaming(
    api: LiveApi, tenant: str, aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    async with function_url(api.url, tenant, streams=True) as url:
        deploy(aws, FunctionUrl=url)
        status, evidence = await check("streamed-by-url", BOTH)
    assert (status, "iam_tenants" in evidence) == ("skipped", True)
    assert await check("streamed-by-url") == ("skipped", "the stage has no function URL")
