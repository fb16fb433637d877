"""Ingestion jobs, for as long as one invocation lasts."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from vectorforge.aws.queues import AnnouncedJob, AnyJob, IngestionQueue
from vectorforge.bootstrap import Application
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.deadline import Deadline
from vectorforge.errors import ConfigurationError, QueueError
from vectorforge.ingestion.worker.worker import IngestionWorker

logger = logging.getLogger(__name__)

LEASE_S = 30.0
"""A job of a killed invocation can be claimed again after this time."""
_LONGEST_DELAY_S = 900
"""Longest delay of a message in SQS."""
_POLL_S = 0.5
"""Between looks whether another invocation has ended a job, or left it."""


class IngestWork:
    """Carries out jobs, and hands on what is left of them before the invocation would be killed.

    Args:
        application: Opened before the first job.
        deadline: When the invocation is killed.
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

    async def carry_out(self, *, cleans_logs: bool = False) -> None:
        """Run jobs until none waits or the time runs out; then release the running one.

        Args:
            cleans_logs: Also delete queries, their texts and finished jobs beyond their retention.

        Raises:
            VectorForgeError: The database failed; unfinished jobs can be claimed again.
        """
        async with self._worker(cleans_logs=cleans_logs, cleans=True) as worker:
            await worker.run_until_idle()

    async def carry_out_until_ended(self, jobs: Sequence[AnnouncedJob]) -> list[AnnouncedJob]:
        """Carry out waiting jobs until these have ended, or the time is over.

        Others too, when their turn comes before; and of these, some may be carried out by other invocations.

        Returns:
            Those that have not ended.

        Raises:
            VectorForgeError: As ``carry_out``.
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
        """A worker that stops in time, at the latest with its document given back."""
        application, kept = self._application, self._application.config.database
        worker = IngestionWorker(
            application.database,
            lambda tenant_id: application.for_tenant(tenant_id).ingestion,
            lease_s=LEASE_S,
            kept_log_days=kept.log_retention_days if cleans_logs else 0,
            kept_text_days=kept.log_text_retention_days if cleans_logs else 0,
            kept_stale_s=application.config.cache.answer_cache_stale_s if cleans else None,
            document_time_s=self._document_time_s,
            erase=application.background.resume_erasure if cleans else None,
            backfill=application.background.backfill,
        )
        soon = asyncio.get_running_loop().call_later(
            max(self._last_document.remaining_s(), 0.0), worker.stop_soon
        )
        try:
            async with asyncio.timeout(self._end_of_work.remaining_s()):
                yield worker
        except TimeoutError:
            logger.info("A document is given back: it cannot be finished in this invocation")
        finally:
            soon.cancel()

    async def not_ended(self, jobs: Sequence[AnnouncedJob]) -> list[AnnouncedJob]:
        """Return the jobs that wait or run, without deleted ones."""
        ids_of: defaultdict[str, list[UUID]] = defaultdict(list)
        for job in jobs:
            ids_of[job.tenant_id].append(job.job_id)
        active = {
            (tenant_id, job_id)
            for tenant_id, ids in ids_of.items()
            for job_id in await self._application.for_tenant(tenant_id).jobs.not_ended(ids)
        }
        return [job for job in jobs if (job.tenant_id, job.job_id) in active]

    async def announce_anew(self, job: AnnouncedJob) -> None:
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
        """Have another invocation begin when this one had to stop; at most one, else they would multiply.

        Or later, when the change of a model has to wait for its provider.
        """
        if self._handed_on:
            return
        if not self.time_is_over:
            pause_s = self._application.background.backfill.take_pause_s()
            if pause_s is not None:
                await self._announce(AnyJob(min(math.ceil(pause_s) + 1, _LONGEST_DELAY_S)))
            return
        database = self._application.database
        if await JobDispatcher(database).any_waits() or await self._application.background.backfill.waits():
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
