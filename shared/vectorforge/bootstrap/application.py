"""The application: what a process shares, its background work, and the services of tenants."""

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from vectorforge.aws.database_login import app_password
from vectorforge.bootstrap.background import BackgroundWork
from vectorforge.bootstrap.shared import Shared, credential_store, model_registries
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError
from vectorforge.health import HealthChecker
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer
from vectorforge.vendors.credentials import CredentialStore

if TYPE_CHECKING:  # only on AWS, or when they are first needed: a function's start is a caller's wait
    from vectorforge.bootstrap.tenant import TenantServices
if TYPE_CHECKING:
    from vectorforge.bootstrap.tenant import TenantServices
    from vectorforge.vectorstore.base import VectorStore

_CACHED_TENANTS = 256
"""Tenants whose services are cached for their next request."""


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
        self.credential_store = store
        self.shared = Shared(
            config,
            database,
            embedding_registry,
            llm_registry,
            self.metrics,
            tracer or NoTracer(),
            self.health_checker,
            credential_store=store,
            vector_store=lru_cache(maxsize=_CACHED_TENANTS)(vector_store) if vector_store else None,
        )
        self.variants = self.shared.variants
        self.aws = self.shared.aws
        self.background = BackgroundWork(self.shared, lambda tenant_id: self.for_tenant(tenant_id).ingestion)

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
            metrics: Destination of measurements; None keeps them in memory.
            tracer: Destination of spans; None drops them.
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
        """Load what the first query would load: driver, default providers' SDKs, boto3 for a queue.

        Connects to nothing. For processes that start ahead of their first request, or whose start is faster
        than their requests, such as Lambda's init phase.
        """
        self.database.preload()
        if self.aws.query_log_queue is not None:
            self.aws.query_log_queue.warm()
        await self.embedding_registry.get_default().preload()
        if self.llm_registry.list_providers():
            await self.llm_registry.get_default().preload()

    def release(self) -> None:
        """Close connections made by the constructor, before a snapshot of the process is taken.

        Stored keys are read again on next use: a process may be restored much later.
        """
        if self.credential_store is not None:
            self.credential_store.release()
        self.aws.disconnect()

    async def open(self) -> None:
        """Connect.

        Raises:
            DatabaseUnavailableError: The database cannot be reached.
            UnsafeRoleError: The role bypasses row-level security.
            MigrationError: The schema is missing or behind this version.
        """
        await self.database.open()

    async def close(self) -> None:
        """Close connections; safe to call twice."""
        await self.shared.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def for_tenant(self, tenant_id: str, request_id: UUID | None = None) -> "TenantServices":
        """Return the services of one tenant, cached for the tenants used last.

        Args:
            tenant_id: The tenant.
            request_id: Id of a request that is subject to the tenant's limits; None for the operator, or for
                work admitted before.
        """
        if request_id is None or self.shared.limit_gate.is_open(tenant_id):
            return self._tenants(tenant_id)
        from vectorforge.bootstrap.tenant import TenantServices

        return TenantServices(self.shared, tenant_id, request_id, self.background.announce_switch)

    @cached_property
    def _tenants(self) -> "Callable[[str], TenantServices]":
        from vectorforge.bootstrap.tenant import TenantServices

        make = partial(TenantServices, self.shared, announce_switch=self.background.announce_switch)
        return lru_cache(maxsize=_CACHED_TENANTS)(make)
