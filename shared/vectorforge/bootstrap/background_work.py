"""What goes on behind requests: ingestion, erasures, changes of embedding models."""

import logging
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.bootstrap.aws_services import AwsServices
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import VectorForgeError

if TYPE_CHECKING:  # not every process works
    from vectorforge.bootstrap.tenant_services import TenantServices
    from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
    from vectorforge.ingestion.worker.worker import IngestionWorker

logger = logging.getLogger(__name__)


class BackgroundWork(AwsServices, ABC):
    """The worker of this process, and how work is announced where another process does it."""

    def __init__(
        self, config: VectorForgeConfig, database: Database, embedding_registry: EmbeddingProviderRegistry
    ) -> None:
        super().__init__(config)
        self.database = database
        self.embedding_registry = embedding_registry

    @abstractmethod
    def for_tenant(self, tenant_id: str, request_id: UUID | None = None) -> "TenantServices":
        """The services of one tenant."""

    @abstractmethod
    async def resume_erasure(self) -> bool:
        """Go on with an erasure of any tenant that nobody goes on with; False: there is none."""

    @cached_property
    def ingestion_worker(self) -> "IngestionWorker":
        """Runs ingestion jobs of all tenants in this process, once started."""
        from vectorforge.ingestion.worker.worker import IngestionWorker

        return IngestionWorker(
            self.database,
            lambda tenant_id: self.for_tenant(tenant_id).ingestion,
            kept_log_days=self.config.database.log_retention_days,
            kept_text_days=self.config.database.log_text_retention_days,
            erase=self.resume_erasure,
            kept_stale_s=self.config.cache.answer_cache_stale_s,
            backfill=self.embedding_backfill,
        )

    @cached_property
    def embedding_backfill(self) -> "EmbeddingBackfill":
        """Embeds collections of all tenants anew while their models are being changed."""
        from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill

        per_minute = self.config.ingestion.reembed_passages_per_minute
        return EmbeddingBackfill(self.database, self.embedding_registry, per_minute=per_minute)

    async def announce_erasure(self) -> None:
        """Say that an erasure is to be gone on with, once this process is known to have left it."""
        if self.ingestion_queue is None:
            self.ingestion_worker.wake()
            return
        from vectorforge.aws.queues import AnyJob
        from vectorforge.erasure.repo import LEASE_S

        try:
            await self.ingestion_queue.announce(AnyJob(math.ceil(LEASE_S) + 1))
        except VectorForgeError as exc:
            logger.warning(
                "An erasure was not announced, so a scheduled look has to find it: %s", exc.message
            )

    async def announce_job(self, tenant_id: str, job_id: UUID) -> None:
        """Say that a job waits: to the worker of this process, or to the queue of the ingest function.

        The job is stored already and is not lost when the queue does not answer: any worker takes up any
        waiting job, and a scheduled event looks for jobs that nobody announced.
        """
        if self.ingestion_queue is None:
            self.ingestion_worker.wake()
            return
        from vectorforge.aws.queues import AnnouncedJob

        try:
            await self.ingestion_queue.announce(AnnouncedJob(tenant_id, job_id))
        except VectorForgeError as exc:
            logger.warning(
                "Job %s was not announced, so a scheduled look has to find it: %s", job_id, exc.message
            )
