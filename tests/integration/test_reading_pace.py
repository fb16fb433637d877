"""Buffers of a server for a client that does not read, and their timeout."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tests.support.http.live_server import serve
from vectorforge.api.middleware.guards import PART_BYTES, ReadingPace

BODY = bytes(range(256)) * 64 * 1024
"""16 MiB: more than the system's buffers hold."""
SIZES = [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1, len(BODY)]

Endpoint = Callable[[Request], Awaitable[Response]]


async def whole(_: Request) -> Response:
    return Response(BODY)


async def streamed(_: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(BODY), 1000):
            yield BODY[start : start + 1000]

    return StreamingResponse(parts())


async def nothing() -> Message:
    """Receive channel of a client that sends nothing more."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


class Watched:
    """An app that records the data sent to the server."""

    def __init__(self, endpoint: Endpoint, stall_s: float = 10) -> None:
        self.over = asyncio.Event()
        self.sizes: list[int] = []
        """Sizes of the bodies' parts, in bytes."""
        inner = Starlette(routes=[Route("/", endpoint)])
        self._app = ReadingPace(inner, stall_s=stall_s, slowest_bytes_per_s=1e9)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting_send(message: Message) -> None:
            self.sizes.append(len(message.get("body", b"")))
            await send(message)

        await self._app(scope, receive, noting_send)
        if scope["type"] == "http":
            self.over.set()


# faults.md row 47: a bounded buffer, and an end, for slow readers of any response
@pytest.mark.parametrize("endpoint", [whole, streamed])
async def test_stalled_reader_is_disconnected(endpoint: Endpoint) -> None:
    app = Watched(endpoint, stall_s=0.2)
    async with serve(app) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            await app.over.wait()
        assert sum(app.sizes) < len(BODY)
        assert max(app.sizes) <= PART_BYTES
        del reader  # referenced until here: otherwise nothing is open
        writer.close()


async def test_stalled_send_in_other_task_raises_oserror() -> None:  # as a stored answer does
    found: list[str] = []

    async def never(_: Message) -> None:
        await asyncio.Event().wait()

    async def inner(_: Scope, __: Receive, send: Send) -> None:
        message = {"type": "http.response.body", "body": b"x", "more_body": True}
        sending = asyncio.ensure_future(send(message))
        await asyncio.wait({sending})
        found.append(repr(sending.exception()))
        with pytest.raises(OSError, match="too slowly"):
            await send(message)
        await asyncio.sleep(0.3)
        found.append("over")

    async with asyncio.timeout(20):
        await ReadingPace(inner, stall_s=0.1)({"type": "http"}, nothing, never)
    assert found == ["OSError('the client reads its response too slowly')", "over"]


async def test_cancellation_during_send_is_propagated() -> None:
    sending = asyncio.Event()

    async def never(_: Message) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def inner(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"x"})

    task = asyncio.create_task(ReadingPace(inner)({"type": "http"}, nothing, never))
    await sending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("size", SIZES)
async def test_reading_client_receives_the_whole_body(size: int) -> None:
    async def answer(_: Request) -> Response:
        return Response(BODY[:size])

    app = Watched(answer)
    async with serve(app) as url, httpx2.AsyncClient() as client:
        response = await client.get(url)
    assert response.content == BODY[:size]
    assert response.headers["content-length"] == str(size)
    assert max(app.sizes) <= PART_BYTES
