"""Proof of streaming: the model emits the next word when the client has received the previous one.

From a client on a real socket through a front door, the Runtime API, our runtime, FastAPI and QueryService to
a vendor on a real socket, and back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_configuration import AWSLAMBDARIC_COMMAND
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.http_api import HttpApi
from tests.support.aws.live_query_function import (
    QUERY_PATH,
    LockStep,
    QuerySurroundings,
    query_surroundings,
)
from tests.support.aws.rest_api import RestApi
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

WORDS = tuple(f"word{number} " for number in range(20))
QUERY = {"query": "How long does a refund take?", "stream": True}
DEADLOCK_S = 20


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.mark.parametrize("front_door", [FunctionUrl, RestApi])
async def test_client_receives_each_token_before_the_next_is_generated(
    surroundings: QuerySurroundings, front_door: Callable[[FunctionProcess], FrontDoor]
) -> None:
    gate = LockStep()
    surroundings.vendor.script(Reply(texts=WORDS, gate=gate))
    received: list[ReceivedEvent] = []
    async with (
        FunctionProcess(surroundings.function()) as function,
        front_door(function) as door,
        surroundings.client(door.url) as client,
        asyncio.timeout(DEADLOCK_S),
        client.stream("POST", QUERY_PATH, json=QUERY) as response,
    ):
        assert response.status_code == 200, await response.aread()
        async for event in read_events(response.aiter_lines()):
            received.append(event)
            if event.name == "token":
                gate.release()
    check_order(received)
    assert [event.data["text"] for event in received if event.name == "token"] == list(WORDS)
    assert function.invocations[-1].is_streamed


@pytest.mark.parametrize("front_door", [lambda f: FunctionUrl(f, response_mode="buffered"), HttpApi])
async def test_mangum_client_receives_nothing_before_model_finishes(
    surroundings: QuerySurroundings, front_door: Callable[[FunctionProcess], FrontDoor]
) -> None:
    """The negative control: the same code without our runtime does not stream."""
    gate = LockStep()
    surroundings.vendor.script(Reply(texts=WORDS, gate=gate))
    buffered = surroundings.function(
        surroundings.environment(response_mode="buffered"), command=AWSLAMBDARIC_COMMAND
    )
    async with (
        FunctionProcess(buffered) as function,
        front_door(function) as door,
        surroundings.client(door.url) as client,
        asyncio.timeout(DEADLOCK_S),
        asyncio.TaskGroup() as tasks,
    ):
        query_task = tasks.create_task(client.post(QUERY_PATH, json=QUERY))
        await gate.waiting.wait()  # the model has sent the first word, and waits for the client to receive it
        arrived, _ = await asyncio.wait([query_task], timeout=0.3)
        assert not arrived
        assert function.invocations[-1].body == b""  # not even the Lambda service has a byte of it
        gate.release(len(WORDS))
        response = await query_task
    assert response.status_code == 200
    events = [event async for event in read_events(_lines(response.text))]
    assert "".join(event.data["text"] for event in events if event.name == "token") == "".join(WORDS)
    assert not function.invocations[-1].is_streamed


async def _lines(text: str) -> AsyncIterator[str]:
    for line in text.splitlines():
        yield line
