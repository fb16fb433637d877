"""Progress of an ingestion job through its worker; every statement takes ``tenant_id`` and ``job_id``."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.repositories.job_types import (
    ITEM_COLUMNS,
    JOB_COLUMNS,
    MAX_ATTEMPTS,
    MAX_ERROR_CHARS,
    IngestionJob,
    IngestionJobItem,
    JobError,
    NewJobItem,
    bounded,
)
from vectorforge.db.tenant_database import TenantDatabase

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

# ruff: noqa: S608
# (They are put together from constants of this package only; values are bound.)


GIVE_UP_ITEMS = """
WITH given_up AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = 'failed', content = NULL, error_code = 'document_crashes',
        error_message = 'Reading the document stopped the server ' || attempts || ' times.'
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued'
      AND attempts >= %(max_attempts)s
    RETURNING 1
)
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + (SELECT count(*) FROM given_up), claims = 0
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND EXISTS (SELECT FROM given_up)
"""
NEXT_ITEM = f"""
UPDATE vectorforge.ingestion_job_items
SET status = 'running', attempts = attempts + 1
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = (
    SELECT ordinal FROM vectorforge.ingestion_job_items
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued'
    ORDER BY ordinal LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING {ITEM_COLUMNS}, content
"""
UPCOMING = f"""
SELECT {ITEM_COLUMNS}, content FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued' AND ordinal > %(ordinal)s
    AND octet_length(content) <= %(most_bytes)s
ORDER BY ordinal LIMIT %(limit)s
"""

# Item and job change together, and only while the item runs: reported twice, it is counted once.
ITEM_SUCCEEDED = """
WITH done AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = %(status)s, content = NULL, stage = NULL, error_code = NULL, error_message = NULL,
        document_id = %(document_id)s, warnings = %(warnings)s::text[],
        chunks_added = %(chunks_added)s, chunks_kept = %(chunks_kept)s, chunks_removed = %(chunks_removed)s
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
    RETURNING tenant_id, job_id
)
UPDATE vectorforge.ingestion_jobs AS job
SET documents_done = documents_done + 1, claims = 0, chunks_added = chunks_added + %(chunks_added)s,
    chunks_kept = chunks_kept + %(chunks_kept)s, chunks_removed = chunks_removed + %(chunks_removed)s
FROM done WHERE job.tenant_id = done.tenant_id AND job.id = done.job_id
"""
ITEM_FAILED = """
WITH done AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = CASE WHEN %(retry)s AND attempts < %(max_attempts)s THEN 'queued' ELSE 'failed' END,
        content = CASE WHEN %(retry)s AND attempts < %(max_attempts)s THEN content END,
        error_code = %(code)s, error_message = %(message)s, warnings = %(warnings)s::text[]
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
    RETURNING tenant_id, job_id, status
)
UPDATE vectorforge.ingestion_jobs AS job
SET documents_failed = documents_failed + CASE done.status WHEN 'failed' THEN 1 ELSE 0 END, claims = 0
FROM done WHERE job.tenant_id = done.tenant_id AND job.id = done.job_id
"""
# The first part replaces the item, the others are appended.
REPLACE_ITEM = """
UPDATE vectorforge.ingestion_job_items
SET source = %(source)s, parent_source = %(parent_source)s, media_type = %(media_type)s, title = %(title)s,
    metadata = %(metadata)s, content = %(content)b, status = 'queued', stage = NULL, attempts = 0
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
COUNT_PARTS = """
UPDATE vectorforge.ingestion_jobs SET documents_total = documents_total + %(more)s, claims = 0
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s
"""
ADD_PART = """
INSERT INTO vectorforge.ingestion_job_items
    (tenant_id, job_id, ordinal, source, parent_source, media_type, title, metadata, content)
SELECT %(tenant_id)s, %(job_id)s, max(ordinal) + 1, %(source)s, %(parent_source)s, %(media_type)s, %(title)s,
       %(metadata)s, %(content)b
FROM vectorforge.ingestion_job_items WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s
"""
COMPLETE_FILES = """
SELECT parent_source, array_agg(source) AS sources FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND parent_source IS NOT NULL
GROUP BY parent_source HAVING bool_and(status IN ('succeeded', 'unchanged'))
"""
JOB_STAGE = """
UPDATE vectorforge.ingestion_jobs SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
ITEM_STAGE = """
UPDATE vectorforge.ingestion_job_items SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
HEARTBEAT = """
UPDATE vectorforge.ingestion_jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
RELEASE_ITEMS = """
UPDATE vectorforge.ingestion_job_items SET status = 'queued', attempts = greatest(attempts - 1, 0)
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'running'
"""
RELEASE = """
UPDATE vectorforge.ingestion_jobs
SET status = 'queued', stage = NULL, lease_expires_at = NULL, claims = greatest(claims - 1, 0)
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
FAIL_OPEN_ITEMS = """
UPDATE vectorforge.ingestion_job_items
SET status = 'failed', content = NULL, error_code = coalesce(error_code, %(code)s),
    error_message = coalesce(error_message, %(message)s)
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status IN ('queued', 'running')
"""
FINISH = f"""
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + %(open)s, stage = NULL, lease_expires_at = NULL,
    finished_at = clock_timestamp(), error_code = %(code)s, error_message = %(message)s,
    status = CASE WHEN documents_failed + %(open)s = 0 THEN 'succeeded'
                  WHEN documents_done = 0 THEN 'failed' ELSE 'partial' END
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status IN ('queued', 'running')
RETURNING {JOB_COLUMNS}
"""


class JobProgress:
    """Progress of a claimed job of this tenant; see ``JobDispatcher``."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def next_item(self, job_id: UUID) -> IngestionJobItem | None:
        """Begin the next queued item and return it with its content; None if no item is queued.

        An item that was begun three times without an end fails instead ("document_crashes").
        """
        values = self._of(job_id, max_attempts=MAX_ATTEMPTS)
        async with self._db.transaction() as connection:
            await connection.execute(GIVE_UP_ITEMS, values)
            row = await (await connection.cursor(binary=True).execute(NEXT_ITEM, values)).fetchone()
        return IngestionJobItem.of(row) if row else None

    async def upcoming_items(
        self, job_id: UUID, *, after: int, most_bytes: int, limit: int
    ) -> list[IngestionJobItem]:
        """Return the queued items after an ordinal, up to a size, with content; begin none."""
        values = self._of(job_id, ordinal=after, most_bytes=most_bytes, limit=limit)
        rows = await self._db.fetch_all(UPCOMING, values, repeatable=True)
        return [IngestionJobItem.of(row) for row in rows]

    async def item_succeeded(
        self,
        job_id: UUID,
        ordinal: int,
        *,
        document_id: UUID | None = None,
        chunks_added: int = 0,
        chunks_kept: int = 0,
        chunks_removed: int = 0,
        unchanged: bool = False,
        warnings: Sequence[str] = (),
    ) -> bool:
        """Mark a running item as stored (or as stored already, ``unchanged``) and drop its content.

        Stores the first ten ``warnings``, each cut to 300 characters.

        Returns:
            False if the item was not running, since another worker took it over; then nothing is counted.
        """
        status = "unchanged" if unchanged else "succeeded"
        counts = {"chunks_added": chunks_added, "chunks_kept": chunks_kept, "chunks_removed": chunks_removed}
        outcome = {"status": status, "document_id": document_id, "warnings": bounded(warnings), **counts}
        values = self._of(job_id, ordinal=ordinal, **outcome)
        return await self._db.execute(ITEM_SUCCEEDED, values) == 1

    async def item_failed(
        self,
        job_id: UUID,
        ordinal: int,
        *,
        code: str,
        message: str,
        retry: bool = False,
        warnings: Sequence[str] = (),
    ) -> bool:
        """Mark a running item as failed and drop its content.

        Args:
            job_id: The job.
            ordinal: The item.
            code: Our error code.
            message: Our text, cut to 2,000 characters.
            retry: Queue it again instead, unless it was begun three times.
            warnings: The first ten are stored, each cut to 300 characters.

        Returns:
            False if the item was not running.
        """
        error = {"code": code, "message": message[:MAX_ERROR_CHARS], "warnings": bounded(warnings)}
        values = self._of(job_id, ordinal=ordinal, retry=retry, max_attempts=MAX_ATTEMPTS, **error)
        return await self._db.execute(ITEM_FAILED, values) == 1

    async def replace_item(self, job_id: UUID, ordinal: int, parts: Sequence[NewJobItem]) -> bool:
        """Replace a running item by the documents inside it, queued, each with its own result.

        Args:
            job_id: The job.
            ordinal: The item; the first part gets its ordinal, the others are appended.
            parts: At least one.

        Returns:
            False if the item was not running, since another worker took it over; then nothing changes.
        """
        from psycopg.types.json import Jsonb

        rows = [
            {**self._of(job_id, ordinal=ordinal), **asdict(part), "metadata": Jsonb(dict(part.metadata))}
            for part in parts
        ]
        async with self._db.transaction() as connection:
            if (await connection.execute(REPLACE_ITEM, rows[0])).rowcount != 1:
                return False
            await connection.execute(COUNT_PARTS, self._of(job_id, more=len(rows) - 1))
            await connection.cursor().executemany(ADD_PART, rows[1:])
        return True

    async def complete_files(self, job_id: UUID) -> dict[str, list[str]]:
        """Return the files whose records are all stored, each with the sources of its records."""
        rows = await self._db.fetch_all(COMPLETE_FILES, self._of(job_id))
        return {row["parent_source"]: row["sources"] for row in rows}

    async def set_stage(self, job_id: UUID, stage: str, *, ordinal: int | None = None) -> None:
        """Set the stage of a running job, or of one running item: extract, chunk, embed or store."""
        values = self._of(job_id, stage=stage[:100], ordinal=ordinal)
        await self._db.execute(JOB_STAGE if ordinal is None else ITEM_STAGE, values)

    async def heartbeat(self, job_id: UUID, lease_s: float = 60.0) -> bool:
        """Extend the lease by ``lease_s`` seconds; return False if the job is not running: stop then."""
        return await self._db.execute(HEARTBEAT, self._of(job_id, lease_s=lease_s)) == 1

    async def release(self, job_id: UUID) -> None:
        """Return a running job to the queue with its remaining items, when its worker has to stop."""
        async with self._db.transaction() as connection:
            await connection.execute(RELEASE_ITEMS, self._of(job_id))
            await connection.execute(RELEASE, self._of(job_id))

    async def finish(self, job_id: UUID, *, error: JobError | None = None) -> IngestionJob | None:
        """End a job: succeeded, partial (some documents failed) or failed (all did).

        Args:
            job_id: The job.
            error: Reason for an early end, and the error of every unfinished item.

        Returns:
            The job; None if there is none, or it had ended before.
        """
        async with self._db.transaction() as connection:
            return await self._finish(connection, job_id, error)

    async def _finish(
        self, connection: "AsyncConnection[DictRow]", job_id: UUID, error: JobError | None
    ) -> IngestionJob | None:
        code, message = (error.code, error.message[:MAX_ERROR_CHARS]) if error else (None, None)
        values = self._of(job_id, code=code, message=message)
        unfinished = {
            "code": code or "not_finished",
            "message": message or "The job ended before this document.",
        }
        failed = await connection.execute(FAIL_OPEN_ITEMS, {**values, **unfinished})
        finished = await connection.execute(FINISH, {**values, "open": failed.rowcount})
        row = await finished.fetchone()
        return IngestionJob.of(row) if row else None

    def _of(self, job_id: UUID, **values: Any) -> dict[str, Any]:
        return {"tenant_id": self._db.tenant_id, "job_id": job_id, **values}
