"""Vectors of questions that are kept for the next time the same is asked."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

from vectorforge.errors import VectorForgeError
from vectorforge.types import Collection, Vector

logger = logging.getLogger(__name__)

_KEEP_TIMEOUT_S = 1.0


class QueryVectors(Protocol):
    """Where vectors of questions are kept for all processes; ``QueryVectorRepository``."""

    async def find(self, collection_id: UUID, query: str) -> tuple[Collection | None, Vector | None]:
        """The collection, and the question's vector in its space; each None when it is not there."""
        ...

    async def keep(self, collection: Collection, query: str, vector: Vector) -> None:
        """Keep the vector that the collection's own model made of the question."""
        ...


@asynccontextmanager
async def store_in_background(keep: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Keep a vector while the block searches. Its failure is not the block's; the block's ends it."""

    async def keep_in_time() -> None:
        try:
            async with asyncio.timeout(_KEEP_TIMEOUT_S):
                await keep()
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The question's vector was not kept: %s", type(exc).__name__)

    task = asyncio.create_task(keep_in_time())
    try:
        yield
    except BaseException:
        task.cancel()
        raise
    finally:
        await asyncio.gather(task, return_exceptions=True)
