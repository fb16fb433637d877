"""Run of one ingestion job: its remaining documents, while its lease is renewed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import MAX_ATTEMPTS, IngestionJobItem, NewJobItem
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseUnavailableError, VectorForgeError
from vectorforge.ingestion.embedding_prefetch import (
    AT_A_TIME,
    SMALL_BYTES,
    KnownVectors,
    PrefetchItem,
    is_small,
)
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentPart, DocumentResult, DocumentStatus, IngestionStage
from vectorforge.types import Collection

logger = logging.getLogger(__name__)

MAX_RECORDS = 10_000
"""Documents in one JSONL file."""
_BEAT_S = 1.0
_BEATS_A_LEASE = 3
_FIRST_PAUSE_S = 2.0


class LeaseLostError(Exception):
    """Another worker may have claimed the job; nothing more must be written for it."""


class JobRun:
    """Processes a claimed job.

    Args:
        db: Database of the job's tenant.
        job_id: Job that this process has claimed.
        pipeline: Of the same tenant.
        lease_s: Seconds for which it is claimed.
        others_wait: Returns whether another tenant's job should run next; called between documents.
        turn_s: Seconds before the first call of ``others_wait``, and between calls.
        document_time_s: Seconds after which a stopped document counts as one attempt; one stopped
            sooner does not.
    """

    def __init__(
        self,
        db: TenantDatabase,
        job_id: UUID,
        pipeline: IngestionPipeline,
        *,
        lease_s: float,
        others_wait: Callable[[], Awaitable[bool]],
        turn_s: float,
        document_time_s: float = float("inf"),
    ) -> None:
        self._document_time_s = document_time_s
        self._begun: tuple[IngestionJobItem, float] | None = None
        self._others_wait = others_wait
        self._turn_s = turn_s
        self._turn_ends = time.monotonic() + turn_s
        self._jobs = JobRepository(db)
        self._collections = CollectionRepository(db)
        self._job_id = job_id
        self._pipeline = pipeline
        self._lease_s = lease_s
        self._held_until = time.monotonic() + lease_s
        self._stage: tuple[int, IngestionStage] | None = None
        self._prefetched: KnownVectors = {}
        self._looks_ahead = True
        self._seen_ahead: frozenset[int] = frozenset()

    async def run(self, stopping: asyncio.Event) -> None:
        """Ingest documents until none is left, another job is due, or ``stopping`` is set.

        An unfinished job returns to the queue, also on cancellation; then the current document is
        started again by the worker that claims the job next.

        Raises:
            DatabaseError: The job can be claimed again when its lease has expired.
        """
        work = asyncio.create_task(self._work(stopping))
        beat = asyncio.create_task(self._beat())
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, beat):
                task.cancel()
            results = await asyncio.gather(work, beat, return_exceptions=True)
        for result in results:
            if isinstance(result, LeaseLostError):
                logger.warning("Ingestion job %s was claimed by another worker or deleted", self._job_id)
                return
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _work(self, stopping: asyncio.Event) -> None:
        try:
            if await self._all_items(stopping):
                return
        except (asyncio.CancelledError, DatabaseUnavailableError) as exc:
            if time.monotonic() < self._held_until:
                if isinstance(exc, asyncio.CancelledError):
                    await self._count_a_long_attempt()
                await self._jobs.release(self._job_id)
            raise
        await self._jobs.release(self._job_id)

    async def _count_a_long_attempt(self) -> None:
        """Count an attempt: documents that need longer than their worker may run must end."""
        if self._begun is None:
            return
        item, began_at = self._begun
        lasted_s = time.monotonic() - began_at
        if lasted_s >= self._document_time_s:
            message = f"The document was not ready after {lasted_s:.0f} s, when its worker had to stop."
            await self._jobs.item_failed(
                self._job_id, item.ordinal, code="document_timeout", message=message, retry=True
            )

    async def _all_items(self, stopping: asyncio.Event) -> bool:
        """Return True if the job has ended, False if it must return to the queue."""
        job = await self._jobs.find_by_id(self._job_id)
        collection = await self._collections.find_by_id(job.collection_id) if job else None
        if collection is None:  # deleted with the job
            return True
        while not stopping.is_set():
            item = await self._jobs.next_item(self._job_id)
            if item is None:
                for parent_source, sources in (await self._jobs.complete_files(self._job_id)).items():
                    await self._pipeline.keep_only(collection, parent_source, sources)
                self._check_lease()
                await self._jobs.finish(self._job_id)
                return True
            self._begun = (item, time.monotonic())
            await self._one_item(collection, item, stopping)
            self._begun = None
            if await self._turn_is_over():
                break
        return False

    async def _turn_is_over(self) -> bool:
        if time.monotonic() < self._turn_ends:
            return False
        self._turn_ends = time.monotonic() + self._turn_s
        return await self._others_wait()

    async def _one_item(
        self, collection: Collection, item: IngestionJobItem, stopping: asyncio.Event
    ) -> None:
        try:
            parts = await self._pipeline.split(item.content or b"", item.source, item.media_type)
        except VectorForgeError as exc:
            await self._report(item, DocumentResult.of_failure(item.source, exc), stopping)
            return
        if parts[0].parent_source is not None:
            await self._expand(item, parts, stopping)
            return

        def on_stage(stage: IngestionStage) -> None:
            self._stage = (item.ordinal, stage)

        part = replace(parts[0], parent_source=item.parent_source)
        await self._look_ahead(collection, item, part)
        result = await self._pipeline.ingest_part(
            collection, part, item.title, item.metadata, on_stage=on_stage, prefetched=self._prefetched
        )
        await self._report(item, result, stopping)

    async def _look_ahead(self, collection: Collection, item: IngestionJobItem, part: DocumentPart) -> None:
        """Prefetch the vectors of this document and of the following ones, if all are small.

        Not for a document with an earlier attempt: its worker may have been stopped by the text of another
        document, which must be found by ingesting each alone.
        """
        self._looks_ahead = self._looks_ahead and item.attempts == 1
        if not self._looks_ahead or item.ordinal in self._seen_ahead or not is_small(part):
            return
        following = await self._jobs.upcoming_items(
            self._job_id, after=item.ordinal, most_bytes=SMALL_BYTES, limit=AT_A_TIME - 1
        )
        others = [
            PrefetchItem(
                DocumentPart(o.content or b"", o.source, o.media_type, o.parent_source), o.title, o.metadata
            )
            for o in following
        ]
        self._seen_ahead = frozenset([item.ordinal, *(other.ordinal for other in following)])
        self._prefetched = await self._pipeline.embedding_prefetch(
            collection, [PrefetchItem(part, item.title, item.metadata), *others]
        )

    async def _expand(
        self, item: IngestionJobItem, parts: list[DocumentPart], stopping: asyncio.Event
    ) -> None:
        """Replace a JSONL file by its lines, so that each has its own result."""
        if len(parts) > MAX_RECORDS:
            message = f"The file has {len(parts):,} lines; at most {MAX_RECORDS:,} are read. Split it."
            await self._jobs.item_failed(
                self._job_id, item.ordinal, code="document_too_large", message=message
            )
            return
        records = [
            NewJobItem(
                part.source, part.media_type, part.content, item.title, item.metadata, part.parent_source
            )
            for part in parts
        ]
        await self._jobs.replace_item(self._job_id, item.ordinal, records)

    async def _report(self, item: IngestionJobItem, result: DocumentResult, stopping: asyncio.Event) -> None:
        self._check_lease()
        error = result.error
        if error is None:
            await self._jobs.item_succeeded(
                self._job_id,
                item.ordinal,
                document_id=result.document_id,
                chunks_added=result.chunks_added,
                chunks_kept=result.chunks_kept,
                chunks_removed=result.chunks_removed,
                unchanged=result.status is DocumentStatus.UNCHANGED,
                warnings=result.warnings,
            )
            return
        if error.code == DatabaseUnavailableError.code:  # not caused by the document
            raise DatabaseUnavailableError(error.message)
        retry = error.retryable and item.attempts < MAX_ATTEMPTS
        await self._jobs.item_failed(
            self._job_id,
            item.ordinal,
            code=error.code,
            message=error.message,
            retry=retry,
            warnings=result.warnings,
        )
        if retry:
            await _pause(_FIRST_PAUSE_S * 2 ** (item.attempts - 1), stopping)

    async def _beat(self) -> None:
        """Renew the lease, and store stages that last long enough to be seen."""
        written = self._stage
        next_beat = time.monotonic() + self._lease_s / _BEATS_A_LEASE
        while True:
            await asyncio.sleep(min(_BEAT_S, self._lease_s / _BEATS_A_LEASE))
            if self._stage is not None and self._stage != written:
                written = ordinal, stage = self._stage
                await self._jobs.set_stage(self._job_id, stage)
                await self._jobs.set_stage(self._job_id, stage, ordinal=ordinal)
            if time.monotonic() >= next_beat:
                self._check_lease()
                sent_at = time.monotonic()
                if not await self._jobs.heartbeat(self._job_id, self._lease_s):
                    self._held_until = 0.0
                    raise LeaseLostError
                self._held_until = sent_at + self._lease_s
                next_beat = sent_at + self._lease_s / _BEATS_A_LEASE

    def _check_lease(self) -> None:
        if time.monotonic() >= self._held_until:  # the process was suspended
            raise LeaseLostError


async def _pause(seconds: float, stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
