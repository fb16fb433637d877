"""Bulk loads: objects that lie in a bucket already, in batches that Step Functions hands over.

A batch that fails or is cut off is handed over again, as it is: jobs are known by their object's revision, so
that nothing is read twice, and the answer tells what became of every object.
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
    """Why there is no job and never will be."""
    setback: VectorForgeError | None = None
    """Why there is no job yet."""


class BulkLoad:
    """Ingests one batch.

    Args:
        application: Is opened when it is not open.
        work: Of this invocation.
        inbox: Takes in the objects.
    """

    def __init__(self, application: Application, work: IngestWork, inbox: UploadInbox) -> None:
        self._application = application
        self._work = work
        self._inbox = inbox
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self._unavailable: DatabaseUnavailableError | None = None

    async def load(self, batch: ListedObjects) -> dict[str, Any]:
        """Make a job of each object, carry the jobs out, and tell what became of them.

        Returns:
            In ``objects``, in the order of the batch, each one's ``key``, ``status``, ``job_id`` if it has
            one, and ``code`` if it failed; beside it, how many there are of each status. *stored* and
            *unchanged* are in their collection; *failed* will not be, unless something is changed; *pending*
            has a job that the queue has taken over, since the time did not suffice; *skipped* is the mark of
            a folder. All that is hardly larger than the batch: Step Functions takes 256 KiB.

        Raises:
            VectorForgeError: Of some objects no job could be made now, or the database failed. The same batch
                goes on with them.
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
        except Exception as exc:  # noqa: BLE001 - a bug met by one object must not take its siblings along
            log_unexpected(logger, "An object could not be taken in", exc)
            return _Taken(key, code=VectorForgeError.code)
        return _Taken(key, job=jobs[-1]) if jobs else _Taken(key, code=NotFoundError.code)

    async def _accept(self, upload: Upload, batch: ListedObjects) -> list[AnnouncedJob]:
        if self._unavailable is not None:  # else each would wait for it anew
            raise self._unavailable
        if self._work.time_is_over:
            raise DeadlineExceededError("The time did not suffice for all objects of the batch.")
        try:
            return await self._inbox.accept(upload, again_after=batch.started_at)
        except DatabaseUnavailableError as exc:
            self._unavailable = exc
            raise

    async def _handed_over(self, jobs: Sequence[AnnouncedJob]) -> bool:
        """Whether the queue has taken over what was not finished."""
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
        found: dict[UUID, JobOutcome] = {}
        for tenant_id, ids in ids_of.items():
            found |= await self._application.for_tenant(tenant_id).jobs.outcomes(ids)
        return found


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
