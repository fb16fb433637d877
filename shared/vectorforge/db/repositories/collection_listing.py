"""Pages of collections and documents, with their sizes and pending ingestion."""

# ruff: noqa: S608
# (Statements are put together from constants of these modules only; values are bound.)

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.repositories.collection_repo import COLUMNS
from vectorforge.db.repositories.document_repo import DOCUMENT_COLUMNS, Document
from vectorforge.db.repositories.paging import CursorPage, Page, SqlCondition
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import NotFoundError
from vectorforge.types import Collection

if TYPE_CHECKING:
    from psycopg.rows import DictRow

# octet_length() knows a stored text's bytes without reading it: https://www.postgresql.org/docs/17/storage-toast.html
_COLLECTIONS = f"""
SELECT {COLUMNS}, (
    SELECT coalesce(sum(octet_length(d.text)), 0)::bigint FROM vectorforge.documents d
    WHERE d.tenant_id = c.tenant_id AND d.collection_id = c.id
) AS text_bytes, (
    SELECT coalesce(sum(j.documents_total - j.documents_done - j.documents_failed), 0)::bigint
    FROM vectorforge.ingestion_jobs j
    WHERE j.tenant_id = c.tenant_id AND j.collection_id = c.id AND j.status IN ('queued', 'running')
) AS documents_waiting
FROM vectorforge.collections c WHERE tenant_id = %(tenant_id)s
"""
_COLLECTION_TIME = """
SELECT created_at FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(cursor)s
"""
_DOCUMENTS = f"""
SELECT {DOCUMENT_COLUMNS}, octet_length(text) AS text_bytes FROM vectorforge.documents d
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_EVERY_DOCUMENT = SqlCondition()
_DOCUMENT_TIME = """
SELECT created_at FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND id = %(cursor)s
"""


@dataclass(frozen=True, slots=True)
class ListedCollection:
    """A collection and its size."""

    collection: Collection
    text_bytes: int
    """Size of its documents' texts in UTF-8, without vectors and indexes."""
    documents_waiting: int
    """Accepted for ingestion, and neither stored nor failed yet."""


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document and its size."""

    document: Document
    text_bytes: int
    """Size of its text in UTF-8."""


class CollectionListing:
    """Collections and documents of one tenant, by creation time."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def collection(self, collection_id: UUID) -> ListedCollection | None:
        """Return the collection, or None."""
        statement = f"{_COLLECTIONS} AND id = %(collection_id)s"
        row = await self._db.fetch_one(statement, {"collection_id": collection_id})
        return _collection(row) if row else None

    async def collections(self, page: CursorPage) -> Page[ListedCollection]:
        """Return a page of the tenant's collections.

        Raises:
            NotFoundError: The cursor is no collection (any more).
        """
        rows = await self._rows(_COLLECTIONS, _COLLECTION_TIME, page, {})
        return page.cut([_collection(row) for row in rows])

    async def document(self, collection_id: UUID, document_id: UUID) -> ListedDocument | None:
        """Return the document, or None if it is not in the collection."""
        values = {"collection_id": collection_id, "document_id": document_id}
        row = await self._db.fetch_one(f"{_DOCUMENTS} AND id = %(document_id)s", values)
        return _document(row) if row else None

    async def documents(
        self, collection_id: UUID, page: CursorPage, *, condition: SqlCondition = _EVERY_DOCUMENT
    ) -> Page[ListedDocument]:
        """Return a page of a collection's documents; ``condition`` is from ``vectorstore.filters.documents``.

        Raises:
            NotFoundError: The cursor is no document of the collection (any more).
        """
        values = {**condition.params, "collection_id": collection_id}
        statement = f"{_DOCUMENTS} AND {condition.text}"
        rows = await self._rows(statement, _DOCUMENT_TIME, page, values)
        return page.cut([_document(row) for row in rows])

    async def _rows(
        self, statement: str, time_of_cursor: str, page: CursorPage, values: dict[str, Any]
    ) -> "list[DictRow]":
        if page.cursor is not None:
            values = {**values, "cursor": page.cursor}
            row = await self._db.fetch_one(time_of_cursor, values)
            if row is None:
                raise NotFoundError(f"{page.cursor} not found.")
            values["cursor_time"] = row["created_at"]
        return await self._db.fetch_all(f"{statement} AND {page.condition} {page.ordering}", values)


def _collection(row: "DictRow") -> ListedCollection:
    text_bytes, waiting = row.pop("text_bytes"), row.pop("documents_waiting")
    return ListedCollection(Collection.of_row(row), text_bytes, waiting)


def _document(row: "DictRow") -> ListedDocument:
    text_bytes = row.pop("text_bytes")
    return ListedDocument(Document(**row), text_bytes)
