"""Functions in processes of their own, under AWS's own runtime (awslambdaric, unmodified)."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from infra.emulator.lambda_service.execution_environment import ExecutionEnvironment
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess, ProcessHook
from infra.emulator.lambda_service.invocation import FunctionFailedError, HookPoint, Invocation
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.process_output import KEPT_LINES, MAX_LINE_BYTES, ProcessOutput

HERE = Path(__file__).parent
SLOW_S = 120.0
"""For what must not be cut short on a busy machine."""


def configuration(handler: str = "plain", **settings: Any) -> FunctionConfiguration:
    defaults = {"timeout_s": SLOW_S, "init_timeout_s": SLOW_S}
    return FunctionConfiguration(
        handler=f"sample_function.{handler}",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        **(defaults | settings),
    )


Start = Callable[..., Awaitable[FunctionProcess]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def make(
            handler: str = "plain", hooks: Mapping[HookPoint, ProcessHook] | None = None, **settings: Any
        ) -> FunctionProcess:
            return await stack.enter_async_context(
                FunctionProcess(configuration(handler, **settings), hooks=hooks)
            )

        yield make


async def result(process: FunctionProcess | LambdaFunction, event: object) -> Any:
    return await (await process.invoke(event)).result()


async def test_a_json_function_keeps_its_process_and_sees_what_lambda_sets(start: Start) -> None:
    process = await start(
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
    assert "PYTEST_CURRENT_TEST" not in first["environment"]  # nothing else of this process
    assert {await process.output.wait_for("a line")} == {"a line"}
    assert process.invocations[0] is invocation


async def test_an_exception_fails_the_invocation_and_not_the_process(start: Start) -> None:
    process = await start()
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
async def test_an_init_error_is_the_answer(start: Start, variable: str, handler: str, message: str) -> None:
    process = await start(handler, environment={variable: "1"})
    for starts in (1, 2):  # the next event tries again, in another environment
        with pytest.raises(FunctionFailedError, match=message):
            await result(process, {})
        assert process.starts == starts
    assert not process.is_running


async def test_a_process_can_be_started_ahead(start: Start) -> None:
    process = await start()
    await process.start()
    assert (process.starts, process.is_running) == (1, True)
    await result(process, {})
    assert process.starts == 1
    broken = await start(environment={"FAIL_INIT": "1"})
    with pytest.raises(FunctionFailedError, match="the init phase failed"):
        await broken.start()


async def test_a_command_that_cannot_be_run(start: Start) -> None:
    async with FunctionProcess(FunctionConfiguration(handler="h", command=["/nowhere"])) as process:
        with pytest.raises(FunctionFailedError, match=r"Runtime\.InvalidEntrypoint"):
            await result(process, {})


@pytest.mark.parametrize(("code", "text"), [(3, "exit status 3"), (0, "exited without providing a reason")])
async def test_a_crash_fails_the_invocation_and_the_next_event_gets_a_new_process(
    start: Start, code: int, text: str
) -> None:
    process = await start()
    before = (await result(process, {}))["pid"]
    with pytest.raises(FunctionFailedError, match=rf"Runtime\.ExitError: RequestId: .*{text}"):
        await result(process, {"exit": code})
    assert (await result(process, {}))["pid"] != before
    assert process.starts == 2


async def test_a_kill_fails_the_invocation(start: Start) -> None:
    async def kill(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        if b"kill" in invocation.payload:
            await process.kill()

    process = await start(hooks={"after_next_reply": kill})
    with pytest.raises(FunctionFailedError, match="signal: killed"):
        await result(process, {"sleep": 1000, "kill": 1})
    await result(process, {})
    await process.kill()  # while it is idle: nobody notices
    await result(process, {})
    assert process.starts == 3


async def test_dead_processes_leave_nothing_open(start: Start) -> None:
    process = await start()
    await result(process, {})
    await process.invocations[-1].completed.wait()
    before = await asyncio.to_thread(os.listdir, "/proc/self/fd")
    for _ in range(3):
        await process.kill()
        await result(process, {})
        await process.invocations[-1].completed.wait()
    assert process.starts == 4
    assert len(await asyncio.to_thread(os.listdir, "/proc/self/fd")) == len(before)


async def test_a_complete_response_outlives_its_process(start: Start) -> None:
    async def kill(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        await process.kill()

    process = await start(hooks={"before_response_reply": kill})
    assert await result(process, {"answer": 1}) == 1
    assert await result(process, {"answer": 2}) == 2
    assert process.starts == 2


@pytest.mark.parametrize("phase", ["invocation", "init"])
async def test_a_function_over_its_time_is_killed(start: Start, phase: str) -> None:
    in_init = [sys.executable, "-c", "import time; time.sleep(1000)"]
    if phase == "init":
        process = FunctionProcess(FunctionConfiguration(handler="h", command=in_init, init_timeout_s=0.2))
    else:
        process = await start(timeout_s=1.0)
        await process.start()
    async with process:
        invocation = await process.invoke({"sleep": 1000})
        with pytest.raises(FunctionFailedError, match=r"Sandbox\.Timedout: .*Task timed out after \d\.\d0 s"):
            await invocation.result()
        await invocation.completed.wait()
        assert not process.is_running


async def test_a_frozen_function_does_nothing_between_invocations(start: Start, tmp_path: Path) -> None:
    # C01, faults 17: what runs on after the response stands still until the next event
    file = tmp_path / "times"
    process = await start("background", freeze_between_invocations=True)
    invocation = await process.invoke({"file": str(file)})
    await invocation.completed.wait()
    assert process.pid is not None
    await state_of(process.pid, "T")
    size = file.stat().st_size
    await asyncio.sleep(0.2)
    assert file.stat().st_size == size
    assert (await result(process, {}))["pid"] == process.environment.pid
    assert process.starts == 1
    await state_of(process.pid, "T")
    assert file.stat().st_size > size  # it went on while there was an event


async def state_of(pid: int, *states: str) -> None:
    """Wait until a process has one of these states: T is stopped, Z has ended, empty is gone."""

    def wait() -> None:
        give_up_at = time.monotonic() + SLOW_S
        while state() not in states:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)

    def state() -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return ""

    await asyncio.to_thread(wait)


async def test_freezing_and_thawing_by_hand(start: Start) -> None:
    arrived = asyncio.Event()

    async def freeze(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        process.freeze()
        arrived.set()

    process = await start(hooks={"before_next_reply": freeze})
    invocation = await process.invoke({})
    await arrived.wait()
    assert process.pid is not None
    await state_of(process.pid, "T")
    assert not invocation.ended.is_set()
    process.thaw()
    await invocation.result()


async def test_events_wait_for_a_busy_process_and_stop_ends_it(start: Start) -> None:
    process = await start()
    slow = await process.invoke({"sleep": 1000})
    await slow.dispatched.wait()
    waiting = asyncio.create_task(process.invoke({}))
    await asyncio.sleep(0)
    assert process.is_busy
    pid = process.pid
    await process.stop()
    with pytest.raises(FunctionFailedError, match=r"Runtime\.ExitError"):
        await slow.result()
    with pytest.raises(RuntimeError, match="stopped"):
        await waiting
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_children_end_with_their_function() -> None:
    program = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']).pid, flush=True); "
        "time.sleep(1000)"
    )
    settings = FunctionConfiguration(handler="h", command=[sys.executable, "-c", program])
    output = ProcessOutput()
    environment = ExecutionEnvironment(settings, {}, output)
    await environment.open()
    child = int(await output.wait_for(""))
    await environment.terminate()
    await state_of(child, "Z", "")  # whoever adopted it reaps it


async def test_several_events_in_one_environment(start: Start) -> None:
    # LMI: awslambdaric forks a worker for each
    process = await start(max_concurrency=2)
    slow = [await process.invoke({"sleep": 0.3}) for _ in range(2)]
    for invocation in slow:
        await invocation.dispatched.wait()
    assert not any(invocation.ended.is_set() for invocation in slow)
    pids = {(await invocation.result())["pid"] for invocation in slow}
    assert len(pids) == 2
    assert process.starts == 1
    with pytest.raises(ValueError, match="max_concurrency=1"):
        configuration(freeze_between_invocations=True, max_concurrency=2)


async def test_snap_start_asks_for_its_restore(start: Start) -> None:
    process = await start(snap_start=True)
    answer = await result(process, {})
    assert answer["environment"]["AWS_LAMBDA_INITIALIZATION_TYPE"] == "snap-start"
    assert process.runtime_api.restore_polled.is_set()


async def test_reserved_concurrency() -> None:  # faults 46
    release = asyncio.Event()

    async def hold(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        if b"hold" in invocation.payload:
            await release.wait()

    async with LambdaFunction(configuration(), concurrency=2, hooks={"after_next_reply": hold}) as function:
        held = [await function.invoke({"hold": number}) for number in range(2)]
        async with asyncio.timeout(SLOW_S):
            with pytest.raises(TooManyRequestsError):
                await function.invoke({})
        assert function.throttles == 1
        release.set()
        # the answer is held back, too: the hook runs before the response is read
        assert len({(await one.result())["pid"] for one in held}) == 2
        for _ in range(3):  # one after another: warm ones
            await result(function, {})
        assert [process.starts for process in function.processes] == [1, 1]
    async with LambdaFunction(configuration(), concurrency=0) as function:
        with pytest.raises(TooManyRequestsError):
            await function.invoke({})


async def test_one_environment_serves_requests_one_after_another() -> None:
    async with LambdaFunction(configuration(), concurrency=5) as function:
        for _ in range(5):
            await result(function, {})
        assert sum(process.starts for process in function.processes) == 1


async def test_output_is_bounded() -> None:
    output = ProcessOutput()
    stream = asyncio.StreamReader()
    reading = asyncio.create_task(output.read(stream))
    stream.feed_data(b"".join(b"%d\n" % number for number in range(KEPT_LINES + 5)))
    stream.feed_data(b"x" * (MAX_LINE_BYTES + 1))
    await output.wait_for("xxx")
    stream.feed_data(b"\xff unfinished")
    stream.feed_eof()
    await reading
    assert len(output.lines) == KEPT_LINES
    assert output.lines[0] == "7"
    assert output.lines[-1].endswith("� unfinished")


async def test_a_process_of_another_runtime_is_supervised_alike() -> None:
    """A runtime that takes an event and ends without a word."""
    program = (
        "import os, signal, urllib.request as u; api = os.environ['AWS_LAMBDA_RUNTIME_API']; "
        "u.urlopen(f'http://{api}/2018-06-01/runtime/invocation/next').read(); "
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    settings = FunctionConfiguration(handler="h", command=[sys.executable, "-c", program])
    async with FunctionProcess(settings) as process:
        with pytest.raises(FunctionFailedError, match="signal: terminated"):
            await result(process, {})
