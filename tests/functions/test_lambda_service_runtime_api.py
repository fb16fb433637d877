"""The rules of the Runtime API, on raw sockets."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from infra.emulator.lambda_service.invocation import FunctionFailedError, HookPoint, Invocation
from infra.emulator.lambda_service.runtime_api import RuntimeApi
from tests.functions.raw_runtime import RawRuntime

Connect = Callable[[RuntimeApi], Any]


@pytest.fixture
async def api() -> AsyncIterator[RuntimeApi]:
    async with RuntimeApi() as server:
        yield server


@pytest.fixture
async def runtime(api: RuntimeApi) -> AsyncIterator[RawRuntime]:
    async with RawRuntime(api.address) as client:
        yield client


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:
        yield lambda api: stack.enter_async_context(RawRuntime(api.address))


def error_type(body: bytes) -> str:
    return str(json.loads(body)["errorType"])


async def test_an_event_and_its_sized_response(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke(
        {"a": "ü"},
        deadline_s=3,
        trace_id="Root=1-2;Parent=3;Sampled=1",
        client_context='{"client":{}}',
        cognito_identity='{"cognitoIdentityId":"i"}',
        tenant_id="acme",
    )
    headers, event = await runtime.next()
    assert json.loads(event) == {"a": "ü"}
    assert headers["lambda-runtime-aws-request-id"] == invocation.request_id
    assert headers["lambda-runtime-invoked-function-arn"].startswith("arn:aws:lambda:")
    assert headers["lambda-runtime-invocation-id"] == invocation.invocation_id
    assert headers["lambda-runtime-trace-id"] == "root=1-2;parent=3;sampled=1"
    assert headers["lambda-runtime-client-context"] == '{"client":{}}'
    assert headers["lambda-runtime-cognito-identity"] == '{"cognitoidentityid":"i"}'
    assert headers["lambda-runtime-aws-tenant-id"] == "acme"
    remaining_ms = int(headers["lambda-runtime-deadline-ms"]) - time.time() * 1000
    assert 0 < remaining_ms <= 3000
    status, _, _ = await runtime.request(
        "POST",
        f"/invocation/{invocation.request_id}/response",
        b'{"x": 1}',
        {"Content-Type": "application/json", "Lambda-Runtime-Invocation-Id": invocation.invocation_id},
    )
    assert status == 202
    assert await invocation.result() == {"x": 1}
    assert (invocation.reply_status, invocation.is_streamed) == (202, False)
    assert not invocation.completed.is_set()  # the environment is free when it asks for the next event
    api.invoke({})
    await runtime.next()
    assert invocation.completed.is_set()


async def test_chunks_arrive_one_by_one_with_their_trailers(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    await runtime.stream(invocation.request_id)
    pieces = aiter(invocation)
    for sent in (b"one", b"two", b"\0" * 8):
        await runtime.send_chunk(sent)
        assert await anext(pieces) == sent  # while the response is open
    payload = json.dumps({"errorType": "ValueError", "errorMessage": "broken"}).encode()
    status, _, _ = await runtime.end_chunks(
        [
            ("Lambda-Runtime-Function-Error-Type", "ValueError"),
            ("Lambda-Runtime-Function-Error-Body", base64.b64encode(payload).decode()),
        ]
    )
    assert status == 202
    assert [piece async for piece in pieces] == []
    assert invocation.is_streamed
    assert [chunk.data for chunk in invocation.chunks] == [b"one", b"two", b"\0" * 8]
    assert sorted(chunk.at for chunk in invocation.chunks) == [chunk.at for chunk in invocation.chunks]
    assert invocation.request_headers["trailer"].startswith("Lambda-Runtime-Function-Error-Type")
    assert set(invocation.trailers) == {
        "lambda-runtime-function-error-type",
        "lambda-runtime-function-error-body",
    }
    with pytest.raises(FunctionFailedError, match="ValueError: broken"):
        await invocation.result()


async def test_an_error_is_the_answer(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    body = b'{"errorMessage": "no", "errorType": "KeyError"}'
    headers = {"Lambda-Runtime-Function-Error-Type": "KeyError"}
    status, _, _ = await runtime.request("POST", f"/invocation/{invocation.request_id}/error", body, headers)
    assert status == 202
    assert invocation.error is not None
    assert (invocation.error.error_type, invocation.error.payload) == ("KeyError", body)


@pytest.mark.parametrize("kind", ["response", "error"])
async def test_a_second_post_for_an_id_is_refused(
    api: RuntimeApi, runtime: RawRuntime, connect: Connect, kind: str
) -> None:
    invocation = api.invoke({})
    await runtime.next()
    path = f"/invocation/{invocation.request_id}"
    assert (await runtime.request("POST", f"{path}/response", b"1"))[0] == 202
    second = await connect(api)
    status, _, body = await second.request("POST", f"{path}/{kind}", b"2")
    assert (status, error_type(body)) == (403, "InvalidStateTransition")
    assert await invocation.result() == 1


async def test_a_streamed_second_post_is_refused_before_its_body_ends(
    api: RuntimeApi, runtime: RawRuntime
) -> None:
    invocation = api.invoke({})
    await runtime.next()
    await runtime.request("POST", f"/invocation/{invocation.request_id}/response", b"1")
    await runtime.stream(invocation.request_id)
    assert (await runtime.answer())[0] == 403  # nothing of the body is sent yet


async def test_a_stale_invocation_id_is_gone(api: RuntimeApi, runtime: RawRuntime, connect: Connect) -> None:
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


async def test_any_other_response_mode_is_an_error(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    path = f"/invocation/{invocation.request_id}/response"
    headers = {"Lambda-Runtime-Function-Response-Mode": "Streaming"}
    status, _, body = await runtime.request("POST", path, b"1", headers)
    assert (status, error_type(body)) == (400, "InvalidFunctionResponseMode")
    assert invocation.error is not None
    assert invocation.error.error_type == "Runtime.InvalidResponseModeHeader"


@pytest.mark.parametrize("mode", ["buffered", "streaming"])
async def test_a_response_over_the_limit(mode: str, connect: Connect) -> None:
    buffered, streaming = (100, 10**9) if mode == "buffered" else (1, 100)
    async with RuntimeApi(buffered_limit=buffered, streaming_limit=streaming) as api:
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


async def test_the_real_limits() -> None:
    from infra.emulator.lambda_service.runtime_replies import BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES

    assert (BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES) == (6_291_556, 209_715_200)


async def test_unknown_ids_and_paths(api: RuntimeApi, connect: Connect) -> None:
    first, second, third = [await connect(api) for _ in range(3)]
    status, _, body = await first.request("POST", "/invocation/nobody/response", b"1")
    assert (status, error_type(body)) == (400, "InvalidRequestID")
    assert (await second.request("GET", "/elsewhere"))[0] == 404
    assert (await third.request("GET", "/restore/next"))[0] == 404  # no SnapStart here


async def test_next_without_an_answer_is_refused(api: RuntimeApi, runtime: RawRuntime) -> None:
    api.invoke({})
    await runtime.next()
    status, _, body = await runtime.request("GET", "/invocation/next")
    assert (status, error_type(body)) == (403, "InvalidStateTransition")


async def test_a_cut_response_is_truncated(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    await runtime.stream(invocation.request_id)
    await runtime.send_chunk(b"begun")
    runtime.writer.transport.abort()
    await invocation.ended.wait()
    assert invocation.error is not None
    assert (invocation.error.error_type, invocation.body) == ("Runtime.TruncatedResponse", b"begun")


async def test_the_service_can_slam_the_door(api: RuntimeApi, runtime: RawRuntime) -> None:
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


async def test_several_pollers_share_the_events(connect: Connect) -> None:
    async with RuntimeApi(concurrency=3) as api:
        runtimes = [await connect(api) for _ in range(3)]
        polls = [asyncio.create_task(runtime.next()) for runtime in runtimes]
        invocations = [api.invoke(number) for number in range(3)]
        answers = await asyncio.gather(*polls)
        assert sorted(int(body) for _, body in answers) == [0, 1, 2]
        for runtime, (headers, body) in zip(runtimes, answers, strict=True):
            path = f"/invocation/{headers['lambda-runtime-aws-request-id']}/response"
            assert (await runtime.request("POST", path, body))[0] == 202
        assert [await invocation.result() for invocation in invocations] == [0, 1, 2]
        assert all(invocation.completed.is_set() for invocation in invocations)


async def test_an_event_is_not_lost_with_a_poller_that_went_away(api: RuntimeApi, connect: Connect) -> None:
    dead = await connect(api)
    await dead.send_head("GET", "/invocation/next", {})
    await api.ready.wait()
    dead.writer.transport.abort()
    await api.drain(10)  # it noticed
    api.invoke("kept")
    alive = await connect(api)
    assert json.loads((await alive.next())[1]) == "kept"


@pytest.mark.parametrize("steps", range(8))
async def test_no_event_is_lost_while_a_poller_goes_away(
    api: RuntimeApi, connect: Connect, steps: int
) -> None:
    dead = await connect(api)
    await dead.send_head("GET", "/invocation/next", {})
    await api.ready.wait()
    dead.writer.transport.abort()
    for _ in range(steps):
        await asyncio.sleep(0)
    invocation = api.invoke({})
    await api.drain(10)
    assert invocation.dispatched.is_set() or api.withdraw(invocation)


async def test_init_and_restore_errors(connect: Connect) -> None:
    async with RuntimeApi(snap_start=True) as api:
        api.restored.clear()
        runtime, other = await connect(api), await connect(api)
        restore = asyncio.create_task(runtime.request("GET", "/restore/next"))
        await api.restore_polled.wait()
        assert not restore.done()
        api.restored.set()
        assert (await restore)[0] == 200
        for path in ("/restore/error", "/init/error"):
            headers = {"Lambda-Runtime-Function-Error-Type": f"Of{path}"}
            status, _, _ = await other.request("POST", path, b'{"errorMessage": "m"}', headers)
            assert status == 202
            assert api.init_error is not None
            assert (api.init_error.error_type, api.init_error.message) == (f"Of{path}", "m")


async def test_hooks_hold_the_service_at_their_points() -> None:
    seen: list[str] = []

    def recorder(point: HookPoint) -> Any:
        async def record(invocation: Invocation, data: bytes) -> None:
            ended = " ended" if invocation.ended.is_set() else ""
            seen.append(f"{point}{ended}{data.decode()}")
            await asyncio.sleep(0)

        return record

    points: list[HookPoint] = ["before_next_reply", "after_next_reply", "response_opened", "chunk"]
    points += ["before_response_reply", "after_response", "error_reported", "next_polled_again"]
    hooks = {point: recorder(point) for point in points}
    async with RuntimeApi(hooks=hooks) as api, RawRuntime(api.address) as runtime:
        first, second = api.invoke({}), api.invoke({})
        await runtime.next()
        await runtime.stream(first.request_id)
        await runtime.send_chunk(b" 1")
        await runtime.send_chunk(b" 2")
        await runtime.end_chunks()
        await runtime.next()
        await runtime.request("POST", f"/invocation/{second.request_id}/error", b"{}")
        poll = asyncio.create_task(runtime.next())
        await second.completed.wait()
        poll.cancel()
    assert seen == [
        "before_next_reply",
        "after_next_reply",
        "response_opened",
        "chunk 1",
        "chunk 2",
        "before_response_reply ended",
        "after_response ended",
        "next_polled_again ended",
        "before_next_reply",
        "after_next_reply",
        "error_reported ended",
        "next_polled_again ended",
    ]


async def test_a_hook_holds_the_reply(api: RuntimeApi, runtime: RawRuntime) -> None:
    release = asyncio.Event()

    async def hold(invocation: Invocation, data: bytes) -> None:
        await release.wait()

    invocation = api.invoke({}, hooks={"before_response_reply": hold})
    await runtime.next()
    post = asyncio.create_task(runtime.request("POST", f"/invocation/{invocation.request_id}/response", b"1"))
    assert await invocation.result() == 1  # the caller has it
    assert not post.done()
    release.set()
    assert (await post)[0] == 202


async def test_a_large_body_is_announced_first(api: RuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    head = {"Content-Length": "3", "Expect": "100-continue"}
    await runtime.send_head("POST", f"/invocation/{invocation.request_id}/response", head)
    assert (await runtime.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    runtime.writer.write(b"[1]")
    assert (await runtime.answer())[0] == 202


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
async def test_nonsense_is_answered_with_400(runtime: RawRuntime, message: bytes) -> None:
    runtime.writer.write(message)
    assert (await runtime.answer())[0] == 400
    assert await runtime.reader.read() == b""  # and the connection is closed
