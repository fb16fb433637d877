"""The app of the Lambda figures with plain FastAPI and Mangum, buffered."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from mangum import Mangum

CHUNK = b"x" * 60

app = FastAPI()


@app.get("/chunks")
async def chunks(number: int, pause_ms: float = 0.0) -> StreamingResponse:
    """Stream this number of chunks with a pause after each."""

    async def body() -> AsyncIterator[bytes]:
        for _ in range(number):
            yield CHUNK
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    return StreamingResponse(body(), media_type="application/octet-stream")


handler = Mangum(app, lifespan="off")
