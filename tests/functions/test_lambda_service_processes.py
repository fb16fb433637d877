"""Functions in separate processes, under AWS's own runtime (awslambdaric, unmodified)."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import pytest

from infra.emulator.lambda_service.function_configuration import (
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import FunctionFailedError, Invocation
from tests.functions.sample_processes import HERE, SLOW_S, result

Start = Callable[..., Awaitable[FunctionProcess]]


async def test_function_keeps_its_process_and_sees_what_lambda_sets(start_sample: Start) -> None:
    process = await start_sample(
        name="sample",
        timeout_s=SLOW_S,
        memory_mb=256,
        environment={"AWS_REGION": "eu-central-1", "MINE": "1"},
    )
    invocation = await process.invoke({"print": "a line"})
    first, second = await invocation.result(), await result(process, 2)
    assert first["pid"] == second["pid"] == process.pid
    assert (process.starts, second["event"]) == (1, 2)
    assert first["request_id"] == invocation.request_id
    assert 0 < first["remaining_ms"] <= SLOW_S * 1000
    assert first["arn"] == "arn:aws:lambda:eu-central-1:000000000000:function:sample"
    expected = {
        "_HANDLER": "sample_function.plain",
        "AWS_LAMBDA_FUNCTION_NAME": "sample",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_REGION": "eu-central-1",
        "LAMBDA_TASK_ROOT": str(HERE),
        "MINE": "1",
        "_X_AMZN_TRACE_ID": invocation.trace_id,
    }
    assert expected.items() <= first["environment"].items()
    assert "PYTEST_CURRENT_TEST" not in first["environment"]  # no other variable of this process
    assert {await process.output.wait_for("a line")} == {"a line"}
    assert process.invocations[0] is invocation


async def test_exception_fails_the_invocation_and_not_the_process(start_sample: Start) -> None:
    process = await start_sample()
    with pytest.raises(FunctionFailedError, match="ValueError: on purpose") as caught:
        await result(process, {"raise": "on purpose"})
    assert b'"stackTrace"' in caught.value.error.payload
    await result(process, {})
    assert process.starts == 1


@pytest.mark.parametrize(
    ("variable", "handler", "message"),
    [
        ("FAIL_INIT", "plain", "RuntimeError: the init phase failed"),
        ("EXIT_IN_INIT", "plain", "Runtime.ExitError: .*exit status 7"),
        ("MINE", "missing", "Runtime.HandlerNotFound: Handler 'missing'"),
    ],
)
async def test_init_error_is_the_answer(
    start_sample: Start, variable: str, handler: str, message: str
) -> None:
    process = await start_sample(handler, environment={variable: "1"})
    for starts in (1, 2):  # the next event is retried in another environment
        with pytest.raises(FunctionFailedError, match=message):
            await result(process, {})
        assert process.starts == starts
    assert not process.is_running


async def test_process_started_ahead_is_reused(start_sample: Start) -> None:
    process = await start_sample()
    await process.start()
    assert (process.starts, process.is_running) == (1, True)
    await result(process, {})
    assert process.starts == 1
    broken = await start_sample(environment={"FAIL_INIT": "1"})
    with pytest.raises(FunctionFailedError, match="the init phase failed"):
        await broken.start()


async def test_command_that_cannot_run_is_an_invalid_entrypoint(start_sample: Start) -> None:
    async with FunctionProcess(FunctionConfiguration(handler="h", command=["/nowhere"])) as process:
        with pytest.raises(FunctionFailedError, match=r"Runtime\.InvalidEntrypoint"):
            await result(process, {})


@pytest.mark.parametrize(("code", "text"), [(3, "exit status 3"), (0, "exited without providing a reason")])
async def test_crash_fails_the_invocation_and_the_next_event_gets_a_new_process(
    start_sample: Start, code: int, text: str
) -> None:
    process = await start_sample()
    before = (await result(process, {}))["pid"]
    with pytest.raises(FunctionFailedError, match=rf"Runtime\.ExitError: RequestId: .*{text}"):
        await result(process, {"exit": code})
    assert (await result(process, {}))["pid"] != before
    assert process.starts == 2


async def test_killed_process_fails_the_invocation(start_sample: Start) -> None:
    async def kill(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        if b"kill" in invocation.payload:
            await process.kill()

    process = await start_sample(hooks={"after_next_reply": kill})
    with pytest.raises(FunctionFailedError, match="signal: killed"):
        await result(process, {"sleep": 1000, "kill": 1})
    await result(process, {})
    await process.kill()  # while it is idle: unnoticed
    await result(process, {})
    assert process.starts == 3


async def test_dead_processes_leave_no_descriptor_open(start_sample: Start) -> None:
    process = await start_sample()
    await result(process, {})
    await process.invocations[-1].completed.wait()
    before = await asyncio.to_thread(os.listdir, "/proc/self/fd")
    for _ in range(3):
        await process.kill()
        await result(process, {})
        await process.invocations[-1].completed.wait()
    assert process.starts == 4
    assert len(await asyncio.to_thread(os.listdir, "/proc/self/fd")) == len(before)


async def test_complete_response_outlives_its_process(start_sample: Start) -> None:
    async def kill(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        await process.kill()

    process = await start_sample(hooks={"before_response_reply": kill})
    assert await result(process, {"answer": 1}) == 1
    assert await result(process, {"answer": 2}) == 2
    assert process.starts == 2


@pytest.mark.parametrize("phase", ["invocation", "init"])
async def test_function_over_its_timeout_is_killed(start_sample: Start, phase: str) -> None:
    in_init = [sys.executable, "-c", "import time; time.sleep(1000)"]
    if phase == "init":
        process = FunctionProcess(FunctionConfiguration(handler="h", command=in_init, init_timeout_s=0.2))
    else:
        process = await start_sample(timeout_s=1.0)
        await process.start()
    async with process:
        invocation = await process.invoke({"sleep": 1000})
        with pytest.raises(FunctionFailedError, match=r"Sandbox\.Timedout: .*Task timed out after \d\.\d0 s"):
            await invocation.result()
        await invocation.completed.wait()
        assert not process.is_running


async def test_events_queue_for_busy_process_and_stop_ends_it(start_sample: Start) -> None:
    process = await start_sample()
    slow = await process.invoke({"sleep": 1000})
    await slow.dispatched.wait()
    waiting = asyncio.create_task(process.invoke({}))
    await asyncio.sleep(0)
    assert not waiting.done()
    pid = process.pid
    await process.stop()
    with pytest.raises(FunctionFailedError, match=r"Runtime\.ExitError"):
        await slow.result()
    with pytest.raises(RuntimeError, match="stopped"):
        await waiting
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_process_of_another_runtime_is_supervised_alike() -> None:
    """A runtime that takes an event and exits silently."""
    program = (
        "import os, signal, urllib.request as u; api = os.environ['AWS_LAMBDA_RUNTIME_API']; "
        "u.urlopen(f'http://{api}/2018-06-01/runtime/invocation/next').read(); "
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    settings = FunctionConfiguration(handler="h", command=[sys.executable, "-c", program])
    async with FunctionProcess(settings) as process:
        with pytest.raises(FunctionFailedError, match="signal: terminated"):
            await result(process, {})
