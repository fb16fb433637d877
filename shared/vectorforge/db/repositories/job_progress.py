"""Progress of ingestion jobs through their worker; every statement takes ``tenant_id``."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.job_types import (
    ITEM_COLUMNS,
    ITEM_CONTENT,
    JOB_COLUMNS,
    MAX_ATTEMPTS,
    MAX_ERROR_CHARS,
    IngestionJob,
    IngestionJobItem,
    JobError,
    NewJobItem,
    StoredItem,
    append_items,
    bounded,
)
from vectorforge.db.tenant_database import TenantDatabase

_GIVE_UP_ITEMS = """
WITH given_up AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = 'failed', content = NULL, error_code = 'document_crashes',
        error_message = 'Reading the document stopped the server ' || attempts || ' times.'
    WHERE tenant_id = %(tenant_id)s AND job_id = ANY (%(job_ids)s) AND status = 'queued'
      AND attempts >= %(max_attempts)s
    RETURNING job_id
)
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + items, claims = 0
FROM (SELECT job_id, count(*) AS items FROM given_up GROUP BY 1) AS counted
WHERE tenant_id = %(tenant_id)s AND id = counted.job_id
"""
# Of several items, those that were begun before stay out: one of them may have stopped its worker. Those
# that fit are the first of each job, so that the update joins a row for each job instead of each item.
_NEXT_ITEMS = f"""
UPDATE vectorforge.ingestion_job_items AS item
SET status = 'running', attempts = attempts + 1
FROM (
    SELECT next_job, max(next_ordinal) AS last_ordinal FROM (
        SELECT next_job, next_ordinal, row_number() OVER first_to_this AS place,
               bool_and(attempts = 0 AND bytes <= %(item_bytes)s) OVER first_to_this
               AND sum(bytes) OVER first_to_this <= %(total_bytes)s AS fits
        FROM (
            SELECT job.place AS job_place, waiting.*
            FROM unnest(%(job_ids)s) WITH ORDINALITY AS job (id, place) CROSS JOIN LATERAL (
                SELECT job_id AS next_job, ordinal AS next_ordinal, attempts,
                       coalesce(octet_length({ITEM_CONTENT}), 0) AS bytes
                FROM vectorforge.ingestion_job_items AS item
                WHERE tenant_id = %(tenant_id)s AND job_id = job.id AND status = 'queued'
                ORDER BY ordinal LIMIT %(limit)s
            ) AS waiting
            ORDER BY job_place, next_ordinal LIMIT %(limit)s
        ) AS waiting
        WINDOW first_to_this AS (ORDER BY job_place, next_ordinal)
    ) AS counted
    WHERE place = 1 OR fits
    GROUP BY 1
) AS begun
WHERE tenant_id = %(tenant_id)s AND job_id = ANY (%(job_ids)s) AND job_id = next_job
    AND ordinal <= last_ordinal AND status = 'queued'
RETURNING {ITEM_COLUMNS}, {ITEM_CONTENT} AS content
"""

# Items and job change together, and only items that run: reported twice, an item is counted once.
_ITEMS_SUCCEEDED = """
WITH ended AS (
    SELECT * FROM jsonb_to_recordset(%(ended)s::jsonb) AS one (
        job_id uuid, ordinal int, document_id uuid, unchanged bool, warnings jsonb, chunks_added int,
        chunks_kept int, chunks_removed int
    )
), done AS (
    UPDATE vectorforge.ingestion_job_items AS item
    SET status = CASE WHEN ended.unchanged THEN 'unchanged' ELSE 'succeeded' END, content = NULL,
        stage = NULL, error_code = NULL, error_message = NULL, document_id = ended.document_id,
        warnings = ARRAY(SELECT jsonb_array_elements_text(ended.warnings)),
        chunks_added = ended.chunks_added, chunks_kept = ended.chunks_kept,
        chunks_removed = ended.chunks_removed
    FROM ended
    WHERE tenant_id = %(tenant_id)s AND item.job_id = ANY (%(job_ids)s) AND item.job_id = ended.job_id
        AND item.ordinal = ended.ordinal AND status = 'running'
    RETURNING ended.*
), counted AS (
    SELECT job_id AS job, count(*) AS documents, sum(chunks_added) AS added, sum(chunks_kept) AS kept,
           sum(chunks_removed) AS removed
    FROM done GROUP BY 1
)
UPDATE vectorforge.ingestion_jobs
SET documents_done = documents_done + documents, claims = 0, chunks_added = chunks_added + added,
    chunks_kept = chunks_kept + kept, chunks_removed = chunks_removed + removed
FROM counted WHERE tenant_id = %(tenant_id)s AND id = counted.job
RETURNING documents
"""
_ITEM_FAILED = """
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
_REPLACE_ITEM = """
UPDATE vectorforge.ingestion_job_items
SET source = %(source)s, parent_source = %(parent_source)s, media_type = %(media_type)s, title = %(title)s,
    metadata = %(metadata)s, content = %(content)b, status = 'queued', stage = NULL, attempts = 0,
    warnings = %(warnings)s::text[]
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
_COUNT_PARTS = """
UPDATE vectorforge.ingestion_jobs SET documents_total = documents_total + %(more)s, claims = 0
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s
"""
_COMPLETE_FILES = """
SELECT parent_source, array_agg(source) AS sources FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND parent_source IS NOT NULL
GROUP BY parent_source HAVING bool_and(status IN ('succeeded', 'unchanged'))
"""
_JOB_STAGE = """
UPDATE vectorforge.ingestion_jobs SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
_ITEM_STAGE = """
UPDATE vectorforge.ingestion_job_items SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
_HEARTBEAT = """
UPDATE vectorforge.ingestion_jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE tenant_id = %(tenant_id)s AND id = ANY (%(job_ids)s) AND status = 'running'
RETURNING id
"""
_RELEASE_ITEMS = """
UPDATE vectorforge.ingestion_job_items SET status = 'queued', attempts = greatest(attempts - 1, 0)
WHERE tenant_id = %(tenant_id)s AND job_id = ANY (%(job_ids)s) AND status = 'running'
"""
_RELEASE = """
UPDATE vectorforge.ingestion_jobs
SET status = 'queued', stage = NULL, lease_expires_at = NULL, claims = greatest(claims - 1, 0),
    error_code = %(code)s, error_message = %(message)s
WHERE tenant_id = %(tenant_id)s AND id = ANY (%(job_ids)s) AND status = 'running'
"""
FINISH = f"""
WITH failed AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = 'failed', content = NULL, error_code = coalesce(error_code, %(code)s, 'not_finished'),
        error_message = coalesce(error_message, %(message)s, 'The job ended before this document.')
    WHERE tenant_id = %(tenant_id)s AND job_id = ANY (%(job_ids)s) AND status IN ('queued', 'running')
    RETURNING job_id
), counted AS (
    SELECT ended.job, count(failed.job_id) AS unfinished
    FROM unnest(%(job_ids)s) AS ended (job) LEFT JOIN failed ON failed.job_id = ended.job GROUP BY 1
)
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + unfinished, stage = NULL, lease_expires_at = NULL,
    finished_at = clock_timestamp(), error_code = %(code)s, error_message = %(message)s,
    status = CASE WHEN documents_failed + unfinished = 0 THEN 'succeeded'
                  WHEN documents_done = 0 THEN 'failed' ELSE 'partial' END
FROM counted WHERE tenant_id = %(tenant_id)s AND id = counted.job AND status IN ('queued', 'running')
RETURNING {JOB_COLUMNS}
"""
"""Ends jobs; parameters: ``finish_values``."""


def finish_values(job_ids: Sequence[UUID], error: JobError | None) -> dict[str, Any]:
    """Return the parameters of ``FINISH``, and of a release, without the tenant."""
    code, message = (error.code, error.message[:MAX_ERROR_CHARS]) if error else (None, None)
    return {"job_ids": list(job_ids), "code": code, "message": message}


class JobProgress:
    """Progress of claimed jobs of this tenant; see ``JobDispatcher``."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def next_items(
        self, *job_ids: UUID, limit: int = 1, item_bytes: int = 0, total_bytes: int = 0
    ) -> list[IngestionJobItem]:
        """Begin the next queued item, or several small ones that are begun for the first time.

        An item that was begun three times without an end fails instead ("document_crashes").

        Args:
            job_ids: The jobs, in the order in which they are to be carried out.
            limit: Items, at most.
            item_bytes: Content of each item if there are several.
            total_bytes: Content of all of them.

        Returns:
            The items with their content, in order; empty if none is queued.
        """
        values = self._db.named(
            job_ids=list(job_ids),
            max_attempts=MAX_ATTEMPTS,
            limit=limit,
            item_bytes=item_bytes,
            total_bytes=total_bytes,
        )
        async with self._db.transaction() as connection:
            await connection.execute(_GIVE_UP_ITEMS, values)
            rows = await (await connection.cursor(binary=True).execute(_NEXT_ITEMS, values)).fetchall()
        places = {job_id: place for place, job_id in enumerate(job_ids)}
        return sorted(map(IngestionJobItem.of, rows), key=lambda item: (places[item.job_id], item.ordinal))

    async def items_succeeded(self, items: Sequence[StoredItem]) -> int:
        """Mark running items as stored and drop their content.

        Stores the first ten warnings of each, cut to 300 characters. Returns how many were running; the
        others, which another worker took over, are not counted.
        """
        ended = [{**asdict(item), "warnings": bounded(item.warnings)} for item in items]
        values = {"job_ids": list({item.job_id for item in items}), "ended": json.dumps(ended, default=str)}
        return sum(row["documents"] for row in await self._db.fetch_all(_ITEMS_SUCCEEDED, values))

    async def item_failed(
        self,
        job_id: UUID,
        ordinal: int,
        error: JobError,
        *,
        retry: bool = False,
        warnings: Sequence[str] = (),
    ) -> bool:
        """Mark a running item as failed and drop its content.

        Stores the first 2,000 characters of the message, and warnings as ``items_succeeded``. ``retry``
        queues it again instead, unless it was begun three times. Returns False if the item was not running.
        """
        item = {"job_id": job_id, "ordinal": ordinal, "retry": retry, "max_attempts": MAX_ATTEMPTS}
        reason = {"code": error.code, "message": error.message[:MAX_ERROR_CHARS]}
        values = {**item, **reason, "warnings": bounded(warnings)}
        return await self._db.execute(_ITEM_FAILED, values) == 1

    async def replace_item(
        self, job_id: UUID, ordinal: int, parts: Sequence[NewJobItem], warnings: Sequence[str] = ()
    ) -> bool:
        """Replace a running item by the documents inside it, at least one, queued, each with its own result.

        The first part gets the item's ordinal and the warnings, the others are appended. Returns False if
        the item was not running, since another worker took it over; then nothing changes.
        """
        from psycopg.types.json import Jsonb

        first, *others = parts
        values = {**asdict(first), "metadata": Jsonb(dict(first.metadata)), "ordinal": ordinal}
        values["warnings"] = bounded(warnings)
        async with self._db.transaction() as connection:
            replaced = await connection.execute(_REPLACE_ITEM, self._db.named(job_id=job_id, **values))
            if replaced.rowcount != 1:
                return False
            await connection.execute(_COUNT_PARTS, self._db.named(job_id=job_id, more=len(others)))
            await append_items(connection, self._db.tenant_id, job_id, others)
        return True

    async def complete_files(self, job_id: UUID) -> dict[str, list[str]]:
        """Return the files whose records are all stored, each with the sources of its records."""
        rows = await self._db.fetch_all(_COMPLETE_FILES, {"job_id": job_id})
        return {row["parent_source"]: row["sources"] for row in rows}

    async def set_stage(self, job_id: UUID, ordinal: int, stage: str) -> None:
        """Set the stage of a running job and of its running item: extract, chunk, embed or store."""
        for statement in (_JOB_STAGE, _ITEM_STAGE):  # one transaction each, which waits for no other row
            await self._db.execute(statement, {"job_id": job_id, "stage": stage, "ordinal": ordinal})

    async def heartbeat(self, *job_ids: UUID, lease_s: float = 60.0) -> set[UUID]:
        """Extend the leases by ``lease_s`` seconds; return the jobs that are running. Stop the others."""
        values = {"job_ids": list(job_ids), "lease_s": lease_s}
        return {row["id"] for row in await self._db.fetch_all(_HEARTBEAT, values)}

    async def release(self, *job_ids: UUID, error: JobError | None = None) -> None:
        """Return running jobs to the queue with their remaining items, when their worker has to stop.

        ``error`` is the reason, which they have until they are released or finished the next time.
        """
        values = finish_values(job_ids, error)
        await self._db.run([(statement, values) for statement in (_RELEASE_ITEMS, _RELEASE)])

    async def finish(self, *job_ids: UUID, error: JobError | None = None) -> list[IngestionJob]:
        """End jobs: succeeded, partial (some documents failed) or failed (all did).

        ``error`` is the reason for an early end, and the error of every unfinished item. Returns the jobs
        without those that do not exist, or had ended before.
        """
        return list(map(IngestionJob.of, await self._db.fetch_all(FINISH, finish_values(job_ids, error))))
