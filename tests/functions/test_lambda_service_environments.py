"""Execution environments: freezing, concurrency, SnapStart, output."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from infra.emulator.lambda_service.execution_environment import ExecutionEnvironment
from infra.emulator.lambda_service.function_configuration import (
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.process_output import KEPT_LINES, MAX_LINE_BYTES, OutputPipe, ProcessOutput
from tests.functions.sample_processes import SLOW_S, configuration, result, state_of

Start = Callable[..., Awaitable[FunctionProcess]]


async def test_frozen_function_does_nothing_between_invocations(start_sample: Start, tmp_path: Path) -> None:
    # C01, faults 17: work after the response is frozen until the next event
    file = tmp_path / "times"
    process = await start_sample("background", freeze_between_invocations=True)
    invocation = await process.invoke({"file": str(file)})
    await invocation.completed.wait()
    assert process.pid is not None
    await state_of(process.pid, "T")
    size = file.stat().st_size
    await asyncio.sleep(0.2)
    assert file.stat().st_size == size
    while file.stat().st_size == size:  # an event is shorter than the pause between two writes
        assert (await result(process, {}))["pid"] == process.environment.pid
        await state_of(process.pid, "T")
    assert process.starts == 1


async def test_function_frozen_by_hand_answers_after_thawing(start_sample: Start) -> None:
    arrived = asyncio.Event()

    async def freeze(process: FunctionProcess, invocation: Invocation, data: bytes) -> None:
        process.freeze()
        arrived.set()

    process = await start_sample(hooks={"before_next_reply": freeze})
    invocation = await process.invoke({})
    await arrived.wait()
    assert process.pid is not None
    await state_of(process.pid, "T")
    assert not invocation.ended.is_set()
    process.thaw()
    await invocation.result()


async def test_children_of_a_process_end_with_it() -> None:
    program = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']).pid, flush=True); "
        "time.sleep(1000)"
    )
    settings = FunctionConfiguration(handler="h", command=[sys.executable, "-c", program])
    output = ProcessOutput()
    environment = await ExecutionEnvironment.start(settings, {}, output)
    child = int(await output.wait_for(""))
    await environment.terminate()
    await state_of(child, "Z", "")  # the adopting process reaps it


async def test_environment_with_concurrency_takes_several_events(start_sample: Start, tmp_path: Path) -> None:
    # LMI: awslambdaric forks a worker for each
    process = await start_sample(max_concurrency=2)
    slow = [await process.invoke({"until": str(tmp_path / "released")}) for _ in range(2)]
    async with asyncio.timeout(SLOW_S):
        for invocation in slow:
            await invocation.dispatched.wait()
    assert not any(invocation.ended.is_set() for invocation in slow)
    (tmp_path / "released").touch()
    pids = {(await invocation.result())["pid"] for invocation in slow}
    assert len(pids) == 2
    assert process.starts == 1
    with pytest.raises(ValueError, match="max_concurrency=1"):
        configuration(freeze_between_invocations=True, max_concurrency=2)


async def test_snap_start_process_polls_for_its_restore(start_sample: Start) -> None:
    process = await start_sample(snap_start=True)
    answer = await result(process, {})
    assert answer["environment"]["AWS_LAMBDA_INITIALIZATION_TYPE"] == "snap-start"
    assert process.runtime_api.restore_polled.is_set()


async def test_events_over_reserved_concurrency_are_refused() -> None:  # faults 46
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
        # the response is delayed, too: the hook runs before it is read
        assert len({(await one.result())["pid"] for one in held}) == 2
        for _ in range(3):  # sequential: warm ones
            await result(function, {})
        assert [process.starts for process in function.processes] == [1, 1]
    async with LambdaFunction(configuration(), concurrency=0) as function:
        with pytest.raises(TooManyRequestsError):
            await function.invoke({})


async def test_sequential_events_share_one_environment() -> None:
    async with LambdaFunction(configuration(), concurrency=5) as function:
        for _ in range(5):
            await result(function, {})
        assert sum(process.starts for process in function.processes) == 1


async def test_output_over_the_limits_is_cut() -> None:
    output = ProcessOutput()
    pipe = OutputPipe(output)
    writer = os.fdopen(pipe.write_end, "wb")
    for data in (*(b"%d\n" % number for number in range(KEPT_LINES + 5)), b"x" * (MAX_LINE_BYTES + 1)):
        await asyncio.to_thread(writer.write, data)
    await asyncio.to_thread(writer.flush)
    await output.wait_for("xxx")
    writer.write(b"\xff unfinished")
    writer.close()
    pipe.close()
    assert len(output.lines) == KEPT_LINES
    assert output.lines[0] == "7"
    assert output.lines[-1].endswith("� unfinished")
