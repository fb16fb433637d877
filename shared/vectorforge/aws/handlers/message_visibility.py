"""When messages of a queue are seen again: not while worked on, and not at once after a failure.

Until then no other invocation gets them. The calls are best effort: a message that is delivered twice meets
a job that is held or has ended, or a row that is there.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from vectorforge.aws.queues import SqsQueue
from vectorforge.errors import VectorForgeError

logger = logging.getLogger(__name__)

HELD_S = 60
"""For so long a message stays out of sight without a sign of life of whoever works on it."""
_BEATS_A_HOLD = 3


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as an SQS event delivers it."""

    id: str
    receipt_handle: str
    receive_count: int
    """Deliveries so far, this one included."""
    body: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From a record of an SQS event."""
        attributes = record.get("attributes", {})
        return cls(
            id=record["messageId"],
            receipt_handle=record["receiptHandle"],
            receive_count=int(attributes.get("ApproximateReceiveCount", 1)),
            body=record["body"],
        )


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """How long a message waits after a failure, in seconds."""

    first_s: int = 30
    factor: int = 4
    longest_s: int = 3600

    def after(self, receive_count: int) -> int:
        """The wait after so many deliveries, from 1."""
        return int(min(self.first_s * self.factor ** min(receive_count - 1, 20), self.longest_s))


@asynccontextmanager
async def held(queue: SqsQueue, receipt_handles: Sequence[str], seconds: int) -> AsyncIterator[None]:
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
    queue: SqsQueue, messages: Iterable[ReceivedMessage], waits: RetryWaits = RetryWaits()
) -> None:
    """Let failed messages wait, longer each time, so that an outage does not use up their deliveries."""
    by_wait: defaultdict[int, list[ReceivedMessage]] = defaultdict(list)
    for message in messages:
        by_wait[waits.after(message.receive_count)].append(message)
    for seconds, together in by_wait.items():
        await _hide(queue, together, seconds)


async def show_again(queue: SqsQueue, messages: Sequence[ReceivedMessage]) -> None:
    """Let messages be seen at once: those for which there is nothing to wait."""
    await _hide(queue, messages, 0)


async def _hide(queue: SqsQueue, messages: Sequence[ReceivedMessage], seconds: int) -> None:
    try:
        await queue.hold([message.receipt_handle for message in messages], seconds)
    except VectorForgeError as exc:
        logger.warning("%d messages could not be put off: %s", len(messages), exc.message)
