"""The streamed response on a real socket: keep-alive, errors after the first byte, client disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from uuid import UUID, uuid4

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.http.live_server import serve
from vectorforge.api.middleware.context import RequestContext
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.request_state import RequestState
from vectorforge.api.streaming.sse import EventEncoder
from vectorforge.api.streaming.stream import OpenedQuery, QueryEventResponse, cancelled_on_disconnect
from vectorforge.deadline import Deadline
from vectorforge.errors import LLMStreamError, LLMTimeoutError, NotFoundError
from vectorforge.pipeline.types import (
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    QueryResult,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)

Events = AsyncGenerator[QueryEvent, None]
COLLECTION = UUID(int=7)


def head() -> list[QueryEvent]:
    meta = MetaEvent(uuid4(), COLLECTION, "scripted", "scripted-1", extractive=False)
    return [meta, SourcesEvent([], [], 1.0)]


def result(answer: str) -> QueryResult:
    return QueryResult(
        query="q",
        answer=answer,
        retrieved_chunks=[],
        sources=[],
        retrieval_latency_ms=1.0,
        generation_latency_ms=1.0,
        total_latency_ms=2.0,
        llm_response=None,
        request_id=uuid4(),
        collection_id=COLLECTION,
    )


def app_of(
    script: Callable[[], Events],
    *,
    ping_interval_s: float = 15.0,
    stall_s: float = 60.0,
    deadline_s: float | None = None,
) -> FastAPI:
    async def endpoint(request: Request) -> Response:
        await request.body()
        opened = await OpenedQuery.open(script())
        encoder = EventEncoder(request_id=RequestState.of(request.scope).request_id)
        deadline = None if deadline_s is None else Deadline.after(deadline_s)
        response = QueryEventResponse(opened, encoder, deadline=deadline)
        response.ping_interval_s, response.stall_s = ping_interval_s, stall_s
        return response

    app = FastAPI()
    app.post("/")(endpoint)
    install_problem_handlers(app)
    app.add_middleware(RequestContext)
    return app


async def receive_all(app: object) -> tuple[httpx2.Response, list[ReceivedEvent]]:
    async with serve(app) as url, httpx2.AsyncClient() as client, client.stream("POST", url) as response:
        return response, [event async for event in read_events(response.aiter_lines())]


async def test_stream_events_arrive_in_order_with_sse_headers() -> None:  # C41
    async def script() -> Events:
        for event in head():
            yield event
        yield TokenEvent("It is\nso — ")
        yield TokenEvent("\u2028\x85 done")
        yield UsageEvent(3, 4, 7)
        yield DoneEvent(result("It is so"))

    response, events = await receive_all(app_of(script))
    check_order(events)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"]
    # Line separators of Unicode must not end a data line: only what JSON would break on does.
    assert "".join(e.data["text"] for e in events if e.name == "token") == "It is\nso — \u2028\x85 done"


async def test_silent_stream_emits_pings() -> None:  # C41
    pinged = asyncio.Event()

    async def script() -> Events:
        for event in head():
            yield event
        await pinged.wait()
        yield TokenEvent("late")
        yield UsageEvent(0, 0, 0)
        yield DoneEvent(result("late"))

    app = app_of(script, ping_interval_s=0.02)
    async with serve(app) as url, httpx2.AsyncClient() as client, client.stream("POST", url) as response:
        events = []
        async for event in read_events(response.aiter_lines()):
            events.append(event)
            if [e.name for e in events].count("comment") >= 3:
                pinged.set()
    check_order(events)
    assert {e.data for e in events if e.name == "comment"} == {"ping"}


@pytest.mark.parametrize("secret_error", [RuntimeError("password=hunter2"), OSError("password=hunter2")])
async def test_exception_in_stream_emits_one_error_event_without_its_text(
    secret_error: Exception, caplog: pytest.LogCaptureFixture
) -> None:  # B-040, C22
    async def script() -> Events:
        for event in head():
            yield event
        yield TokenEvent("half an ")
        raise secret_error

    response, events = await receive_all(app_of(script))
    check_order(events)
    last = events[-1]
    assert (last.name, last.data["status"], last.data["code"]) == ("error", 500, "internal_error")
    assert last.data["partial_answer"] == "half an "
    assert last.data["request_id"] == response.headers["x-request-id"]
    assert "hunter2" not in str(events)
    assert "hunter2" not in caplog.text
    assert type(secret_error).__name__ in caplog.text


async def test_stream_without_final_event_emits_error_event() -> None:
    async def script() -> Events:
        for event in head():
            yield event
        yield TokenEvent("half")

    _, events = await receive_all(app_of(script))
    check_order(events)
    assert [e.name for e in events][-1] == "error"


async def test_stream_emits_nothing_after_the_final_event() -> None:
    async def script() -> Events:
        for event in head():
            yield event
        yield ErrorEvent(LLMStreamError(), "generate", "part")
        raise RuntimeError("while cleaning up")

    _, events = await receive_all(app_of(script))
    assert [e.name for e in events] == ["meta", "sources", "error"]
    assert (events[-1].data["status"], events[-1].data["code"]) == (502, "llm_stream_broken")


@pytest.mark.parametrize(("error", "status"), [(NotFoundError(), 404), (LLMTimeoutError(), 504)])
async def test_error_before_the_answer_returns_its_http_status(error: NotFoundError, status: int) -> None:
    closed = asyncio.Event()

    async def script() -> Events:
        try:
            yield head()[0]
            yield ErrorEvent(error, "retrieve")
        finally:
            closed.set()

    async with serve(app_of(script)) as url, httpx2.AsyncClient() as client:
        response = await client.post(url)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == error.code
    assert closed.is_set()


async def test_client_disconnect_closes_the_query() -> None:  # C31, fault 15
    closed, may_finish = asyncio.Event(), asyncio.Event()

    async def script() -> Events:
        try:
            for event in head():
                yield event
            yield TokenEvent("first")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # closing must be able to wait, e.g. for the log
            await may_finish.wait()
            closed.set()

    async with serve(app_of(script)) as url:
        async with httpx2.AsyncClient() as client, client.stream("POST", url) as response:
            async for event in read_events(response.aiter_lines()):
                if event.name == "token":
                    break
        may_finish.set()
        async with asyncio.timeout(20):
            await closed.wait()


async def test_client_disconnect_during_send_closes_query_before_request_ends() -> None:
    order: list[str] = []
    over = asyncio.Event()

    async def script() -> Events:
        try:
            for event in head():
                yield event
            while True:
                yield TokenEvent("x" * 100_000)
        finally:
            await asyncio.sleep(0.05)
            order.append("query closed")

    inner = app_of(script)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await inner(scope, receive, send)
        if scope["type"] == "http":
            order.append("request over")
            over.set()

    async with serve(app) as url:
        async with httpx2.AsyncClient() as client, client.stream("POST", url) as response:
            async for _ in response.aiter_raw():
                break
        async with asyncio.timeout(20):
            await over.wait()
    assert order == ["query closed", "request over"]


# faults.md row 47: a bounded buffer, and an end, for clients slower than the model
@pytest.mark.parametrize("limits", [{"stall_s": 0.2}, {"deadline_s": 0.2}], ids=["silence", "deadline"])
async def test_stalled_client_counts_as_disconnected(limits: dict[str, float]) -> None:
    closed = asyncio.Event()

    async def script() -> Events:
        try:
            for event in head():
                yield event
            while True:
                yield TokenEvent("x" * 100_000)
        finally:
            closed.set()

    async with serve(app_of(script, **limits)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        async with asyncio.timeout(20):
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await closed.wait()  # although the connection is open and not read
        writer.close()


async def test_client_disconnect_cancels_buffered_request() -> None:
    cancelled = asyncio.Event()

    async def endpoint(request: Request) -> Response:
        await request.body()
        try:
            async with cancelled_on_disconnect(request.receive):
                await asyncio.Event().wait()
        finally:
            cancelled.set()
        return PlainTextResponse("never")

    app = RequestContext(Starlette(routes=[Route("/", endpoint, methods=["POST"])]))
    async with serve(app) as url:
        async with httpx2.AsyncClient(timeout=0.2) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.post(url)
        async with asyncio.timeout(20):
            await cancelled.wait()
