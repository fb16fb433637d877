"""Visibility of messages that are being processed, against a slow queue."""

import asyncio
import threading
import time
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.queues import ReceivedMessage, SqsQueue, hide_messages, postpone_messages


class SlowSqs(AwsClients):
    """Clients whose SQS answers its first call late."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[int] = []
        self.entered = threading.Event()

    def get(self, service: str) -> Any:
        return self

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> None:  # noqa: N803
        if not self.entered.is_set():
            self.entered.set()
            time.sleep(0.2)
        self.timeouts.append(Entries[0]["VisibilityTimeout"])


async def test_message_shown_after_processing_stays_visible() -> None:
    sqs = SlowSqs()
    queue = SqsQueue(sqs, "https://sqs.example/queue")
    message = ReceivedMessage(id="1", receipt_handle="handle", receive_count=1, body="{}")
    async with hide_messages(queue, ["handle"], 60):
        await asyncio.to_thread(sqs.entered.wait)
    await postpone_messages(queue, [message], 0)
    await asyncio.sleep(0.3)  # for threads that are left
    assert sqs.timeouts == [60, 0]
