"""Streamed answers through a function URL and a REST API."""

import asyncio
import json

import httpx2
import pytest

from infra.emulator.lambda_service.front_doors import FunctionUrl
from tests.functions.driven_runtime_api import DrivenRuntimeApi
from tests.functions.raw_runtime import RawRuntime
from tests.functions.scripted_function import ScriptedFunction
from tests.support.aws.rest_api import RestApi

STREAMING = [FunctionUrl, RestApi]


@pytest.mark.parametrize("make", STREAMING)
async def test_streamed_answer_passes_in_lock_step(
    make: type[FunctionUrl | RestApi], scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    runtime = scripted.runtime
    async with make(scripted) as front_door:
        request = asyncio.create_task(client.send(client.build_request("GET", front_door.url), stream=True))
        request_id, _ = await scripted.next()
        await runtime.stream(request_id)
        prelude = {
            "statusCode": 418,
            "headers": {"content-type": "text/plain", "content-length": "3"},
            "cookies": ["a=1", "b=2"],
        }
        await runtime.send_chunk(json.dumps(prelude).encode() + b"\0" * 5)
        await runtime.send_chunk(b"\0" * 3)
        response = await request  # before there is a body
        assert (response.status_code, response.headers["content-type"]) == (418, "text/plain")
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
        pieces = response.aiter_raw()
        for number in range(20):
            await runtime.send_chunk(b"token %d" % number)
            assert await anext(pieces) == b"token %d" % number
        await runtime.end_chunks()
        assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("make", STREAMING)
@pytest.mark.parametrize("ending", ["trailers", "truncated", "limit"])
async def test_failure_after_the_first_byte_cuts_the_connection(
    make: type[FunctionUrl | RestApi], ending: str, client: httpx2.AsyncClient
) -> None:
    async with DrivenRuntimeApi(streaming_limit=100) as api, RawRuntime(api.address) as runtime:
        scripted = ScriptedFunction(api, runtime)
        async with make(scripted) as front_door:
            request = asyncio.create_task(
                client.send(client.build_request("GET", front_door.url), stream=True)
            )
            request_id, _ = await scripted.next()
            await runtime.stream(request_id)
            await runtime.send_chunk(b'{"statusCode": 200}' + b"\0" * 8 + b"begun")
            pieces = (await request).aiter_raw()
            assert await anext(pieces) == b"begun"
            if ending == "trailers":
                await runtime.end_chunks([("Lambda-Runtime-Function-Error-Type", "ValueError")])
            elif ending == "limit":
                await runtime.send_chunk(b"x" * 100)
            else:
                runtime.writer.transport.abort()
            with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                await anext(pieces)


@pytest.mark.parametrize("make", STREAMING)
@pytest.mark.parametrize("problem", ["error", "prelude", "endless", "short"])
async def test_failure_before_the_prelude_is_502(
    make: type[FunctionUrl | RestApi],
    problem: str,
    scripted: ScriptedFunction,
    client: httpx2.AsyncClient,
) -> None:
    runtime = scripted.runtime
    async with make(scripted) as front_door:
        request = asyncio.create_task(client.get(front_door.url))
        request_id, _ = await scripted.next()
        if problem == "error":
            await runtime.request("POST", f"/invocation/{request_id}/error", b'{"errorType": "E"}')
        else:
            await runtime.stream(request_id)
            begin = {"prelude": b"no json" + b"\0" * 8, "endless": b"x" * 17_000, "short": b'{"statusCode'}
            await runtime.send_chunk(begin[problem])
            await runtime.end_chunks()
        assert (await request).status_code == 502


async def test_function_url_answer_without_the_content_type_is_opaque(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:
    async with FunctionUrl(scripted) as front_door:
        request = asyncio.create_task(client.get(front_door.url))
        await scripted.answer({"statusCode": 404})
        response = await request
        assert (response.status_code, response.json()) == (200, {"statusCode": 404})
        assert response.headers["content-type"] == "application/octet-stream"


async def test_client_disconnect_does_not_stop_the_function(
    scripted: ScriptedFunction, client: httpx2.AsyncClient
) -> None:  # faults 15
    runtime = scripted.runtime
    async with FunctionUrl(scripted) as front_door:
        request = asyncio.create_task(client.send(client.build_request("GET", front_door.url), stream=True))
        request_id, _ = await scripted.next()
        await runtime.stream(request_id)
        await runtime.send_chunk(b'{"statusCode": 200}' + b"\0" * 8 + b"begun")
        await (await request).aclose()
        for _ in range(50):
            await runtime.send_chunk(b"x" * 10_000)
        assert (await runtime.end_chunks())[0] == 202
        (invocation,) = scripted.invocations
        assert invocation.error is None
        assert len(invocation.body) > 500_000


@pytest.mark.parametrize("head", ["HEAD / HTTP/1.1", "GET / HTTP/1.1"])
async def test_stream_without_a_body_keeps_the_connection(scripted: ScriptedFunction, head: str) -> None:
    runtime = scripted.runtime
    status = 200 if head.startswith("HEAD") else 204
    async with FunctionUrl(scripted) as front_door:
        host, port = front_door.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(2):
            writer.write(f"{head}\r\nHost: x\r\n\r\n".encode())
            request_id, _ = await scripted.next()
            await runtime.stream(request_id)
            await runtime.send_chunk(json.dumps({"statusCode": status}).encode() + b"\0" * 8 + b"dropped")
            await runtime.end_chunks()
            received = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert received.startswith(f"HTTP/1.1 {status} ")
            assert "transfer-encoding" not in received
        writer.close()
