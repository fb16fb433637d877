"""Responses when the app or the service fails, or time runs out; the process always survives."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation
from tests.functions.runtime_driver import (
    Gate,
    answer,
    function,
    http_event,
    json_body,
    prelude_and_body,
    reported_error,
)
from tests.support.aws.rest_api import RestApi

SECRET = "canary-in-the-exception"  # raised by runtime_app; importing it here would start its event loop


@pytest.fixture
async def process() -> AsyncIterator[FunctionProcess]:
    async with function("handler") as running:
        yield running
        assert (await json_body(running, "/echo"))["path"] == "/echo"  # the next event is answered,
        assert running.starts == 1  # by the same process


async def test_failure_before_first_byte_is_an_invocation_error(
    process: FunctionProcess,
) -> None:
    invocation = await answer(process, http_event("/fails-before"))
    assert reported_error(invocation)[0] == "ValueError"
    assert not invocation.is_streamed
    assert invocation.request_headers["lambda-runtime-invocation-id"] == invocation.invocation_id
    assert f"[ERROR] ValueError: {SECRET}" in process.output.text  # awslambdaric's own report


async def test_failure_after_first_byte_is_sent_in_trailers_without_message(
    process: FunctionProcess,
) -> None:
    invocation = await answer(process, http_event("/fails-after"))
    assert prelude_and_body(invocation)[1] == b"begun"
    assert invocation.trailers["lambda-runtime-function-error-type"] == "ValueError"
    assert invocation.error is not None
    assert json.loads(invocation.error.payload) == {
        "errorType": "ValueError",
        "errorMessage": "The app failed after its response had begun. The function's log has the details.",
        "stackTrace": [],
    }
    assert invocation.reply_status == 202  # nothing was posted after it
    assert f"[ERROR] ValueError: {SECRET}" in process.output.text
    assert "in pieces" in process.output.text


async def test_app_error_page_is_sent_whole(process: FunctionProcess) -> None:
    invocation = await answer(process, http_event("/raises"))  # Starlette answers 500, then raises again
    prelude, body = prelude_and_body(invocation)
    assert (prelude["statusCode"], body, invocation.error) == (500, b"Internal Server Error", None)
    assert f"[ERROR] ValueError: {SECRET}" in process.output.text


@pytest.mark.parametrize("front_door", [FunctionUrl, RestApi])
async def test_client_of_failed_app_sees_no_reason(
    process: FunctionProcess, front_door: type[FunctionUrl | RestApi]
) -> None:
    async with front_door(process) as entrance, aiohttp.ClientSession() as client:
        async with client.get(f"{entrance.url}/fails-before") as response:
            assert response.status == 502
            assert SECRET not in await response.text()
        async with client.get(f"{entrance.url}/fails-after") as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


@pytest.mark.parametrize("handler", ["handler", "under_middleware"])
async def test_waiting_app_is_cancelled_when_connection_breaks(handler: str) -> None:
    gate = Gate()
    async with gate.open() as environment, function(handler, environment=environment) as process:
        invocation = await process.invoke(http_event("/tokens"), abort_after=200)
        await gate.connected.acquire()
        gate.release("x" * 300)  # the service disconnects; the app waits for a line that never arrives
        async with asyncio.timeout(10):
            await gate.lost.wait()
            await process.output.wait_for("generator finalised")
            await process.output.wait_for("The response was not taken. The connection to the Lambda service")
        assert invocation.error is not None
        assert invocation.error.error_type == "Runtime.TruncatedResponse"
        assert (await json_body(process, "/no-such"))["detail"] == "Not Found"
        assert process.starts == 1


async def test_app_ignoring_disconnect_runs_to_its_end() -> None:
    async with function("careless_handler") as process:
        await answer(process, http_event("/deaf"), abort_after=3000)
        assert "deaf app done" in process.output.text
        assert "[ERROR]" not in process.output.text
        assert prelude_and_body(await answer(process, http_event("/")))[0]["statusCode"] == 200
        assert process.starts == 1


async def become_stale(invocation: Invocation, _data: bytes) -> None:
    invocation.expire()
    invocation.claimed = True  # the service has continued with another one


async def become_answered(invocation: Invocation, _data: bytes) -> None:
    invocation.claimed = True


@pytest.mark.parametrize("path", ["/never-ends", "/sync", "/fails-after", "/megabytes/9", "/fails-before"])
async def test_stale_response_is_dropped_for_next_event(process: FunctionProcess, path: str) -> None:
    invocation = await answer_refused(process, path, become_stale)
    assert invocation.chunks == []
    if path == "/never-ends":
        assert "The invocation is stale" in process.output.text
        assert "generator finalised" in process.output.text


@pytest.mark.parametrize("path", ["/never-ends", "/sync"])
async def test_response_rejected_by_service_is_dropped(process: FunctionProcess, path: str) -> None:
    await answer_refused(process, path, become_answered)
    assert "The Lambda service refused it" in process.output.text


async def answer_refused(process: FunctionProcess, path: str, hook: object) -> Invocation:
    invocation = await process.invoke(http_event(path), hooks={"after_next_reply": hook})  # type: ignore[dict-item]
    async with asyncio.timeout(10):
        await invocation.completed.wait()
    return invocation


async def test_oversized_response_ends_app() -> None:
    async with function("handler", streaming_limit=2 * 2**20) as process:
        invocation = await answer(process, http_event("/megabytes/1000"))
        assert invocation.error is not None
        assert invocation.error.error_type == "Function.ResponseSizeTooLarge"
        assert "It is larger than Lambda allows" in process.output.text
        assert "megabyte 1000" not in process.output.text
        assert "generator" not in process.output.text
        assert (await json_body(process, "/echo"))["path"] == "/echo"
        assert process.starts == 1


async def test_slow_reader_applies_backpressure_to_app() -> None:
    reads = asyncio.Event()

    async def wait(invocation: Invocation, _data: bytes) -> None:
        await reads.wait()

    async with function("handler", timeout_s=60) as process:
        invocation = await process.invoke(http_event("/megabytes/64"), hooks={"chunk": wait})
        await process.output.wait_for("megabyte 1")
        await asyncio.sleep(1)  # otherwise all of it would be generated by now
        assert process.output.text.count("megabyte") < 20  # the kernel's buffers, 64 KiB of ours, one message
        reads.set()
        async with asyncio.timeout(30):
            await invocation.completed.wait()
        assert prelude_and_body(invocation)[1] == bytes(64 * 2**20)


@pytest.mark.parametrize("path", ["/never-ends", "/never-begins"])
async def test_deadline_ends_app_and_process_survives(path: str) -> None:
    async with function("handler", timeout_s=1.5) as process:
        await process.start()
        invocation = await answer(process, http_event(path))
        assert reported_error(invocation)[0] == "DeadlineExceededError"
        assert invocation.is_streamed == (path == "/never-ends")
        if invocation.is_streamed:
            assert prelude_and_body(invocation)[1] == b"begun"
            assert "generator finalised" in process.output.text
        assert (await json_body(process, "/echo"))["path"] == "/echo"
        assert process.starts == 1


async def test_lifespan_startup_counts_toward_deadline() -> None:
    environment = {"LIFESPAN_S": "1.6"}
    async with function("hides_its_handler", timeout_s=2.5, environment=environment) as process:
        await process.start()
        invocation = await answer(process, http_event("/never-begins"))
        assert reported_error(invocation)[0] == "DeadlineExceededError"
        assert process.starts == 1


async def test_slow_lifespan_startup_continues_in_next_invocation() -> None:
    environment = {"LIFESPAN_S": "2.2"}
    async with function("hides_its_handler", timeout_s=2.0, environment=environment) as process:
        await process.start()
        error_type, message = reported_error(await answer(process, http_event("/no-content")))
        assert (error_type, "lifespan" in message) == ("DeadlineExceededError", True)
        invocation = await answer(process, http_event("/no-content"))
        assert prelude_and_body(invocation)[0]["statusCode"] == 204
        assert process.output.text.count("slow lifespan entered") == 1
        assert process.starts == 1


@pytest.mark.parametrize("path", ["/sync-generator/4", "/ignores-cancellation"])
async def test_uncancellable_app_is_left_running(path: str) -> None:
    async with function("handler", timeout_s=2.0) as process:
        await process.start()
        invocation = await answer(process, http_event(path))
        assert invocation.trailers["lambda-runtime-function-error-type"] == "DeadlineExceededError"
        assert "it is left running" in process.output.text
        for _ in range(2):  # its further output is dropped
            later = await answer(process, http_event("/sync"))
            assert (prelude_and_body(later)[1], later.error) == (b"one two three", None)
        assert process.starts == 1


async def test_stopped_reader_at_deadline_leaves_process_running() -> None:
    async def wait(invocation: Invocation, _data: bytes) -> None:
        await asyncio.sleep(3)

    async with function("handler", timeout_s=1.5) as process:
        await process.start()
        await process.invoke(http_event("/megabytes/64"), hooks={"chunk": wait})
        async with asyncio.timeout(10):
            await process.output.wait_for("its connection is dropped")
            await process.output.wait_for("[ERROR] DeadlineExceededError")
        assert (await json_body(process, "/echo"))["path"] == "/echo"
        assert process.starts == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/split-header", "The response header 'x-name' has a line break or a NUL."),
        ("/long-headers", "The response's headers take more than 16384 bytes."),
        ("/no-body", "The app returned without completing its response."),
        ("/body-first", "Unexpected ASGI message 'http.response.body'."),
    ],
)
async def test_unsendable_response_is_an_invocation_error(path: str, message: str) -> None:
    async with function("careless_handler") as process:
        invocation = await answer(process, http_event(path))
        assert reported_error(invocation) == ("ProtocolError", message)
        assert not invocation.chunks
        assert prelude_and_body(await answer(process, http_event("/")))[0]["statusCode"] == 200


async def test_incomplete_response_fails_in_trailers() -> None:
    async with function("careless_handler") as process:
        invocation = await answer(process, http_event("/half"))
        assert prelude_and_body(invocation)[1] == b"half"
        assert invocation.trailers["lambda-runtime-function-error-type"] == "ProtocolError"


@pytest.mark.parametrize(
    "event",
    [
        {"Records": [{"eventSource": "aws:sqs", "body": "x"}]},
        {"source": "aws.events", "detail": {}},
        {"version": "2.0", "requestContext": {"http": {}}},
        {"requestContext": {"elb": {}}, "httpMethod": "GET"},
        [],
        None,
    ],
)
async def test_non_http_event_raises_unsupported_event_error(process: FunctionProcess, event: object) -> None:
    invocation = await answer(process, event)
    error_type, message = reported_error(invocation)
    assert error_type == "UnsupportedEventError"
    assert message.startswith("The event ")
