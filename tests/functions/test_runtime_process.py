"""A function's process under the streaming runtime: init, snapshot, handlers, concurrency."""

import asyncio
import json
import socket
from typing import Any

import pytest

from infra.emulator.lambda_service.function_configuration import AWSLAMBDARIC_COMMAND, RUNTIME_COMMAND
from infra.emulator.lambda_service.invocation import FunctionFailedError
from tests.functions.runtime_driver import (
    Gate,
    answer,
    function,
    http_event,
    prelude_and_body,
    reported_error,
)


@pytest.mark.parametrize(
    ("handler", "environment", "error_type", "message"),
    [
        ("started", {"FAIL_STARTUP": "1"}, "AttributeError", "nothing of that name"),
        ("failing_startup", {}, "LifespanError", "The app's lifespan did not start; its log says why."),
        ("careless_handler_with_lifespan", {}, "LifespanError", "The app's lifespan did not start;"),
        ("missing", {}, "Runtime.HandlerNotFound", "Handler 'missing' missing on module"),
        ("nowhere.handler", {}, "Runtime.ImportModuleError", "Unable to import module"),
    ],
)
async def test_startup_failure_is_an_init_error(
    handler: str, environment: dict[str, str], error_type: str, message: str
) -> None:
    async with function(handler, environment=environment) as process:
        with pytest.raises(FunctionFailedError) as failure:
            await process.start()
        assert failure.value.error.error_type == error_type
        assert message in failure.value.error.message
        assert await process.environment.exit == 1
        assert f"[ERROR] {error_type}: " in process.output.text


async def test_app_without_lifespan_is_served() -> None:
    async with function("careless_handler") as process:
        assert prelude_and_body(await answer(process, http_event("/")))[1] == b"end"
        await process.stop()
    assert "Traceback" not in process.output.text


async def test_snapstart_hooks_run_around_snapshot_on_app_loop() -> None:
    async with function("handler", snap_start=True) as process:
        await process.start()
        assert process.runtime_api.restore_polled.is_set()
        invocation = await answer(process, http_event("/echo"))
        assert json.loads(prelude_and_body(invocation)[1])["same_loop"] is True
        assert list(process.output.lines)[:3] == [
            "lifespan entered, can stream: True",
            "before snapshot",
            "after restore: True",
        ]


async def test_failing_restore_hook_is_reported_to_service() -> None:
    async with function("handler", snap_start=True, environment={"FAIL_RESTORE": "1"}) as process:
        with pytest.raises(FunctionFailedError) as failure:
            await process.start()
        assert failure.value.error.error_type == "Runtime.AfterRestoreError"
        assert await process.environment.exit == 65


@pytest.mark.parametrize("command", [RUNTIME_COMMAND, AWSLAMBDARIC_COMMAND])
async def test_plain_handlers_run_as_under_awslambdaric(command: tuple[str, ...]) -> None:
    async with function("plain", command=command) as process:
        invocation = await answer(process, {"a": [1, "ö"]})
        assert await invocation.result() == {"got": {"a": [1, "ö"]}, "request_id": invocation.request_id}
        assert not invocation.is_streamed
        assert reported_error(await answer(process, "fail")) == ("ValueError", "plain failure")
        assert await (await answer(process, "again")).result() == {
            "got": "again",
            "request_id": process.invocations[-1].request_id,
        }
        assert process.starts == 1


async def test_oversized_buffered_response_leaves_process_running() -> None:
    async with function("plain", buffered_limit=1000) as process:
        invocation = await answer(process, 2000)
        assert invocation.error is not None
        assert invocation.error.error_type == "Function.ResponseSizeTooLarge"
        assert "Http response code: 413" in process.output.text  # the C client's line
        assert "(RuntimeError: Failed to post invocation response;" in process.output.text
        assert await (await answer(process, 10)).result() == "a" * 10
        assert process.starts == 1


async def test_result_with_surrogates_ends_process_without_hanging() -> None:
    # The JSON log format is that of a managed runtime, where results are not escaped.
    async with function("plain", environment={"AWS_EXECUTION_ENV": "AWS_Lambda_python3.13"}) as process:
        invocation = await answer(process, "surrogate")
        assert invocation.error is not None
        assert "UnicodeEncodeError" in process.output.text
        assert await (await answer(process, 3)).result() == "aaa"


async def test_handler_without_runtime_error_names_commands() -> None:
    async with function("handler", command=AWSLAMBDARIC_COMMAND) as process:
        error_type, message = reported_error(await answer(process, http_event("/echo")))
    assert error_type == "StreamingUnavailableError"
    assert "AWS_LAMBDA_EXEC_WRAPPER" in message
    assert "python -m vectorforge.runtime" in message
    assert "Mangum" in message


async def test_background_task_completes_before_next_event() -> None:
    done_before_next: list[bool] = []
    streamed = asyncio.Event()

    async def response_is_over(_invocation: Any, _data: bytes) -> None:
        assert "background task done" not in process.output.text
        streamed.set()

    async def next_is_polled(_invocation: Any, _data: bytes) -> None:
        await asyncio.sleep(0.02)  # the line may be delayed in its pipe
        done_before_next.append("background task done" in process.output.text)

    async with function("handler") as process:
        hooks = {"after_response": response_is_over, "next_polled_again": next_is_polled}
        invocation = await answer(process, http_event("/tokens-after-response"), hooks=hooks)
        assert prelude_and_body(invocation)[1] == b"answer"
        assert streamed.is_set()
        assert done_before_next == [True]


async def test_concurrent_environment_streams_events_in_parallel() -> None:
    gate = Gate()
    async with (
        gate.open() as environment,
        function("handler", environment=environment, max_concurrency=3) as process,
    ):
        invocations = [await process.invoke(http_event("/tokens")) for _ in range(3)]
        async with asyncio.timeout(20):
            for _ in invocations:
                await gate.connected.acquire()  # all three are in progress
            for turn in range(3):
                for connection in range(3):
                    gate.release(f"{turn}", connection)
            for connection in range(3):
                gate.end(connection)
            for invocation in invocations:
                await invocation.ended.wait()
        assert [prelude_and_body(invocation)[1] for invocation in invocations] == [b"0\n1\n2\n"] * 3
        pids = {(await json_body_of_many(process))["pid"] for _ in range(3)}
        assert process.environment.pid not in pids
        assert process.output.text.count("lifespan entered") == 3
        exit_code = process.environment.exit
        await process.stop()
        assert await exit_code == 0
    assert process.output.text.count("lifespan left") == 3


async def json_body_of_many(process: Any) -> dict[str, Any]:
    invocation = await process.invoke(http_event("/echo"))
    await invocation.ended.wait()
    seen: dict[str, Any] = json.loads(prelude_and_body(invocation)[1])
    return seen


class Daemon:
    """The receiving side of X-Ray's daemon."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.address = "{}:{}".format(*self.socket.getsockname())

    def segments(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                found.append(json.loads(self.socket.recv(65536).split(b"\n", 1)[1]))
            except BlockingIOError:
                return found


@pytest.fixture
def daemon() -> Any:
    running = Daemon()
    yield running
    running.socket.close()


async def test_powertools_decorators_work_around_a_stream(daemon: Daemon) -> None:  # F-005
    environment = {"AWS_XRAY_DAEMON_ADDRESS": daemon.address}
    async with function("handler", "runtime_powertools", environment=environment) as process:
        invocation = await answer(process, http_event("/stream"))
        assert prelude_and_body(invocation)[1] == b"012"
        lines = [json.loads(line) for line in process.output.lines]
        logged = [line for line in lines if str(line.get("message", "")).startswith("piece")]
        assert [line["function_request_id"] for line in logged] == [invocation.request_id] * 3
        assert [line["cold_start"] for line in logged] == [True] * 3
        emitted = [line for line in lines if "Pieces" in line]
        assert [line["Pieces"] for line in emitted] == [[1.0, 1.0, 1.0]]
        assert [line["ColdStart"] for line in lines if "ColdStart" in line] == [[1.0]]
        root = invocation.trace_id.split(";")[0].removeprefix("Root=")
        [segment] = daemon.segments()
        assert (segment["name"], segment["trace_id"]) == ("## handler", root)
        failing = http_event("/stream")
        failing["rawQueryString"] = "fails=1"
        failed = await answer(process, failing)
        assert failed.trailers["lambda-runtime-function-error-type"] == "ValueError"
        [segment] = daemon.segments()
        assert segment["fault"] is True
        assert process.starts == 1


@pytest.mark.parametrize("handler", ["directly", "swallows"])
async def test_decorator_return_value_is_ignored(handler: str, daemon: Daemon) -> None:
    environment = {"AWS_XRAY_DAEMON_ADDRESS": daemon.address}
    async with function(handler, "runtime_powertools", environment=environment) as process:
        for _ in range(2):
            invocation = await answer(process, http_event("/stream"))
            assert (prelude_and_body(invocation)[1], invocation.error) == (b"012", None)
        assert process.starts == 1


async def test_second_response_for_one_invocation_is_logged_as_error() -> None:
    environment = {"POWERTOOLS_TRACE_DISABLED": "1"}
    async with function("streams_twice", "runtime_powertools", environment=environment) as process:
        invocation = await answer(process, http_event("/stream"))
        assert (prelude_and_body(invocation)[1], invocation.error) == (b"012", None)
        assert "has been streamed already" in process.output.text
        await answer(process, http_event("/stream"))
        assert process.starts == 1
