"""Worker that runs ingestion jobs in this process, including abandoned ones of killed processes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Self
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import MAX_ATTEMPTS, JobError
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.term_reading import TermReader
from vectorforge.deadline import wait_for
from vectorforge.errors import DatabaseError, VectorForgeError, log_unexpected
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.ingestion.group import GROUP_SIZE
from vectorforge.ingestion.job_run import MAX_RUN_DOCUMENTS, JobRun
from vectorforge.ingestion.lease import JobLease
from vectorforge.ingestion.pipeline import IngestionPipeline

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0
_DAY_S = 86_400.0
_HOUR_S = 3600.0
_TERMS_POLL_S = 60.0
_ERASURES_POLL_S = 10.0
_ANALYSIS_S = 11.0
"""Pause between two checks for missing statistics; autovacuum pauses for a minute. A backend reports its
changes after 10 s without work at the latest
(https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/utils/activity/pgstat.c)."""
_ANALYSES = 2
"""Checks after a job: the first may come before its last changes are reported."""
MAX_CLAIMS = MAX_ATTEMPTS + 2
"""Maximum claims of a job without a finished document; more than the attempts of one document."""


@dataclass(eq=False)
class IngestionWorker:
    """Claims and runs the jobs of all tenants; as a context manager, it starts and stops.

    Args:
        database: Database with the jobs; open before ``start``.
        concurrent_jobs: Jobs run at the same time, at least 1; two, so that one slow file does not
            block all others.
        lease_s: Seconds after which a job of a killed process is claimed again.
        poll_s: Seconds between polls for jobs that were not announced with ``wake``.
        turn_s: Seconds after which a job returns to the queue, at the end of a document, if another
            tenant's job is waiting.
        kept_log_days: Days after which queries and finished jobs are deleted by the cleanup; 0 keeps them
            forever.
        kept_text_days: Days after which query and answer texts are emptied by the cleanup; 0: never.
        kept_stale_s: Seconds after their expiry after which cached answers are deleted, hourly, with expired
            vectors and streamed answers; None: not here, and the cleanup runs daily.
        document_time_s: See ``JobRun``.
        erase: Resumes an interrupted erasure, and returns whether there was one; None: not here.
        backfill: Runs a step after each job, and more while idle; None: not here.
    """

    database: Database
    make_pipeline: Callable[[str], IngestionPipeline]
    _: KW_ONLY
    concurrent_jobs: int = 2
    lease_s: float = 10.0
    poll_s: float = 5.0
    turn_s: float = 1.0
    kept_log_days: int = 0
    kept_text_days: int = 0
    kept_stale_s: float | None = None
    document_time_s: float = float("inf")
    erase: Callable[[], Awaitable[bool]] | None = None
    backfill: EmbeddingBackfill | None = None

    def __post_init__(self) -> None:
        self._next_cleaning = self._next_reading = self._next_erasure = float("-inf")
        self._analyses_left, self._next_analysis = 0, float("-inf")
        self._terms = TermReader(self.database)
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Start to claim jobs in the running event loop; does nothing if it has started already."""
        if self._tasks:
            return
        self._stopping, self._woken = asyncio.Event(), asyncio.Event()  # of this event loop
        self._tasks = [asyncio.create_task(self._loop()) for _ in range(self.concurrent_jobs)]

    def wake(self) -> None:
        """Signal a new job, so that it does not wait for the next poll."""
        self._woken.set()

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Finish the current documents, return unfinished jobs to the queue, and stop.

        Args:
            grace_s: Seconds for a document to finish; then it returns to the queue, too.
        """
        self.stop_soon()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def stop_soon(self) -> None:
        """Start no further document; running ones finish, and their jobs return to the queue."""
        self._stopping.set()
        self._woken.set()

    async def run_until_idle(self) -> None:
        """Run the waiting jobs, round robin over tenants, and return when none is left.

        It also returns after ``stop_soon``. When canceled, it returns the job to the queue.

        Raises:
            VectorForgeError: The database failed; unfinished jobs can be claimed again later.
        """
        while not self._stopping.is_set() and await self.run_next():
            pass

    async def _clean(self, dispatcher: JobDispatcher) -> None:
        if time.monotonic() < self._next_cleaning:
            return
        self._next_cleaning = time.monotonic() + (_DAY_S if self.kept_stale_s is None else _HOUR_S)
        if self.kept_log_days:
            await dispatcher.delete_old_logs(self.kept_log_days)
        if self.kept_text_days:
            await dispatcher.erase_old_log_texts(self.kept_text_days)
        if self.kept_stale_s is not None:
            await dispatcher.delete_expired_caches(self.kept_stale_s)
            await dispatcher.delete_expired_streams()
            await dispatcher.delete_expired_files()

    async def run_next(self) -> bool:
        """Run one waiting job, otherwise index some unindexed words; then run a step of the backfill.

        Returns False if there was nothing to do.

        Raises:
            VectorForgeError: As ``run_until_idle``.
        """
        dispatcher = JobDispatcher(self.database)
        await self._clean(dispatcher)
        if await self._resume_erasure():
            return True
        ran = await self._run_job(dispatcher)
        if self.backfill is None or self._stopping.is_set():
            return ran
        return await self.backfill.step() or ran

    async def _resume_erasure(self) -> bool:
        if self.erase is None or time.monotonic() < self._next_erasure:
            return False
        if await self.erase():
            return True
        self._next_erasure = time.monotonic() + _ERASURES_POLL_S
        return False

    async def _run_job(self, dispatcher: JobDispatcher) -> bool:
        claimed_at = time.monotonic()
        claimed = await dispatcher.claim(self.lease_s)
        if claimed is None:
            await self._analyze(dispatcher, idle=True)
            return await self._read_terms()
        db = self.database.for_tenant(claimed.tenant_id)
        if claimed.claims > MAX_CLAIMS:
            message = f"The job stopped its worker {MAX_CLAIMS} times without finishing a document."
            await JobRepository(db).finish(claimed.job_id, error=JobError("job_crashes", message))
            return True
        try:
            pipeline = self.make_pipeline(claimed.tenant_id)
        except Exception as exc:  # noqa: BLE001 - the job would fail again
            await self._end(db, claimed.job_id, exc)
            return True
        jobs = JobRepository(db)
        following = await jobs.claim_following(
            claimed.job_id, self.lease_s, documents=MAX_RUN_DOCUMENTS, jobs=GROUP_SIZE
        )
        run = JobRun(
            db,
            JobLease(jobs, [claimed.job_id, *following], self.lease_s, claimed_at),
            pipeline,
            others_wait=partial(dispatcher.others_wait, claimed.tenant_id),
            turn_s=self.turn_s,
            document_time_s=self.document_time_s,
        )
        await run.run(self._stopping)
        self._analyses_left = _ANALYSES
        await self._analyze(dispatcher)
        return True

    async def _analyze(self, dispatcher: JobDispatcher, *, idle: bool = False) -> None:
        """Give the planner its statistics of what jobs have loaded; a failure delays no job."""
        is_due = time.monotonic() >= self._next_analysis or (idle and self._analyses_left == _ANALYSES)
        if not self._analyses_left or not is_due:
            return
        self._analyses_left -= 1
        self._next_analysis = time.monotonic() + _ANALYSIS_S
        try:
            await dispatcher.analyze_changed_tables()
        except DatabaseError as exc:
            logger.warning("The planner's statistics are not updated: %s", exc.message)

    async def _read_terms(self) -> bool:
        if time.monotonic() < self._next_reading:
            return False
        read = await self._terms.step()
        if not read:
            self._next_reading = time.monotonic() + _TERMS_POLL_S
        return read

    async def _loop(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                if await self.run_next():
                    failures = 0
                    continue
                failures, pause_s = 0, self.poll_s
            except VectorForgeError as exc:
                pause_s = min(2.0**failures, _LONGEST_PAUSE_S)
                failures += 1
                logger.warning("Ingestion pauses for %.0f s: %s", pause_s, exc.message)
            except Exception as exc:  # noqa: BLE001 - logged without its text; the loop must not end
                pause_s = min(2.0**failures, _LONGEST_PAUSE_S)
                failures += 1
                log_unexpected(logger, f"Ingestion pauses for {pause_s:.0f} s after an unexpected error", exc)
            await wait_for(self._woken, pause_s)

    async def _end(self, db: TenantDatabase, job_id: UUID, exc: Exception) -> None:
        """Fail a job that cannot be started."""
        if not isinstance(exc, VectorForgeError):
            log_unexpected(logger, "An ingestion job could not be started", exc)
            exc = VectorForgeError()
        else:
            logger.error("An ingestion job could not be started: %s", exc.message)
        await JobRepository(db).finish(job_id, error=JobError(exc.code, exc.message))
