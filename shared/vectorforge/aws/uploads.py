"""Uploads to S3: their keys ``<tenant>/<collection>/<path>``, pre-signed forms and deletion."""

import asyncio
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from vectorforge.aws.buckets import Bucket
from vectorforge.aws.clients import AwsClients
from vectorforge.db.tenant_database import checked_tenant
from vectorforge.errors import ConfigurationError, ConflictError, InvalidInputError

MAX_KEY_BYTES = 1024
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html"""

EXPIRY_S = 900
"""Time in which a form can be used any number of times; less when the credentials that sign it expire."""

_LOST = "\ufffd\ufffe\uffff"
"""Replacement character, and two characters not allowed in XML, the format of S3's listings."""


@dataclass(frozen=True, slots=True)
class UploadKey:
    """Tenant, collection and path of an uploaded object."""

    tenant_id: str
    collection_name: str
    path: str

    @classmethod
    def parse(cls, key: str) -> Self:
        """Parse an object's key.

        Raises:
            InvalidInputError: It does not name a tenant and a collection.
        """
        tenant_id, _, rest = key.partition("/")
        collection_name, _, path = rest.partition("/")
        collection_name = collection_name.strip()
        if not (collection_name and path):
            raise InvalidInputError("The key of an upload is <tenant>/<collection>/<path>.", field="key")
        if "\0" in key or any(unicodedata.category(c) == "Cs" for c in key):
            raise InvalidInputError("The key of an upload holds NUL or what is no text.", field="key")
        return cls(checked_tenant(tenant_id), collection_name, path)

    @classmethod
    def make(cls, tenant_id: str, collection_name: str, path: str) -> Self:
        """Return the key under which a tenant's client may write.

        Stricter than ``parse``: no segment is empty, "." or "..", which tools read as folders, and there is
        no "$", which starts a variable (``${filename}``) in a form of S3.

        Raises:
            InvalidInputError: ``path`` cannot be part of a key, or the key would be too long.
            ConflictError: The tenant's or the collection's name cannot be part of a key: it would be parsed
                as another one.
        """
        for name in (tenant_id, collection_name):
            if "/" in name or name != name.strip() or _refusal(name):
                raise ConflictError(
                    "The name of this collection, or of its tenant, cannot be part of an object's key: it "
                    "holds a slash, a dollar sign or a control character, begins or ends with a blank, or "
                    "is '.' or '..'. Send its documents over HTTP."
                )
        if refusal := _refusal(path):
            raise InvalidInputError(f"path {refusal}.", field="path")
        size, limit = len(path.encode()), MAX_KEY_BYTES - len(f"{tenant_id}/{collection_name}/".encode())
        if size > limit:
            raise InvalidInputError(f"path must have at most {limit} bytes here, not {size}.", field="path")
        return cls(tenant_id, collection_name, path)

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"{self.tenant_id}/{self.collection_name}/{self.path}"


def source_of(bucket: str, key: str) -> str:
    """Return the name of an object's document in its collection."""
    return f"s3://{bucket}/{key}"


def _refusal(path: str) -> str:
    """Return the problem of a path, or an empty text."""
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        return "must be segments between single slashes, none of them '.' or '..'"
    if "$" in path:
        return "must not hold a dollar sign"
    if any(unicodedata.category(c) in ("Cc", "Cs") or c in _LOST for c in path):
        return "must not hold control characters, NUL or what is no text"
    return ""


@dataclass(frozen=True, slots=True)
class UploadForm:
    """Presigned form, posted as multipart/form-data: the fields, then the part ``file``."""

    url: str
    fields: Mapping[str, str]
    expires_at: datetime


class UploadForms:
    """Signer of forms, with which a client without AWS credentials may write one object for some minutes.

    A form (POST) and no URL (PUT), because only a form's policy can bound the size of what is written.
    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html

    Args:
        clients: Source of the S3 client. Its role needs ``s3:PutObject`` on the bucket's objects.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self.bucket = bucket

    async def sign(
        self, key: str, *, min_bytes: int, max_bytes: int, media_type: str | None = None
    ) -> UploadForm:
        """Sign a form for one object.

        S3 rejects every field that is not part of the form, so that a client cannot choose another key,
        access rights, storage class or encryption.

        Args:
            key: Key of the object, without ``${filename}``, which S3 would replace.
            min_bytes: Minimum size of the file.
            max_bytes: Maximum size of the file.
            media_type: Media type of the object; None: any, stored as ``binary/octet-stream``.

        Raises:
            ConfigurationError: There are no credentials, or as ``AwsClients.get``.
        """
        fields = {"Content-Type": media_type} if media_type else {}
        conditions: list[Any] = [fields] if fields else []
        conditions.append(["content-length-range", min_bytes, max_bytes])
        expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=EXPIRY_S)
        # In a thread: credentials may have to be fetched.
        signed = await asyncio.to_thread(self._sign, key, fields, conditions)
        return UploadForm(signed["url"], signed["fields"], expires_at)

    def _sign(self, key: str, fields: dict[str, str], conditions: list[Any]) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError

        s3 = self._clients.get("s3")
        try:
            signed: dict[str, Any] = s3.generate_presigned_post(
                self.bucket, key, Fields=fields, Conditions=conditions, ExpiresIn=EXPIRY_S
            )
        except (BotoCoreError, AttributeError) as exc:  # the latter is how botocore misses credentials here
            raise ConfigurationError(
                f"Uploads cannot be signed ({type(exc).__name__}); are there AWS credentials?"
            ) from exc
        return signed


class UploadedFilesEraser:
    """Deletion of objects in the bucket of uploads, which has no versioning."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def erase(self, tenant_id: str, key: str) -> int:
        """Delete an object, or all objects of a collection or a tenant; return their number.

        Args:
            tenant_id: The tenant; objects of others are never deleted.
            key: Key of an object; or ``<tenant>/`` or ``<tenant>/<collection>/``, with the slash.

        Raises:
            ObjectStoreError: S3 did not respond, or refused; some may be deleted.
        """
        # Blanks around a collection's name in a key do not count: so all of the tenant's are listed.
        prefix = f"{tenant_id}/" if key.endswith("/") else key
        return await self._bucket.delete_below(prefix, lambda name: _is_meant(name, tenant_id, key))


def _is_meant(name: str, tenant_id: str, key: str) -> bool:
    """Return True for a listed object that belongs to what ``erase`` deletes."""
    tenant, _, rest = key.partition("/")
    if tenant != tenant_id or "/" in tenant_id:
        return False
    if not key.endswith("/"):
        return name == key
    if not rest:
        return name.startswith(key)
    try:
        return UploadKey.parse(name).collection_name == rest[:-1].strip()
    except InvalidInputError:
        return False
