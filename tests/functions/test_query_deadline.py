"""An answer ends two seconds before Lambda would kill the function, whatever it was waiting for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Mode, load_event, query_function, response_of
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.http.live_api import key_of
from tests.support.vendors.fake_embeddings import Reply as EmbeddingReply
from tests.support.vendors.fake_vendor import Reply
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres

QUERY, STREAM = "query_function_url_query", "query_function_url_query_stream"
HEALTH = "query_function_url_health"
TIMEOUT_S = 4.0
"""Timeout of the function: two seconds are for the query."""
MODES = pytest.mark.parametrize("mode", [pytest.param("buffered", marks=pytest.mark.slow), "stream"])
SLOW = Reply(texts=("It takes [Source 1] ", *(f"word{number} " for number in range(100))), pause_s=0.2)
SILENT = Reply(pause_s=60)


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


async def ask(
    surroundings: QuerySurroundings,
    mode: Mode,
    name: str,
    variables: dict[str, str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    degraded: bool = False,
) -> tuple[int, str]:
    """Return status and body after checking that the function's process has survived."""
    environment = {"VECTORFORGE_DEGRADED_ANSWERS": str(degraded).lower(), **(variables or {})}
    configuration = query_function(surroundings, mode, variables=environment, timeout_s=timeout_s)
    async with FunctionProcess(configuration) as function:
        if variables is None:
            await response_of(await function.invoke(load_event(HEALTH)))  # warm: measures the query alone
        else:
            await function.start()
        invocation = await function.invoke(load_event(name, x_api_key=key_of(surroundings.tenant)))
        status, _, body = await response_of(invocation)
        await invocation.completed.wait()
        assert invocation.error is None
        assert function.is_running
        assert function.starts == 1
    return status, body


async def events_of(body: str) -> list[ReceivedEvent]:
    async def lines() -> AsyncIterator[str]:
        for line in body.splitlines():
            yield line

    events = [event async for event in read_events(lines())]
    check_order(events)
    return events


async def logged(surroundings: QuerySurroundings) -> QueryLog:
    """Return the single row of the tenant's log."""
    async with Database(surroundings.app_url) as database:
        (row,) = await QueryLogRepository(database.for_tenant(surroundings.tenant)).list()
    return row


@MODES
async def test_stream_over_deadline_ends_with_partial_answer(
    surroundings: QuerySurroundings, mode: Mode
) -> None:
    surroundings.vendor.script(SLOW)
    status, body = await ask(surroundings, mode, STREAM, timeout_s=9)  # margin for a busy machine
    events = await events_of(body)
    assert status == 200
    assert [event.name for event in events[-2:]] == ["usage", "done"]
    assert events[-2].data["completion_tokens"] > 0
    assert events[-1].data["finish_reason"] == "deadline"
    tokens = [event.data["text"] for event in events if event.name == "token"]
    assert 2 <= len(tokens) < len(SLOW.texts)
    (citation,) = [event for event in events if event.name == "citation"]
    assert citation.data["source_number"] == 1
    row = await logged(surroundings)
    assert (row.outcome, row.generated_response) == ("deadline", "".join(tokens))
    (request,) = surroundings.vendor.requests
    async with asyncio.timeout(20):
        await request.client_closed.wait()  # the rest is not charged


@MODES
async def test_unresponsive_model_emits_error_event(surroundings: QuerySurroundings, mode: Mode) -> None:
    surroundings.vendor.script(SILENT)
    status, body = await ask(surroundings, mode, STREAM, timeout_s=9)  # margin for a busy machine
    events = await events_of(body)
    assert (status, events[-1].name, events[-1].data["status"]) == (200, "error", 504)
    row = await logged(surroundings)
    assert (row.outcome, row.error_stage) == ("error", "generate")


@MODES
async def test_whole_answer_over_deadline_returns_504(surroundings: QuerySurroundings, mode: Mode) -> None:
    surroundings.vendor.script(SILENT)
    status, body = await ask(surroundings, mode, QUERY)
    assert (status, json.loads(body)["status"]) == (504, 504)
    assert (await logged(surroundings)).error_stage == "generate"


@MODES
async def test_unresponsive_model_leaves_time_for_retrieved_chunks(
    surroundings: QuerySurroundings, mode: Mode
) -> None:  # faults 5, 14
    surroundings.vendor.script(SILENT, SILENT)
    status, body = await ask(surroundings, mode, QUERY, timeout_s=9, degraded=True)
    answer = json.loads(body)
    assert (status, answer["degraded"], answer["extractive"]) == (200, ["passages"], True)
    assert "five days" in answer["response"]
    assert len(answer["citations"]) == 1
    row = await logged(surroundings)
    assert (row.outcome, list(row.degraded)) == ("answered", ["passages"])
    (request,) = surroundings.vendor.requests
    async with asyncio.timeout(20):
        await request.client_closed.wait()


@MODES
@pytest.mark.parametrize("name", [QUERY, STREAM])
async def test_search_over_deadline_returns_504_for_whole_and_streamed_query(
    surroundings: QuerySurroundings, mode: Mode, name: str
) -> None:
    surroundings.embeddings.replies = [EmbeddingReply(delay_s=60)] * 5
    status, body = await ask(surroundings, mode, name)
    assert (status, json.loads(body)["status"]) == (504, 504)
    row = await logged(surroundings)
    assert (row.outcome, row.error_stage) == ("error", "retrieve")


@MODES
async def test_unresponsive_database_returns_504(surroundings: QuerySurroundings, mode: Mode) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        silent = {"VECTORFORGE_DATABASE_URL": f"postgresql://vectorforge_app@127.0.0.1:{port}/x"}
        status, body = await ask(surroundings, mode, QUERY, silent)
    problem = json.loads(body)
    assert (status, problem["code"]) == (504, "deadline_exceeded")
    assert problem["detail"]
