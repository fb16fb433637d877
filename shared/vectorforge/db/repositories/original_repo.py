"""Original files of documents: their rows, and the list of objects to delete from a bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase

_BATCH = 200
_REMOVAL_BATCH = 1_000
"""As many objects as one call of S3 deletes."""

_STORED = """
SELECT document_id, version, sha256 FROM vectorforge.originals
WHERE tenant_id = %(tenant_id)s AND document_id = ANY (%(documents)s)
"""
# Only of a version that is still the document's; a row that a deletion removes meanwhile is not made again.
_STORE = """
WITH document AS MATERIALIZED (
    SELECT d.id, d.collection_id, new.* FROM unnest(
        %(documents)s::uuid[], %(versions)s::int[], %(sizes)s::int[], %(digests)s::bytea[],
        %(contents)s::bytea[], %(keys)s::text[]
    ) AS new (document_id, version, size_bytes, sha256, content, object_key)
    JOIN vectorforge.documents d ON d.tenant_id = %(tenant_id)s AND d.id = new.document_id
        AND d.version = new.version
    JOIN vectorforge.collections c ON c.tenant_id = d.tenant_id AND c.id = d.collection_id
        AND c.keep_originals
    FOR KEY SHARE OF d
), stored AS (
    INSERT INTO vectorforge.originals
        (tenant_id, document_id, collection_id, version, size_bytes, sha256, content, object_key)
    SELECT %(tenant_id)s, id, collection_id, version, size_bytes, sha256, content, object_key FROM document
    ON CONFLICT (tenant_id, document_id) DO UPDATE
    SET version = excluded.version, size_bytes = excluded.size_bytes, sha256 = excluded.sha256,
        content = excluded.content, object_key = excluded.object_key
    RETURNING object_key
)
DELETE FROM vectorforge.original_removals
WHERE tenant_id = %(tenant_id)s AND object_key IN (SELECT object_key FROM stored)
"""
_FIND = """
SELECT o.document_id, o.version, o.size_bytes, o.sha256, o.object_key, d.source, d.media_type
FROM vectorforge.originals o JOIN vectorforge.documents d
    ON d.tenant_id = o.tenant_id AND d.id = o.document_id AND d.version = o.version
WHERE o.tenant_id = %(tenant_id)s AND o.document_id = %(document)s
"""
_CONTENT = """
SELECT substring(content FROM %s FOR %s) AS content
FROM vectorforge.originals WHERE tenant_id = %s AND document_id = %s AND sha256 = %s
"""
_DELETE = """
DELETE FROM vectorforge.originals WHERE tenant_id = %(tenant_id)s AND document_id = ANY (%(documents)s)
"""
_DELETE_SOME = """
DELETE FROM vectorforge.originals WHERE tenant_id = %(tenant_id)s AND document_id = ANY (ARRAY(
    SELECT document_id FROM vectorforge.originals
    WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s LIMIT %(most)s
))
"""
_ANNOUNCE = """
INSERT INTO vectorforge.original_removals (tenant_id, object_key, due_at)
VALUES (%(tenant_id)s, %(key)s, clock_timestamp() + interval '1 day')
"""
_DUE = """
SELECT object_key FROM vectorforge.original_removals
WHERE tenant_id = %(tenant_id)s AND due_at <= clock_timestamp() ORDER BY due_at LIMIT %(most)s
"""
_REMOVED = """
DELETE FROM vectorforge.original_removals WHERE tenant_id = %(tenant_id)s AND object_key = ANY (%(keys)s)
"""
_WAITING_TENANT = "SELECT vectorforge.tenant_with_removals() AS tenant_id"


@dataclass(frozen=True, slots=True)
class NewOriginal:
    """A file, and the version of the document that was made of it."""

    document_id: UUID
    version: int
    content: bytes
    media_type: str
    unchanged: bool = False
    """The document had this version before, and perhaps this original."""

    @property
    def sha256(self) -> bytes:
        """Digest of the file."""
        return sha256(self.content).digest()


@dataclass(frozen=True, slots=True)
class Original:
    """A stored file of a document's current version, without its content."""

    document_id: UUID
    version: int
    size_bytes: int
    sha256: bytes
    object_key: str | None
    """Key in the bucket; None: the content is in the database."""
    source: str
    media_type: str
    """Detected type of the document."""

    @property
    def file_name(self) -> str:
        """Last component of the source, at most 200 characters."""
        return self.source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1][-200:] or "document"


class OriginalRepository:
    """The originals of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    @property
    def tenant_id(self) -> str:
        """The tenant."""
        return self._db.tenant_id

    async def stored(self, documents: Sequence[UUID]) -> dict[UUID, tuple[int, bytes]]:
        """Return version and digest of the stored originals of documents."""
        rows = await self._db.fetch_all(_STORED, {"documents": list(documents)})
        return {row["document_id"]: (row["version"], bytes(row["sha256"])) for row in rows}

    async def store(self, originals: Sequence[NewOriginal], keys: Mapping[UUID, str] | None = None) -> None:
        """Store originals of documents that still have these versions, and skip the others.

        Also skips those of collections that do not keep them, whatever their writer has read before.

        Args:
            originals: One for each document.
            keys: Object keys by document, if the contents are in a bucket; they are no longer to be removed.
        """
        values: dict[str, Any] = {
            "documents": [one.document_id for one in originals],
            "versions": [one.version for one in originals],
            "sizes": [len(one.content) for one in originals],
            "digests": [one.sha256 for one in originals],
            "contents": [None if keys else one.content for one in originals],
            "keys": [keys[one.document_id] if keys else None for one in originals],
        }
        await self._db.execute(_STORE, values)

    async def find(self, document_id: UUID) -> Original | None:
        """Return the original of a document's current version, or None."""
        row = await self._db.fetch_one(_FIND, {"document": document_id})
        return Original(**{**row, "sha256": bytes(row["sha256"])}) if row else None

    async def content(self, original: Original, part: range | None = None) -> bytes | None:
        """Return an original of the database, or a part of it; None if it was replaced or deleted."""
        part = range(original.size_bytes) if part is None else part
        place = (self._db.tenant_id, original.document_id, original.sha256)
        row = await self._db.fetch_one(_CONTENT, (part.start + 1, len(part), *place))
        return bytes(row["content"]) if row and row["content"] is not None else None

    async def delete(self, documents: Sequence[UUID]) -> None:
        """Delete the originals of documents."""
        await self._db.execute(_DELETE, {"documents": list(documents)})

    async def delete_of_collection(self, collection_id: UUID) -> None:
        """Delete the originals of a collection, in batches of their own transactions."""
        values = {"collection": collection_id, "most": _BATCH}
        while await self._db.execute(_DELETE_SOME, values) == _BATCH:
            pass

    async def announce(self, key: str) -> None:
        """Note an object that is about to be written, to be removed in a day unless ``store`` stores it."""
        await self._db.execute(_ANNOUNCE, {"key": key})

    async def due_removals(self) -> list[str]:
        """Return the next at most 1,000 objects to remove from the bucket."""
        return [row["object_key"] for row in await self._db.fetch_all(_DUE, {"most": _REMOVAL_BATCH})]

    async def note_removed(self, keys: Sequence[str]) -> None:
        """Note that objects are removed."""
        await self._db.execute(_REMOVED, {"keys": list(keys)})


async def tenant_with_removals(database: Database) -> str | None:
    """Return a tenant with objects to remove from the bucket, or None."""
    row = await database.fetch_untenanted(_WAITING_TENANT)
    return row["tenant_id"] if row else None
