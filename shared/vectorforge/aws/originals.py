"""Originals of documents in S3: objects ``<tenant, percent-encoded>/<document>/<random>`` of one bucket."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from vectorforge.aws.clients import AwsClients, is_temporary
from vectorforge.db.repositories.original_repo import OriginalRepository
from vectorforge.errors import ObjectStoreError

_T = TypeVar("_T")

LINK_EXPIRY_S = 300
"""Time in which a link can be opened; less when the credentials that sign it expire."""


class OriginalsBucket:
    """The bucket, without versioning; connects on the first call."""

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    async def put(self, key: str, content: bytes, media_type: str) -> None:
        """Write an object.

        Raises:
            ObjectStoreError: S3 did not respond, or refused.
            ConfigurationError: As ``AwsClients.get``.
        """
        where = {"Bucket": self._bucket, "Key": key}
        await self._call(lambda s3: s3.put_object(**where, Body=content, ContentType=media_type))

    async def read(self, key: str) -> bytes:
        """Return an object's content.

        Raises:
            ObjectStoreError: S3 did not respond, or refused.
        """

        def download(s3: Any) -> bytes:
            with s3.get_object(Bucket=self._bucket, Key=key)["Body"] as body:
                content: bytes = body.read()
            return content

        return await self._call(download)

    async def link(self, key: str, *, media_type: str, disposition: str) -> str:
        """Return a URL that downloads an object within ``LINK_EXPIRY_S``.

        Its headers are signed, so that the holder cannot have it shown as a page.
        """
        params = {
            "Bucket": self._bucket,
            "Key": key,
            "ResponseContentType": media_type,
            "ResponseContentDisposition": disposition,
            "ResponseCacheControl": "private, no-store",
        }
        return await self._call(
            lambda s3: str(s3.generate_presigned_url("get_object", Params=params, ExpiresIn=LINK_EXPIRY_S))
        )

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most 1,000 objects.

        Raises:
            ObjectStoreError: S3 did not respond, or kept some.
        """
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        result = await self._call(lambda s3: s3.delete_objects(Bucket=self._bucket, Delete=objects))
        if result.get("Errors"):
            raise ObjectStoreError("S3 did not delete every original.")

    async def delete_of(self, tenant_id: str) -> int:
        """Delete all objects of a tenant; return their number.

        Raises:
            ObjectStoreError: S3 did not respond, or kept some.
        """
        prefix, deleted = f"{quote(tenant_id, safe='')}/", 0

        def listed(s3: Any) -> list[str]:
            page = s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix)
            return [entry["Key"] for entry in page.get("Contents", [])]

        while keys := await self._call(listed):  # the next page after these are gone
            await self.delete(keys)
            deleted += len(keys)
        return deleted

    async def _call(self, call: Callable[[Any], _T]) -> _T:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return await asyncio.to_thread(lambda: call(self._clients.get("s3")))
        except ClientError as exc:
            error = ObjectStoreError("The bucket of originals refused a request.")
            error.retryable = is_temporary(exc)
            raise error from exc
        except BotoCoreError as exc:
            raise ObjectStoreError("The bucket of originals could not be reached.") from exc


class RemovedOriginals:
    """Removal of a tenant's objects whose documents or versions are gone.

    Args:
        repo: Originals of the tenant, as a role that may delete.
    """

    def __init__(self, bucket: OriginalsBucket, repo: OriginalRepository) -> None:
        self._bucket = bucket
        self._repo = repo

    async def wait(self) -> bool:
        """Return True if there are objects to remove."""
        return bool(await self._repo.due_removals())

    async def remove(self) -> int:
        """Remove what is due; return the number of objects.

        Raises:
            ObjectStoreError: S3 did not respond, or kept some; another call resumes.
        """
        removed = 0
        while keys := await self._repo.due_removals():
            await self._bucket.delete(keys)
            await self._repo.note_removed(keys)
            removed += len(keys)
        return removed

    async def remove_all(self) -> int:
        """Remove all objects of the tenant; return their number."""
        return await self._bucket.delete_of(self._repo.tenant_id)
