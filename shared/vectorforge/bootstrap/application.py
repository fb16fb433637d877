"""What a process shares: pool, providers, queues, metrics."""

import hashlib
import json
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from vectorforge.aws.database_login import app_password
from vectorforge.bootstrap.background_work import BackgroundWork
from vectorforge.bootstrap.model_registries import credential_store, model_registries
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError
from vectorforge.health import HealthChecker
from vectorforge.limits.gate import LimitGate
from vectorforge.limits.settings import Limits
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.variants import VariantCatalogue
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer
from vectorforge.vendors.credentials import CredentialStore, find_credentials

if TYPE_CHECKING:  # only on AWS, or when they are first needed: a function's start is a caller's wait
    from vectorforge.bootstrap.tenant_services import TenantServices
    from vectorforge.llm.providers.extractive.provider import ExtractiveProvider
    from vectorforge.pipeline.answer_cache.memory import AnswerMemory
    from vectorforge.pipeline.guardrails.log_text import LogTextPolicies
    from vectorforge.retriever.rerank import HttpReranker
    from vectorforge.vectorstore.base import VectorStore

_KEPT_TENANTS = 256
"""Tenants whose services are kept for their next request; others' are made anew."""


class Application(BackgroundWork):
    """Everything a process shares. Use it as an async context manager.

    Args:
        vector_store: Makes the store of a tenant's chunks, by the tenant's name; the 256 used last are kept.
            None: PostgreSQL, where collections, jobs and the query log are kept in any case. Deletion over
            HTTP and erasure reach PostgreSQL only: chunks of another store are deleted by its own methods.

    Raises:
        ConfigurationError: A variant of the settings cannot be used with what is given.
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
        super().__init__(config, database, embedding_registry)
        self._store = store
        self.vector_store = lru_cache(maxsize=_KEPT_TENANTS)(vector_store) if vector_store else None
        self.llm_registry = llm_registry
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self.tracer: Tracer = tracer or NoTracer()
        self.health_checker = health_checker or HealthChecker()
        self.variants = VariantCatalogue(
            config.query,
            llm_providers=llm_registry.list_providers(),
            embedding_providers=embedding_registry.list_providers(),
        )

    @classmethod
    def build(
        cls,
        config: VectorForgeConfig,
        *,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
        vector_store: "Callable[[str], VectorStore] | None" = None,
    ) -> "Application":
        """Choose the adapters that the settings ask for.

        Connects to nothing, except to read providers' keys from AWS when the settings name a place there.

        Args:
            config: The settings.
            metrics: Where measurements go; None keeps them in memory.
            tracer: Where spans go; None drops them.
            vector_store: As the constructor's.

        Raises:
            ConfigurationError: No database URL is set, no embedding provider or variant can be used, or the
                keys cannot be read and waiting would not help.
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
        """Load what the first question would load: driver, default providers' SDKs, boto3 for a queue.

        Connects to nothing. For processes that are made ahead of their first request, or whose start is
        faster than their requests, as Lambda's init phase is.
        """
        self.database.preload()
        if self.query_log_queue is not None:
            self.query_log_queue.warm()
        await self.embedding_registry.get_default().preload()
        if self.llm_registry.list_providers():
            await self.llm_registry.get_default().preload()

    def release(self) -> None:
        """Close what the making of this object connected to, before a snapshot of the process is taken.

        Stored keys are read again when they are next needed: a process may be restored long after.
        """
        if self._store is not None:
            self._store.release()
        self._disconnect_aws()

    async def open(self) -> None:
        """Connect.

        Raises:
            DatabaseUnavailableError: The database does not answer.
            UnsafeRoleError: The role bypasses row-level security.
            MigrationError: The schema is not the one this version needs.
        """
        await self.database.open()

    async def close(self) -> None:
        """Close connections; safe to call twice."""
        await self.llm_registry.aclose()
        await self.embedding_registry.aclose()
        reranker: HttpReranker | None = vars(self).get("reranker")
        if reranker is not None:
            await reranker.aclose()
        if self._store is not None:
            self._store.close()
        self._close_aws()
        await self.database.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def for_tenant(self, tenant_id: str, request_id: UUID | None = None) -> "TenantServices":
        """The services of one tenant; those of the tenants asked for last are kept.

        Args:
            tenant_id: The tenant.
            request_id: Made by this server for a request that is held to the tenant's limits; None: the
                services are for the operator, or for work that was let in before.
        """
        if request_id is None or self.limit_gate.is_open(tenant_id):
            return self._tenants(tenant_id)
        from vectorforge.bootstrap.tenant_services import TenantServices

        return TenantServices(self, tenant_id, request_id)

    @cached_property
    def _tenants(self) -> "Callable[[str], TenantServices]":
        from vectorforge.bootstrap.tenant_services import TenantServices

        return lru_cache(maxsize=_KEPT_TENANTS)(partial(TenantServices, self))

    @cached_property
    def limit_gate(self) -> LimitGate:
        """What this process knows of tenants' limits."""
        settings = self.config.limits
        return LimitGate(
            Limits(
                requests_per_minute=settings.limit_requests_per_minute,
                tokens_per_day=settings.limit_tokens_per_day,
                cost_per_month_usd=settings.limit_cost_per_month_usd,
                concurrent_streams=settings.limit_concurrent_streams,
            )
        )

    @property
    def credential_store(self) -> CredentialStore | None:
        """Store of providers' keys outside the environment; None if the settings name none."""
        return self._store

    @cached_property
    def reranker(self) -> "HttpReranker | None":
        """Orders passages anew; None: no address is set.

        Raises:
            ConfigurationError: Its key cannot be read.
            SecretsUnavailableError: Its key cannot be read now.
        """
        settings = self.config.rerank
        if settings.rerank_url is None:
            return None
        from vectorforge.retriever.rerank import HttpReranker

        return HttpReranker(
            settings.rerank_url,
            shape=settings.rerank_format,
            model=settings.rerank_model,
            api_key=find_credentials("rerank_api_key", settings.rerank_api_key, self._store),
        )

    @cached_property
    def quoter(self) -> "ExtractiveProvider":
        """Quotes passages when no model answers."""
        from vectorforge.llm.providers.extractive.provider import ExtractiveProvider

        return ExtractiveProvider(
            embed=self.embedding_registry.get_default().embed_documents, metrics=self.metrics
        )

    @cached_property
    def answer_memory(self) -> "AnswerMemory":
        """Answers that this process keeps, of all tenants."""
        from vectorforge.pipeline.answer_cache.memory import AnswerMemory

        return AnswerMemory(self.config.cache.answer_cache_memory_bytes)

    @cached_property
    def log_text_policies(self) -> "LogTextPolicies":
        """What the query log keeps of the tenants' texts."""
        from vectorforge.pipeline.guardrails.log_text import LogTextPolicies

        return LogTextPolicies(self.config.query.log_text)

    @cached_property
    def settings_digest(self) -> str:
        """Of the settings that decide answers and vectors; what is cached under others is not found."""
        llm = self.config.llm.model_dump(mode="json")  # secrets are masked
        embedding = self.config.embedding.model_dump(mode="json", exclude={"model_cache_dir"})
        rerank = self.config.rerank.model_dump(mode="json", include={"rerank_url", "rerank_model"})
        if self.config.query.max_passages_per_document:
            rerank["max_passages_per_document"] = self.config.query.max_passages_per_document
        return hashlib.sha256(json.dumps([llm, embedding, rerank], sort_keys=True).encode()).hexdigest()

    async def resume_erasure(self) -> bool:
        """Go on with an erasure of any tenant that nobody goes on with; False: there is none.

        Raises:
            DatabaseError: The database failed; a later call goes on.
        """
        from vectorforge.bootstrap.erasing import resume_erasure

        return await resume_erasure(self)
