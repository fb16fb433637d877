"""SQS queues: calls with a time limit, wake-up messages of the ingest function, visibility of messages.

A wake-up message only signals that a job exists. The job and its documents are in the database, so a lost,
duplicated or late message never loses a document. Visibility calls are best effort: a message delivered twice
meets a job that is claimed or finished, or a row that exists.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self
from uuid import UUID

from vectorforge.aws.clients import AwsClients
from vectorforge.deadline import wait_for
from vectorforge.errors import InvalidInputError, QueueError, VectorForgeError

_TIMEOUT_S = 5.0
"""Time limit of a call; one that timed out may still succeed, which is harmless."""
_ENTRIES_A_CALL = 10  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html


class SqsQueue:
    """Queue seen by a consumer; connects on the first call."""

    def __init__(self, clients: AwsClients, url: str) -> None:
        self._clients = clients
        self._url = url

    async def hold(self, receipt_handles: Sequence[str], seconds: int) -> None:
        """Set the visibility timeout of messages, 0 to 43,200 s; some may be deleted already.

        Raises:
            QueueError: The queue did not respond, or denied access.
            ConfigurationError: As ``AwsClients.get``.
        """
        for start in range(0, len(receipt_handles), _ENTRIES_A_CALL):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
                for number, handle in enumerate(receipt_handles[start : start + _ENTRIES_A_CALL])
            ]
            await self._call("change_message_visibility_batch", Entries=entries)

    async def _call(self, operation: str, **parameters: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        def call() -> None:
            getattr(self._clients.get("sqs"), operation)(QueueUrl=self._url, **parameters)

        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await asyncio.to_thread(call)
        except (BotoCoreError, ClientError, TimeoutError) as exc:
            raise QueueError from exc


_MAX_DELAY_S = 120
_FIRST_DELAY_S = 10


@dataclass(frozen=True, slots=True)
class AnnouncedJob:
    """Content of a message of the queue."""

    tenant_id: str
    job_id: UUID
    waits: int = 0
    """Consecutive deliveries without progress."""

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """Parse a message's JSON.

        Raises:
            InvalidInputError: It names no job.
        """
        tenant_id, waits = body.get("tenant_id"), body.get("waits", 0)
        try:
            job_id = UUID(body["job_id"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInputError("job_id must be a UUID.", field="job_id") from None
        if not isinstance(tenant_id, str):
            raise InvalidInputError("tenant_id must be text.", field="tenant_id")
        if not isinstance(waits, int) or waits < 0:
            raise InvalidInputError("waits must be a whole number from 0.", field="waits")
        return cls(tenant_id, job_id, waits)

    def body(self) -> str:
        """Return the message; ASCII only."""
        return json.dumps({"tenant_id": self.tenant_id, "job_id": str(self.job_id), "waits": self.waits})

    def later(self) -> "AnnouncedJob":
        """Return the message for the next attempt, after one without progress."""
        return replace(self, waits=self.waits + 1)

    @property
    def delay_s(self) -> int:
        """Seconds until the message is seen: none at first, then 10, 20, 40 and so on to two minutes."""
        return min(_FIRST_DELAY_S * 2 ** min(self.waits - 1, 10), _MAX_DELAY_S) if self.waits else 0


@dataclass(frozen=True, slots=True)
class AnyJob:
    """A message that names no job: there is one that waits."""

    BODY: ClassVar[dict[str, str]] = {"job": "any"}

    delay_s: int = 0
    """Delay in seconds, at most 900 (limit of SQS)."""

    def body(self) -> str:
        """Return the message; ASCII only."""
        return json.dumps(self.BODY)


class IngestionQueue(SqsQueue):
    """Queue of the ingest function, to which jobs are announced."""

    async def announce(self, job: AnnouncedJob | AnyJob) -> None:
        """Send a message, to be delivered after ``job.delay_s``.

        Raises:
            QueueError: It may not have been taken.
            ConfigurationError: As ``AwsClients.get``.
        """
        await self._call("send_message", MessageBody=job.body(), DelaySeconds=job.delay_s)


logger = logging.getLogger(__name__)

VISIBILITY_S = 60
"""Visibility timeout of a message without a heartbeat of its consumer."""
_BEATS_A_HOLD = 3


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """Message of an SQS event."""

    id: str
    receipt_handle: str
    receive_count: int
    """Deliveries so far, this one included."""
    body: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Parse a record of an SQS event."""
        attributes = record.get("attributes", {})
        return cls(
            id=record["messageId"],
            receipt_handle=record["receiptHandle"],
            receive_count=int(attributes.get("ApproximateReceiveCount", 1)),
            body=record["body"],
        )


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """Backoff of a failed message, in seconds."""

    first_s: int = 30
    factor: int = 4
    longest_s: int = 3600

    def after(self, receive_count: int) -> int:
        """Return the wait after a number of deliveries, from 1."""
        return int(min(self.first_s * self.factor ** min(receive_count - 1, 20), self.longest_s))


@asynccontextmanager
async def hide_messages(queue: SqsQueue, receipt_handles: Sequence[str], seconds: int) -> AsyncIterator[None]:
    """Hide messages while they are processed, and only briefly after a kill."""
    done = asyncio.Event()

    async def beat() -> None:
        while not done.is_set():
            try:
                await queue.hold(receipt_handles, seconds)
            except VectorForgeError:  # they may be delivered twice, which a job's lease bears
                logger.warning("The visibility timeout of running messages could not be extended")
            await wait_for(done, seconds / _BEATS_A_HOLD)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        done.set()  # not cancel: the thread of a call continues, and would hide messages shown after this
        await beating


async def delay_messages(
    queue: SqsQueue, messages: Iterable[ReceivedMessage], waits: RetryWaits = RetryWaits()
) -> None:
    """Delay failed messages, longer each time, so that an outage does not use up their deliveries."""
    by_wait: defaultdict[int, list[ReceivedMessage]] = defaultdict(list)
    for message in messages:
        by_wait[waits.after(message.receive_count)].append(message)
    for seconds, together in by_wait.items():
        await postpone_messages(queue, together, seconds)


async def postpone_messages(queue: SqsQueue, messages: Sequence[ReceivedMessage], seconds: int) -> None:
    """Make messages visible after some seconds; 0: at once."""
    try:
        await queue.hold([message.receipt_handle for message in messages], seconds)
    except VectorForgeError as exc:
        logger.warning("%d messages could not be put off: %s", len(messages), exc.message)
