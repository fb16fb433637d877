"""Apps stream through front door, Runtime API and streaming runtime."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_configuration import AWSLAMBDARIC_COMMAND
from tests.functions.runtime_driver import Gate, answer, function, http_event, json_body, prelude_and_body
from tests.support.aws.http_api import HttpApi
from tests.support.aws.rest_api import RestApi

TOKENS = [f"token {number}" for number in range(20)]


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


@pytest.mark.parametrize("front_door", [FunctionUrl, RestApi])
@pytest.mark.parametrize("handler", ["handler", "under_middleware"])
async def test_token_is_received_before_the_next_exists(
    client: aiohttp.ClientSession, front_door: type[FunctionUrl | RestApi], handler: str
) -> None:  # F-001, F-002, C02
    gate = Gate()
    async with gate.open() as environment, function(handler, environment=environment) as process:
        await process.start()
        async with front_door(process) as entrance, asyncio.timeout(20):
            held = await in_lock_step(client, entrance, gate)
    assert held == TOKENS


async def in_lock_step(client: aiohttp.ClientSession, entrance: FrontDoor, gate: Gate) -> list[str]:
    """Release each token only when the client has received the previous one."""

    async def provide() -> None:
        await gate.connected.acquire()
        gate.release(TOKENS[0])

    first = asyncio.create_task(provide())
    held: list[str] = []
    try:
        async with client.get(f"{entrance.url}/tokens") as response:
            assert response.status == 200
            while len(held) < len(TOKENS):
                held.append((await response.content.readline()).decode().strip())
                gate.release(TOKENS[len(held)]) if len(held) < len(TOKENS) else gate.end()
            assert await response.content.read() == b""
    finally:
        await first
    return held


async def test_mangum_app_never_sends_second_token(client: aiohttp.ClientSession) -> None:
    # The negative control: the lock-step test can fail.
    gate = Gate()
    async with (
        gate.open() as environment,
        function("buffered", command=AWSLAMBDARIC_COMMAND, environment=environment) as process,
    ):
        await process.start()
        async with FunctionUrl(process, response_mode="buffered") as entrance:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await in_lock_step(client, entrance, gate)
        gate.end()


async def test_streamed_post_matches_runtime_api() -> None:
    async with function("handler") as process:
        invocation = await answer(process, http_event("/sync"))
        sent = invocation.request_headers
        assert sent["lambda-runtime-function-response-mode"] == "streaming"
        assert sent["content-type"] == "application/vnd.awslambda.http-integration-response"
        assert sent["transfer-encoding"] == "chunked"
        assert sent["trailer"] == "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body"
        assert sent["lambda-runtime-invocation-id"] == invocation.invocation_id
        assert (invocation.reply_status, invocation.error, invocation.trailers) == (202, None, {})
        prelude, body = prelude_and_body(invocation)
        assert prelude == {
            "statusCode": 200,
            "headers": {"content-type": "text/plain; charset=utf-8"},
        }
        assert body == b"one two three"


@pytest.mark.parametrize("front_door", [FunctionUrl, RestApi])
async def test_requests_and_responses_are_passed_whole(
    client: aiohttp.ClientSession, front_door: type[FunctionUrl | RestApi]
) -> None:  # F-001
    async with function("handler") as process, front_door(process) as entrance:
        root_path = "/prod" if front_door is RestApi else ""  # the stage in the URL
        cookies = {"Cookie": "a=1; b=2"}
        async with client.post(f"{entrance.url}/echo?x=1&x=2", data="größe", headers=cookies) as response:
            echoed = await response.json()
        assert (echoed["method"], echoed["query"]) == ("POST", "x=1&x=2")
        assert (echoed["path"], echoed["root_path"]) == (f"{root_path}/echo", root_path)
        assert (echoed["body"], echoed["cookies"]) == ("größe", {"a": "1", "b": "2"})
        assert echoed["spec_version"] == "2.3"
        async with client.get(f"{entrance.url}/headers") as response:
            assert ", ".join(response.headers.getall("x-several")) == "a, b"
            assert response.headers.getall("set-cookie") == ["c=1", "d=2"]
        async with client.head(f"{entrance.url}/echo") as response:
            assert (response.status, await response.read()) == (200, b"")
        async with client.get(f"{entrance.url}/no-content") as response:
            assert (response.status, await response.read()) == (204, b"")
        async with client.get(f"{entrance.url}/megabytes/3") as response:
            assert await response.read() == bytes(3 * 2**20)
        assert process.starts == 1


async def test_head_request_and_empty_response_have_prelude_without_body() -> None:
    async with function("handler") as process:
        head = prelude_and_body(await answer(process, http_event("/echo", method="HEAD")))
        empty = prelude_and_body(await answer(process, http_event("/no-content")))
    assert (head[0]["statusCode"], head[1]) == (200, b"")
    assert (empty[0]["statusCode"], empty[1]) == (204, b"")


async def test_context_and_trace_are_passed_to_app() -> None:  # F-005
    async with function("handler", timeout_s=9) as process:
        context = json.dumps({"custom": {"who": "caller"}})
        invocation = await answer(process, http_event("/echo"), client_context=context)
        seen = json.loads(prelude_and_body(invocation)[1])
    assert (seen["request_id"], seen["trace_id"]) == (invocation.request_id, invocation.trace_id)
    assert (seen["event_version"], seen["client_context"]) == ("2.0", {"who": "caller"})
    assert 0 < seen["remaining_ms"] <= 9000


async def test_http_api_events_are_read_in_both_formats(client: aiohttp.ClientSession) -> None:
    # An HTTP API cannot stream: behind one the app is served by Mangum, under the same command.
    async with function("under_base_path") as process:
        event = http_event("/shop/echo")
        event["requestContext"]["stage"] = "shop"
        seen = json.loads(prelude_and_body(await answer(process, event))[1])
        assert (seen["path"], seen["root_path"]) == ("/shop/echo", "/shop")
        format_1 = {
            "version": "1.0",
            "resource": "/{proxy+}",
            "path": "/shop/echo",
            "httpMethod": "GET",
            "headers": {"Host": "api.example.com"},
            "multiValueHeaders": {"Host": ["api.example.com"]},
            "queryStringParameters": None,
            "multiValueQueryStringParameters": None,
            "requestContext": {"identity": {"sourceIp": "198.51.100.7"}},
            "body": None,
            "isBase64Encoded": False,
        }
        seen = json.loads(prelude_and_body(await answer(process, format_1))[1])
        assert (seen["path"], seen["root_path"]) == ("/shop/echo", "/shop")
        assert seen["event_version"] == "1.0"
    async with (
        function("buffered") as process,
        HttpApi(process) as entrance,
        client.get(f"{entrance.url}/sync") as response,
    ):
        assert await response.text() == "one two three"


async def test_invocations_share_one_loop_and_lifespan() -> None:
    async with function("handler") as process:
        for _ in range(3):
            assert (await json_body(process, "/echo"))["same_loop"] is True
        assert process.output.text.count("lifespan entered, can stream: True") == 1
        assert "lifespan left" not in process.output.text
