"""The same small FastAPI application around any contestant, as its users would write it.

<the contestant's python> -m peers.serve NAME PORT
"""

import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from peers import job

contestant: job.Contestant = importlib.import_module(f"peers.contestants.{sys.argv[1]}").Contestant()


class Question(BaseModel):
    """The request."""

    question: str
    category: str


class Source(BaseModel):
    """A chunk in the response."""

    id: str
    score: float
    metadata: dict[str, Any]


class AnswerBody(BaseModel):
    """The response."""

    answer: str
    sources: list[Source]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    await contestant.open()
    yield
    await contestant.close()


app = FastAPI(lifespan=_lifespan)


@app.get("/health")
async def health() -> dict[str, bool]:
    """Respond to health checks."""
    return {"ok": True}


@app.post("/query", response_model=AnswerBody)
async def query(body: Question) -> dict[str, Any]:
    """Answer a query."""
    answer = await contestant.query(body.question, body.category)
    return {"answer": answer.text, "sources": answer.sources}


@app.post("/stream")
async def stream(body: Question) -> StreamingResponse:
    """Answer a query as server-sent events."""

    async def events() -> AsyncIterator[str]:
        async for piece in contestant.stream(body.question, body.category):
            yield f"data: {piece}\n\n"
        yield "event: done\ndata: \n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
