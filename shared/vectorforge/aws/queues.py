"""A queue of SQS, from asynchronous code, with a limit on every call.

The SQS queue that wakes the ingest function: one message for each job that can be begun or runs.

A message says only that there is a job. The job itself, with its documents, is in the database, so a message
that is lost, doubled or late never costs a document.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self
from uuid import UUID

from vectorforge.aws.clients import AwsClients
from vectorforge.errors import InvalidInputError, QueueError

_TIMEOUT_S = 5.0
"""Longest wait for a call; one that is given up may still succeed, which does no harm."""
_ENTRIES_A_CALL = 10  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html


class SqsQueue:
    """What a consumer may do to the messages it has received. Nothing connects before the first call.

    Args:
        clients: Where the SQS client comes from.
        url: Of the queue.
    """

    def __init__(self, clients: AwsClients, url: str) -> None:
        self._clients = clients
        self._url = url

    async def hold(self, receipt_handles: Sequence[str], seconds: int) -> None:
        """Keep messages out of sight for so long from now on, 0 to 43,200 s; some may be gone already.

        Raises:
            QueueError: The queue did not answer, or refused.
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
    """What a message of the queue says."""

    tenant_id: str
    job_id: UUID
    waits: int = 0
    """How often in a row it was seen and could not be worked on."""

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Self:
        """The job that a message's JSON names.

        Raises:
            InvalidInputError: It names none.
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
        """The message; ASCII only."""
        return json.dumps({"tenant_id": self.tenant_id, "job_id": str(self.job_id), "waits": self.waits})

    def later(self) -> "AnnouncedJob":
        """The same job, seen once more in vain."""
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
    """Seconds until it is seen, at most 900: SQS takes no more."""

    def body(self) -> str:
        """The message; ASCII only."""
        return json.dumps(self.BODY)


class IngestionQueue(SqsQueue):
    """Sends messages, and keeps those that are being worked on from being delivered to somebody else."""

    async def announce(self, job: AnnouncedJob | AnyJob) -> None:
        """Send a message, to be delivered after ``job.delay_s``.

        Raises:
            QueueError: It may not have been taken.
            ConfigurationError: As ``AwsClients.get``.
        """
        await self._call("send_message", MessageBody=job.body(), DelaySeconds=job.delay_s)
