"""What a process shares: pool, providers, queues, metrics."""

import hashlib
import json
import logging
import math
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from vectorforge.aws.database_login import database_password
from vectorforge.config import VectorForgeConfig
from vectorforge.credentials import CredentialStore, find_credentials
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    VectorForgeError,
)
from vectorforge.health import HealthChecker
from vectorforge.limits.gate import LimitGate
from vectorforge.limits.types import Limits
from vectorforge.llm.circuit_breaker import CircuitBreakers
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.variants import VariantCatalogue
from vectorforge.retry import RetryBudget
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer

if TYPE_CHECKING:  # only on AWS, or when they are first needed: a function's start is a caller's wait
    from vectorforge.aws.clients import AwsClients
    from vectorforge.aws.ingestion_queue import IngestionQueue
    from vectorforge.aws.query_log_queue import QueryLogQueue
    from vectorforge.aws.upload_forms import UploadForms
    from vectorforge.aws.uploaded_files import UploadedFilesEraser
    from vectorforge.bootstrap.tenant_services import TenantServices
    from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
    from vectorforge.ingestion.worker import IngestionWorker
    from vectorforge.llm.providers.extractive import ExtractiveProvider
    from vectorforge.pipeline.answer_memory import AnswerMemory
    from vectorforge.pipeline.log_text import LogTextPolicies
    from vectorforge.retriever.rerank import HttpReranker

logger = logging.getLogger(__name__)

_KEPT_TENANTS = 256
"""Tenants whose services are kept for their next request; others' are made anew."""
_LOG_CALL_S = 0.5
"""Silence after which a call for the query log ends: with the connecting, one that hangs takes a second."""


class Application:
    """Everything a process shares. Use it as an async context manager.

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
    ) -> None:
        self.config = config
        self._store = store
        self.database = database
        self.embedding_registry = embedding_registry
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
    ) -> "Application":
        """Choose the adapters that the settings ask for.

        Connects to nothing, except to read providers' keys from AWS when the settings name a place there.

        Args:
            config: The settings.
            metrics: Where measurements go; None keeps them in memory.
            tracer: Where spans go; None drops them.

        Raises:
            ConfigurationError: No database URL is set, no embedding provider or variant can be used, or the
                keys cannot be read and waiting would not help.
            SecretsUnavailableError: The keys cannot be read now.
        """
        from vectorforge.llm.providers.extractive import ExtractiveProvider

        url = config.database.database_url
        if url is None:
            raise ConfigurationError(
                "No database: set VECTORFORGE_DATABASE_URL, or start the embedded one with `vectorforge up`."
            )
        metrics, health_checker = metrics or InMemoryMetrics(), HealthChecker()
        retry_budget = RetryBudget()
        embedding_registry = EmbeddingProviderRegistry(retry_budget=retry_budget)
        store = credential_store(config)
        embedding_registry.auto_discover(config, store=store, metrics=metrics, health_checker=health_checker)
        llm_registry = LLMProviderRegistry(
            metrics=metrics,
            health_checker=health_checker,
            breakers=CircuitBreakers(
                failures=config.llm.llm_circuit_failures, open_s=config.llm.llm_circuit_open_s
            ),
            retry_budget=retry_budget,
        )
        llm_registry.auto_discover(
            config,
            store=store,
            fallback=ExtractiveProvider(
                embed=embedding_registry.get_default().embed_documents,
                metrics=metrics,
                health_checker=health_checker,
            ),
        )
        return cls(
            config,
            database=Database(
                url.get_secret_value(),
                pool_size=config.database.database_pool_size,
                timeout_s=config.database.database_timeout_s,
                password=database_password(config.database),
                pipeline=config.database.database_pipeline,
            ),
            embedding_registry=embedding_registry,
            llm_registry=llm_registry,
            metrics=metrics,
            tracer=tracer,
            health_checker=health_checker,
            store=store,
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
        if "aws_clients" in vars(self):  # made before
            self.aws_clients.disconnect()

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
        if self.query_log_queue is not None:
            self.query_log_queue.close()
        if "aws_clients" in vars(self):  # made before
            self.aws_clients.close()
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
    def aws_clients(self) -> "AwsClients":
        """The clients of AWS services, for those parts that only AWS has."""
        from vectorforge.aws.clients import AwsClients

        return AwsClients()

    @cached_property
    def quoter(self) -> "ExtractiveProvider":
        """Quotes passages when no model answers."""
        from vectorforge.llm.providers.extractive import ExtractiveProvider

        return ExtractiveProvider(
            embed=self.embedding_registry.get_default().embed_documents, metrics=self.metrics
        )

    @cached_property
    def answer_memory(self) -> "AnswerMemory":
        """Answers that this process keeps, of all tenants."""
        from vectorforge.pipeline.answer_memory import AnswerMemory

        return AnswerMemory(self.config.cache.answer_cache_memory_bytes)

    @cached_property
    def log_text_policies(self) -> "LogTextPolicies":
        """What the query log keeps of the tenants' texts."""
        from vectorforge.pipeline.log_text import LogTextPolicies

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

    @cached_property
    def query_log_queue(self) -> "QueryLogQueue | None":
        """The queue that query logs go through; None: they go straight into the table."""
        settings = self.config.aws
        if settings.query_log_queue_url is None:
            return None
        from vectorforge.aws.clients import AwsClients
        from vectorforge.aws.query_log_queue import QueryLogQueue

        # Clients of its own: a call that hangs keeps one of few threads from the records after it.
        silence_s = max(settings.query_log_timeout_s, _LOG_CALL_S)
        return QueryLogQueue(
            AwsClients(connect_timeout_s=silence_s, read_timeout_s=silence_s, max_attempts=1),
            settings.query_log_queue_url,
            overflow_bucket=settings.query_log_overflow_bucket,
            timeout_s=settings.query_log_timeout_s,
        )

    @cached_property
    def ingestion_worker(self) -> "IngestionWorker":
        """Runs ingestion jobs of all tenants in this process, once started."""
        from vectorforge.ingestion.worker import IngestionWorker

        return IngestionWorker(
            self.database,
            lambda tenant_id: self.for_tenant(tenant_id).ingestion,
            kept_log_days=self.config.database.log_retention_days,
            kept_text_days=self.config.database.log_text_retention_days,
            erase=self.go_on_erasing,
            kept_stale_s=self.config.cache.answer_cache_stale_s,
            backfill=self.embedding_backfill,
        )

    @cached_property
    def uploaded_files(self) -> "UploadedFilesEraser | None":
        """Deletes uploaded files from S3; None where there is no bucket for them."""
        if self.config.aws.uploads_bucket is None:
            return None
        from vectorforge.aws.uploaded_files import UploadedFilesEraser

        return UploadedFilesEraser(self.aws_clients, self.config.aws.uploads_bucket)

    async def go_on_erasing(self) -> bool:
        """Go on with an erasure of any tenant that nobody goes on with; False: there is none.

        Raises:
            DatabaseError: The database failed; a later call goes on.
        """
        from vectorforge.bootstrap.erasing import go_on_erasing

        return await go_on_erasing(self)

    @cached_property
    def embedding_backfill(self) -> "EmbeddingBackfill":
        """Embeds collections of all tenants anew while their models are being changed."""
        from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill

        per_minute = self.config.ingestion.reembed_passages_per_minute
        return EmbeddingBackfill(self.database, self.embedding_registry, per_minute=per_minute)

    @cached_property
    def ingestion_queue(self) -> "IngestionQueue | None":
        """Wakes the ingest function; None where documents are ingested in this process."""
        if self.config.aws.ingestion_queue_url is None:
            return None
        from vectorforge.aws.ingestion_queue import IngestionQueue

        return IngestionQueue(self.aws_clients, self.config.aws.ingestion_queue_url)

    @cached_property
    def upload_forms(self) -> "UploadForms | None":
        """Signs uploads to S3; None where there is no bucket for them."""
        if self.config.aws.uploads_bucket is None:
            return None
        from vectorforge.aws.upload_forms import UploadForms

        return UploadForms(self.aws_clients, self.config.aws.uploads_bucket)

    async def announce_erasure(self) -> None:
        """Say that an erasure is to be gone on with, once this process is known to have left it."""
        if self.ingestion_queue is None:
            self.ingestion_worker.wake()
            return
        from vectorforge.aws.ingestion_queue import AnyJob
        from vectorforge.db.repositories.erasure_repo import LEASE_S

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
        from vectorforge.aws.ingestion_queue import AnnouncedJob

        try:
            await self.ingestion_queue.announce(AnnouncedJob(tenant_id, job_id))
        except VectorForgeError as exc:
            logger.warning(
                "Job %s was not announced, so a scheduled look has to find it: %s", job_id, exc.message
            )


def credential_store(config: VectorForgeConfig) -> CredentialStore | None:
    """Where providers' keys are that the environment does not hold; None when the settings name no place."""
    if not (config.aws.provider_secret_id or config.aws.provider_parameter_path):
        return None
    from vectorforge.aws.secrets import StoredKeys  # leads to boto3, which a laptop need not load

    return StoredKeys.from_settings(config.aws)
