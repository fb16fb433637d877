"""Bulk loads: existing objects of a bucket, in batches from Step Functions.

A failed or interrupted batch is redelivered unchanged. Jobs are identified by their object's revision, so
that nothing is read twice, and the result reports the status of every object.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vectorforge.aws.handlers.ingest_events import ListedObjects, Upload, UploadInbox
from vectorforge.aws.handlers.ingest_work import IngestWork
from vectorforge.aws.queues import AnnouncedJob
from vectorforge.bootstrap import Application
from vectorforge.db.repositories.job_types import JobOutcome
from vectorforge.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    NotFoundError,
    QueueError,
    VectorForgeError,
    log_unexpected,
)

logger = logging.getLogger(__name__)

_AT_A_TIME = 4
"""Objects fetched at a time; each is held in memory."""
_STATUSES = ("stored", "unchanged", "failed", "pending", "skipped")


@dataclass(frozen=True, slots=True)
class _Taken:
    """An object, as far as it was taken in."""

    key: str
    job: AnnouncedJob | None = None
    code: str | None = None
    """Permanent reason for a missing job."""
    setback: VectorForgeError | None = None
    """Temporary reason for a missing job."""


class BulkLoad:
    """Ingestion of one batch.

    Args:
        application: Opened if necessary.
        work: Jobs of this invocation.
        inbox: Creates jobs for the objects.
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
            *skipped* are folder markers. The result is hardly larger than the batch: Step Functions accepts
            256 KiB.

        Raises:
            VectorForgeError: Some jobs could not be created now, or the database failed. The same batch can
                be retried.
        """
        await self._application.open()
        taken = await asyncio.gather(*(self._take(batch, key) for key in batch.keys))
        jobs = [one.job for one in taken if one.job is not None]
        pending = await self._work.carry_out_until_ended(jobs)
        setbacks = [one.setback for one in taken if one.setback is not None]
        if not await self._handed_over(pending):
            setbacks.append(DeadlineExceededError("The time did not suffice for all objects of the batch."))
        outcomes = await self._outcomes(jobs)
        report = _report(batch.bucket, [_described(one, outcomes) for one in taken])
        logger.info("Bulk load: %s", {status: report[status] for status in _STATUSES})
        if setbacks:
            raise setbacks[0]
        return report

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
                await self._work.announce_anew(job)
            if jobs:
                await self._work.hand_on()
        except (QueueError, ConfigurationError) as exc:
            logger.warning("What is left of a batch could not be announced: %s", exc.message)
            return False
        return True

    async def _outcomes(self, jobs: Sequence[AnnouncedJob]) -> dict[UUID, JobOutcome]:
        ids_of: defaultdict[str, list[UUID]] = defaultdict(list)
        for job in jobs:
            ids_of[job.tenant_id].append(job.job_id)
        by_job: dict[UUID, JobOutcome] = {}
        for tenant_id, ids in ids_of.items():
            by_job |= await self._application.for_tenant(tenant_id).jobs.outcomes(ids)
        return by_job


def _described(taken: _Taken, outcomes: dict[UUID, JobOutcome]) -> dict[str, str]:
    """The entry of an object in the report."""
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


def _report(bucket: str, objects: list[dict[str, str]]) -> dict[str, Any]:
    counts = Counter(entry["status"] for entry in objects)
    return {"bucket": bucket, **{status: counts[status] for status in _STATUSES}, "objects": objects}
