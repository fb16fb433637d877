"""What one tenant can do: repositories, search, answers and ingestion, each bound to the tenant."""

from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.bootstrap.tenant_caches import TenantCaches
from vectorforge.bootstrap.tenant_limits import LimitServices
from vectorforge.bootstrap.tenant_repositories import TenantRepositories
from vectorforge.db.key_check import due_check
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import DimensionMismatchError, NotFoundError
from vectorforge.pipeline.answer_cache.lookup import QueryLookupService
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import ConversationMemory
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.query import QueryPreprocessor
from vectorforge.pipeline.query_log import QueryLogSink
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.variants import Variant
from vectorforge.retriever.base import BaseRetriever
from vectorforge.retriever.hybrid import HybridRetriever
from vectorforge.types import Collection, DistanceMetric, SearchSettings, VectorIndex
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.pgvector import PgVectorStore

if TYPE_CHECKING:  # what no question needs is imported when it is asked for
    from vectorforge.bootstrap.application import Application
    from vectorforge.bootstrap.model_changes import ModelChanges
    from vectorforge.bootstrap.profile_services import ProfileServices
    from vectorforge.erasure.eraser import Eraser
    from vectorforge.ingestion.pipeline import IngestionPipeline

_TABLE_LOG_TIMEOUT_S = 2.0


class TenantServices(TenantRepositories):
    """What one tenant can do; each part is bound to the tenant and reaches no other's rows."""

    def __init__(self, application: "Application", tenant_id: str, request_id: UUID | None = None) -> None:
        super().__init__(application.database, tenant_id, application.config)
        self._application = application
        self._request_id = request_id

    @cached_property
    def query_log_sink(self) -> QueryLogSink:
        """Where the tenant's queries are logged: the queue, or the table itself."""
        queue = self._application.query_log_queue
        return self.query_logs if queue is None else queue.for_tenant(self.tenant_id)

    @cached_property
    def embeddings(self) -> EmbeddingProviderRegistry:
        """Embedding providers, with the tenant's share of their cache."""
        return self._application.embedding_registry.for_tenant(self.tenant_id)

    @cached_property
    def vector_store(self) -> VectorStore:
        """Chunks and vectors of the tenant."""
        make = self._application.vector_store
        return PgVectorStore(self._db) if make is None else make(self.tenant_id)

    @cached_property
    def _preprocessor(self) -> QueryPreprocessor:
        return QueryPreprocessor(self._application.config.query.max_query_length)

    @cached_property
    def retriever(self) -> BaseRetriever:
        """Finds passages of the tenant, and has them reranked where a reranker is set."""
        reranker, settings = self._application.reranker, self._application.config.rerank
        if reranker is None:
            return self._search
        from vectorforge.retriever.rerank import RerankingRetriever

        return RerankingRetriever(
            self._search,
            reranker,
            candidates=settings.rerank_candidates,
            max_top_k=self._application.config.query.max_top_k,
            timeout_s=settings.rerank_timeout_s,
        )

    @cached_property
    def _search(self) -> HybridRetriever:
        return HybridRetriever(
            self.embeddings,
            self.vector_store,
            self.collections,
            preprocess=self._preprocessor.preprocess,
            metrics=self._application.metrics,
            max_top_k=self._application.config.query.max_top_k,
            query_vectors=self.caches.query_vectors,
            per_document=self._application.config.query.max_passages_per_document,
        )

    @cached_property
    def caches(self) -> TenantCaches:
        """What is kept of the tenant's questions."""
        return TenantCaches(self._application, self._db, self.limits.admission)

    @cached_property
    def limits(self) -> LimitServices:
        """The tenant's limits, and how these services' request gets past them."""
        return LimitServices(self._application, self._db, self._request_id)

    @cached_property
    def _lookup(self) -> QueryLookupService:
        return QueryLookupService(
            self.caches.queries,
            self,
            self.caches.answer_cache,
            admission=self.limits.admission,
            claim=lambda run: self.limits.claim(run.query, run.config, is_stream=not run.buffered),
            note_log_text=self.caches.log_texts.note,
        )

    @cached_property
    def query_service(self) -> QueryService:
        """Answers questions of the tenant."""
        return self._query_service(degraded=self._application.config.query.degraded_answers)

    @cached_property
    def strict_query_service(self) -> QueryService:
        """As ``query_service``, but raises where that one would give less than the full answer."""
        return self._query_service(degraded=False)

    def _query_service(self, *, degraded: bool) -> QueryService:
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
            prices=PriceList(settings.llm.model_prices),
            memory=ConversationMemory(self.conversations, settings.query.history_max_tokens),
            ladder=DegradationLadder(
                self._application.llm_registry,
                quoter=self._application.quoter,
                enabled=degraded,
                metrics=self._application.metrics,
            ),
            lookup=self._lookup,
            answer_cache=self.caches.answer_cache,
            log_table=None if through_queue else self.query_logs,
            end_writes=self.caches.end_writes,
            log_texts=self.caches.log_texts,
        )

    @cached_property
    def ingestion(self) -> "IngestionPipeline":
        """Turns documents into chunks of the tenant."""
        from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
        from vectorforge.ingestion.pipeline import IngestionPipeline

        return IngestionPipeline(
            self.vector_store,
            self.documents,
            self.embeddings,
            self._application.config.ingestion,
            models=EmbeddingModelRepository(self._db),
            charge=self.limits.charge,
        )

    @cached_property
    def model_changes(self) -> "ModelChanges":
        """Changes of the embedding models of the tenant's collections."""
        from vectorforge.bootstrap.model_changes import ModelChanges

        return ModelChanges(self._db, self._application)

    @cached_property
    def eraser(self) -> "Eraser":
        """Erases what belongs to the tenant; uploaded files are left to the process that ingests them."""
        from vectorforge.bootstrap.erasing import eraser_of

        application = self._application
        return eraser_of(application, self.tenant_id, leaves_files=application.ingestion_queue is not None)

    def choose_variant(self, name: str | None, conversation_id: UUID | None = None) -> Variant | None:
        """The variant of a request of this tenant; see ``VariantCatalogue.choose``.

        Raises:
            InvalidInputError: ``name`` is given, and there is no such variant.
        """
        variants = self._application.variants
        return variants.choose(name, tenant_id=self.tenant_id, conversation_id=conversation_id)

    @cached_property
    def profiles(self) -> "ProfileServices":
        """The tenant's profiles."""
        from vectorforge.bootstrap.profile_services import ProfileServices

        return ProfileServices(self, self._application)

    async def confirm_credential(self) -> None:
        """Ask whether the running request's key is still good, if no transaction has: for who needs none.

        Raises:
            AuthenticationError: It is revoked or over.
        """
        if due_check() is not None:
            await self._db.run([], repeatable=True)

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
        by_profile: bool = False,
        search: SearchSettings | None = None,
        vector_index: VectorIndex = VectorIndex.FULL,
    ) -> Collection:
        """Make a collection; what is not given comes from the embedding provider.

        Raises:
            InvalidInputError: A value is not usable, or the provider or its model is unknown.
            ConflictError: The name is taken.
            DimensionMismatchError: The model's vectors have another length than the one asked for.
            EmbeddingError: The model's dimension had to be tried out, and that failed.
        """
        from vectorforge.bootstrap.model_changes import chosen_model

        provider, model, actual = await chosen_model(self.embeddings, embedding_provider, embedding_model)
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
            by_profile=by_profile,
            search=search or SearchSettings(),
            vector_index=vector_index,
        )
