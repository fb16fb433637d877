"""Lifespans that are slow to enter or to leave."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from tests.functions.gated_stream import say


@asynccontextmanager
async def slow_lifespan(_app: FastAPI) -> AsyncIterator[None]:
    await asyncio.sleep(float(os.environ["LIFESPAN_S"]))
    say("slow lifespan entered")
    yield


@asynccontextmanager
async def never_left(_app: FastAPI) -> AsyncIterator[None]:
    yield
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(3600)
