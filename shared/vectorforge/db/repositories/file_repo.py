"""Files of a tenant: uploaded ones, those being ingested or failed, and documents.

An uploaded file waits to be attached to a collection. Attached, it is an item of an ingestion job, then the
document of the same id. Documents that were ingested otherwise are files, too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from vectorforge.db.repositories.paging import CursorPage, Page, SqlCondition
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError
from vectorforge.types import ROW_VERSION

MAX_WAITING_FILES: Final = 1_000
"""Files of a tenant that are uploaded and not attached ..."""
MAX_WAITING_BYTES: Final = 536_870_912
"""... and their size."""
WAITING_HOURS: Final = 24
"""Time after which a file that was not attached is deleted."""
MAX_FILENAME_CHARS: Final = 200

_UPLOADED = """
SELECT f.id, f.collection_id, f.job_id, coalesce(f.source, f.filename) AS source, f.filename, f.purpose,
    f.size_bytes, 0 AS text_bytes, f.created_at, f.expires_at, coalesce(i.metadata, '{}') AS metadata,
    CASE WHEN f.job_id IS NULL THEN 'waiting' WHEN i.status IN ('queued', 'running') THEN 'in_progress'
        WHEN i.error_code = 'cancelled' THEN 'cancelled' ELSE 'failed' END AS status,
    i.error_code, i.error_message
FROM vectorforge.uploaded_files f LEFT JOIN vectorforge.ingestion_job_items i
    ON i.tenant_id = f.tenant_id AND i.job_id = f.job_id AND i.ordinal = f.ordinal
WHERE f.tenant_id = %(tenant_id)s AND NOT f.is_stored
    AND CASE WHEN f.job_id IS NULL THEN f.expires_at > clock_timestamp()
        ELSE i.status IN ('queued', 'running', 'failed') OR i.document_id <> f.id END
    AND NOT EXISTS (SELECT FROM vectorforge.documents d WHERE d.tenant_id = f.tenant_id AND d.id = f.id)
"""
_DOCUMENTS = f"""
SELECT d.id, d.collection_id, f.job_id, d.source, f.filename, coalesce(f.purpose, 'assistants') AS purpose,
    coalesce(f.size_bytes, octet_length(d.text)) AS size_bytes, octet_length(d.text) AS text_bytes,
    d.created_at, NULL::timestamptz AS expires_at, d.metadata - '{ROW_VERSION}' AS metadata,
    'completed' AS status, NULL AS error_code, NULL AS error_message
FROM vectorforge.documents d
LEFT JOIN vectorforge.uploaded_files f ON f.tenant_id = d.tenant_id AND f.id = d.id
WHERE d.tenant_id = %(tenant_id)s
"""
_CREATE = """
INSERT INTO vectorforge.uploaded_files
    (tenant_id, id, filename, purpose, media_type, size_bytes, content, expires_at)
SELECT %(tenant_id)s, %(id)s, %(filename)s, %(purpose)s, %(media_type)s, %(size)s, %(content)s::bytea,
    clock_timestamp() + make_interval(hours => %(hours)s)
FROM (
    SELECT count(*) AS files, coalesce(sum(size_bytes), 0) AS bytes FROM vectorforge.uploaded_files
    WHERE tenant_id = %(tenant_id)s AND collection_id IS NULL AND expires_at > clock_timestamp()
) AS waiting
WHERE waiting.files < %(max_files)s AND waiting.bytes + %(size)s <= %(max_bytes)s
"""
_CONTENT = """
SELECT substring(content FROM %(start)s FOR %(size)s) AS content
FROM vectorforge.uploaded_files WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
# Locked in statements of their own, so that the next one sees what others have attached meanwhile.
_LOCK_COLLECTION = """
SELECT FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s
FOR NO KEY UPDATE
"""
_LOCK_FILES = """
SELECT FROM vectorforge.uploaded_files WHERE tenant_id = %(tenant_id)s AND id = ANY (%(ids)s::uuid[])
ORDER BY id FOR UPDATE
"""
_ATTACH = """
WITH chosen AS (
    SELECT f.id, f.filename, f.media_type, wanted.attributes, (wanted.place - 1)::int AS new_ordinal,
        row_number() OVER (PARTITION BY f.filename ORDER BY wanted.place) > 1 OR EXISTS (
            SELECT FROM vectorforge.documents d
            WHERE d.tenant_id = f.tenant_id AND d.collection_id = %(collection_id)s
                AND d.source_key = vectorforge.source_key(f.filename)
        ) OR EXISTS (
            SELECT FROM vectorforge.uploaded_files other WHERE other.tenant_id = f.tenant_id
                AND other.collection_id = %(collection_id)s AND other.source = f.filename
        ) AS is_taken
    FROM unnest(%(ids)s::uuid[], %(attributes)s::text[]::jsonb[])
        WITH ORDINALITY AS wanted (id, attributes, place)
    JOIN vectorforge.uploaded_files f ON f.tenant_id = %(tenant_id)s AND f.id = wanted.id
    WHERE f.job_id IS NULL AND f.expires_at > clock_timestamp()
), named AS (
    SELECT *, CASE WHEN is_taken THEN 'file-' || replace(id::text, '-', '') || '/' ELSE '' END || filename
        AS new_source
    FROM chosen
), job AS (
    INSERT INTO vectorforge.ingestion_jobs (tenant_id, id, collection_id, documents_total, source_key)
    SELECT %(tenant_id)s, %(job_id)s, %(collection_id)s, count(*),
        CASE WHEN count(*) = 1 THEN vectorforge.source_key(min(new_source)) END
    FROM named HAVING count(*) = %(total)s
    RETURNING id
), items AS (
    INSERT INTO vectorforge.ingestion_job_items
        (tenant_id, job_id, ordinal, source, media_type, metadata, document_id, content)
    SELECT %(tenant_id)s, job.id, new_ordinal, new_source, media_type, attributes, named.id, ''
    FROM named CROSS JOIN job
)
UPDATE vectorforge.uploaded_files AS f
SET expires_at = NULL, collection_id = %(collection_id)s, document_id = f.id, job_id = job.id,
    ordinal = named.new_ordinal, source = named.new_source
FROM named CROSS JOIN job WHERE f.tenant_id = %(tenant_id)s AND f.id = named.id
"""
# An item that a worker has begun stays, or one that has become the file's document since the file was found.
_DELETE = """
WITH gone AS (
    DELETE FROM vectorforge.ingestion_job_items AS i USING vectorforge.uploaded_files AS f
    WHERE f.tenant_id = %(tenant_id)s AND f.id = %(id)s AND i.tenant_id = f.tenant_id
        AND i.job_id = f.job_id AND i.ordinal = f.ordinal AND i.status <> 'running'
        AND (i.status NOT IN ('succeeded', 'unchanged') OR i.document_id <> f.id)
    RETURNING i.job_id, i.status
), fewer AS (
    UPDATE vectorforge.ingestion_jobs AS j
    SET documents_total = j.documents_total - 1,
        documents_failed = j.documents_failed - (gone.status = 'failed')::int,
        documents_done = j.documents_done - (gone.status IN ('succeeded', 'unchanged'))::int
    FROM gone WHERE j.tenant_id = %(tenant_id)s AND j.id = gone.job_id
)
DELETE FROM vectorforge.uploaded_files AS f
WHERE f.tenant_id = %(tenant_id)s AND f.id = %(id)s AND (f.job_id IS NULL OR EXISTS (SELECT FROM gone))
"""
_COUNT_CANCELLED = """
SELECT count(*) AS total FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND error_code = 'cancelled'
"""
_CANCEL = """
WITH cancelled AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = 'failed', content = NULL, error_code = 'cancelled', error_message = 'Canceled.'
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued'
    RETURNING job_id
)
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + (SELECT count(*) FROM cancelled)
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s
"""
_EVERY_FILE = SqlCondition()


def _files(condition: str, ordering: str = "", status: str | None = None, purpose: object = None) -> str:
    """Return the statement of the files of a condition, which it applies to each table, by their indexes.

    Files that are documents are completed, and no others.
    """
    arms = [_UPLOADED, _DOCUMENTS] if status is None else [_DOCUMENTS if status == "completed" else _UPLOADED]
    if purpose == "user_data":  # few, by an index; the others are "assistants"
        arms = [f"{arm} AND f.purpose = 'user_data'" for arm in arms]
    parts = [f"(SELECT * FROM ({arm}) AS d WHERE {condition} {ordering})" for arm in arms]
    return f"{' UNION ALL '.join(parts)} {ordering if len(parts) > 1 else ''}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file without its content."""

    id: UUID
    """The id of its document, once it is one."""
    collection_id: UUID | None
    job_id: UUID | None
    """Ingestion job of a file that was uploaded and attached."""
    source: str
    filename: str | None
    """Name of an uploaded file."""
    purpose: str
    size_bytes: int
    """Size of the file; of a document that was not uploaded as a file that of its text."""
    text_bytes: int
    """Size of the document's text in UTF-8; 0 without one."""
    created_at: datetime
    expires_at: datetime | None
    metadata: Mapping[str, Any]
    status: str
    """waiting | in_progress | completed | failed, or ``"cancelled"``"""
    error_code: str | None
    error_message: str | None


class FileRepository:
    """The files of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def create(self, filename: str, purpose: str, media_type: str | None, content: bytes) -> UUID:
        """Store an uploaded file for ``WAITING_HOURS``; return its id.

        Raises:
            ConflictError: The tenant has too many files that are not attached, or too large ones.
        """
        values = {
            "id": uuid4(),
            "filename": filename,
            "purpose": purpose,
            "media_type": media_type,
            "size": len(content),
            "content": content,
            "hours": WAITING_HOURS,
            "max_files": MAX_WAITING_FILES,
            "max_bytes": MAX_WAITING_BYTES,
        }
        if not await self._db.execute(_CREATE, values):
            raise ConflictError(
                f"At most {MAX_WAITING_FILES:,} files, together {MAX_WAITING_BYTES:,} bytes, may wait to be "
                "attached to a vector store; attach or delete some first."
            )
        return values["id"]  # type: ignore[return-value]

    async def find(self, file_id: UUID, collection_id: UUID | None = None) -> StoredFile | None:
        """Return the file, or None; with a collection only if it is attached to this one."""
        page = await self.list(CursorPage(1), collection_id=collection_id, file_id=file_id)
        return page.rows[0] if page.rows else None

    async def find_all(self, ids: Sequence[UUID]) -> Sequence[StoredFile]:
        """Return the files with these ids, without those that do not exist."""
        rows = await self._db.fetch_all(_files("id = ANY (%(ids)s::uuid[])"), {"ids": list(ids)})
        return [StoredFile(**row) for row in rows]

    async def list(
        self,
        page: CursorPage,
        *,
        condition: SqlCondition = _EVERY_FILE,
        status: str | None = None,
        **equal: UUID | str | None,
    ) -> Page[StoredFile]:
        """Return a page of the files.

        Args:
            page: The page.
            condition: From ``vectorstore.filters.documents``.
            status: As of ``StoredFile``; None: any.
            **equal: ``collection_id``, ``job_id``, ``file_id``, ``purpose``; None: any.

        Raises:
            InvalidInputError: The cursor is no file (any more).
        """
        wanted = {name: value for name, value in {**equal, "status": status}.items() if value is not None}
        values = {**condition.params, **wanted}
        if page.cursor is not None:
            row = await self._db.fetch_one(_files("id = %(cursor)s"), {"cursor": page.cursor})
            if row is None or row["collection_id"] != wanted.get("collection_id", row["collection_id"]):
                raise page.missing()
            values |= {"cursor": page.cursor, "cursor_time": row["created_at"]}
        tests = [f"{'id' if name == 'file_id' else name} = %({name})s" for name in wanted]
        where = " AND ".join([condition.text, page.condition, *tests])
        rows = await self._db.fetch_all(_files(where, page.ordering, status, wanted.get("purpose")), values)
        return page.cut([StoredFile(**row) for row in rows])

    async def content(self, file_id: UUID, part: range) -> bytes | None:
        """Return a part of an uploaded file that is not ingested yet, or None."""
        values = {"id": file_id, "start": part.start + 1, "size": len(part)}
        row = await self._db.fetch_one(_CONTENT, values)
        return bytes(row["content"]) if row and row["content"] is not None else None

    async def attach(
        self, collection_id: UUID, files: Mapping[UUID, Mapping[str, Any]], job_id: UUID
    ) -> bool:
        """Make uploaded files a job of the collection, given by id with the metadata of their documents.

        A file's source is its name; if the collection has a document or file of this name, its id in front of
        the name.

        Returns:
            False if one of them is not waiting to be attached; then none is.
        """
        values = {
            "collection_id": collection_id,
            "job_id": job_id,
            "ids": list(files),
            "attributes": [json.dumps(dict(attributes)) for attributes in files.values()],
            "total": len(files),
        }
        statements = (_LOCK_COLLECTION, _LOCK_FILES, _ATTACH)
        outcomes = await self._db.run([(statement, values) for statement in statements])
        return outcomes[-1][1] == len(files)

    async def delete(self, file_id: UUID) -> None:
        """Delete a file that is no document, and the item of its job.

        Raises:
            ConflictError: It is being ingested.
        """
        if not await self._db.execute(_DELETE, {"id": file_id}):
            raise ConflictError("The file is being ingested; try again when it is completed or failed.")

    async def cancel(self, job_id: UUID) -> None:
        """Cancel the documents of a job that are not begun; a worker then ends the job."""
        await self._db.execute(_CANCEL, {"job_id": job_id})

    async def count_cancelled(self, job_id: UUID) -> int:
        """Return the number of documents of a job that ``cancel`` canceled."""
        row = await self._db.fetch_one(_COUNT_CANCELLED, {"job_id": job_id})
        return row["total"] if row else 0
