"""Ingestion jobs within one invocation, and bulk loads: batches of existing objects from Step Functions."""

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vectorforge.aws.handlers.ingest_events import ListedObjects, Upload, UploadInbox
from vectorforge.aws.queues import AnnouncedJob, AnyJob, IngestionQueue
from vectorforge.bootstrap import Application
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.job_types import JobOutcome
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    NotFoundError,
    QueueError,
    VectorForgeError,
    log_unexpected,
)
from vectorforge.ingestion.worker import IngestionWorker

logger = logging.getLogger(__name__)

LEASE_S = 30.0
"""A job of a killed invocation can be claimed again after this time."""
_LONGEST_DELAY_S = 900
"""Longest delay of a message in SQS."""
_POLL_S = 0.5
"""Between looks whether another invocation has ended a job, or left it."""


_AT_A_TIME = 4
"""Objects fetched at a time; each is held in memory."""
_STATUSES = ("stored", "unchanged", "failed", "pending", "skipped")


class IngestWork:
    """Runs jobs, and hands on what is left of them before the invocation is killed.

    Args:
        application: Opened before the first job.
        deadline: Time at which the invocation is killed.
    """

    def __init__(self, application: Application, deadline: Deadline) -> None:
        self._application = application
        remaining_s = deadline.remaining_s()
        reserve_s = min(max(remaining_s / 10, 1.0), 10.0)
        work_s = max(remaining_s - reserve_s, 0.0)
        self._end_of_work = Deadline.after(work_s)
        self._last_document = Deadline.after(max(work_s - 2 * reserve_s, work_s / 2))
        self._document_time_s = work_s / 2
        self._handed_on = False

    @property
    def time_is_over(self) -> bool:
        """True if no further document is started."""
        return self._last_document.remaining_s() <= 0

    async def run_jobs(self, *, cleans_logs: bool = False) -> None:
        """Run jobs until none waits or the time runs out; then release the running one.

        Args:
            cleans_logs: Also delete queries, their texts and finished jobs beyond their retention.

        Raises:
            VectorForgeError: The database failed; unfinished jobs can be claimed again.
        """
        async with self._worker(cleans_logs=cleans_logs, cleans=True) as worker:
            await worker.run_until_idle()

    async def run_until_ended(self, jobs: Sequence[AnnouncedJob]) -> list[AnnouncedJob]:
        """Run waiting jobs until these have ended or the time is over; return those that have not ended.

        Runs others, too, when their turn comes before; other invocations may run some of these.

        Raises:
            VectorForgeError: As ``run_jobs``.
        """
        async with self._worker() as worker:
            while (open_jobs := await self.not_ended(jobs)) and not self.time_is_over:
                jobs = open_jobs
                if not await worker.run_next():
                    await asyncio.sleep(_POLL_S)
        return await self.not_ended(jobs)

    @asynccontextmanager
    async def _worker(
        self, *, cleans_logs: bool = False, cleans: bool = False
    ) -> AsyncIterator[IngestionWorker]:
        """A worker that stops in time, at the latest by releasing its document."""
        application, retention = self._application, self._application.config.database
        worker = IngestionWorker(
            application.database,
            lambda tenant_id: application.for_tenant(tenant_id).ingestion,
            lease_s=LEASE_S,
            kept_log_days=retention.log_retention_days if cleans_logs else 0,
            kept_text_days=retention.log_text_retention_days if cleans_logs else 0,
            kept_stale_s=application.config.cache.answer_cache_stale_s if cleans else None,
            document_time_s=self._document_time_s,
            erase=application.background.resume_erasure if cleans else None,
            backfill=application.background.backfill,
        )
        last_document_s = max(self._last_document.remaining_s(), 0.0)
        stopping = asyncio.get_running_loop().call_later(last_document_s, worker.stop_soon)
        try:
            async with asyncio.timeout(self._end_of_work.remaining_s()):
                yield worker
        except TimeoutError:
            logger.info("A document is given back: it cannot be finished in this invocation")
        finally:
            stopping.cancel()

    async def not_ended(self, jobs: Sequence[AnnouncedJob]) -> list[AnnouncedJob]:
        """Return the jobs that wait or run, without deleted ones."""
        active = {
            (tenant_id, job_id)
            for tenant_id, ids in _ids_by_tenant(jobs).items()
            for job_id in await self._application.for_tenant(tenant_id).jobs.not_ended(ids)
        }
        return [job for job in jobs if (job.tenant_id, job.job_id) in active]

    async def announce_unfinished(self, job: AnnouncedJob) -> None:
        """Send another message for a job that has not ended, unless it cannot be begun yet.

        Raises:
            QueueError: The queue may not have taken it.
            ConfigurationError: There is no queue, or no way to it.
        """
        jobs = self._application.for_tenant(job.tenant_id).jobs
        if await jobs.waits_behind_another(job.job_id):
            return  # else each of a long row of jobs would be looked at every two minutes
        # When there is time left, another worker holds it; should that one be killed, this message is needed.
        await self.queue().announce(
            AnnouncedJob(job.tenant_id, job.job_id) if self.time_is_over else job.later()
        )
        self._handed_on = True

    async def hand_on(self) -> None:
        """Wake another invocation if this one had to stop; at most one, else they would multiply.

        If a model switch has to wait for its provider, it is woken later.
        """
        if self._handed_on:
            return
        if not self.time_is_over:
            pause_s = self._application.background.backfill.take_pause_s()
            if pause_s is not None:
                await self._announce(AnyJob(min(math.ceil(pause_s) + 1, _LONGEST_DELAY_S)))
            return
        database = self._application.database
        if await JobDispatcher(database).others_wait() or await self._application.background.backfill.waits():
            await self._announce(AnyJob())

    async def _announce(self, job: AnyJob) -> None:
        try:
            await self.queue().announce(job)
        except (QueueError, ConfigurationError):
            logger.warning("That jobs wait could not be announced, so a scheduled look has to find them")

    def queue(self) -> IngestionQueue:
        """Return the queue that wakes this function.

        Raises:
            ConfigurationError: No queue is configured.
        """
        if self._application.aws.ingestion_queue is None:
            raise ConfigurationError(
                "Set VECTORFORGE_INGESTION_QUEUE_URL to the queue of the ingest function."
            )
        return self._application.aws.ingestion_queue


def _ids_by_tenant(jobs: Iterable[AnnouncedJob]) -> dict[str, list[UUID]]:
    ids: defaultdict[str, list[UUID]] = defaultdict(list)
    for job in jobs:
        ids[job.tenant_id].append(job.job_id)
    return ids


@dataclass(frozen=True, slots=True)
class _Taken:
    """An object with its job, or the permanent (code) or temporary (setback) reason for a missing job."""

    key: str
    job: AnnouncedJob | None = None
    code: str | None = None
    setback: VectorForgeError | None = None


class BulkLoad:
    """Ingestion of one batch of a bulk load.

    A failed or interrupted batch is redelivered unchanged. Jobs are identified by their object's revision,
    so that nothing is read twice, and the result reports the status of every object.
    """

    def __init__(self, application: Application, work: IngestWork, inbox: UploadInbox) -> None:
        self._application = application
        self._work = work
        self._inbox = inbox
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self._unavailable: DatabaseUnavailableError | None = None

    async def load(self, batch: ListedObjects) -> dict[str, Any]:
        """Create a job for each object, run the jobs and report their status.

        Returns:
            In ``objects``, in the order of the batch: ``key``, ``status``, ``job_id`` if there is one, and
            ``code`` of a failure; also the count of each status. *stored* and *unchanged* are in their
            collection; *failed* need a change; *pending* have a job in the queue, since the time ran out;
            *skipped* are folder markers. Step Functions accepts 256 KiB.

        Raises:
            VectorForgeError: Some jobs could not be created now, or the database failed. The same batch can
                be retried.
        """
        await self._application.open()
        taken = await asyncio.gather(*(self._take(batch, key) for key in batch.keys))
        jobs = [one.job for one in taken if one.job is not None]
        pending = await self._work.run_until_ended(jobs)
        setbacks = [one.setback for one in taken if one.setback is not None]
        if not await self._handed_over(pending):
            setbacks.append(DeadlineExceededError("The time did not suffice for all objects of the batch."))
        outcomes: dict[UUID, JobOutcome] = {}
        for tenant_id, ids in _ids_by_tenant(jobs).items():
            outcomes |= await self._application.for_tenant(tenant_id).jobs.outcomes(ids)
        objects = [_described(one, outcomes) for one in taken]
        counts = Counter(entry["status"] for entry in objects)
        by_status = {status: counts[status] for status in _STATUSES}
        logger.info("Bulk load: %s", by_status)
        if setbacks:
            raise setbacks[0]
        return {"bucket": batch.bucket, **by_status, "objects": objects}

    async def _take(self, batch: ListedObjects, key: str) -> _Taken:
        if key.endswith("/"):
            return _Taken(key)
        try:
            upload = Upload.listed(batch.bucket, key)
            async with self._slots:
                jobs = await self._accept(upload, batch)
        except VectorForgeError as exc:
            if exc.retryable or isinstance(exc, DeadlineExceededError):
                return _Taken(key, setback=exc)
            logger.error("An object cannot be ingested: %s", exc.message)
            return _Taken(key, code=exc.code)
        except Exception as exc:  # noqa: BLE001 - a bug in one object must not fail the others
            log_unexpected(logger, "An object could not be taken in", exc)
            return _Taken(key, code=VectorForgeError.code)
        return _Taken(key, job=jobs[-1]) if jobs else _Taken(key, code=NotFoundError.code)

    async def _accept(self, upload: Upload, batch: ListedObjects) -> list[AnnouncedJob]:
        if self._unavailable is not None:  # else each would wait for it again
            raise self._unavailable
        if self._work.time_is_over:
            raise DeadlineExceededError("The time did not suffice for all objects of the batch.")
        try:
            return await self._inbox.accept(upload, again_after=batch.started_at)
        except DatabaseUnavailableError as exc:
            self._unavailable = exc
            raise

    async def _handed_over(self, jobs: Sequence[AnnouncedJob]) -> bool:
        """Return True if the queue has the unfinished jobs."""
        try:
            for job in jobs:
                await self._work.announce_unfinished(job)
            if jobs:
                await self._work.hand_on()
        except (QueueError, ConfigurationError) as exc:
            logger.warning("What is left of a batch could not be announced: %s", exc.message)
            return False
        return True


def _described(taken: _Taken, outcomes: dict[UUID, JobOutcome]) -> dict[str, str]:
    """Return the entry of an object in the report."""
    entry = {"key": taken.key}
    if taken.job is None:
        if taken.code is not None:
            return {**entry, "status": "failed", "code": taken.code}
        return {**entry, "status": "skipped" if taken.setback is None else "pending"}
    outcome = outcomes.get(taken.job.job_id)
    entry["job_id"] = str(taken.job.job_id)
    if outcome is None:  # its collection was deleted meanwhile
        return {**entry, "status": "failed", "code": NotFoundError.code}
    if not outcome.ended:
        return {**entry, "status": "pending"}
    if outcome.status == "succeeded":
        return {**entry, "status": "unchanged" if outcome.unchanged else "stored"}
    return {**entry, "status": "failed", "code": outcome.error_code or VectorForgeError.code}
