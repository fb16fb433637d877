"""Events of an SQS event source mapping, and the failures in a function's answer.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html and
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from infra.emulator.lambda_service.invocation import Invocation

Message: TypeAlias = dict[str, Any]
"""Message of ReceiveMessage."""
MAX_EVENT_BYTES = 6 * 1024 * 1024
"""Limit of one event in bytes; larger batches are split."""


def record(message: Message, queue_arn: str) -> dict[str, Any]:
    """Return one record of the event."""
    made: dict[str, Any] = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }
    if "MD5OfMessageAttributes" in message:
        made["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return made


def _attribute(value: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        made["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        made["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode("ascii")
    return made


def cut(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield batches that fit into an event, in order; a larger record has its own batch."""
    batch: list[dict[str, Any]] = []
    size = 0
    for one in records:
        length = len(json.dumps(one)) + 2
        if batch and size + length > MAX_EVENT_BYTES - 100:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    if batch:
        yield batch


def failed_ids(invocation: Invocation, ids: Sequence[str]) -> set[str]:
    """Return the ids of a batch's messages that stay in the queue.

    Args:
        invocation: Has ended.
        ids: Message ids of the batch.
    """
    if invocation.error is not None:
        return set(ids)
    try:
        answer = json.loads(invocation.body or b"null")
        failures = (answer or {}).get("batchItemFailures") or []
        named = [failure["itemIdentifier"] for failure in failures]
    except (ValueError, AttributeError, TypeError, KeyError):
        return set(ids)  # no JSON, no object, another key: the whole batch failed
    if not all(isinstance(name, str) and name in ids for name in named):
        return set(ids)  # an empty, null or unknown identifier, too
    return set(named)
