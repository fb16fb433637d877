"""Background work of a process: ingestion, erasures and embedding model switches."""

import logging
import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.bootstrap.shared import Shared
from vectorforge.errors import VectorForgeError

if TYPE_CHECKING:  # not every process runs a worker
    from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
    from vectorforge.ingestion.pipeline import IngestionPipeline
    from vectorforge.ingestion.worker.worker import IngestionWorker

logger = logging.getLogger(__name__)


class BackgroundWork:
    """The worker of this process, and the announcements to the one that works instead.

    Announcements never raise: the work is stored already, and any worker or scheduled event finds it.

    Args:
        shared: Parts of the process.
        ingestion_of: Returns the ingestion pipeline of a tenant.
    """

    def __init__(self, shared: Shared, ingestion_of: "Callable[[str], IngestionPipeline]") -> None:
        self._shared = shared
        self._ingestion_of = ingestion_of

    @cached_property
    def worker(self) -> "IngestionWorker":
        """Worker for ingestion jobs of all tenants in this process, once started."""
        from vectorforge.ingestion.worker.worker import IngestionWorker

        config = self._shared.config
        return IngestionWorker(
            self._shared.database,
            self._ingestion_of,
            kept_log_days=config.database.log_retention_days,
            kept_text_days=config.database.log_text_retention_days,
            erase=self.resume_erasure,
            kept_stale_s=config.cache.answer_cache_stale_s,
            backfill=self.backfill,
        )

    @cached_property
    def backfill(self) -> "EmbeddingBackfill":
        """Embedding of all tenants' chunks while their collections' models are switched."""
        from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill

        per_minute = self._shared.config.ingestion.reembed_passages_per_minute
        return EmbeddingBackfill(
            self._shared.database, self._shared.embedding_registry, per_minute=per_minute
        )

    async def resume_erasure(self) -> bool:
        """Continue an erasure of any tenant that no process is working on; return False if there is none.

        Raises:
            DatabaseError: The database failed; a later call resumes.
        """
        from vectorforge.erasure.eraser import resume_erasure

        return await resume_erasure(self._shared.database, self._shared.eraser)

    async def announce_job(self, tenant_id: str, job_id: UUID) -> None:
        """Announce a stored job."""
        await self._announce(f"Job {job_id}", job=(tenant_id, job_id))

    async def announce_switch(self) -> None:
        """Announce work for an embedding model switch."""
        await self._announce("An embedding model switch")

    async def announce_erasure(self) -> None:
        """Announce an erasure to resume, for the time when this process's lease on it has expired."""
        from vectorforge.erasure.repo import LEASE_S

        await self._announce("An erasure", delay_s=math.ceil(LEASE_S) + 1)

    async def _announce(self, subject: str, *, job: tuple[str, UUID] | None = None, delay_s: int = 0) -> None:
        queue = self._shared.aws.ingestion_queue
        if queue is None:
            self.worker.wake()
            return
        from vectorforge.aws.queues import AnnouncedJob, AnyJob

        try:
            await queue.announce(AnyJob(delay_s) if job is None else AnnouncedJob(*job))
        except VectorForgeError as exc:
            logger.warning("%s was not announced and waits for a scheduled event: %s", subject, exc.message)
