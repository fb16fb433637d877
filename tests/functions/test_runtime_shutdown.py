"""The end of a function's process under the streaming runtime: SIGTERM at each point of its life."""

import asyncio
import os
import signal

import pytest

from infra.emulator.lambda_service.invocation import Invocation
from tests.functions.ending_time import seconds_to_end
from tests.functions.runtime_driver import (
    Gate,
    answer,
    function,
    http_event,
    prelude_and_body,
)


async def test_startup_precedes_first_event_and_shutdown_follows_sigterm() -> None:
    async with function("started") as process:
        await process.start()
        assert list(process.output.lines) == ["startup"]
        await answer(process, http_event("/echo"))
        await process.stop()
        assert list(process.output.lines)[-2:] == ["shutdown", "lifespan left"]
        assert "Traceback" not in process.output.text


async def test_sigterm_during_request_exits_lifespan() -> None:
    gate = Gate()
    async with gate.open() as environment, function("handler", environment=environment) as process:
        await process.start()
        assert list(process.output.lines) == ["lifespan entered, can stream: True"]
        invocation = await process.invoke(http_event("/tokens"))
        await gate.connected.acquire()
        gate.release("first")
        await invocation.opened.wait()
        exit_code = process.environment.exit
        await process.stop()
        assert await exit_code == 0
    assert process.output.text.index("generator finalised") < process.output.text.index("lifespan left")


@pytest.mark.parametrize("path", ["/sync-generator/60", "/ignores-cancellation"])
async def test_endless_request_does_not_delay_shutdown(path: str) -> None:
    async with function("handler", timeout_s=60) as process:
        await process.start()
        invocation = await process.invoke(http_event(path))
        await invocation.opened.wait()
        exit_code = process.environment.exit
        os.kill(process.environment.pid, signal.SIGTERM)
        assert await asyncio.wait_for(asyncio.shield(exit_code), 20) == 0  # the generator sleeps for 60 s
        async with asyncio.timeout(20):  # its pipe may be read later than its end
            await process.output.wait_for("lifespan left")


async def test_sigterm_ends_app_blocking_the_loop() -> None:
    async with function("handler", timeout_s=60) as process:
        await process.start()
        await process.invoke(http_event("/blocks/60"))
        await process.output.wait_for("blocking")
        exit_code = process.environment.exit
        os.kill(process.environment.pid, signal.SIGTERM)
        assert await asyncio.wait_for(asyncio.shield(exit_code), 20) == 0
        assert "lifespan left" in process.output.text


LAMBDA_S = 0.3
"""From SIGTERM to SIGKILL, for the runtime of a function with an external extension:
https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html#runtimes-lifecycle-shutdown"""


async def terminated(path: str, handler: str = "handler", attempts: int = 3) -> tuple[float, Invocation]:
    """Return the fewest seconds from SIGTERM during a request to the exit, since other work delays some."""
    least = 60.0
    for _ in range(attempts):
        async with function(handler, timeout_s=60, environment={"LIFESPAN_S": "0"}) as process:
            await process.start()
            invocation = await process.invoke(http_event(path))
            if path.startswith("/blocks"):
                await process.output.wait_for("blocking")
            elif path == "/never-begins":
                await invocation.dispatched.wait()
                await asyncio.sleep(0.2)
            else:
                await invocation.opened.wait()
            environment = process.environment
            least = min(least, await seconds_to_end(environment.pid, environment.exit))
            await invocation.ended.wait()
        if least < LAMBDA_S:
            break
    return least, invocation


@pytest.mark.parametrize(
    ("path", "handler"),
    [
        ("/never-ends", "handler"),
        ("/never-begins", "handler"),
        ("/sync-generator/60", "handler"),
        ("/ignores-cancellation", "handler"),
        ("/blocks/60", "handler"),
        ("/ignores-cancellation", "slow_to_leave"),
        ("/blocks/60", "slow_to_leave"),
    ],
)
async def test_sigterm_ends_process_within_lambda_budget(path: str, handler: str) -> None:
    seconds, _ = await terminated(path, handler)
    assert seconds < LAMBDA_S


@pytest.mark.parametrize("path", ["/never-ends", "/sync-generator/60", "/ignores-cancellation"])
async def test_sigterm_during_stream_is_reported_as_shutdown(path: str) -> None:
    _, invocation = await terminated(path, attempts=1)
    assert prelude_and_body(invocation)[1].startswith(b"begun")
    assert invocation.trailers["lambda-runtime-function-error-type"] == "Runtime.ExitError"
    assert invocation.error is not None
    assert "shut down" in invocation.error.message


@pytest.mark.parametrize(
    ("path", "handler"), [("/never-begins", "handler"), ("/blocks/60", "handler"), ("/", "plain_that_waits")]
)
async def test_sigterm_before_first_byte_is_an_exit_error(path: str, handler: str) -> None:
    _, invocation = await terminated(path if path != "/" else "/blocks/60", handler, attempts=1)
    assert not invocation.is_streamed
    assert invocation.error is not None
    assert invocation.error.error_type == "Runtime.ExitError"
    assert "shut down" in invocation.error.message  # the runtime's own report, not the service's
    assert invocation.request_headers["lambda-runtime-invocation-id"] == invocation.invocation_id


async def test_sigterm_between_events_reports_nothing() -> None:
    async with function("handler") as process:
        invocation = await answer(process, http_event("/sync"))
        await process.stop()
        assert (prelude_and_body(invocation)[1], invocation.error) == (b"one two three", None)
        assert "ERROR" not in process.output.text
