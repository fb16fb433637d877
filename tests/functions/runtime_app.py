"""Small apps on the streaming runtime, which tests run in processes of their own."""

import asyncio
import gc
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from mangum import Mangum
from snapshot_restore_py import register_after_restore, register_before_snapshot
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint

from tests.functions.careless_app import careless
from tests.functions.gated_stream import gated_tokens, say
from tests.functions.slow_lifespans import never_left, slow_lifespan
from vectorforge.runtime import StreamingHandler, can_stream, event_loop, run_in_loop

SECRET = "canary-in-the-exception"


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    say(f"lifespan entered, can stream: {can_stream()}")
    yield {"loop": id(asyncio.get_running_loop())}
    say("lifespan left")


app = FastAPI(lifespan=lifespan)


@app.get("/tokens")
async def tokens() -> StreamingResponse:
    return StreamingResponse(gated_tokens(), media_type="text/event-stream")


@app.get("/tokens-after-response")
async def tokens_in_background() -> Response:
    async def work() -> None:
        await asyncio.sleep(0.2)
        say("background task done")

    return StreamingResponse(iter([b"answer"]), background=BackgroundTask(work))


@app.get("/sync")
def synchronous() -> StreamingResponse:
    def pieces() -> Iterator[str]:
        yield from ("one ", "two ", "three")

    return StreamingResponse(pieces(), media_type="text/plain")


@app.api_route("/echo", methods=["GET", "POST", "HEAD"])
async def echo(request: Request) -> dict[str, Any]:
    context = request.scope["aws.context"]
    return {
        "method": request.method,
        "path": request.url.path,
        "root_path": request.scope["root_path"],
        "query": request.url.query,
        "body": (await request.body()).decode(),
        "cookies": request.cookies,
        "spec_version": request.scope["asgi"]["spec_version"],
        "event_version": request.scope["aws.event"].get("version"),
        "request_id": context.aws_request_id,
        "remaining_ms": context.get_remaining_time_in_millis(),
        "client_context": context.client_context and context.client_context.custom,
        "trace_id": os.environ.get("_X_AMZN_TRACE_ID"),
        "same_loop": request.state.loop == id(asyncio.get_running_loop()),
        "pid": os.getpid(),
    }


@app.get("/headers")
async def headers() -> Response:
    response = Response("ok")
    for name, value in [("x-several", "a"), ("x-several", "b"), ("set-cookie", "c=1"), ("set-cookie", "d=2")]:
        response.headers.append(name, value)
    response.headers["connection"] = "keep-alive"
    return response


@app.get("/no-content", status_code=204)
async def no_content() -> None: ...


@app.get("/fails-before")
async def fails_before() -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        if SECRET:
            raise ValueError(SECRET)
        yield b""

    return StreamingResponse(pieces())


@app.get("/fails-after")
async def fails_after() -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.sleep(0.2)  # until the front door has relayed the beginning
        raise ValueError(SECRET)

    return StreamingResponse(pieces())


@app.get("/raises")
async def raises() -> None:
    raise ValueError(SECRET)


@app.get("/never-ends")
async def never_ends() -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            await asyncio.sleep(3600)
        finally:
            say("generator finalised")

    return StreamingResponse(pieces())


@app.get("/never-begins")
async def never_begins() -> None:
    await asyncio.sleep(3600)


@app.get("/sync-generator/{seconds}")
async def synchronous_generator(seconds: float) -> StreamingResponse:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        time.sleep(seconds)
        say("synchronous generator goes on")
        yield b"late"

    return StreamingResponse(pieces())


@app.get("/ignores-cancellation")
async def ignores_cancellation() -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        while not os.environ.get("NEVER"):
            try:
                await asyncio.sleep(0.1)
                yield b"late"
            except asyncio.CancelledError:  # anyio cancels repeatedly
                continue

    return StreamingResponse(pieces())


@app.get("/blocks/{seconds}")
async def blocks(seconds: float) -> None:
    say("blocking")
    time.sleep(seconds)  # noqa: ASYNC251  # what is shown


@app.get("/megabytes/{count}")
async def megabytes(count: int) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(count):
            say(f"megabyte {number + 1}")
            yield bytes(2**20)

    return StreamingResponse(pieces())


@app.get("/statistics")
def statistics() -> dict[str, int]:
    gc.collect()
    return {
        "open_files": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks(event_loop())),
        "generators": sum(isinstance(thing, AsyncGeneratorType) for thing in gc.get_objects()),
        "memory": tracemalloc.get_traced_memory()[0],
    }


handler = StreamingHandler(app, deadline_margin_s=0.6)
buffered = Mangum(app, lifespan="off")


def plain(event: Any, context: Any) -> Any:
    """Handle events without ASGI."""
    if event == "fail":
        raise ValueError("plain failure")
    if event == "surrogate":
        return {"text": "\ud800"}
    return "a" * event if isinstance(event, int) else {"got": event, "request_id": context.aws_request_id}


slow_app = FastAPI(lifespan=slow_lifespan, routes=app.routes)
slow_handler = StreamingHandler(slow_app, deadline_margin_s=0.6)


def hides_its_handler(event: Any, context: Any) -> Any:
    """Enter the lifespan with the first request."""
    return slow_handler(event, context)


slow_to_leave = StreamingHandler(FastAPI(lifespan=never_left, routes=app.routes))


def plain_that_waits(event: Any, context: Any) -> None:
    """Handle events without ASGI, slowly."""
    say("blocking")
    time.sleep(60)


class Observed(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


under_middleware = StreamingHandler(Observed(app), lifespan="off", deadline_margin_s=0.6)
under_base_path = StreamingHandler(app, api_gateway_base_path="/shop")


careless_handler = StreamingHandler(careless)
careless_handler_with_lifespan = StreamingHandler(careless, lifespan="on")


@asynccontextmanager
async def failing_lifespan(_app: FastAPI) -> AsyncIterator[None]:
    if SECRET:
        raise AttributeError("no database")
    yield


failing_startup = StreamingHandler(FastAPI(lifespan=failing_lifespan))


class Started:
    """A handler with its own hooks, as in a composed function."""

    def startup(self) -> None:
        say("startup")
        if os.environ.get("FAIL_STARTUP"):
            raise AttributeError("nothing of that name")

    def shutdown(self) -> None:
        say("shutdown")

    def __call__(self, event: Any, context: Any) -> Any:
        return handler(event, context)


started = Started()


@register_before_snapshot  # type: ignore[untyped-decorator]  # shipped without types
def before_snapshot() -> None:
    say("before snapshot")


@register_after_restore  # type: ignore[untyped-decorator]  # shipped without types
def after_restore() -> None:
    async def check() -> int:
        return id(asyncio.get_running_loop())

    say(f"after restore: {os.environ.get('FAIL_RESTORE', run_in_loop(check()) > 0)}")
    if "FAIL_RESTORE" in os.environ:
        raise RuntimeError("stale")
