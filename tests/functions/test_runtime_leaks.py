"""A process that has answered hundreds of events holds no more than one that has answered a few."""

from tests.functions.runtime_driver import answer, function, http_event, json_body, prelude_and_body
from vectorforge.local.lambda_service.function_process import FunctionProcess

ROUNDS = 25  # of eight invocations each
MEMORY_ROOM = 64 * 1024  # bytes in all, for 200 invocations


async def one_round(process: FunctionProcess) -> None:
    """What an environment meets in its life, good and bad."""
    for path in ("/sync", "/echo", "/fails-after", "/fails-before", "/raises", "/megabytes/1"):
        await answer(process, http_event(path))
    await answer(process, http_event("/never-ends"), abort_after=40)
    _, body = prelude_and_body(await answer(process, http_event("/megabytes/2"), abort_after=2**17))
    assert len(body) < 2**20


async def test_two_hundred_invocations_leave_nothing_behind() -> None:
    environment = {"PYTHONTRACEMALLOC": "1"}
    async with function("handler", environment=environment, timeout_s=60, init_timeout_s=60) as process:
        for _ in range(5):
            await one_round(process)
        before = await json_body(process, "/statistics")
        for _ in range(ROUNDS):
            await one_round(process)
        after = await json_body(process, "/statistics")
        assert process.starts == 1
        assert process.output.text.count("generator finalised") == ROUNDS + 5
    memory = after.pop("memory") - before.pop("memory")
    assert after == before
    assert memory < MEMORY_ROOM
