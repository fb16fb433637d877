"""Bounded reads of objects in S3 buckets."""

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
    """Current state of an object, without its content."""

    size: int
    """Bytes."""
    etag: str
    version: str
    """Empty for a bucket without versioning."""
    media_type: str | None
    last_modified: datetime
    """Time of the write, in whole seconds."""

    @property
    def revision(self) -> str:
        """Identifier that changes with each write of other content."""
        return f"{self.version}/{self.etag}"


class ObjectStore:
    """Reader of objects; connects on the first call.

    Args:
        clients: Source of the S3 client.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    async def find(self, bucket: str, key: str) -> StoredObject | None:
        """Return the current object under a key, or None.

        Raises:
            ObjectStoreError: S3 did not respond (``retryable``) or denied access. Without ``s3:ListBucket``
                it also denies access to a missing object.
            ConfigurationError: As ``AwsClients.get``.
        """
        head = await self._call(lambda s3: s3.head_object(Bucket=bucket, Key=key), unless=_GONE)
        if head is None:
            return None
        return StoredObject(
            size=head["ContentLength"],
            etag=head["ETag"],
            version=head.get("VersionId", ""),
            media_type=head.get("ContentType"),
            last_modified=head["LastModified"],
        )

    async def read(self, bucket: str, key: str, expected: StoredObject) -> bytes | None:
        """Return the content of an object; None if it was replaced or deleted.

        Raises:
            ObjectStoreError: S3 did not respond, denied access, or sent another number of bytes than
            announced.
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
