"""An app without a framework that violates ASGI."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive, Scope, Send

from tests.functions.gated_stream import gated_tokens, say


async def careless(scope: Scope, receive: Receive, send: Send) -> None:
    """Violate ASGI in a way selected by the path."""
    if scope["type"] == "lifespan":
        raise NotImplementedError("no lifespan here")
    await receive()
    path, headers = scope["path"], []
    if path == "/split-header":
        headers = [(b"x-name", b"value\r\nset-cookie: stolen=1")]
    elif path == "/long-headers":
        headers = [(b"x-long", b"a" * 20_000)]
    if path != "/body-first":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path in CARELESS_BODIES:
        await CARELESS_BODIES[path](send)
    if path not in ("/no-body", "/half"):
        await send({"type": "http.response.body", "body": b"end"})


async def send_half(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def send_deaf(send: Send) -> None:
    """Send without listening for the disconnect or stopping."""
    for _ in range(50):
        await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        await asyncio.sleep(0.001)
    say("deaf app done")


async def slow_to_close() -> AsyncIterator[bytes]:
    try:
        async for piece in gated_tokens():
            yield piece
    finally:
        await asyncio.sleep(0.05)  # as returning a connection takes time
        say("slow generator closed")


async def send_first_piece(send: Send) -> None:
    """Send the first piece of a generator, and drop it."""
    async for piece in slow_to_close():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        break


CARELESS_BODIES = {"/half": send_half, "/deaf": send_deaf, "/drops-generator": send_first_piece}
