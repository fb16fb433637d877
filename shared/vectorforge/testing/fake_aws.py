"""AWS services as moto answers them, over HTTP: what boto3 sends goes through a real socket."""

import json
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

REGION = "eu-central-1"


class FakeAws:
    """One moto server, empty at first; use it as a context manager."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()
        self._server.stop()

    @cached_property
    def url(self) -> str:
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables with which boto3 finds the server, in this process or another."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
        }

    def reset(self) -> None:
        """Forget everything."""
        with urlopen(Request(f"{self.url}/moto-api/reset", method="POST")):  # noqa: S310 - our own server
            pass

    def client(self, service: str) -> Any:
        """A boto3 client of the server."""
        import boto3

        if service not in self._clients:
            session = boto3.session.Session(
                aws_access_key_id="testing",
                aws_secret_access_key="testing",  # noqa: S106 - moto takes any
                region_name=REGION,
            )
            self._clients[service] = session.client(service, endpoint_url=self.url)
        return self._clients[service]

    def create_queue(
        self, name: str, *, visibility_s: int = 60, max_receive_count: int = 5
    ) -> tuple[str, str]:
        """A queue with a dead-letter queue; the URLs of both."""
        sqs = self.client("sqs")
        dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": max_receive_count}
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(redrive)}
        return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"], dead

    def count(self, queue_url: str) -> tuple[int, int, int]:
        """Messages of a queue: visible, being worked on, delayed."""
        names = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ]
        found = self.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)[
            "Attributes"
        ]
        visible, hidden, delayed = (int(found[name]) for name in names)
        return visible, hidden, delayed

    def receive(self, queue_url: str, *, most: int = 10) -> list[dict[str, Any]]:
        """Messages, as records of the event that Lambda makes of them."""
        received = self.client("sqs").receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=most, MessageSystemAttributeNames=["All"]
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
                "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:{queue_url.rsplit('/', 1)[1]}",
                "awsRegion": REGION,
            }
            for message in received.get("Messages", [])
        ]
