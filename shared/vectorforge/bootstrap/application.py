"""The application: what a process shares, its background work, and the services of tenants."""

import logging
import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Self
from uuid import UUID

from vectorforge.aws.database_login import app_password
from vectorforge.bootstrap.shared import Shared, credential_store, model_registries, removed_originals
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    ObjectStoreError,
    TenantBeingErasedError,
    VectorForgeError,
)
from vectorforge.health import HealthChecker
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, RecordingTracer, Tracer
from vectorforge.vendors.credentials import CredentialStore

if TYPE_CHECKING:  # imported on first use, to keep a cold start short
    from vectorforge.bootstrap.tenant import TenantServices
    from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
    from vectorforge.ingestion.pipeline import IngestionPipeline
    from vectorforge.ingestion.worker import IngestionWorker
    from vectorforge.vectorstore.base import VectorStore

logger = logging.getLogger(__name__)

_CACHED_TENANTS = 256
"""Tenants whose services are cached for their next request."""


class BackgroundWork:
    """The worker of this process, and the announcements to the one that works instead.

    Announcements never raise: the work is stored already, and any worker or scheduled event finds it.
    """

    def __init__(self, shared: Shared, ingestion_of: "Callable[[str], IngestionPipeline]") -> None:
        self._shared = shared
        self._ingestion_of = ingestion_of

    @cached_property
    def worker(self) -> "IngestionWorker":
        """Worker for ingestion jobs of all tenants in this process, once started."""
        from vectorforge.ingestion.worker import IngestionWorker

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
        """Continue an erasure of any tenant that no process is working on, or remove objects of originals.

        Returns:
            False if there is none.

        Raises:
            DatabaseError: The database failed; a later call resumes.
        """
        from vectorforge.erasure.eraser import resume_erasure

        if await resume_erasure(self._shared.database, self._shared.eraser):
            return True
        return await self._remove_originals()

    async def _remove_originals(self) -> bool:
        """Remove objects of a tenant's deleted or replaced originals; return False if there are none."""
        if (bucket := self._shared.aws.originals_bucket) is None:
            return False
        from vectorforge.db.repositories.original_repo import tenant_with_removals

        tenant_id = await tenant_with_removals(self._shared.database)
        if tenant_id is None:
            return False
        try:
            return await removed_originals(bucket, self._shared.database.for_tenant(tenant_id)).remove() > 0
        except (ObjectStoreError, TenantBeingErasedError) as exc:  # jobs continue; a later call resumes
            logger.warning("Originals are still to be removed: %s", exc.message)
            return False

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


class Application:
    """One process of VectorForge. Use it as an async context manager.

    Attributes:
        shared: Parts that all tenants share; those used most are attributes of the application as well.
        aws: Queues and buckets on AWS.
        background: Ingestion, erasures and embedding model switches behind requests.

    Args:
        vector_store: Factory of a tenant's vector store, by tenant id; the last 256 stores are
            reused. None for PostgreSQL, which stores collections, jobs and the query log in any case.
            Deletion over HTTP and erasure reach PostgreSQL only: delete chunks of another store through its
            own methods.

    Raises:
        ConfigurationError: A variant of the settings cannot be used with these providers.
    """

    def __init__(
        self,
        config: VectorForgeConfig,
        *,
        database: Database,
        embedding_registry: EmbeddingProviderRegistry,
        llm_registry: LLMProviderRegistry,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
        health_checker: HealthChecker | None = None,
        store: CredentialStore | None = None,
        vector_store: "Callable[[str], VectorStore] | None" = None,
    ) -> None:
        self.config = config
        self.database = database
        self.embedding_registry = embedding_registry
        self.llm_registry = llm_registry
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self.health_checker = health_checker or HealthChecker()
        self.shared = Shared(
            config,
            database,
            embedding_registry,
            llm_registry,
            self.metrics,
            tracer or (RecordingTracer() if config.tracing.tracing == "otel" else NoTracer()),
            self.health_checker,
            credential_store=store,
            vector_store=lru_cache(maxsize=_CACHED_TENANTS)(vector_store) if vector_store else None,
        )
        self.variants = self.shared.variants
        self.aws = self.shared.aws
        self.background = BackgroundWork(self.shared, lambda tenant_id: self.for_tenant(tenant_id).ingestion)
        self._cached_tenant = lru_cache(maxsize=_CACHED_TENANTS)(self._make_tenant)

    @classmethod
    def build(
        cls,
        config: VectorForgeConfig,
        *,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
        vector_store: "Callable[[str], VectorStore] | None" = None,
    ) -> "Application":
        """Choose the adapters named by the settings.

        Connects to nothing, except to read providers' keys from AWS if the settings name a place there.

        Args:
            config: The settings.
            metrics: Destination of measurements; None: they stay in memory.
            tracer: Destination of spans; None: the query log with ``VECTORFORGE_TRACING=otel``, else none.
            vector_store: See the constructor.

        Raises:
            ConfigurationError: No database URL is set, no embedding provider or variant can be used, or the
                keys cannot be read and a retry would not help.
            SecretsUnavailableError: The keys cannot be read now.
        """
        url = config.database.database_url
        if url is None:
            raise ConfigurationError(
                "No database: set VECTORFORGE_DATABASE_URL, or start the embedded one with `vectorforge up`."
            )
        metrics, health_checker = metrics or InMemoryMetrics(), HealthChecker()
        store = credential_store(config)
        embedding_registry, llm_registry = model_registries(config, store, metrics, health_checker)
        return cls(
            config,
            database=Database(
                url.get_secret_value(),
                pool_size=config.database.database_pool_size,
                timeout_s=config.database.database_timeout_s,
                password=app_password(config.database),
                pipeline=config.database.database_pipeline,
            ),
            embedding_registry=embedding_registry,
            llm_registry=llm_registry,
            metrics=metrics,
            tracer=tracer,
            health_checker=health_checker,
            store=store,
            vector_store=vector_store,
        )

    async def preload(self) -> None:
        """Load what the first query would load: driver, default providers, boto3 for a queue.

        Connects to nothing. For processes that start ahead of their first request, or whose start is faster
        than their requests, such as Lambda's init phase.

        Raises:
            ConfigurationError: A model in a folder is not the pinned one, or cannot be used.
        """
        self.database.preload()
        if self.aws.query_log_queue is not None:
            self.aws.query_log_queue.warm()
        await self.embedding_registry.get_default().preload()
        if self.shared.local_reranker is not None:
            await self.shared.local_reranker.preload()
        if self.llm_registry.list_providers():
            await self.llm_registry.get_default().preload()

    def release(self) -> None:
        """Close connections made by the constructor, before a snapshot of the process is taken.

        Stored keys are read again on next use: a process may be restored much later.
        """
        if (store := self.shared.credential_store) is not None:
            store.release()
        self.aws.disconnect()

    async def open(self) -> None:
        """Connect.

        Raises:
            DatabaseUnavailableError: The database cannot be reached.
            UnsafeRoleError: The role bypasses row-level security.
            MigrationError: The schema is missing or behind this version.
        """
        await self.database.open()
        if self.shared.reader is not None:
            self.shared.reader.begin_opening()

    async def close(self) -> None:
        """Close connections; safe to call twice."""
        await self.shared.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def for_tenant(self, tenant_id: str, request_id: UUID | None = None) -> "TenantServices":
        """Return the services of one tenant, cached for the tenants used last.

        Args:
            tenant_id: The tenant.
            request_id: Id of a request that is subject to the tenant's limits; None for the operator, or for
                work admitted before.
        """
        if request_id is None or self.shared.limit_gate.is_open(tenant_id):
            return self._cached_tenant(tenant_id)
        return self._make_tenant(tenant_id, request_id)

    def _make_tenant(self, tenant_id: str, request_id: UUID | None = None) -> "TenantServices":
        from vectorforge.bootstrap.tenant import TenantServices

        return TenantServices(self.shared, tenant_id, request_id, self.background.announce_switch)
