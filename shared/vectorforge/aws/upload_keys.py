"""Keys of the bucket of uploads: ``<tenant>/<collection>/<path>``."""

import unicodedata
from dataclasses import dataclass
from typing import Self

from vectorforge.db.tenant_id import checked_tenant
from vectorforge.errors import ConflictError, InvalidInputError

MAX_KEY_BYTES = 1024
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html"""

_LOST = "\ufffd\ufffe\uffff"
"""What stands for a character that could not be read, and two that no XML may hold, as S3's listings are."""


@dataclass(frozen=True, slots=True)
class UploadKey:
    """Whose document an object is, and in which collection."""

    tenant_id: str
    collection_name: str
    path: str
    """The rest of the key."""

    @classmethod
    def parse(cls, key: str) -> Self:
        """Read an object's key, whoever wrote the object.

        Raises:
            InvalidInputError: It does not say whose document it is.
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
        """The key under which a tenant's client may write.

        Stricter than ``parse``: no segment is empty, "." or "..", which tools and people read as folders; and
        there is no "$", which a form of S3 takes for the begin of a variable (``${filename}``).

        Raises:
            InvalidInputError: ``path`` cannot be part of a key, or the key would be too long.
            ConflictError: The tenant's or the collection's name cannot be part of one: it would be read as
                another tenant's or another collection's.
        """
        made = cls(tenant_id, collection_name, path)
        for name in (tenant_id, collection_name):
            if "/" in name or name != name.strip() or _refusal(name):
                raise ConflictError(
                    "The name of this collection, or of its tenant, cannot be part of an object's key: it "
                    "holds a slash, a dollar sign or a control character, begins or ends with a blank, or "
                    "is '.' or '..'. Send its documents over HTTP."
                )
        refusal = _refusal(path)
        if refusal:
            raise InvalidInputError(f"path {refusal}.", field="path")
        size, room = len(path.encode()), MAX_KEY_BYTES - len(f"{tenant_id}/{collection_name}/".encode())
        if size > room:
            raise InvalidInputError(f"path must have at most {room} bytes here, not {size}.", field="path")
        return made

    @property
    def key(self) -> str:
        """The object's key."""
        return f"{self.tenant_id}/{self.collection_name}/{self.path}"


def source_of(bucket: str, key: str) -> str:
    """The name of an object's document in its collection."""
    return f"s3://{bucket}/{key}"


def _refusal(path: str) -> str:
    """What is wrong with a path, or nothing."""
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        return "must be segments between single slashes, none of them '.' or '..'"
    if "$" in path:
        return "must not hold a dollar sign"
    if any(unicodedata.category(c) in ("Cc", "Cs") or c in _LOST for c in path):
        return "must not hold control characters, NUL or what is no text"
    return ""
