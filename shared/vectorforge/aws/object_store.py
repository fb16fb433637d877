"""Objects of S3 buckets, read with a bound on their size."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from vectorforge.aws.clients import AwsClients
from vectorforge.errors import ObjectStoreError

T = TypeVar("T")

_GONE = ("404", "NoSuchKey", "NotFound")
_CHANGED = ("412", "PreconditionFailed")
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it is now, without its content."""

    size: int
    """Bytes."""
    etag: str
    version: str
    """Empty where the bucket keeps no versions."""
    media_type: str | None
    last_modified: datetime
    """Of this revision's writing; whole seconds."""

    @property
    def revision(self) -> str:
        """Another one each time the object is written with other content."""
        return f"{self.version}/{self.etag}"


class ObjectStore:
    """Reads objects; nothing connects before the first call.

    Args:
        clients: Where the S3 client comes from.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    async def find(self, bucket: str, key: str) -> StoredObject | None:
        """What is stored under a key now, or None.

        Raises:
            ObjectStoreError: S3 did not answer (``retryable``), or refused. Without ``s3:ListBucket`` it
                refuses, too, where there is no object.
            ConfigurationError: As ``AwsClients.get``.
        """
        found = await self._call(lambda s3: s3.head_object(Bucket=bucket, Key=key), unless=_GONE)
        if found is None:
            return None
        return StoredObject(
            size=found["ContentLength"],
            etag=found["ETag"],
            version=found.get("VersionId", ""),
            media_type=found.get("ContentType"),
            last_modified=found["LastModified"],
        )

    async def read(self, bucket: str, key: str, expected: StoredObject) -> bytes | None:
        """The content of an object; None when it is another one by now, or gone.

        Raises:
            ObjectStoreError: S3 did not answer, refused, or sent more or less than it had said.
            ConfigurationError: As ``AwsClients.get``.
        """

        def download(s3: Any) -> bytes:
            response = s3.get_object(Bucket=bucket, Key=key, IfMatch=expected.etag)
            with response["Body"] as body:
                content: bytes = body.read(expected.size + 1)
            return content

        content = await self._call(download, unless=_GONE + _CHANGED)
        if content is not None and len(content) != expected.size:
            raise ObjectStoreError("The object has another length than was said.")
        return content

    async def _call(self, call: Callable[[Any], T], *, unless: tuple[str, ...]) -> T | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return await asyncio.to_thread(lambda: call(self._clients.get("s3")))
        except ClientError as exc:
            if exc.response.get("Error", {}).get("Code") in unless:
                return None
            error = ObjectStoreError()
            status = exc.response["ResponseMetadata"]["HTTPStatusCode"]
            error.retryable = status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR
            raise error from exc
        except BotoCoreError as exc:
            raise ObjectStoreError from exc
