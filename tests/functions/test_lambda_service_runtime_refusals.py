"""Requests that the Runtime API rejects, and responses that fail, on raw sockets."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.functions.driven_runtime_api import DrivenRuntimeApi
from tests.functions.raw_runtime import RawRuntime

Connect = Callable[[DrivenRuntimeApi], Any]


def error_type(body: bytes) -> str:
    return str(json.loads(body)["errorType"])


@pytest.mark.parametrize("kind", ["response", "error"])
async def test_second_post_for_an_id_is_refused(
    api: DrivenRuntimeApi, runtime: RawRuntime, connect: Connect, kind: str
) -> None:
    invocation = api.invoke({})
    await runtime.next()
    path = f"/invocation/{invocation.request_id}"
    assert (await runtime.request("POST", f"{path}/response", b"1"))[0] == 202
    second = await connect(api)
    status, _, body = await second.request("POST", f"{path}/{kind}", b"2")
    assert (status, error_type(body)) == (403, "InvalidStateTransition")
    assert await invocation.result() == 1


async def test_streamed_second_post_is_refused_before_its_body_ends(
    api: DrivenRuntimeApi, runtime: RawRuntime
) -> None:
    invocation = api.invoke({})
    await runtime.next()
    await runtime.request("POST", f"/invocation/{invocation.request_id}/response", b"1")
    await runtime.stream(invocation.request_id)
    assert (await runtime.answer())[0] == 403  # nothing of the body is sent yet


async def test_stale_invocation_id_is_gone(
    api: DrivenRuntimeApi, runtime: RawRuntime, connect: Connect
) -> None:
    invocation = api.invoke({})
    old = (await runtime.next())[0]["lambda-runtime-invocation-id"]
    invocation.expire()
    await runtime.stream(invocation.request_id, {"Lambda-Runtime-Invocation-Id": old})
    status, _, body = await runtime.answer()
    assert (status, error_type(body)) == (410, "InvocationIdExpired")
    other = await connect(api)
    path = f"/invocation/{invocation.request_id}/response"
    current = {"Lambda-Runtime-Invocation-Id": invocation.invocation_id}
    assert (await other.request("POST", path, b"3", current))[0] == 202
    assert await invocation.result() == 3


async def test_unknown_response_mode_is_an_error(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    path = f"/invocation/{invocation.request_id}/response"
    headers = {"Lambda-Runtime-Function-Response-Mode": "Streaming"}
    status, _, body = await runtime.request("POST", path, b"1", headers)
    assert (status, error_type(body)) == (400, "InvalidFunctionResponseMode")
    assert invocation.error is not None
    assert invocation.error.error_type == "Runtime.InvalidResponseModeHeader"


@pytest.mark.parametrize("mode", ["buffered", "streaming"])
async def test_response_over_the_limit_is_413(mode: str, connect: Connect) -> None:
    buffered, streaming = (100, 10**9) if mode == "buffered" else (1, 100)
    async with DrivenRuntimeApi(buffered_limit=buffered, streaming_limit=streaming) as api:
        fits, too_large = api.invoke({}), api.invoke({})
        runtime = await connect(api)
        for invocation, size, expected in ((fits, 100, 202), (too_large, 101, 413)):
            await runtime.next()
            path = f"/invocation/{invocation.request_id}/response"
            if mode == "buffered":
                status, _, body = await runtime.request("POST", path, b"x" * size)
            else:
                await runtime.stream(invocation.request_id)
                await runtime.send_chunk(b"x" * 60)
                await runtime.send_chunk(b"x" * (size - 60))
                status, _, body = await (runtime.answer() if size > 100 else runtime.end_chunks())
            assert status == expected
        assert error_type(body) == "RequestEntityTooLarge"
        assert (fits.body, fits.error) == (b"x" * 100, None)
        assert too_large.error is not None
        assert too_large.error.error_type == "Function.ResponseSizeTooLarge"
        assert len(too_large.body) <= 100


async def test_default_limits_are_those_of_aws() -> None:
    from infra.emulator.lambda_service.runtime_replies import BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES

    assert (BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES) == (6_291_556, 209_715_200)


async def test_unknown_ids_and_paths_are_refused(api: DrivenRuntimeApi, connect: Connect) -> None:
    first, second, third = [await connect(api) for _ in range(3)]
    status, _, body = await first.request("POST", "/invocation/nobody/response", b"1")
    assert (status, error_type(body)) == (400, "InvalidRequestID")
    assert (await second.request("GET", "/elsewhere"))[0] == 404
    assert (await third.request("GET", "/restore/next"))[0] == 404  # no SnapStart here


async def test_next_before_response_is_rejected(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    api.invoke({})
    await runtime.next()
    status, _, body = await runtime.request("GET", "/invocation/next")
    assert (status, error_type(body)) == (403, "InvalidStateTransition")


async def test_cut_response_is_truncated(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    await runtime.stream(invocation.request_id)
    await runtime.send_chunk(b"begun")
    runtime.writer.transport.abort()
    await invocation.ended.wait()
    assert invocation.error is not None
    assert (invocation.error.error_type, invocation.body) == ("Runtime.TruncatedResponse", b"begun")


async def test_abort_after_cuts_the_connection_of_the_runtime(
    api: DrivenRuntimeApi, runtime: RawRuntime
) -> None:
    invocation = api.invoke({}, abort_after=6)
    await runtime.next()
    await runtime.stream(invocation.request_id)
    await runtime.send_chunk(b"123")
    assert not invocation.ended.is_set()
    await runtime.send_chunk(b"456")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await runtime.answer()
    assert invocation.body == b"123456"
    assert invocation.error is not None


@pytest.mark.parametrize(
    "message",
    [
        b"what is this\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /2018-06-01/runtime/init/error HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /2018-06-01/runtime/init/error HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /2018-06-01/runtime/init/error HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    ],
)
async def test_malformed_request_is_answered_with_400(runtime: RawRuntime, message: bytes) -> None:
    runtime.writer.write(message)
    assert (await runtime.answer())[0] == 400
    assert await runtime.reader.read() == b""  # and the connection is closed
