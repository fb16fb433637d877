"""Small apps on the streaming runtime: what test_runtime_*.py run in processes of their own."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from mangum import Mangum

from vectorforge.runtime import StreamingHandler

app = FastAPI()


async def gated_tokens() -> AsyncIterator[bytes]:
    """What comes from ``GATE`` (host:port): a stand-in for a provider's stream."""
    host, port = os.environ["GATE"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        while line := await reader.readline():
            yield line
    finally:
        writer.close()
        print("generator finalised", flush=True)  # noqa: T201  # read by the tests


@app.get("/tokens")
async def tokens() -> StreamingResponse:
    return StreamingResponse(gated_tokens(), media_type="text/event-stream")


@app.post("/echo")
async def echo(request: Request) -> dict[str, Any]:
    return {"body": (await request.body()).decode(), "query": str(request.query_params)}


handler = StreamingHandler(app)
buffered = Mangum(app, lifespan="off")


def plain(event: Any, _context: Any) -> Any:
    return {"got": event}
