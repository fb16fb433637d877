"""When messages of the ingestion queue are seen again: not while worked on, and not at once after a failure.

Until then no other invocation gets them. The calls are best effort: a message that is delivered twice meets
a job that is held, or has ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from vectorforge.aws.ingestion_queue import IngestionQueue
from vectorforge.errors import VectorForgeError
from vectorforge.serverless.ingest_events import Message

logger = logging.getLogger(__name__)

HELD_S = 60
"""For so long a message stays out of sight without a sign of life of whoever works on it."""
_BEATS_A_HOLD = 3
_FIRST_RETRY_S = 30
_MAX_RETRY_S = 3600


@asynccontextmanager
async def held(queue: IngestionQueue, receipt_handles: Sequence[str], seconds: int) -> AsyncIterator[None]:
    """Keep messages out of sight while they are worked on, and not for long after a kill."""

    async def beat() -> None:
        while True:
            try:
                await queue.hold(receipt_handles, seconds)
            except VectorForgeError:  # they may be delivered twice, which a job's lease bears
                logger.warning("The messages being worked on could not be held back")
            await asyncio.sleep(seconds / _BEATS_A_HOLD)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def put_off(
    queue: IngestionQueue, messages: Sequence[Message], failed: set[str], malformed: set[str]
) -> None:
    """Let failed messages wait, longer each time, so that an outage does not use up their deliveries.

    For one that cannot be understood there is nothing to wait for.
    """
    for message in messages:
        if message.id not in failed | malformed:
            continue
        seconds = min(_FIRST_RETRY_S * 4 ** (message.receive_count - 1), _MAX_RETRY_S)
        try:
            await queue.hold([message.receipt_handle], 0 if message.id in malformed else seconds)
        except VectorForgeError:
            logger.warning("Message %s could not be put off", message.id)
