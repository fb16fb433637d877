"""A stream through our Lambda runtime that the service cuts: ended immediately, or continued for resuming."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Unpack

import httpx2
import pytest

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from tests.support.aws.live_query_function import (
    QUERY_PATH,
    LockStep,
    QuerySurroundings,
    query_surroundings,
)
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.vendors.fake_vendor import Reply
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres

TEXTS = ("It takes ", "x" * 4000, " five days [Context 1].", " That is all.")
ANSWER = "".join(TEXTS)
QUESTION = {"query": "How long does a refund take?", "stream": True}
RESUMABLE = {**QUESTION, "resumable": True}


@dataclass
class CuttingService:
    """The function behind a service that closes the runtime's POST after some bytes."""

    function: FunctionProcess

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        return await self.function.invoke(event, **(options | {"abort_after": 3000}))


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture
async def writer(surroundings: QuerySurroundings) -> AsyncIterator[FunctionProcess]:
    async with FunctionProcess(surroundings.function(timeout_s=60.0)) as function:
        yield function


async def read_all(response: httpx2.Response) -> list[ReceivedEvent]:
    """Return the data received until the end or the cut."""
    events: list[ReceivedEvent] = []
    try:
        async for event in read_events(response.aiter_lines()):
            events.append(event)  # noqa: PERF401 - those before the cut, too
    except httpx2.RemoteProtocolError:
        return events
    return events


async def ask_and_be_cut(
    surroundings: QuerySurroundings, writer: FunctionProcess, body: dict[str, object]
) -> list[ReceivedEvent]:
    async with (
        FunctionUrl(CuttingService(writer)) as front_door,
        surroundings.client(front_door.url) as client,
        client.stream("POST", QUERY_PATH, json=body) as response,
    ):
        assert response.status_code == 200
        events = await read_all(response)
    assert events[-1].name not in ("done", "error")
    return events


async def resume(
    surroundings: QuerySurroundings, function: FunctionProcess, query_id: str, after: int
) -> list[ReceivedEvent]:
    headers = {"Last-Event-ID": str(after)}
    async with (
        FunctionUrl(function) as front_door,
        surroundings.client(front_door.url, headers=headers) as client,
        client.stream("GET", f"/v1/queries/{query_id}/events") as response,
    ):
        assert response.status_code == 200
        return await read_all(response)


async def logged(surroundings: QuerySurroundings) -> QueryLog:
    """Return the record of the tenant's only query, once it has ended."""
    async with Database(surroundings.app_url) as database, asyncio.timeout(20):
        while True:
            rows = await QueryLogRepository(database.for_tenant(surroundings.tenant)).list()
            if rows and rows[0].outcome != "started":
                return rows[0]
            await asyncio.sleep(0.05)


async def test_closed_response_closes_model_stream(
    surroundings: QuerySurroundings, writer: FunctionProcess
) -> None:  # C31
    gate = LockStep(free=2)
    surroundings.vendor.script(Reply(texts=TEXTS, gate=gate))
    await ask_and_be_cut(surroundings, writer, QUESTION)
    (request,) = surroundings.vendor.requests
    async with asyncio.timeout(10):
        await request.client_closed.wait()  # although the model had more text
    assert (await logged(surroundings)).outcome == "aborted"
    assert writer.is_running


async def test_resumable_answer_continues_and_is_read_from_another_function(
    surroundings: QuerySurroundings, writer: FunctionProcess
) -> None:
    gate = LockStep(free=2)
    surroundings.vendor.script(Reply(texts=TEXTS, gate=gate))
    events = await ask_and_be_cut(surroundings, writer, RESUMABLE)
    query_id = events[0].data["request_id"]
    async with FunctionProcess(surroundings.function()) as reader, asyncio.timeout(60):
        following = asyncio.create_task(resume(surroundings, reader, query_id, len(events)))
        await reader.start()
        gate.release(len(TEXTS))
        events += await following
    check_order(events)
    assert events[-1].data["answer"] == ANSWER
    (request,) = surroundings.vendor.requests
    assert not request.client_closed.is_set()
    assert (await logged(surroundings)).generated_response == ANSWER
    assert writer.starts == 1


async def test_another_function_stops_the_answer(
    surroundings: QuerySurroundings, writer: FunctionProcess
) -> None:
    gate = LockStep(free=2)
    surroundings.vendor.script(Reply(texts=TEXTS, gate=gate))
    async with (
        FunctionProcess(surroundings.function()) as other,
        FunctionUrl(other) as front_door,
        surroundings.client(front_door.url) as client,
    ):
        await other.start()
        events = await ask_and_be_cut(surroundings, writer, RESUMABLE)
        query_id = events[0].data["request_id"]
        assert (await client.post(f"/v1/queries/{query_id}/stop")).status_code == 202
        (request,) = surroundings.vendor.requests
        async with asyncio.timeout(10):
            await request.client_closed.wait()
        events += await resume(surroundings, other, query_id, len(events))
    check_order(events)
    assert (events[-1].data["finish_reason"], events[-1].data["outcome"]) == ("stopped", "aborted")
    assert (await logged(surroundings)).outcome == "aborted"


async def test_resumed_stream_pauses_before_reader_timeout_and_continues(
    surroundings: QuerySurroundings, writer: FunctionProcess
) -> None:
    gate = LockStep(free=1)
    surroundings.vendor.script(Reply(texts=TEXTS, gate=gate))
    async with (
        FunctionUrl(writer) as front_door,
        surroundings.client(front_door.url) as client,
        client.stream("POST", QUERY_PATH, json=RESUMABLE) as response,
        FunctionProcess(surroundings.function(timeout_s=6.0)) as reader,
    ):
        lines = read_events(response.aiter_lines())
        begun = [await anext(lines) for _ in range(3)]
        query_id = begun[0].data["request_id"]
        await reader.start()
        assert await resume(surroundings, reader, query_id, 2) == begun[2:]  # in order, without an end
        assert reader.invocations[-1].error is None
        gate.release(len(TEXTS))
        rest = await resume(surroundings, reader, query_id, 3)
        assert rest == [event async for event in lines]
    check_order(begun + rest)
