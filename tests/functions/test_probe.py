"""The probe against the query function in its process, and what it reports to CodeDeploy. A-013."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from functions.probe.handler import COLLECTION, ProbeFailedError, handler
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from tests.support.aws.lambda_context import LambdaContext
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import load_event, query_function
from tests.support.http.live_api import build_application, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

VERSION = "arn:aws:lambda:eu-central-1:123456789012:function:vectorforge-prod-query:7"
ALIAS = VERSION.removesuffix("7") + "live"
HOOK = {"DeploymentId": "d-ABC123", "LifecycleEventHookExecutionId": "eyJleGVjdXRpb24"}
OUTCOME = {"deploymentId": "d-ABC123", "lifecycleEventHookExecutionId": "eyJleGVjdXRpb24"}


@dataclass
class AwsApis:
    """Invoke of Lambda, and CodeDeploy's receipt of outcomes: the HTTP of both services."""

    function: LambdaFunction
    invoked: list[str] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    async def invoke(self, request: web.Request) -> web.Response:
        self.invoked.append(request.match_info["function"])
        invocation = await self.function.invoke(json.loads(await request.read()))
        await invocation.ended.wait()
        if invocation.error is not None:
            failed = {"X-Amz-Function-Error": "Unhandled"}
            return web.Response(body=invocation.error.payload, headers=failed)
        return web.Response(body=invocation.body)

    async def report(self, request: web.Request) -> web.Response:
        target = request.headers["X-Amz-Target"]
        assert target == "CodeDeploy_20141006.PutLifecycleEventHookExecutionStatus"
        outcome = json.loads(await request.read())
        self.outcomes.append(outcome)
        text = json.dumps({"lifecycleEventHookExecutionId": outcome["lifecycleEventHookExecutionId"]})
        return web.Response(text=text, content_type="application/x-amz-json-1.1")


@asynccontextmanager
async def serving(apis: AwsApis) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/2015-03-31/functions/{function}/invocations", apis.invoke)
    app.router.add_post("/", apis.report)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant(), fill=False) as started:
        yield started


@pytest.fixture
async def apis(surroundings: QuerySurroundings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AwsApis]:
    keys = json.dumps({"probe": surroundings.tenant})
    configuration = query_function(
        surroundings,
        "stream",
        variables={"VECTORFORGE_API_GATEWAY_KEYS": keys},
        without=["VECTORFORGE_OPENAI_API_KEY"],
    )
    async with LambdaFunction(configuration) as function:
        started = AwsApis(function)
        async with serving(started) as url:
            for name, value in {
                "AWS_ENDPOINT_URL": url,
                "AWS_REGION": "eu-central-1",
                "AWS_DEFAULT_REGION": "eu-central-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "PROBE_KEY_ID": "probe",
                "PROBED_VERSION": VERSION,
            }.items():
                monkeypatch.setenv(name, value)
            yield started


@asynccontextmanager
async def ingesting(surroundings: QuerySurroundings) -> AsyncIterator[None]:
    """Invoke the ingest function's scheduled event again and again."""
    environment = surroundings.environment()
    ingest = surroundings.function(environment, handler="functions.ingest.handler.handler", name="ingest")

    async def run(function: LambdaFunction) -> None:
        while True:
            await (await function.invoke(load_event("ingest_scheduled"))).result()
            await asyncio.sleep(0.2)

    async with LambdaFunction(ingest) as function:
        task = asyncio.create_task(run(function))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def probe(event: dict[str, str], *, remaining_ms: int = 60_000) -> dict[str, str]:
    return await asyncio.to_thread(handler, event, LambdaContext(remaining_ms=remaining_ms))


async def test_first_probe_creates_document_and_later_ones_find_it(
    apis: AwsApis, surroundings: QuerySurroundings
) -> None:
    async with ingesting(surroundings):
        assert await probe({"function": ALIAS}) == {"status": "Succeeded"}
    calls = len(apis.invoked)
    assert await probe({"function": ALIAS}) == {"status": "Succeeded"}
    assert len(apis.invoked) == calls + 2  # health, query
    assert set(apis.invoked) == {ALIAS}
    async with build_application(settings_for(surroundings.app_url)) as application:
        tenant = application.for_tenant(surroundings.tenant)
        collection = await tenant.find_collection(COLLECTION)
        [document] = (await tenant.documents.list(collection.id, limit=5, offset=0))[0]
    assert document.source == "probe.txt"


async def test_new_version_that_answers_is_reported_as_succeeded(
    apis: AwsApis, surroundings: QuerySurroundings
) -> None:
    async with ingesting(surroundings):
        await probe(HOOK)
    assert apis.outcomes == [{**OUTCOME, "status": "Succeeded"}]
    assert set(apis.invoked) == {VERSION}


async def test_new_version_that_does_not_start_is_reported_as_failed(
    apis: AwsApis, surroundings: QuerySurroundings, caplog: pytest.LogCaptureFixture
) -> None:
    broken = query_function(surroundings, "stream", variables={"VECTORFORGE_MAX_TOP_K": "none"})
    async with LambdaFunction(broken) as apis.function:
        assert await probe(HOOK) == {"status": "Failed"}
    assert apis.outcomes == [{**OUTCOME, "status": "Failed"}]
    assert "GET /health" in caplog.text


async def test_probe_fails_when_document_is_never_quoted(apis: AwsApis) -> None:
    with pytest.raises(ProbeFailedError, match="does not quote the document"):
        await probe({"function": ALIAS}, remaining_ms=15_000)  # nothing ingests


async def test_probe_fails_when_embedder_is_down(apis: AwsApis, surroundings: QuerySurroundings) -> None:
    async with ingesting(surroundings):
        await probe({"function": ALIAS})
    await surroundings.embeddings.__aexit__(None, None, None)
    with pytest.raises(ProbeFailedError, match=r"health\?deep=1 reports degraded: embedding"):
        await probe({"function": ALIAS})


async def test_probe_without_its_key_id_is_rejected(apis: AwsApis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY_ID", "other")
    with pytest.raises(ProbeFailedError, match="GET /health: 401"):
        await probe({"function": ALIAS})
