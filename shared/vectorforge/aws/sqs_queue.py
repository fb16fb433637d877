"""A queue of SQS, from asynchronous code, with a limit on every call."""

import asyncio
from collections.abc import Sequence
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.errors import QueueError

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
