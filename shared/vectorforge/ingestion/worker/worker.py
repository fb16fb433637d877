"""Runs ingestion jobs inside this process, and takes up those that a killed process left behind."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self
from uuid import UUID

from vectorforge.background import log_unexpected
from vectorforge.db.connection import Database, TenantDatabase
from vectorforge.db.repositories.job_progress import MAX_ATTEMPTS
from vectorforge.db.repositories.job_repo import JobDispatcher, JobError, JobRepository
from vectorforge.db.term_reading import TermReader
from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker.job_run import JobRun

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0
_DAY_S = 86_400.0
_HOUR_S = 3600.0
_TERMS_POLL_S = 60.0
_ERASURES_POLL_S = 10.0
MAX_CLAIMS = MAX_ATTEMPTS + 2
"""Maximum claims of a job without a finished document; more than the attempts of one document."""


class IngestionWorker:
    """Claims jobs of all tenants and carries them out; as a context manager, between start and stop.

    Args:
        database: Where jobs wait; opened before ``start``.
        make_pipeline: Gives the pipeline of a tenant, by its id.
        concurrent_jobs: Jobs carried out at the same time, at least 1; two, so that one slow file does not
            hold up everybody else.
        lease_s: A job of a killed process is taken up after at most this many seconds.
        poll_s: Seconds between looks for jobs that nobody announced with ``wake``.
        turn_s: Seconds after which a job goes back to the queue, at the end of a document, when another
            tenant's waits.
        kept_log_days: Queries and ended jobs older than this are deleted, with the cleaning; 0 keeps them for
            ever.
        kept_text_days: Questions and answers older than this are emptied, with the cleaning; 0 empties none.
        kept_stale_s: Cached answers that expired longer ago than this are deleted once an hour, and expired
            vectors and streamed answers; None: they are left to others, and there is a cleaning once a day.
        document_time_s: See ``JobRun``.
        erase: Goes on with an erasure that was left, and says whether there was one; None: others do.
        backfill: Does a step after each job, and more while no job waits; None: others change models.
    """

    def __init__(
        self,
        database: Database,
        make_pipeline: Callable[[str], IngestionPipeline],
        *,
        concurrent_jobs: int = 2,
        lease_s: float = 10.0,
        poll_s: float = 5.0,
        turn_s: float = 1.0,
        kept_log_days: int = 0,
        kept_text_days: int = 0,
        kept_stale_s: float | None = None,
        document_time_s: float = float("inf"),
        erase: Callable[[], Awaitable[bool]] | None = None,
        backfill: EmbeddingBackfill | None = None,
    ) -> None:
        self._database = database
        self._backfill = backfill
        self._make_pipeline = make_pipeline
        self._concurrent_jobs = concurrent_jobs
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._turn_s = turn_s
        self._kept_log_days = kept_log_days
        self._kept_text_days = kept_text_days
        self._kept_stale_s = kept_stale_s
        self._erase = erase
        self._document_time_s = document_time_s
        self._next_cleaning = self._next_reading = self._next_erasure = float("-inf")
        self._terms = TermReader(database)
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Begin to claim jobs, in the running event loop. Does nothing when it has begun already."""
        if self._tasks:
            return
        self._stopping, self._woken = asyncio.Event(), asyncio.Event()  # of this event loop
        self._tasks = [asyncio.create_task(self._loop()) for _ in range(self._concurrent_jobs)]

    def wake(self) -> None:
        """Signal a new job, so that it does not wait for the next poll."""
        self._woken.set()

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Finish the documents being worked on, give unfinished jobs back to the queue, and end.

        Args:
            grace_s: Seconds a document may take to its end; then it is given back, too.
        """
        self.stop_soon()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def stop_soon(self) -> None:
        """Begin no further document; what runs, ends, and the job goes back to the queue."""
        self._stopping.set()
        self._woken.set()

    async def run_until_idle(self) -> None:
        """Carry out the waiting jobs, each tenant in its turn, and return when none is left.

        It also returns after ``stop_soon``. Cancelled, it gives the job back with the document it was at.

        Raises:
            VectorForgeError: The database failed; what was not finished can be claimed again later.
        """
        while not self._stopping.is_set() and await self.run_next():
            pass

    async def _clean(self, dispatcher: JobDispatcher) -> None:
        if time.monotonic() < self._next_cleaning:
            return
        self._next_cleaning = time.monotonic() + (_DAY_S if self._kept_stale_s is None else _HOUR_S)
        if self._kept_log_days:
            await dispatcher.delete_old_logs(self._kept_log_days)
        if self._kept_text_days:
            await dispatcher.erase_old_log_texts(self._kept_text_days)
        if self._kept_stale_s is not None:
            await dispatcher.delete_expired_caches(self._kept_stale_s)
            await dispatcher.delete_expired_streams()

    async def run_next(self) -> bool:
        """Carry out one waiting job, or else read some words not read yet; then a step of the backfill.

        False when there is nothing of any kind that could be begun now.

        Raises:
            VectorForgeError: As ``run_until_idle``.
        """
        dispatcher = JobDispatcher(self._database)
        await self._clean(dispatcher)
        if await self._go_on_erasing():
            return True
        ran = await self._run_job(dispatcher)
        if self._backfill is None or self._stopping.is_set():
            return ran
        return await self._backfill.step() or ran

    async def _go_on_erasing(self) -> bool:
        if self._erase is None or time.monotonic() < self._next_erasure:
            return False
        if await self._erase():
            return True
        self._next_erasure = time.monotonic() + _ERASURES_POLL_S
        return False

    async def _run_job(self, dispatcher: JobDispatcher) -> bool:
        claimed = await dispatcher.claim(self._lease_s)
        if claimed is None:
            return await self._read_terms()
        db = self._database.for_tenant(claimed.tenant_id)
        if claimed.claims > MAX_CLAIMS:
            message = f"The job stopped its worker {MAX_CLAIMS} times without finishing a document."
            await JobRepository(db).finish(claimed.job_id, error=JobError("job_crashes", message))
            return True
        try:
            pipeline = self._make_pipeline(claimed.tenant_id)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the job would meet it again
            await self._end(db, claimed.job_id, exc)
            return True
        run = JobRun(
            db,
            claimed.job_id,
            pipeline,
            lease_s=self._lease_s,
            others_wait=partial(dispatcher.others_wait, claimed.tenant_id),
            turn_s=self._turn_s,
            document_time_s=self._document_time_s,
        )
        await run.run(self._stopping)
        return True

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
                failures, pause_s = 0, self._poll_s
            except VectorForgeError as exc:
                pause_s = min(2.0**failures, _LONGEST_PAUSE_S)
                failures += 1
                logger.warning("Ingestion waits %.0f s: %s", pause_s, exc.message)
            except Exception as exc:  # noqa: BLE001 - logged without its text; the loop must not end
                pause_s = min(2.0**failures, _LONGEST_PAUSE_S)
                failures += 1
                log_unexpected(logger, f"Ingestion waits {pause_s:.0f} s after an unexpected error", exc)
            await self._wait(pause_s)

    async def _end(self, db: TenantDatabase, job_id: UUID, exc: Exception) -> None:
        """End a job that cannot even be begun, and say why."""
        if not isinstance(exc, VectorForgeError):
            log_unexpected(logger, "An ingestion job could not be begun", exc)
            exc = VectorForgeError()
        else:
            logger.error("An ingestion job could not be begun: %s", exc.message)
        await JobRepository(db).finish(job_id, error=JobError(exc.code, exc.message))

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
