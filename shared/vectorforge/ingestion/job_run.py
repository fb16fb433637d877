"""Run of ingestion jobs of one collection: their remaining documents, while their lease is renewed."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from uuid import UUID

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import (
    MAX_ATTEMPTS,
    IngestionJobItem,
    JobError,
    NewJobItem,
    StoredItem,
)
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.deadline import wait_for
from vectorforge.errors import DatabaseUnavailableError, VectorForgeError
from vectorforge.ingestion.group import (
    GROUP_BYTES,
    GROUP_SIZE,
    SMALL_BYTES,
    DocumentGroup,
    DocumentItem,
    grouped,
    is_small,
    may_overlap,
)
from vectorforge.ingestion.lease import JobLease, LeaseLostError
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import (
    DocumentPart,
    DocumentResult,
    DocumentStatus,
    IngestionError,
    IngestionStage,
)
from vectorforge.types import Collection

logger = logging.getLogger(__name__)

MAX_RECORDS = 10_000
"""Documents in one JSONL file."""
_FIRST_PAUSE_S = 2.0
_CLAIMED_GROUPS = 5
"""Groups of small documents begun at once: one is embedded while the one before it is stored."""
MAX_RUN_DOCUMENTS = _CLAIMED_GROUPS * GROUP_SIZE
"""Documents of jobs that are carried out in one run, if there are several; their groups span jobs."""


class JobRun:
    """Processes claimed jobs.

    Args:
        lease: Jobs of one collection, oldest first. Their documents are stored in this order; several jobs
            have at most ``MAX_RUN_DOCUMENTS`` together.
        others_wait: Returns whether another tenant's job should run next; called between documents.
        turn_s: Seconds before the first call of ``others_wait``, and between calls.
        document_time_s: Seconds after which a stopped document counts as one attempt; one stopped
            sooner does not.
    """

    def __init__(
        self,
        db: TenantDatabase,
        lease: JobLease,
        pipeline: IngestionPipeline,
        *,
        others_wait: Callable[[], Awaitable[bool]],
        turn_s: float,
        document_time_s: float = float("inf"),
    ) -> None:
        self._document_time_s = document_time_s
        self._begun: tuple[Sequence[IngestionJobItem], float] | None = None
        self._others_wait = others_wait
        self._turn_s = turn_s
        self._turn_ends = time.monotonic() + turn_s
        self._jobs = JobRepository(db)
        self._collections = CollectionRepository(db)
        self._lease = lease
        self._job_ids = tuple(lease.job_ids)
        self._pipeline = pipeline

    async def run(self, stopping: asyncio.Event) -> None:
        """Ingest documents until none is left, another job is due, or ``stopping`` is set.

        Unfinished jobs return to the queue, also on cancellation; then the current document is
        started again by the worker that claims its job next.

        Raises:
            DatabaseError: The jobs can be claimed again when their lease has expired.
        """
        work = asyncio.create_task(self._work(stopping))
        beat = asyncio.create_task(self._lease.beat())
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, beat):
                task.cancel()
            results = await asyncio.gather(work, beat, return_exceptions=True)
        for result in results:
            if isinstance(result, LeaseLostError):
                logger.warning("Ingestion job %s was claimed by another worker or deleted", self._job_ids[0])
                return
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _work(self, stopping: asyncio.Event) -> None:
        try:
            if await self._all_items(stopping):
                return
        except (asyncio.CancelledError, DatabaseUnavailableError) as exc:
            if self._lease.is_held:
                error = None
                if isinstance(exc, DatabaseUnavailableError):
                    error = JobError(exc.code, exc.message)
                else:
                    await self._count_a_long_attempt()
                await self._jobs.release(*self._job_ids, error=error)
            raise
        await self._jobs.release(*self._job_ids)

    async def _count_a_long_attempt(self) -> None:
        """Count an attempt: documents that need longer than their worker may run must end."""
        if self._begun is None:
            return
        items, began_at = self._begun
        lasted_s = time.monotonic() - began_at
        if lasted_s >= self._document_time_s:
            message = f"The document was not ready after {lasted_s:.0f} s, when its worker had to stop."
            error = JobError("document_timeout", message)
            for item in items:
                await self._jobs.item_failed(item.job_id, item.ordinal, error, retry=True)

    async def _all_items(self, stopping: asyncio.Event) -> bool:
        """Return True if the jobs have ended, False if they must return to the queue."""
        job = await self._jobs.find_by_id(self._job_ids[0])
        collection = await self._collections.find_by_id(job.collection_id) if job else None
        if collection is None:  # deleted with its jobs
            return True
        while not stopping.is_set():
            self._lease.check()
            items = await self._jobs.next_items(
                *self._lease.job_ids,
                limit=MAX_RUN_DOCUMENTS,
                item_bytes=SMALL_BYTES,
                total_bytes=_CLAIMED_GROUPS * GROUP_BYTES,
            )
            if not items:
                if len(self._job_ids) == 1:
                    for parent_source, sources in (await self._jobs.complete_files(self._job_ids[0])).items():
                        await self._pipeline.keep_only(collection, parent_source, sources)
                await self._finish(self._lease.job_ids)
                return True
            if not await self._ingest(collection, items, stopping):
                break
        return False

    async def _finish(self, job_ids: Sequence[UUID]) -> None:
        """End jobs, the first ones of those that have not ended."""
        self._lease.check()
        self._lease.job_ids = self._lease.job_ids[len(job_ids) :]  # first: a beat must not miss them
        if job_ids:
            await self._jobs.finish(*job_ids)

    async def _turn_is_over(self) -> bool:
        if time.monotonic() < self._turn_ends:
            return False
        self._turn_ends = time.monotonic() + self._turn_s
        return await self._others_wait()

    async def _ingest(
        self, collection: Collection, items: Sequence[IngestionJobItem], stopping: asyncio.Event
    ) -> bool:
        """Ingest begun items; return False if the jobs must return to the queue, with the remaining ones."""
        remaining = iter(items)
        groups = [*grouped(map(_document, items))]
        ahead: asyncio.Task[DocumentGroup] | None = None
        try:
            for group, following in zip(groups, [*groups[1:], []], strict=True):
                if stopping.is_set():
                    return False
                begun = list(islice(remaining, len(group)))
                await self._finish(self._lease.job_ids[: self._lease.job_ids.index(begun[0].job_id)])
                self._begun = (begun, time.monotonic())
                if len(group) == 1 and not is_small(group[0].part):
                    in_order = await self._file(collection, begun[0], stopping)
                    leaving = await self._turn_is_over()
                else:
                    prepared = await (ahead or self._pipeline.prepare_parts(collection, group))
                    leaving = await self._turn_is_over()
                    ahead = None
                    if not leaving and may_overlap(group, following):
                        ahead = asyncio.create_task(self._pipeline.prepare_parts(collection, following))
                    in_order = await self._store(collection, begun, prepared, stopping)
                self._begun = None
                if leaving or not (in_order or len(self._job_ids) == 1):
                    return False
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
        return True

    async def _file(self, collection: Collection, item: IngestionJobItem, stopping: asyncio.Event) -> bool:
        """Ingest a file alone; return False if documents of its job are left for later."""
        try:
            parts = await self._pipeline.split(item.content or b"", item.source, item.media_type)
        except VectorForgeError as exc:
            return not await self._report_failure(item, IngestionError.of(exc), (), stopping)
        if parts[0].parent_source is not None:
            await self._expand(item, parts)
            return False
        document = _document(item)
        on_stage = partial(self._enter, item)
        prepared = await self._pipeline.prepare_parts(collection, [document], on_stage=on_stage)
        return await self._store(collection, [item], prepared, stopping)

    def _enter(self, item: IngestionJobItem, stage: IngestionStage) -> None:
        self._lease.stage = (item.job_id, item.ordinal, stage)

    async def _store(
        self,
        collection: Collection,
        items: Sequence[IngestionJobItem],
        group: DocumentGroup,
        stopping: asyncio.Event,
    ) -> bool:
        """Store a group and report its results; return False if a document is left for later."""
        on_stage = partial(self._enter, items[0])
        in_order = True
        self._lease.check()  # new documents are stored by the first statement
        async with aclosing(self._pipeline.ingest_group(collection, group, on_stage=on_stage)) as ingested:
            async for results in ingested:
                self._lease.check()
                stored = [_stored(items[place], result) for place, result in results if result.error is None]
                if stored:
                    await self._jobs.items_succeeded(stored)
                for place, result in results:
                    if result.error is not None and await self._report_failure(
                        items[place], result.error, result.warnings, stopping
                    ):
                        in_order = False
        return in_order

    async def _expand(self, item: IngestionJobItem, parts: Sequence[DocumentPart]) -> None:
        """Replace a JSONL file by its lines, so that each has its own result."""
        if len(parts) > MAX_RECORDS:
            message = f"The file has {len(parts):,} lines; at most {MAX_RECORDS:,} are read. Split it."
            await self._jobs.item_failed(item.job_id, item.ordinal, JobError("document_too_large", message))
            return
        records = [
            NewJobItem(
                part.source, part.media_type, part.content, item.title, item.metadata, part.parent_source
            )
            for part in parts
        ]
        await self._jobs.replace_item(item.job_id, item.ordinal, records, parts[0].warnings)

    async def _report_failure(
        self,
        item: IngestionJobItem,
        error: IngestionError,
        warnings: Sequence[str],
        stopping: asyncio.Event,
    ) -> bool:
        """Report a failure; return True if the document is left for later."""
        self._lease.check()
        if error.code == DatabaseUnavailableError.code:  # not caused by the document
            raise DatabaseUnavailableError(error.message)
        retry = error.retryable and item.attempts < MAX_ATTEMPTS
        reason = JobError(error.code, error.message)
        await self._jobs.item_failed(item.job_id, item.ordinal, reason, retry=retry, warnings=warnings)
        if retry:
            await wait_for(stopping, _FIRST_PAUSE_S * 2 ** (item.attempts - 1))
        return retry


def _document(item: IngestionJobItem) -> DocumentItem:
    part = DocumentPart(
        item.content or b"",
        item.source,
        item.media_type,
        item.parent_source,
        document_id=item.document_id,
        warnings=tuple(item.warnings),
    )
    return DocumentItem(part, item.title, item.metadata)


def _stored(item: IngestionJobItem, result: DocumentResult) -> StoredItem:
    return StoredItem(
        item.job_id,
        item.ordinal,
        document_id=result.document_id,
        chunks_added=result.chunks_added,
        chunks_kept=result.chunks_kept,
        chunks_removed=result.chunks_removed,
        unchanged=result.status is DocumentStatus.UNCHANGED,
        warnings=result.warnings,
    )
