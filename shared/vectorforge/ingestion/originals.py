"""Originals: the file of each stored document, in the database or in a bucket, and its removal there.

In the database by default, whose transactions and cascades also delete them; on a laptop that is the data
folder. With a bucket, an object has its key listed for removal before it is written and until its row exists,
so that no crash leaves an object that nothing deletes.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import quote
from uuid import UUID, uuid4

from vectorforge.db.repositories.original_repo import NewOriginal, OriginalRepository
from vectorforge.ingestion.group import DocumentGroup
from vectorforge.types import Collection, StoredDocument


class OriginalObjects(Protocol):
    """Bucket of originals, without versioning; ``aws.buckets.Bucket``."""

    async def put(self, key: str, content: bytes, media_type: str) -> None:
        """Write an object."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most 1,000 objects."""

    async def delete_below(self, prefix: str) -> int:
        """Delete the objects whose key begins with ``prefix``; return their number."""


def object_key(tenant_id: str, document_id: UUID) -> str:
    """Return a new key for a document's original; no part is a caller's text except the encoded tenant."""
    return f"{_folder(tenant_id)}{document_id}/{uuid4()}"


def _folder(tenant_id: str) -> str:
    return f"{quote(tenant_id, safe='')}/"


class OriginalKeeper:
    """Stores the originals of one tenant's documents.

    Args:
        objects: Bucket; None: the database.
    """

    def __init__(self, repo: OriginalRepository, objects: OriginalObjects | None = None) -> None:
        self._repo = repo
        self._objects = objects

    async def keep_group(
        self, collection: Collection, group: DocumentGroup, stored: Mapping[int, StoredDocument]
    ) -> None:
        """Store the files of a group's stored documents, given by place, or delete those that they replace.

        A collection that keeps no files only deletes.

        Raises:
            ObjectStoreError: The bucket did not take one.
            DatabaseError: The database failed.
        """
        files = {place: one for place, one in stored.items() if place in group.contents}
        if not collection.keep_originals:
            if replaced := [one.document_id for one in files.values() if one.version > 1]:
                await self._repo.delete(replaced)
            return
        await self.keep(
            [
                NewOriginal(
                    one.document_id,
                    one.version,
                    group.contents[place],
                    group.documents[place].media_type,
                    unchanged=one.unchanged,
                )
                for place, one in files.items()
            ]
        )

    async def keep(self, originals: Sequence[NewOriginal]) -> None:
        """Store originals, except unchanged ones that are stored already.

        Raises:
            ObjectStoreError: The bucket did not take one.
            DatabaseError: The database failed.
        """
        unchanged = [one.document_id for one in originals if one.unchanged]
        stored = await self._repo.stored(unchanged) if unchanged else {}
        new = [one for one in originals if stored.get(one.document_id) != (one.version, one.sha256)]
        if self._objects is None:
            if new:
                await self._repo.store(new)
            return
        for one in new:
            await self._keep_in(self._objects, one)

    async def _keep_in(self, objects: OriginalObjects, one: NewOriginal) -> None:
        key = object_key(self._repo.tenant_id, one.document_id)
        await self._repo.announce(key)
        await objects.put(key, one.content, one.media_type)
        try:
            await self._repo.store([one], {one.document_id: key})
        except BaseException:  # perhaps the tenant is erased, and with it the list of what to remove
            await objects.delete([key])
            raise


class RemovedOriginals:
    """Removal of a tenant's objects whose documents or versions are gone.

    Args:
        repo: Originals of the tenant, as a role that may delete.
    """

    def __init__(self, objects: OriginalObjects, repo: OriginalRepository) -> None:
        self._objects = objects
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
            await self._objects.delete(keys)
            await self._repo.note_removed(keys)
            removed += len(keys)
        return removed

    async def remove_all(self) -> int:
        """Remove all objects of the tenant; return their number."""
        return await self._objects.delete_below(_folder(self._repo.tenant_id))
