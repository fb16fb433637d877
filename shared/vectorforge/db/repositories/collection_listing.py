"""Collections with their sizes, pending ingestion and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.repositories.collection_repo import COLUMNS
from vectorforge.db.repositories.paging import CursorPage, Page
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Collection

if TYPE_CHECKING:
    from psycopg.rows import DictRow

_COLLECTIONS = f"""
SELECT {COLUMNS}, metadata, coalesce(text_bytes, 0) AS text_bytes, (
    SELECT coalesce(sum(j.documents_total - j.documents_done - j.documents_failed), 0)::bigint
    FROM vectorforge.ingestion_jobs j
    WHERE j.tenant_id = c.tenant_id AND j.collection_id = c.id AND j.status IN ('queued', 'running')
) AS documents_waiting, files_failed, files_cancelled
FROM vectorforge.collections c CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE i.error_code <> 'cancelled') AS files_failed,
        count(*) FILTER (WHERE i.error_code = 'cancelled') AS files_cancelled
    FROM vectorforge.uploaded_files f JOIN vectorforge.ingestion_job_items i
        ON i.tenant_id = f.tenant_id AND i.job_id = f.job_id AND i.ordinal = f.ordinal
    WHERE f.tenant_id = c.tenant_id AND f.collection_id = c.id AND NOT f.is_stored AND i.status = 'failed'
        AND NOT EXISTS (SELECT FROM vectorforge.documents d WHERE d.tenant_id = f.tenant_id AND d.id = f.id)
) AS counted WHERE tenant_id = %(tenant_id)s
"""
_COLLECTION_TIME = """
SELECT created_at FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(cursor)s
"""


@dataclass(frozen=True, slots=True)
class ListedCollection:
    """A collection and its size."""

    collection: Collection
    text_bytes: int
    """Size of its documents' texts in UTF-8, without vectors and indexes."""
    documents_waiting: int
    """Accepted for ingestion, and neither stored nor failed yet."""
    files_failed: int
    """Attached files that could not be ingested ..."""
    files_cancelled: int
    """... or were not, since their batch was canceled."""
    metadata: Mapping[str, str]


class CollectionListing:
    """Collections of one tenant, by creation time."""

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
            InvalidInputError: The cursor is no collection (any more).
        """
        values: dict[str, Any] = {}
        if page.cursor is not None:
            values = {"cursor": page.cursor}
            row = await self._db.fetch_one(_COLLECTION_TIME, values)
            if row is None:
                raise page.missing()
            values["cursor_time"] = row["created_at"]
        rows = await self._db.fetch_all(f"{_COLLECTIONS} AND {page.condition} {page.ordering}", values)
        return page.cut([_collection(row) for row in rows])


def _collection(row: "DictRow") -> ListedCollection:
    names = ("text_bytes", "documents_waiting", "files_failed", "files_cancelled", "metadata")
    own = {name: row.pop(name) for name in names}
    return ListedCollection(Collection.of_row(row), **own)
