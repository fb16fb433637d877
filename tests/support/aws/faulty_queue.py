"""An SQS event source whose queue redelivers, postpones and shuffles messages more often than SQS does."""

import dataclasses
from dataclasses import dataclass, field
from random import Random
from typing import Any

from infra.emulator.lambda_service.queue_event_source import BatchResult, QueueEventSource
from infra.emulator.lambda_service.queue_events import Message


@dataclass(frozen=True, slots=True)
class DeliveryFaults:
    """Faults that a standard queue permits, at a higher rate.

    Only the first two receives of a message are affected, so that none reaches a dead-letter queue.
    """

    redelivered: float = 0.0
    """Share of processed messages that are redelivered instead of deleted."""
    postponed: float = 0.0
    """Share of messages that return to the queue unprocessed, which reorders them."""
    shuffled: bool = False
    """Shuffle the records of an event."""
    random: Random = field(default_factory=Random)


class FaultyQueueEventSource(QueueEventSource):
    """An event source with ``DeliveryFaults``; the other arguments are those of ``QueueEventSource``."""

    def __init__(self, *args: Any, faults: DeliveryFaults, **options: Any) -> None:
        super().__init__(*args, **options)
        self._faults = faults

    async def _gather(self) -> list[Message]:
        remaining = []
        for message in await super()._gather():
            if self._is_hit(message["Attributes"], self._faults.postponed):
                await self._show(message["ReceiptHandle"])
            else:
                remaining.append(message)
        return remaining

    async def _deliver(self, records: list[dict[str, Any]]) -> None:
        if self._faults.shuffled:
            self._faults.random.shuffle(records)
        await super()._deliver(records)

    async def _settle(self, result: BatchResult) -> None:
        again = set()
        for record in result.records:
            redelivered = self._is_hit(record["attributes"], self._faults.redelivered)
            if record["messageId"] not in result.failed and redelivered:
                await self._show(record["receiptHandle"])
                again.add(record["messageId"])
        await super()._settle(dataclasses.replace(result, failed=result.failed | again))

    async def _show(self, receipt_handle: str) -> None:
        """Make a message visible immediately."""
        await self._call(
            lambda: self._sqs.change_message_visibility(
                QueueUrl=self._queue_url, ReceiptHandle=receipt_handle, VisibilityTimeout=0
            )
        )

    def _is_hit(self, attributes: dict[str, str], share: float) -> bool:
        return int(attributes["ApproximateReceiveCount"]) <= 2 and self._faults.random.random() < share
