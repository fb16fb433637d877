"""S3's notifications of new objects.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
"""

import itertools
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

from infra.emulator.lambda_service.function_configuration import ACCOUNT_ID, Function
from infra.emulator.lambda_service.invocation import Invocation

_sequence = itertools.count(time.time_ns())


def object_created_event(
    bucket: str, key: str, *, size: int = 0, etag: str = "", region: str = "us-east-1"
) -> dict[str, Any]:
    """The notification of a PUT, as S3 sends it to a function or a queue.

    Args:
        bucket: Name of the bucket.
        key: Key of the object, unencoded; the event has it form-encoded, as S3 does ("a b/ü.txt" ->
            "a+b/%C3%BC.txt").
        size: Bytes.
        etag: Without quotes.
        region: Region of the bucket.
    """
    number = next(_sequence)
    return {
        "Records": [
            {
                "eventVersion": "2.5",
                "eventSource": "aws:s3",
                "awsRegion": region,
                "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
                "eventName": "ObjectCreated:Put",
                "userIdentity": {"principalId": f"AWS:{ACCOUNT_ID}"},
                "requestParameters": {"sourceIPAddress": "127.0.0.1"},
                "responseElements": {"x-amz-request-id": f"{number:016X}", "x-amz-id-2": f"local/{number}"},
                "s3": {
                    "s3SchemaVersion": "1.0",
                    "configurationId": "local",
                    "bucket": {
                        "name": bucket,
                        "ownerIdentity": {"principalId": ACCOUNT_ID},
                        "arn": f"arn:aws:s3:::{bucket}",
                    },
                    "object": {
                        "key": quote_plus(key, safe="/"),
                        "size": size,
                        "eTag": etag,
                        "sequencer": f"{number:018X}",
                    },
                },
            }
        ]
    }


class BucketEventSource:
    """Invokes a function for objects that the caller reports as created.

    S3 invokes asynchronously and retries a failed event twice, after a minute or two; here it is not
    retried.

    Args:
        function: Function that receives the events.
        region: Region of the buckets.
    """

    def __init__(self, function: Function, *, region: str = "us-east-1") -> None:
        self._function = function
        self._region = region

    async def object_created(self, bucket: str, key: str, *, size: int = 0, etag: str = "") -> Invocation:
        """Send the notification of a new object.

        Returns:
            The invocation, before its response begins.

        Raises:
            TooManyRequestsError: The function's concurrency is used up.
        """
        event = object_created_event(bucket, key, size=size, etag=etag, region=self._region)
        return await self._function.invoke(event)
