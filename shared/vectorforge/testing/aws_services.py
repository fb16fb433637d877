"""SQS and S3 over real HTTP, by moto, and what Lambda's event source makes of a queue."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moto.server import ThreadedMotoServer

from vectorforge.aws.clients import AwsClients

REGION = "eu-central-1"
Handler = Callable[[dict[str, Any], Any], Any]


@contextmanager
def aws_server() -> Iterator[str]:
    """A server of AWS's interfaces; its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def aws_environment(endpoint: str) -> dict[str, str]:
    """The variables that lead boto3 there."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",  # no real credential
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
    }


@dataclass(frozen=True, slots=True)
class LambdaContext:
    """What a function is told about its invocation."""

    function_name: str = "test"
    memory_limit_in_mb: int = 128
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:123456789012:function:test"
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"
    remaining_ms: int = 30_000

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds left."""
        return self.remaining_ms


class Queue:
    """A queue with a dead-letter queue, and the event source between it and a function.

    Args:
        clients: Of the process.
        max_receive_count: Deliveries before a message goes to the dead-letter queue.
        visibility_s: Seconds after which a message that was not deleted comes again.
    """

    def __init__(self, clients: AwsClients, *, max_receive_count: int = 5, visibility_s: int = 30) -> None:
        self._sqs = clients.get("sqs")
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.dead_letter_url: str = self._sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        redrive = {
            "deadLetterTargetArn": self._arn(self.dead_letter_url),
            "maxReceiveCount": max_receive_count,
        }
        self.url: str = self._sqs.create_queue(
            QueueName=name,
            Attributes={
                "RedrivePolicy": json.dumps(redrive),
                "MaximumMessageSize": "1048576",
                "VisibilityTimeout": str(visibility_s),
            },
        )["QueueUrl"]

    def send(self, *bodies: str) -> None:
        """Put messages into the queue."""
        for body in bodies:
            self._sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def bodies(self, *, dead: bool = False) -> list[str]:
        """Take all messages out of the queue, or out of its dead-letter queue."""
        url = self.dead_letter_url if dead else self.url
        found = []
        while messages := self._receive(url):
            found += [message["body"] for message in messages]
            self._delete(url, messages)
        return found

    def event(self, *, batch_size: int = 10) -> dict[str, Any] | None:
        """The next messages as an event, a multiple of ten at most; None when there are none."""
        messages: list[dict[str, Any]] = []
        while len(messages) < batch_size and (more := self._receive(self.url)):
            messages += more
        return {"Records": messages} if messages else None

    def settle(self, event: Mapping[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Delete what the function stored, show the rest again; no answer: the function failed altogether."""
        records = event["Records"]
        failed = {record["messageId"] for record in records}
        if answer is not None:
            failed = {item["itemIdentifier"] for item in answer["batchItemFailures"]}
        self._delete(self.url, [record for record in records if record["messageId"] not in failed])
        for record in records:
            if record["messageId"] in failed:
                self._sqs.change_message_visibility(
                    QueueUrl=self.url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=0
                )

    def deliver(self, handler: Handler, *, rounds: int = 100) -> int:
        """Invoke the function until the queue is empty; how many events it got."""
        for number in range(rounds):
            event = self.event()
            if event is None:
                return number
            self.settle(event, handler(event, LambdaContext()))
        return rounds

    def _receive(self, url: str) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "md5OfBody": message["MD5OfBody"],
                "eventSource": "aws:sqs",
                "eventSourceARN": self._arn(url),
                "awsRegion": REGION,
            }
            for message in answer.get("Messages", [])
        ]

    def _delete(self, url: str, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["receiptHandle"])

    def _arn(self, url: str) -> str:
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn: str = answer["Attributes"]["QueueArn"]
        return arn


def create_bucket(clients: AwsClients) -> str:
    """A new bucket; its name."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    clients.get("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name
