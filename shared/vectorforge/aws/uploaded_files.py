"""Deleting what was uploaded: single objects, and all of a collection or a tenant."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.upload_keys import UploadKey
from vectorforge.errors import InvalidInputError, ObjectStoreError

_OBJECTS_A_CALL = 1000  # https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html


class UploadedFilesEraser:
    """Deletes objects of one bucket, which keeps no versions. Nothing connects before the first call.

    Args:
        clients: Where the S3 client comes from.
        bucket: Its name.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    async def erase(self, tenant_id: str, key: str) -> int:
        """Delete an object, or all objects of a collection or a tenant; how many there were.

        Args:
            tenant_id: Whose objects they are; another's are never touched.
            key: Of an object; or ``<tenant>/`` or ``<tenant>/<collection>/``, with the slash.

        Raises:
            ObjectStoreError: S3 did not answer, or refused; some may be gone.
            ConfigurationError: As ``AwsClients.get``.
        """
        return await asyncio.to_thread(self._erase, tenant_id, key)

    def _erase(self, tenant_id: str, key: str) -> int:
        from botocore.exceptions import BotoCoreError, ClientError

        is_meant = _chooser(tenant_id, key)
        # Blanks around a collection's name in a key do not count: so all of the tenant's are looked at.
        prefix = f"{tenant_id}/" if key.endswith("/") else key
        deleted = 0
        try:
            s3 = self._clients.get("s3")
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                chosen = [found["Key"] for found in page.get("Contents", []) if is_meant(found["Key"])]
                for part in _parts(chosen):
                    objects = {"Objects": [{"Key": name} for name in part], "Quiet": True}
                    answer = s3.delete_objects(Bucket=self._bucket, Delete=objects)
                    if answer.get("Errors"):
                        raise ObjectStoreError("S3 did not delete every object.")
                    deleted += len(part)
        except (ClientError, BotoCoreError) as exc:
            raise ObjectStoreError("The uploaded files could not be deleted.") from exc
        return deleted


def _chooser(tenant_id: str, key: str) -> Callable[[str], bool]:
    """Which of the objects listed are meant."""
    tenant, _, rest = key.partition("/")
    if tenant != tenant_id or "/" in tenant_id:
        return lambda name: False
    if not key.endswith("/"):
        return lambda name: name == key
    if not rest:
        return lambda name: name.startswith(key)

    def is_of_collection(name: str) -> bool:
        try:
            return UploadKey.parse(name).collection_name == rest[:-1].strip()
        except InvalidInputError:
            return False

    return is_of_collection


def _parts(names: list[str]) -> Iterator[list[Any]]:
    for begin in range(0, len(names), _OBJECTS_A_CALL):
        yield names[begin : begin + _OBJECTS_A_CALL]
