"""Events and responses of the Runtime API, on raw sockets."""

import asyncio
import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from infra.emulator.lambda_service.invocation import FunctionFailedError, HookPoint, Invocation
from tests.functions.driven_runtime_api import DrivenRuntimeApi
from tests.functions.raw_runtime import RawRuntime

Connect = Callable[[DrivenRuntimeApi], Any]


async def test_event_and_its_sized_response_carry_all_headers(
    api: DrivenRuntimeApi, runtime: RawRuntime
) -> None:
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
    assert not invocation.completed.is_set()  # the environment is free when it polls for the next event
    api.invoke({})
    await runtime.next()
    assert invocation.completed.is_set()


async def test_chunked_response_arrives_piece_by_piece_with_trailers(
    api: DrivenRuntimeApi, runtime: RawRuntime
) -> None:
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


async def test_reported_error_is_the_answer(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    body = b'{"errorMessage": "no", "errorType": "KeyError"}'
    headers = {"Lambda-Runtime-Function-Error-Type": "KeyError"}
    status, _, _ = await runtime.request("POST", f"/invocation/{invocation.request_id}/error", body, headers)
    assert status == 202
    assert invocation.error is not None
    assert (invocation.error.error_type, invocation.error.payload) == ("KeyError", body)


async def test_concurrent_pollers_share_events(connect: Connect) -> None:
    async with DrivenRuntimeApi(concurrency=3) as api:
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


async def test_event_after_a_poller_went_away_reaches_the_next_one(
    api: DrivenRuntimeApi, connect: Connect
) -> None:
    dead = await connect(api)
    await dead.send_head("GET", "/invocation/next", {})
    await api.ready.wait()
    dead.writer.transport.abort()
    await api.drain(10)  # it noticed
    api.invoke("kept")
    alive = await connect(api)
    assert json.loads((await alive.next())[1]) == "kept"


@pytest.mark.parametrize("steps", range(8))
async def test_event_while_a_poller_goes_away_is_not_lost(
    api: DrivenRuntimeApi, connect: Connect, steps: int
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


async def test_init_and_restore_errors_are_kept(connect: Connect) -> None:
    async with DrivenRuntimeApi(snap_start=True) as api:
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


async def test_hooks_are_called_in_the_order_of_an_invocation() -> None:
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
    async with DrivenRuntimeApi(hooks=hooks) as api, RawRuntime(api.address) as runtime:
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


async def test_hook_before_the_reply_holds_it(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    release = asyncio.Event()

    async def hold(invocation: Invocation, data: bytes) -> None:
        await release.wait()

    invocation = api.invoke({}, hooks={"before_response_reply": hold})
    await runtime.next()
    post = asyncio.create_task(runtime.request("POST", f"/invocation/{invocation.request_id}/response", b"1"))
    assert await invocation.result() == 1  # the caller has received it
    assert not post.done()
    release.set()
    assert (await post)[0] == 202


async def test_expect_continue_is_answered_first(api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
    invocation = api.invoke({})
    await runtime.next()
    head = {"Content-Length": "3", "Expect": "100-continue"}
    await runtime.send_head("POST", f"/invocation/{invocation.request_id}/response", head)
    assert (await runtime.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    runtime.writer.write(b"[1]")
    assert (await runtime.answer())[0] == 202
