"""Objects of S3 buckets."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vectorforge.aws.clients import AwsClients, is_temporary
from vectorforge.errors import ObjectStoreError

LINK_EXPIRY_S = 300
"""Time in which a link can be opened; less when the credentials that sign it expire."""

_GONE = ("404", "NoSuchKey", "NotFound")
_CHANGED = ("412", "PreconditionFailed")


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


class Bucket:
    """One bucket; connects on the first call.

    Every method may raise ``ObjectStoreError``: S3 did not respond (``retryable``) or refused, and
    ``ConfigurationError`` as ``AwsClients.get``.
    """

    def __init__(self, clients: AwsClients, name: str) -> None:
        self._clients = clients
        self._name = name

    async def put(self, key: str, content: bytes, media_type: str) -> None:
        """Write an object."""
        where = {"Bucket": self._name, "Key": key}
        await self._call(lambda s3: s3.put_object(**where, Body=content, ContentType=media_type))

    async def find(self, key: str) -> StoredObject | None:
        """Return the current object under a key, or None; without ``s3:ListBucket`` S3 refuses instead."""
        head = await self._call(lambda s3: s3.head_object(Bucket=self._name, Key=key), unless=_GONE)
        if head is None:
            return None
        return StoredObject(
            size=head["ContentLength"],
            etag=head["ETag"],
            version=head.get("VersionId", ""),
            media_type=head.get("ContentType"),
            last_modified=head["LastModified"],
        )

    async def read(self, key: str, part: range | None = None) -> bytes | None:
        """Return an object's content, or a part of it, which must not be empty; None if it is missing."""
        where = {"Bucket": self._name, "Key": key}
        if part is not None:
            where["Range"] = f"bytes={part.start}-{part.stop - 1}"
        content: bytes | None = await self._call(lambda s3: _content(s3.get_object(**where)), unless=_GONE)
        return content

    async def read_as(self, key: str, expected: StoredObject) -> bytes | None:
        """Return the content of an object; None if it was replaced or deleted."""
        where = {"Bucket": self._name, "Key": key, "IfMatch": expected.etag}
        content: bytes | None = await self._call(
            lambda s3: _content(s3.get_object(**where), expected.size + 1), unless=_GONE + _CHANGED
        )
        if content is not None and len(content) != expected.size:
            raise ObjectStoreError("The object has another length than announced.")
        return content

    async def link(self, key: str, *, media_type: str, disposition: str) -> str:
        """Return a URL that downloads an object within ``LINK_EXPIRY_S``.

        Its headers are signed, so that the holder cannot have it shown as a page.
        """
        params = {
            "Bucket": self._name,
            "Key": key,
            "ResponseContentType": media_type,
            "ResponseContentDisposition": disposition,
            "ResponseCacheControl": "private, no-store",
        }
        link: str = await self._call(
            lambda s3: s3.generate_presigned_url("get_object", Params=params, ExpiresIn=LINK_EXPIRY_S)
        )
        return link

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most 1,000 objects."""
        await self._call(lambda s3: self._delete(s3, keys))

    async def delete_below(self, prefix: str, is_meant: Callable[[str], bool] = bool) -> int:
        """Delete the objects whose key begins with ``prefix`` and ``is_meant``; return their number."""

        def delete(s3: Any) -> int:
            deleted = 0
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=prefix):
                keys = [entry["Key"] for entry in page.get("Contents", ()) if is_meant(entry["Key"])]
                if keys:  # a page has at most 1,000 keys, as many as one call may delete
                    self._delete(s3, keys)
                deleted += len(keys)
            return deleted

        return int(await self._call(delete))

    def _delete(self, s3: Any, keys: Sequence[str]) -> None:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        if s3.delete_objects(Bucket=self._name, Delete=objects).get("Errors"):
            raise ObjectStoreError("S3 did not delete every object.")

    async def _call(self, call: Callable[[Any], Any], *, unless: Collection[str] = ()) -> Any:
        """Return the result of a call in a thread; None for the errors ``unless``."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return await asyncio.to_thread(lambda: call(self._clients.get("s3")))
        except ClientError as exc:
            code = exc.response.get("Error", {}).get("Code")
            if code in unless:
                return None
            error = ObjectStoreError(f"The bucket refused a request ({code}).")
            error.retryable = is_temporary(exc)
            raise error from exc
        except BotoCoreError as exc:
            raise ObjectStoreError("The bucket could not be reached.") from exc


def _content(response: Any, at_most: int | None = None) -> bytes:
    with response["Body"] as body:
        content: bytes = body.read(at_most)
    return content
