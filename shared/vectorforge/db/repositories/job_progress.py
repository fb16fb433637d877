"""How a worker carries an ingestion job forward."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.connection import TenantDatabase
from vectorforge.db.repositories import job_progress_sql as sql
from vectorforge.db.repositories.job_types import IngestionJob, IngestionJobItem, JobError, NewJobItem

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow

MAX_ATTEMPTS = 3
"""How often an item is begun; one that kills its worker every time must not do so for ever."""
MAX_ERROR_CHARS = 2000
MAX_WARNINGS = 10
"""Of one item."""
MAX_WARNING_CHARS = 300


class JobProgress:
    """What the worker that claimed a job of this tenant does with it (see ``JobDispatcher``)."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def next_item(self, job_id: UUID) -> IngestionJobItem | None:
        """Begin the next queued item; with its content. None when no item is queued.

        An item begun three times without an end is marked as failed instead ("document_crashes").
        """
        values = self._of(job_id, max_attempts=MAX_ATTEMPTS)
        async with self._db.transaction() as connection:
            await connection.execute(sql.GIVE_UP_ITEMS, values)
            row = await (await connection.cursor(binary=True).execute(sql.NEXT_ITEM, values)).fetchone()
        return IngestionJobItem.of(row) if row else None

    async def upcoming_items(
        self, job_id: UUID, *, after: int, most_bytes: int, limit: int
    ) -> list[IngestionJobItem]:
        """The queued items behind an ordinal, if not larger than that, with content; none is begun."""
        values = self._of(job_id, ordinal=after, most_bytes=most_bytes, limit=limit)
        rows = await self._db.fetch_all(sql.UPCOMING, values, repeatable=True)
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

        Of ``warnings`` the first ten are kept, each cut to 300 characters.

        Returns:
            False when the item was not running: another worker took it over. Nothing is counted then.
        """
        values = self._of(
            job_id,
            ordinal=ordinal,
            status="unchanged" if unchanged else "succeeded",
            document_id=document_id,
            chunks_added=chunks_added,
            chunks_kept=chunks_kept,
            chunks_removed=chunks_removed,
            warnings=_bounded(warnings),
        )
        return await self._db.execute(sql.ITEM_SUCCEEDED, values) == 1

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
            retry: Put it back into the queue instead, unless it was begun three times.
            warnings: The first ten are kept, each cut to 300 characters.

        Returns:
            False when the item was not running.
        """
        values = self._of(
            job_id,
            ordinal=ordinal,
            code=code,
            message=message[:MAX_ERROR_CHARS],
            retry=retry,
            max_attempts=MAX_ATTEMPTS,
            warnings=_bounded(warnings),
        )
        return await self._db.execute(sql.ITEM_FAILED, values) == 1

    async def replace_item(self, job_id: UUID, ordinal: int, parts: Sequence[NewJobItem]) -> bool:
        """Put the documents found inside a running item in its place, queued, each with its own result.

        Args:
            job_id: The job.
            ordinal: The item; the first part takes its ordinal, the others come last.
            parts: At least one.

        Returns:
            False when the item was not running: another worker took it over. Nothing is changed then.
        """
        from psycopg.types.json import Jsonb

        rows = [
            self._of(
                job_id,
                ordinal=ordinal,
                source=part.source,
                parent_source=part.parent_source,
                media_type=part.media_type,
                title=part.title,
                metadata=Jsonb(dict(part.metadata)),
                content=part.content,
            )
            for part in parts
        ]
        async with self._db.transaction() as connection:
            if (await connection.execute(sql.REPLACE_ITEM, rows[0])).rowcount != 1:
                return False
            await connection.execute(sql.COUNT_PARTS, self._of(job_id, more=len(rows) - 1))
            await connection.cursor().executemany(sql.ADD_PART, rows[1:])
        return True

    async def complete_files(self, job_id: UUID) -> dict[str, list[str]]:
        """The files all of whose records are stored, each with the sources of its records."""
        rows = await self._db.fetch_all(sql.COMPLETE_FILES, self._of(job_id))
        return {row["parent_source"]: row["sources"] for row in rows}

    async def set_stage(self, job_id: UUID, stage: str, *, ordinal: int | None = None) -> None:
        """Say what a running job, or one running item of it, is doing: extract, chunk, embed or store."""
        values = self._of(job_id, stage=stage[:100], ordinal=ordinal)
        await self._db.execute(sql.JOB_STAGE if ordinal is None else sql.ITEM_STAGE, values)

    async def heartbeat(self, job_id: UUID, lease_s: float = 60.0) -> bool:
        """Keep the job for ``lease_s`` more seconds; False when it is not running (any more): stop then."""
        return await self._db.execute(sql.HEARTBEAT, self._of(job_id, lease_s=lease_s)) == 1

    async def release(self, job_id: UUID) -> None:
        """Give a running job back to the queue with what is left of it, for a worker that has to stop."""
        async with self._db.transaction() as connection:
            await connection.execute(sql.RELEASE_ITEMS, self._of(job_id))
            await connection.execute(sql.RELEASE, self._of(job_id))

    async def finish(self, job_id: UUID, *, error: JobError | None = None) -> IngestionJob | None:
        """End a job: succeeded, partial (some documents failed) or failed (all did).

        Args:
            job_id: The job.
            error: What ended it early; it becomes the error of every item that is not finished.

        Returns:
            The job as it is now; None when there is none, or it had ended before.
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
        failed = await connection.execute(sql.FAIL_OPEN_ITEMS, {**values, **unfinished})
        finished = await connection.execute(sql.FINISH, {**values, "open": failed.rowcount})
        row = await finished.fetchone()
        return IngestionJob.of(row) if row else None

    def _of(self, job_id: UUID, **values: Any) -> dict[str, Any]:
        return {"tenant_id": self._db.tenant_id, "job_id": job_id, **values}


def _bounded(warnings: Sequence[str]) -> list[str]:
    return [warning[:MAX_WARNING_CHARS] for warning in warnings[:MAX_WARNINGS]]
