"""Queue of ingestion jobs: claims across tenants, and one tenant's jobs.

An ingestion job holds accepted documents until they are stored, and the outcome of each.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_progress import FINISH, JobProgress, finish_values
from vectorforge.db.repositories.job_types import (
    ITEM_COLUMNS,
    JOB_COLUMNS,
    IngestionJob,
    IngestionJobItem,
    JobError,
    JobOutcome,
    NewJobItem,
    append_items,
)
from vectorforge.db.repositories.paging import MAX_PAGE, checked_page
from vectorforge.errors import InvalidInputError, NotFoundError

_CLAIM = """
SELECT claimed_tenant_id, claimed_job_id, claims_without_progress
FROM vectorforge.claim_ingestion_job(make_interval(secs => %s))
"""
_DELETE_OLD_LOGS = "SELECT vectorforge.delete_old_logs(make_interval(days => %s)) AS rows"
_DELETE_EXPIRED_CACHES = "SELECT vectorforge.delete_expired_caches(make_interval(secs => %s)) AS rows"
_DELETE_EXPIRED_STREAMS = "SELECT vectorforge.delete_expired_streams() AS rows"
_DELETE_EXPIRED_FILES = "SELECT vectorforge.delete_expired_files() AS rows"
_ERASE_OLD_TEXTS = "SELECT vectorforge.erase_old_log_texts(make_interval(days => %s)) AS rows"
_ANALYZE = "SELECT vectorforge.analyze_changed_tables(%s)"
_OTHERS_WAIT = "SELECT vectorforge.other_tenants_wait(%s) AS waits"


class ClaimedJob(NamedTuple):
    """A job that this worker has to carry out now."""

    tenant_id: str
    job_id: UUID
    claims: int
    """Claims since one of its documents last came to an end, with this one; 1 at first."""


class JobDispatcher:
    """Hands out the jobs of all tenants; it learns no more of a job than its id and its tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, lease_s: float = 60.0) -> ClaimedJob | None:
        """Claim the next job, or None, for the time of its lease; ``JobRepository.heartbeat`` extends it.

        A job whose lease has run out (its worker was killed) is claimed again, with the items it had begun.
        Tenants with fewer running jobs come first, then those whose last turn is longer ago, then older jobs.
        Of one collection only the oldest open job is claimed, and concurrently with it jobs of one document
        each (see ``JobRepository.create``), if the documents differ.

        Args:
            lease_s: Seconds until another worker may claim it, more than 0 and at most 86,400.
        """
        row = await self._database.fetch_untenanted(_CLAIM, (lease_s,))
        return ClaimedJob(*row.values()) if row else None

    async def delete_old_logs(self, kept_days: int) -> None:
        """Delete queries and ended jobs older than this many days, at least 1, of all tenants."""
        await self._until_done(_DELETE_OLD_LOGS, kept_days)

    async def erase_old_log_texts(self, kept_days: int) -> None:
        """Empty the texts of queries and answers older than this many days, at least 1, of all tenants.

        Deletes tombstones of erased chunks that are too old to be of use as well.
        """
        await self._until_done(_ERASE_OLD_TEXTS, kept_days)

    async def delete_expired_caches(self, stale_s: float) -> None:
        """Delete vectors that have expired, and answers that have for this long, of all tenants."""
        await self._until_done(_DELETE_EXPIRED_CACHES, stale_s)

    async def delete_expired_streams(self) -> None:
        """Delete expired streamed answers of all tenants."""
        await self._until_done(_DELETE_EXPIRED_STREAMS)

    async def delete_expired_files(self) -> None:
        """Delete expired files of all tenants that were uploaded and not attached to a vector store."""
        await self._until_done(_DELETE_EXPIRED_FILES)

    async def analyze_changed_tables(self, least: int = 1_000) -> None:
        """Update the planner's statistics of tables with this many changed rows, and a fifth of all."""
        await self._database.fetch_untenanted(_ANALYZE, (least,))

    async def _until_done(self, statement: str, *params: float) -> None:
        """Repeat a statement, which handles some rows, until it counts none."""
        while (row := await self._database.fetch_untenanted(statement, params)) and row["rows"]:
            pass

    async def others_wait(self, tenant_id: str = "") -> bool:
        """Return True if a job of another tenant can be claimed now; by default one of any tenant."""
        row = await self._database.fetch_untenanted(_OTHERS_WAIT, (tenant_id,))
        return bool(row and row["waits"])


MAX_ITEMS = 10_000
"""Documents of one job."""

# The lock waits for a deletion of the collection, and then finds no row.
_CREATE = f"""
INSERT INTO vectorforge.ingestion_jobs (tenant_id, id, collection_id, documents_total, source_key)
SELECT tenant_id, %(job_id)s, id, %(total)s, vectorforge.source_key(%(only_source)s::text)
FROM vectorforge.collections
WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s FOR KEY SHARE
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING {JOB_COLUMNS}
"""
_BY_ID = f"""
SELECT {JOB_COLUMNS}, (
    SELECT c.data_version FROM vectorforge.collections AS c
    WHERE c.tenant_id = job.tenant_id AND c.id = job.collection_id AND job.finished_at IS NOT NULL
) AS version
FROM vectorforge.ingestion_jobs AS job WHERE tenant_id = %s AND id = %s
"""
_LIST = f"""
SELECT {JOB_COLUMNS} FROM vectorforge.ingestion_jobs
WHERE tenant_id = %(tenant_id)s
  AND (%(collection_id)s::uuid IS NULL OR collection_id = %(collection_id)s)
  AND (%(source)s::text IS NULL OR id = ANY (ARRAY(
      SELECT job_id FROM vectorforge.ingestion_job_items
      WHERE tenant_id = %(tenant_id)s AND (source = %(source)s OR parent_source = %(source)s)
  )))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
"""
_ITEMS = f"""
SELECT {ITEM_COLUMNS} FROM vectorforge.ingestion_job_items
WHERE tenant_id = %s AND job_id = %s ORDER BY ordinal LIMIT %s OFFSET %s
"""


# Younger jobs of the collection wait for the claimed one, so that no other worker claims them meanwhile.
# Jobs with a file of records run alone, since its end deletes documents, and so do jobs that were begun
# before: they may have stopped their worker.
_CLAIM_FOLLOWING = """
WITH claimed AS (
    SELECT tenant_id, collection_id, created_at, id, documents_total FROM vectorforge.ingestion_jobs
    WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running' AND claims = 1
        AND source_key IS NULL AND lease_expires_at > clock_timestamp()
    FOR UPDATE
), younger AS (
    SELECT job.id, sum(job.documents_total) OVER up_to_this + claimed.documents_total <= %(documents)s
        AND bool_and(job.status = 'queued' AND job.claims = 0 AND job.source_key IS NULL) OVER up_to_this
        AND NOT bool_or(CASE WHEN job.documents_total > %(documents)s THEN true ELSE EXISTS (
            SELECT FROM vectorforge.ingestion_job_items AS item
            WHERE item.tenant_id = claimed.tenant_id AND item.job_id IN (job.id, claimed.id)
                AND item.parent_source IS NOT NULL
        ) END) OVER up_to_this AS fits
    FROM claimed CROSS JOIN LATERAL (
        SELECT * FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id = claimed.tenant_id AND job.collection_id = claimed.collection_id
            AND job.status IN ('queued', 'running')
            AND (job.created_at, job.id) > (claimed.created_at, claimed.id)
        ORDER BY job.created_at, job.id LIMIT %(jobs)s
    ) AS job
    WHERE claimed.documents_total < %(documents)s
    WINDOW up_to_this AS (ORDER BY job.created_at, job.id)
)
UPDATE vectorforge.ingestion_jobs
SET status = 'running', claims = 1, lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s),
    last_claimed_at = clock_timestamp(), started_at = coalesce(started_at, clock_timestamp())
WHERE tenant_id = %(tenant_id)s AND status = 'queued' AND id = ANY (ARRAY(SELECT id FROM younger WHERE fits))
RETURNING created_at, id
"""
_OPEN = """
SELECT id FROM vectorforge.ingestion_jobs
WHERE tenant_id = %s AND id = ANY(%s::uuid[]) AND finished_at IS NULL
"""
_OUTCOMES = """
SELECT job.id, job.status, job.finished_at IS NOT NULL AS ended,
    coalesce(bool_and(item.status = 'unchanged'), false) AS unchanged,
    coalesce(job.error_code,
             (array_agg(item.error_code ORDER BY item.ordinal) FILTER (WHERE item.status = 'failed'))[1])
        AS error_code
FROM vectorforge.ingestion_jobs AS job
LEFT JOIN vectorforge.ingestion_job_items AS item ON item.tenant_id = job.tenant_id AND item.job_id = job.id
WHERE job.tenant_id = %s AND job.id = ANY(%s::uuid[])
GROUP BY job.tenant_id, job.id
"""
_WAITS_BEHIND = """
SELECT vectorforge.waits_behind_another(tenant_id, collection_id, source_key, created_at, id) AS waits
FROM vectorforge.ingestion_jobs WHERE tenant_id = %s AND id = %s
"""


class JobRepository(JobProgress):
    """The ingestion jobs of one tenant."""

    async def create(
        self,
        collection_id: UUID,
        items: Sequence[NewJobItem],
        *,
        job_id: UUID | None = None,
        refusal: JobError | None = None,
        side_by_side: bool = False,
    ) -> IngestionJob:
        """Accept documents. Once this returns, they survive a crash of this process.

        Args:
            collection_id: Collection that they are stored in.
            items: 1 to 10,000 documents, in the order they will be read.
            job_id: Id for a sender that may retry: an existing job with this id is returned.
            refusal: Reason why the documents are not read: the job has failed then, and no worker sees it.
            side_by_side: For a single document: the job need not wait for older ones of other documents.
                Else a job begins when every older one of its collection has ended.

        Raises:
            NotFoundError: There is no such collection.
            InvalidInputError: Too many documents or none, or a value that cannot be stored.
        """
        if not 1 <= len(items) <= MAX_ITEMS:
            raise InvalidInputError(f"A job must have 1 to {MAX_ITEMS} documents.", field="documents")
        only_source = items[0].source if side_by_side and len(items) == 1 else None
        new_id = job_id or uuid4()
        values = self._db.named(
            job_id=new_id, collection_id=collection_id, total=len(items), only_source=only_source
        )
        async with self._db.transaction() as connection:
            row = await (await connection.execute(_CREATE, values)).fetchone()
            if row is not None:
                await append_items(connection, self._db.tenant_id, new_id, items)
                if refusal is not None:
                    finished = await connection.execute(
                        FINISH, {**values, **finish_values([new_id], refusal)}
                    )
                    row = await finished.fetchone() or row
        if row is not None:
            return IngestionJob.of(row)
        existing = await self.find_by_id(job_id) if job_id is not None else None
        if existing is None:
            raise NotFoundError(f"Collection {collection_id} not found")
        return existing

    async def claim_following(self, job_id: UUID, lease_s: float, *, documents: int, jobs: int) -> list[UUID]:
        """Claim the jobs of several documents that wait directly behind a job, to carry them out after it.

        Args:
            job_id: A job claimed by this process for the first time; otherwise there are none.
            lease_s: As in ``JobDispatcher.claim``.
            documents: Documents of all of them, with the job's, at most.
            jobs: Number of jobs, at most.

        Returns:
            Their ids, oldest first.
        """
        values = {"job_id": job_id, "lease_s": lease_s, "documents": documents, "jobs": jobs}
        rows = await self._db.fetch_all(_CLAIM_FOLLOWING, values)
        return [row["id"] for row in sorted(rows, key=lambda row: (row["created_at"], row["id"]))]

    async def find_by_id(self, job_id: UUID) -> IngestionJob | None:
        """Return the job, or None."""
        row = await self._db.fetch_one(_BY_ID, (self._db.tenant_id, job_id))
        return IngestionJob.of(row) if row else None

    async def not_ended(self, job_ids: Sequence[UUID]) -> set[UUID]:
        """Return those of these jobs that are queued or running, without deleted ones."""
        rows = await self._db.fetch_all(_OPEN, (self._db.tenant_id, list(job_ids)))
        return {row["id"] for row in rows}

    async def outcomes(self, job_ids: Sequence[UUID]) -> dict[UUID, JobOutcome]:
        """Return the outcomes of jobs, by id, without deleted jobs."""
        rows = await self._db.fetch_all(_OUTCOMES, (self._db.tenant_id, list(job_ids)))
        return {row["id"]: JobOutcome(**row) for row in rows}

    async def waits_behind_another(self, job_id: UUID) -> bool:
        """Return True if an older job of the collection must end before this one can begin."""
        row = await self._db.fetch_one(_WAITS_BEHIND, (self._db.tenant_id, job_id))
        return bool(row and row["waits"])

    async def items(
        self, job_id: UUID, *, limit: int = MAX_PAGE, offset: int = 0
    ) -> Sequence[IngestionJobItem]:
        """Return a page of a job's items, in order, without content; ``checked_page`` has the bounds."""
        page = (self._db.tenant_id, job_id, *checked_page(limit, offset))
        return [IngestionJobItem.of(row) for row in await self._db.fetch_all(_ITEMS, page)]

    async def list(
        self,
        collection_id: UUID | None = None,
        *,
        source: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[IngestionJob]:
        """Return a page of jobs, newest first, of one collection if given; ``checked_page`` has the bounds.

        With a ``source`` only jobs with this document, or with records of this JSONL file.
        """
        checked_page(limit, offset)
        values = {"collection_id": collection_id, "source": source, "limit": limit, "offset": offset}
        return [IngestionJob.of(row) for row in await self._db.fetch_all(_LIST, values)]
