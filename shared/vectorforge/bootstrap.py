"""The composition root: the only module that decides which adapters are used.

``Application`` holds what a process shares (pool, providers, metrics); ``Application.for_tenant``
gives the services of one tenant. Nothing connects before ``open()``.
"""

import logging
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from vectorforge.config import VectorForgeConfig
from vectorforge.credentials import CredentialStore
from vectorforge.db.connection import Database, TenantDatabase
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    DimensionMismatchError,
    InvalidInputError,
    NotFoundError,
    UnknownModelError,
    VectorForgeError,
)
from vectorforge.health import HealthChecker
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.query import QueryPreprocessor
from vectorforge.pipeline.rag import QueryLogSink, QueryService
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

if TYPE_CHECKING:  # only on AWS
    from vectorforge.aws.clients import AwsClients
    from vectorforge.aws.ingestion_queue import IngestionQueue
    from vectorforge.aws.query_log_queue import QueryLogQueue

logger = logging.getLogger(__name__)

_TABLE_LOG_TIMEOUT_S = 2.0


class Application:
    """Everything a process shares. Use it as an async context manager."""

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
    ) -> None:
        self.config = config
        self.database = database
        self.embedding_registry = embedding_registry
        self.llm_registry = llm_registry
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self.tracer: Tracer = tracer or NoTracer()
        self.health_checker = health_checker or HealthChecker()

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
            ConfigurationError: No database URL is set, no embedding provider can be used, or the keys
                cannot be read and waiting would not help.
            SecretsUnavailableError: The keys cannot be read now.
        """
        url = config.database.database_url
        if url is None:
            raise ConfigurationError(
                "No database: set VECTORFORGE_DATABASE_URL, or start the embedded one with `vectorforge up`."
            )
        metrics, health_checker = metrics or InMemoryMetrics(), HealthChecker()
        embedding_registry = EmbeddingProviderRegistry()
        store = credential_store(config)
        embedding_registry.auto_discover(config, store=store, metrics=metrics, health_checker=health_checker)
        llm_registry = LLMProviderRegistry(metrics=metrics, health_checker=health_checker)
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
            ),
            embedding_registry=embedding_registry,
            llm_registry=llm_registry,
            metrics=metrics,
            tracer=tracer,
            health_checker=health_checker,
        )

    async def preload(self) -> None:
        """Load what the first question would load: driver, SDKs of the default providers, boto3 for a queue.

        Connects to nothing. For processes that are made ahead of their first request, or whose start is faster
        than their requests, as Lambda's init phase is: it has a whole core, however little memory is set.
        """
        self.database.preload()
        if self.query_log_queue is not None:
            self.query_log_queue.warm()
        await self.embedding_registry.get_default().preload()
        if self.llm_registry.list_providers():
            await self.llm_registry.get_default().preload()

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

    def for_tenant(self, tenant_id: str) -> "TenantServices":
        """The services of one tenant; cheap, made for each request."""
        return TenantServices(self, tenant_id)

    @cached_property
    def aws_clients(self) -> "AwsClients":
        """The clients of AWS services, for those parts that only AWS has."""
        from vectorforge.aws.clients import AwsClients

        return AwsClients()

    @cached_property
    def query_log_queue(self) -> "QueryLogQueue | None":
        """The queue that query logs go through; None: they go straight into the table."""
        settings = self.config.aws
        if settings.query_log_queue_url is None:
            return None
        from vectorforge.aws.query_log_queue import QueryLogQueue

        return QueryLogQueue(
            self.aws_clients,
            settings.query_log_queue_url,
            overflow_bucket=settings.query_log_overflow_bucket,
            timeout_s=settings.query_log_timeout_s,
        )

    @cached_property
    def ingestion_worker(self) -> IngestionWorker:
        """Runs ingestion jobs of all tenants in this process, once started."""
        return IngestionWorker(
            self.database,
            lambda tenant_id: self.for_tenant(tenant_id).ingestion,
            kept_log_days=self.config.database.log_retention_days,
        )

    @cached_property
    def ingestion_queue(self) -> "IngestionQueue | None":
        """Wakes the ingest function; None where documents are ingested in this process."""
        if self.config.aws.ingestion_queue_url is None:
            return None
        from vectorforge.aws.ingestion_queue import IngestionQueue

        return IngestionQueue(self.aws_clients, self.config.aws.ingestion_queue_url)

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


class TenantServices:
    """What one tenant can do; each part is bound to the tenant and reaches no other's rows."""

    def __init__(self, application: Application, tenant_id: str) -> None:
        self._application = application
        self.tenant_id = tenant_id

    @cached_property
    def _db(self) -> TenantDatabase:
        return self._application.database.for_tenant(self.tenant_id)

    @cached_property
    def collections(self) -> CollectionRepository:
        """Collections of the tenant."""
        return CollectionRepository(self._db)

    @cached_property
    def documents(self) -> DocumentRepository:
        """Documents of the tenant."""
        return DocumentRepository(self._db)

    @cached_property
    def jobs(self) -> JobRepository:
        """Ingestion jobs of the tenant."""
        return JobRepository(self._db)

    @cached_property
    def query_logs(self) -> QueryLogRepository:
        """The tenant's query log."""
        return QueryLogRepository(self._db)

    @cached_property
    def query_log_sink(self) -> QueryLogSink:
        """Where the tenant's queries are logged: the queue, or the table itself."""
        queue = self._application.query_log_queue
        return self.query_logs if queue is None else queue.for_tenant(self.tenant_id)

    @cached_property
    def vector_store(self) -> PgVectorStore:
        """Chunks and vectors of the tenant."""
        return PgVectorStore(self._db)

    @cached_property
    def _preprocessor(self) -> QueryPreprocessor:
        return QueryPreprocessor(self._application.config.query.max_query_length)

    @cached_property
    def retriever(self) -> DenseRetriever:
        """Finds passages of the tenant."""
        return DenseRetriever(
            self._application.embedding_registry,
            self.vector_store,
            self.collections,
            preprocess=self._preprocessor.preprocess,
            metrics=self._application.metrics,
            max_top_k=self._application.config.query.max_top_k,
        )

    @cached_property
    def query_service(self) -> QueryService:
        """Answers questions of the tenant."""
        through_queue = self._application.query_log_queue is not None
        settings = self._application.config
        return QueryService(
            self.retriever,
            ContextBuilder(),
            self._application.llm_registry,
            self.query_log_sink,
            preprocessor=self._preprocessor,
            metrics=self._application.metrics,
            tracer=self._application.tracer,
            timeout_s=settings.query.query_timeout_s,
            log_timeout_s=settings.aws.query_log_timeout_s if through_queue else _TABLE_LOG_TIMEOUT_S,
        )

    @cached_property
    def ingestion(self) -> IngestionPipeline:
        """Turns documents into chunks of the tenant."""
        return IngestionPipeline(
            self.vector_store,
            self.documents,
            self._application.embedding_registry,
            self._application.config.ingestion,
        )

    async def find_collection(self, name_or_id: str) -> Collection:
        """A collection by its id or its name; an id wins.

        Raises:
            NotFoundError: There is none.
        """
        try:
            found = await self.collections.find_by_id(UUID(name_or_id))
        except ValueError:
            found = None
        found = found or await self.collections.find_by_name(name_or_id)
        if found is None:
            raise NotFoundError(f"Collection {name_or_id} not found")
        return found

    async def create_collection(
        self,
        name: str,
        *,
        description: str = "",
        embedding_provider: str | None = None,
        embedding_model: str | None = None,
        dimension: int | None = None,
        distance_metric: DistanceMetric = DistanceMetric.COSINE,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
    ) -> Collection:
        """Make a collection; what is not given comes from the embedding provider.

        Raises:
            InvalidInputError: A value is not usable, or the provider or its model is unknown.
            ConflictError: The name is taken.
            DimensionMismatchError: The model's vectors have another length than the one asked for.
            EmbeddingError: The model's dimension had to be tried out, and that failed.
        """
        registry = self._application.embedding_registry
        if embedding_provider is not None and embedding_provider not in registry.list_providers():
            raise InvalidInputError(
                f"embedding_provider must be one of: {', '.join(registry.list_providers())}.",
                field="embedding_provider",
            )
        provider = registry.get(embedding_provider)
        model = embedding_model or provider.default_model
        actual = provider.dimension(model)
        if actual is None:
            try:
                actual = len(await provider.embed_query("dimension", model=model))
            except UnknownModelError as exc:
                raise InvalidInputError(exc.message, field="embedding_model") from exc
        if dimension is not None and dimension != actual:
            raise DimensionMismatchError(expected=dimension, actual=actual, what=f"model {model}")
        return await self.collections.create(
            name,
            description=description,
            embedding_provider=provider.provider_name(),
            embedding_model=model,
            dimension=actual,
            distance_metric=distance_metric,
            query_prefix=provider.query_prefix if query_prefix is None else query_prefix,
            document_prefix=provider.document_prefix if document_prefix is None else document_prefix,
        )
