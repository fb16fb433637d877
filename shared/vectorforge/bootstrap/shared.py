"""Parts of a process that all tenants share: settings, database, providers, queues, memory.

Everything else in this package is built from ``Shared``, which imports none of it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vectorforge.config import AwsSettings, VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.health import HealthChecker
from vectorforge.limits.admission import LimitGate
from vectorforge.limits.settings import Limits
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.variants import VariantCatalogue
from vectorforge.telemetry import MetricsCollector, Tracer
from vectorforge.vendors.credentials import CredentialStore, find_credentials
from vectorforge.vendors.resilience import CircuitBreakers, RetryBudget

if TYPE_CHECKING:  # imported on first use, to keep a cold start short
    from vectorforge.aws.buckets import Bucket
    from vectorforge.aws.clients import AwsClients
    from vectorforge.aws.query_log_queue import QueryLogQueue
    from vectorforge.aws.queues import IngestionQueue
    from vectorforge.aws.uploads import UploadedFilesEraser, UploadForms
    from vectorforge.db.reader import Reader
    from vectorforge.erasure.eraser import Eraser
    from vectorforge.ingestion.originals import RemovedOriginals
    from vectorforge.llm.providers.extractive import ExtractiveProvider
    from vectorforge.otlp.exporter import BackgroundExport
    from vectorforge.pipeline.guardrails.log_text import LogTextPolicies
    from vectorforge.pipeline.stored_answer import AnswerMemory
    from vectorforge.retriever.onnx_rerank import OnnxReranker
    from vectorforge.retriever.rerank import HttpReranker
    from vectorforge.vectorstore.base import VectorStore


_LOG_CALL_S = 0.5
"""Read timeout of a call for the query log; with connecting, a call that hangs takes a second."""


class AwsServices:
    """Queues and buckets named by the settings, each created on first use; None for each that is not."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings

    @cached_property
    def clients(self) -> "AwsClients":
        """Clients of AWS services."""
        from vectorforge.aws.clients import AwsClients

        return AwsClients()

    @cached_property
    def query_log_queue(self) -> "QueryLogQueue | None":
        """Queue of query log records; None writes them straight to the table."""
        settings = self._settings
        if settings.query_log_queue_url is None:
            return None
        from vectorforge.aws.clients import AwsClients
        from vectorforge.aws.query_log_queue import QueryLogQueue

        # Separate clients: a call that hangs blocks one of few threads for the records after it.
        read_timeout_s = max(settings.query_log_timeout_s, _LOG_CALL_S)
        return QueryLogQueue(
            AwsClients(connect_timeout_s=read_timeout_s, read_timeout_s=read_timeout_s, max_attempts=1),
            settings.query_log_queue_url,
            overflow_bucket=settings.query_log_overflow_bucket,
            timeout_s=settings.query_log_timeout_s,
        )

    @cached_property
    def ingestion_queue(self) -> "IngestionQueue | None":
        """Queue of the ingest function; None if documents are ingested in this process."""
        if (url := self._settings.ingestion_queue_url) is None:
            return None
        from vectorforge.aws.queues import IngestionQueue

        return IngestionQueue(self.clients, url)

    @cached_property
    def upload_forms(self) -> "UploadForms | None":
        """Signer of uploads to S3; None without a bucket."""
        if (bucket := self._settings.uploads_bucket) is None:
            return None
        from vectorforge.aws.uploads import UploadForms

        return UploadForms(self.clients, bucket)

    @cached_property
    def uploaded_files(self) -> "UploadedFilesEraser | None":
        """Eraser of uploaded files in S3; None without a bucket."""
        if (bucket := self._settings.uploads_bucket) is None:
            return None
        from vectorforge.aws.buckets import Bucket
        from vectorforge.aws.uploads import UploadedFilesEraser

        return UploadedFilesEraser(Bucket(self.clients, bucket))

    @cached_property
    def originals_bucket(self) -> "Bucket | None":
        """Bucket of documents' files; None: they are in the database."""
        if (bucket := self._settings.originals_bucket) is None:
            return None
        from vectorforge.aws.buckets import Bucket

        return Bucket(self.clients, bucket)

    def disconnect(self) -> None:
        """Close connections that would not survive a snapshot of the process."""
        if "clients" in vars(self):  # created before
            self.clients.disconnect()

    async def aclose(self) -> None:
        """Close queues and clients; safe to call twice."""
        if self.query_log_queue is not None:
            await self.query_log_queue.aclose()
        if "clients" in vars(self):  # created before
            self.clients.close()


@dataclass(frozen=True, eq=False)
class Shared:
    """Parts of a process that all tenants share; those that not every process needs are made on first use."""

    config: VectorForgeConfig
    database: Database
    embedding_registry: EmbeddingProviderRegistry
    llm_registry: LLMProviderRegistry
    metrics: MetricsCollector
    tracer: Tracer
    health_checker: HealthChecker
    credential_store: CredentialStore | None = None
    """Store of providers' keys outside the environment; None if the settings name none."""
    vector_store: "Callable[[str], VectorStore] | None" = None
    """Factory of a tenant's vector store, by tenant id; None for PostgreSQL."""

    @cached_property
    def reader(self) -> "Reader | None":
        """Read replicas that answer searches; None if no host is set."""
        settings = self.config.database
        if settings.database_reader_host is None or settings.database_url is None:
            return None
        from vectorforge.aws.database_login import app_password
        from vectorforge.db.login import with_host
        from vectorforge.db.reader import TIMEOUT_S, Reader

        url, host = settings.database_url.get_secret_value(), settings.database_reader_host
        database = Database(
            with_host(url, host=host, port=settings.database_reader_port),
            pool_size=settings.database_pool_size,
            timeout_s=min(settings.database_timeout_s, TIMEOUT_S),
            password=app_password(settings),
            pipeline=settings.database_pipeline,
        )
        return Reader(database, lag_s=settings.database_reader_lag_s, metrics=self.metrics)

    @cached_property
    def aws(self) -> AwsServices:
        """Queues and buckets on AWS."""
        return AwsServices(self.config.aws)

    @cached_property
    def trace_export(self) -> "BackgroundExport | None":
        """Export of traces in this process; None if there are none, or the log writer exports them.

        Raises:
            ConfigurationError: As ``trace_exporter``.
        """
        if self.config.tracing.tracing != "otel" or self.aws.query_log_queue is not None:
            return None
        from vectorforge.aws.trace_export import trace_exporter
        from vectorforge.otlp.exporter import BackgroundExport

        exporter = trace_exporter(self.config.tracing, self.metrics, self.credential_store)
        texts = self.config.tracing.otlp_texts
        return None if exporter is None else BackgroundExport(exporter, with_texts=texts)

    @cached_property
    def variants(self) -> VariantCatalogue:
        """Variants of the settings.

        Raises:
            ConfigurationError: A variant cannot be used with these providers.
        """
        return VariantCatalogue(
            self.config.query,
            llm_providers=self.llm_registry.list_providers(),
            embedding_providers=self.embedding_registry.list_providers(),
        )

    @cached_property
    def limit_gate(self) -> LimitGate:
        """State of tenants' limits cached in this process."""
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
    def reranker(self) -> "HttpReranker | OnnxReranker | None":
        """Reranker of search results; None if neither an address nor a folder is set.

        Raises:
            ConfigurationError: Its key cannot be read, or its folder cannot be used.
            SecretsUnavailableError: Its key cannot be read now.
        """
        settings = self.config.rerank
        if settings.rerank_url is None:
            return self.local_reranker
        from vectorforge.retriever.rerank import HttpReranker

        return HttpReranker(
            settings.rerank_url,
            shape=settings.rerank_format,
            model=settings.rerank_model,
            api_key=find_credentials("rerank_api_key", settings.rerank_api_key, self.credential_store),
        )

    @cached_property
    def local_reranker(self) -> "OnnxReranker | None":
        """Reranker in this process; None if no folder is set."""
        folder = self.config.rerank.rerank_model_path
        if folder is None:
            return None
        from vectorforge.retriever.onnx_rerank import OnnxReranker

        return OnnxReranker(folder)

    @cached_property
    def quoter(self) -> "ExtractiveProvider":
        """Provider that quotes chunks when no model is available."""
        from vectorforge.llm.providers.extractive import ExtractiveProvider

        embedder = self.embedding_registry.get_default()
        return ExtractiveProvider(
            embed=embedder.embed_documents, compare=embedder.comparison(), metrics=self.metrics
        )

    @cached_property
    def answer_memory(self) -> "AnswerMemory":
        """Answers of all tenants that this process caches."""
        from vectorforge.pipeline.stored_answer import AnswerMemory

        return AnswerMemory(self.config.cache.answer_cache_memory_bytes)

    @cached_property
    def log_text_policies(self) -> "LogTextPolicies":
        """Policies of tenants for texts in the query log."""
        from vectorforge.pipeline.guardrails.log_text import LogTextPolicies

        return LogTextPolicies(self.config.query.log_text)

    @cached_property
    def settings_digest(self) -> str:
        """Digest of the settings that decide answers and vectors, a part of every cache key."""
        config = self.config
        llm = config.llm.model_dump(mode="json")  # secrets are masked
        # the model of each collection is a part of the keys
        embedding = config.embedding.model_dump(
            mode="json", exclude={"model_cache_dir", "local_embedding_path"}
        )
        rerank = config.rerank.model_dump(mode="json", include={"rerank_url", "rerank_model"})
        if config.query.max_passages_per_document:
            rerank["max_passages_per_document"] = config.query.max_passages_per_document
        if self.local_reranker is not None:
            rerank["identity"] = self.local_reranker.identity
        return hashlib.sha256(json.dumps([llm, embedding, rerank], sort_keys=True).encode()).hexdigest()

    def eraser(self, tenant_id: str, *, leaves_files: bool = False) -> "Eraser":
        """Return the eraser of a tenant's data in this process.

        Args:
            tenant_id: The tenant.
            leaves_files: Leave uploaded files to the process that ingests them.
        """
        from vectorforge.erasure.eraser import Eraser, ReplayedErasures, unreached_places
        from vectorforge.erasure.repo import ErasureDatabase, ErasureRepository

        settings, bucket, reader = self.config.aws, self.aws.originals_bucket, self.reader
        own = ErasureDatabase(self.database, tenant_id)
        on_aws = bool(settings.query_log_queue_url or settings.uploads_bucket or bucket)
        return Eraser(
            ErasureRepository(own),
            files=None if leaves_files else self.aws.uploaded_files,
            originals=None if bucket is None else removed_originals(bucket, own),
            replicas=None if reader is None else ReplayedErasures(reader, tenant_id),
            leaves_files=leaves_files,
            not_reached=unreached_places(on_replicas=reader is not None, on_aws=on_aws),
            on_begun=lambda: self._note_erasure(tenant_id),
        )

    def _note_erasure(self, tenant_id: str) -> None:
        self.answer_memory.clear(tenant_id)
        if self.reader is not None:
            self.reader.versions.note_write(tenant_id)

    async def close(self) -> None:
        """Close connections; safe to call twice."""
        export: BackgroundExport | None = vars(self).get("trace_export")
        if export is not None:
            await export.aclose()
        await self.llm_registry.aclose()
        await self.embedding_registry.aclose()
        reranker: HttpReranker | OnnxReranker | None = vars(self).get("reranker")
        if reranker is not None:
            await reranker.aclose()
        if self.credential_store is not None:
            self.credential_store.close()
        await self.aws.aclose()
        if self.reader is not None:
            await self.reader.close()
        await self.database.close()


def removed_originals(bucket: "Bucket", db: TenantDatabase) -> "RemovedOriginals":
    """Return the removal of a tenant's originals from their bucket."""
    from vectorforge.db.repositories.original_repo import OriginalRepository
    from vectorforge.ingestion.originals import RemovedOriginals

    return RemovedOriginals(bucket, OriginalRepository(db))


def credential_store(config: VectorForgeConfig) -> CredentialStore | None:
    """Return the store of providers' keys outside the environment; None if the settings name none."""
    if not (config.aws.provider_secret_id or config.aws.provider_parameter_path):
        return None
    from vectorforge.aws.secrets import StoredKeys  # imports boto3, which a laptop does not need

    return StoredKeys.from_settings(config.aws)


def model_registries(
    config: VectorForgeConfig,
    store: CredentialStore | None,
    metrics: MetricsCollector,
    health_checker: HealthChecker,
) -> tuple[EmbeddingProviderRegistry, LLMProviderRegistry]:
    """Return the providers that the settings have credentials for, with one retry budget for all.

    Raises:
        ConfigurationError: No embedding provider can be used, or keys cannot be read and a retry would not
            help.
        SecretsUnavailableError: The keys cannot be read now.
    """
    from vectorforge.llm.providers.extractive import ExtractiveProvider

    retry_budget = RetryBudget()
    embedding_registry = EmbeddingProviderRegistry(retry_budget=retry_budget)
    embedding_registry.auto_discover(config, store=store, metrics=metrics, health_checker=health_checker)
    llm_registry = LLMProviderRegistry(
        metrics=metrics,
        health_checker=health_checker,
        breakers=CircuitBreakers(
            failures=config.llm.llm_circuit_failures, open_s=config.llm.llm_circuit_open_s
        ),
        retry_budget=retry_budget,
    )
    embedder = embedding_registry.get_default()
    llm_registry.auto_discover(
        config,
        store=store,
        fallback=ExtractiveProvider(
            embed=embedder.embed_documents,
            compare=embedder.comparison(),
            metrics=metrics,
            health_checker=health_checker,
        ),
    )
    return embedding_registry, llm_registry
