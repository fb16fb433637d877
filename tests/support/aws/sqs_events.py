"""An SQS queue and Lambda's event source, which a test drives step by step.

For an event source that runs on its own, see ``infra.emulator.lambda_service.queue_event_source``.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.emulator.lambda_service.queue_events import record
from tests.support.aws.lambda_context import LambdaContext

Handler = Callable[[dict[str, Any], Any], Any]

_RECEIVE_LIMIT = 10
"""Messages of one call of ReceiveMessage, at most."""
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class Queue:
    """A new queue with a dead-letter queue, and the event source between it and a function.

    Args:
        sqs: A boto3 client, e.g. ``FakeAws.client("sqs")``.
        name: Prefix of the queue's name.
        max_receive_count: Deliveries before a message goes to the dead-letter queue.
        visibility_s: Seconds after which a message that was not deleted is visible again.
    """

    def __init__(
        self, sqs: Any, name: str = "test", *, max_receive_count: int = 5, visibility_s: int = 60
    ) -> None:
        self._sqs = sqs
        name = f"{name}-{uuid.uuid4().hex[:12]}"
        self.dead_letter_url: str = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        redrive = {
            "deadLetterTargetArn": self._arn(self.dead_letter_url),
            "maxReceiveCount": max_receive_count,
        }
        self.url: str = sqs.create_queue(
            QueueName=name,
            Attributes={
                "RedrivePolicy": json.dumps(redrive),
                "MaximumMessageSize": "1048576",
                "VisibilityTimeout": str(visibility_s),
            },
        )["QueueUrl"]

    def send(self, *bodies: str, trace: str | None = None) -> None:
        """Put messages into the queue.

        Args:
            **bodies: Body of each message.
            trace: X-Ray header of the sender.
        """
        header = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}} if trace else {}
        for body in bodies:
            self._sqs.send_message(QueueUrl=self.url, MessageBody=body, MessageSystemAttributes=header)

    def purge(self) -> None:
        """Delete all messages of the queue."""
        self._sqs.purge_queue(QueueUrl=self.url)

    def count(self, *, dead: bool = False) -> tuple[int, int, int]:
        """Messages of the queue, or of its dead-letter queue: visible, being worked on, delayed."""
        attributes = self._sqs.get_queue_attributes(
            QueueUrl=self.dead_letter_url if dead else self.url, AttributeNames=list(_COUNTS)
        )["Attributes"]
        visible, hidden, delayed = (int(attributes[name]) for name in _COUNTS)
        return visible, hidden, delayed

    def bodies(self, *, dead: bool = False) -> list[str]:
        """Take all messages out of the queue, or out of its dead-letter queue."""
        url = self.dead_letter_url if dead else self.url
        found = []
        while records := self._receive(url):
            found += [one["body"] for one in records]
            self._delete(url, records)
        return found

    def receive(self, *, most: int = _RECEIVE_LIMIT) -> list[dict[str, Any]]:
        """Receive the next messages as records of an event, at most ten."""
        return self._receive(self.url, most)

    def event(self, *, batch_size: int = _RECEIVE_LIMIT) -> dict[str, Any] | None:
        """Receive up to a multiple of ten messages as an event, or return None if the queue is empty."""
        records: list[dict[str, Any]] = []
        while len(records) < batch_size and (more := self.receive()):
            records += more
        return {"Records": records} if records else None

    def delete(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Delete the messages of these records."""
        self._delete(self.url, records)

    def show(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Make the messages of these records visible immediately."""
        for one in records:
            self._sqs.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=one["receiptHandle"], VisibilityTimeout=0
            )

    def settle(self, event: Mapping[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Delete the stored messages and show the others: all, if the function did not answer."""
        records = event["Records"]
        failed = {one["messageId"] for one in records} if answer is None else failed_ids(answer)
        self.delete([one for one in records if one["messageId"] not in failed])
        self.show([one for one in records if one["messageId"] in failed])

    def deliver(self, handler: Handler, *, rounds: int = 100) -> int:
        """Invoke the function until the queue is empty; return the number of events."""
        for number in range(rounds):
            event = self.event()
            if event is None:
                return number
            self.settle(event, handler(event, LambdaContext()))
        return rounds

    def _receive(self, url: str, most: int = _RECEIVE_LIMIT) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=most,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages = answer.get("Messages", [])
        arn = self._arn(url) if messages else ""
        return [record(message, arn) for message in messages]

    def _delete(self, url: str, records: Sequence[Mapping[str, Any]]) -> None:
        for one in records:
            self._sqs.delete_message(QueueUrl=url, ReceiptHandle=one["receiptHandle"])

    def _arn(self, url: str) -> str:
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn: str = answer["Attributes"]["QueueArn"]
        return arn


def failed_ids(answer: Mapping[str, Any]) -> set[str]:
    """Return the ids of the messages that a function reported as failed."""
    return {item["itemIdentifier"] for item in answer["batchItemFailures"]}
