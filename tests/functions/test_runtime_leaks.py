"""A process uses no more resources after hundreds of events than after a few."""

import asyncio
import time

import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.functions.runtime_driver import answer, function, http_event, json_body, prelude_and_body

ROUNDS = 25  # of eight invocations each
MEMORY_ROOM = 64 * 1024  # bytes in total, for 200 invocations
SETTLING_S = 20.0  # the generator of the last aborted answer may still be closing


async def one_round(process: FunctionProcess) -> None:
    """Send every kind of event, successful and failing."""
    for path in ("/sync", "/echo", "/fails-after", "/fails-before", "/raises", "/megabytes/1"):
        await answer(process, http_event(path))
    await answer(process, http_event("/never-ends"), abort_after=40)
    _, body = prelude_and_body(await answer(process, http_event("/megabytes/2"), abort_after=2**17))
    assert len(body) < 2**20


async def settled(process: FunctionProcess, **wanted: int) -> dict[str, int]:
    """Return the statistics once they have the expected values, or after a timeout."""
    end = time.monotonic() + SETTLING_S
    while True:
        statistics = await json_body(process, "/statistics")
        if all(statistics[name] == value for name, value in wanted.items()) or time.monotonic() > end:
            return statistics
        await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_two_hundred_invocations_leak_nothing() -> None:
    environment = {"PYTHONTRACEMALLOC": "1"}
    async with function("handler", environment=environment, timeout_s=60, init_timeout_s=60) as process:
        for _ in range(5):
            await one_round(process)
        before = await settled(process, generators=1)
        for _ in range(ROUNDS):
            await one_round(process)
        after = await settled(process, **{name: value for name, value in before.items() if name != "memory"})
        assert process.starts == 1
        assert process.output.text.count("generator finalised") == ROUNDS + 5
    memory = after.pop("memory") - before.pop("memory")
    assert after == before
    assert memory < MEMORY_ROOM
