"""Services of one tenant: repositories, search, answers and ingestion, bound to the tenant's rows."""

from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.bootstrap.shared import Shared
from vectorforge.bootstrap.tenant_parts import CollectionCatalogue, LimitServices, TenantCaches, context_model
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import due_check
from vectorforge.pipeline.answer_cache.lookup import QueryLookupService
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import ConversationMemory, QueryRewriter
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.query_log import QueryLogSink
from vectorforge.pipeline.rag import QueryService
from vectorforge.retriever.base import BaseRetriever, QueryPreprocessor
from vectorforge.retriever.hybrid import HybridRetriever
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.pgvector import PgVectorStore

if TYPE_CHECKING:  # imported on first use: no query needs them
    from vectorforge.bootstrap.profiles import ProfileServices
    from vectorforge.db.repositories.answer_stream_repo import AnswerStreamRepository
    from vectorforge.db.repositories.api_key_repo import ApiKeyRepository
    from vectorforge.db.repositories.collection_listing import CollectionListing
    from vectorforge.db.repositories.feedback_repo import FeedbackRepository
    from vectorforge.db.repositories.file_repo import FileRepository
    from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository
    from vectorforge.db.repositories.job_repo import JobRepository
    from vectorforge.db.repositories.original_repo import OriginalRepository
    from vectorforge.db.repositories.statistics_repo import StatisticsRepository
    from vectorforge.embedding_switch.service import ModelChanges
    from vectorforge.erasure.eraser import Eraser
    from vectorforge.ingestion.estimate import IngestionEstimator
    from vectorforge.ingestion.pipeline import IngestionPipeline
    from vectorforge.pipeline.replay import QueryReplayer

_TABLE_LOG_TIMEOUT_S = 2.0


class TenantServices:
    """Services of one tenant, most of them made on first use.

    Attributes:
        embeddings: Embedding providers, with the tenant's share of their cache.
        find_collection: See ``CollectionCatalogue``, as for the other two methods of collections.
        choose_variant: See ``VariantCatalogue.choose``.

    Args:
        request_id: Id of the request that is subject to the tenant's limits; None if there is none.
        announce_switch: Called when there is work for an embedding model switch.

    Raises:
        InvalidInputError: The tenant id is empty, too long, or not text that PostgreSQL can hold.
    """

    def __init__(
        self,
        shared: Shared,
        tenant_id: str,
        request_id: UUID | None = None,
        announce_switch: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._shared = shared
        self._config = config = shared.config
        self._db = db = shared.database.for_tenant(tenant_id)
        self._announce_switch = announce_switch
        self.tenant_id = tenant_id
        self.limits = LimitServices(shared, db, request_id)
        self.caches = TenantCaches(shared, db, self.limits.admission)
        self.collections = CollectionRepository(db, max_collections=config.ingestion.max_collections)
        self.documents = DocumentRepository(db)
        self.query_logs = QueryLogRepository(db)
        self.conversations = ConversationRepository(
            db,
            max_conversations=config.query.max_conversations,
            max_messages=config.query.max_conversation_messages,
            max_per_key=config.query.max_conversations_per_key,
        )
        self.embeddings = shared.embedding_registry.for_tenant(tenant_id)
        self._catalogue = CollectionCatalogue(self.collections, self.embeddings)
        self.find_collection = self._catalogue.find_collection
        self.with_collection_id = self._catalogue.with_collection_id
        self.create_collection = self._catalogue.create_collection
        self.find_or_create_collection = self._catalogue.find_or_create_collection
        self.choose_variant = partial(shared.variants.choose, tenant_id=tenant_id)
        self._preprocessor = QueryPreprocessor(config.query.max_query_length)

    @cached_property
    def listing(self) -> "CollectionListing":
        """List of the tenant's collections."""
        from vectorforge.db.repositories.collection_listing import CollectionListing

        return CollectionListing(self._db)

    @cached_property
    def files(self) -> "FileRepository":
        """Files of the tenant: uploaded ones, and documents."""
        from vectorforge.db.repositories.file_repo import FileRepository

        return FileRepository(self._db)

    @cached_property
    def jobs(self) -> "JobRepository":
        """Ingestion jobs of the tenant."""
        from vectorforge.db.repositories.job_repo import JobRepository

        return JobRepository(self._db)

    @cached_property
    def answer_streams(self) -> "AnswerStreamRepository":
        """Streamed answers that a client can resume."""
        from vectorforge.db.repositories.answer_stream_repo import AnswerStreamRepository

        retention_s = self._config.streams.stream_buffer_s
        longest_s = self._config.query.query_timeout_s
        return AnswerStreamRepository(self._db, retention_s=retention_s, longest_s=longest_s)

    @cached_property
    def statistics(self) -> "StatisticsRepository":
        """Statistics of the tenant's query log."""
        from vectorforge.db.repositories.statistics_repo import StatisticsRepository

        return StatisticsRepository(self._db)

    @cached_property
    def feedback(self) -> "FeedbackRepository":
        """Ratings of the tenant's answers."""
        from vectorforge.db.repositories.feedback_repo import FeedbackRepository

        return FeedbackRepository(self._db)

    @cached_property
    def replayer(self) -> "QueryReplayer":
        """Replay of the tenant's logged queries."""
        from vectorforge.pipeline.replay import QueryReplayer

        registry = self._shared.llm_registry
        return QueryReplayer(self.documents, self.conversations, registry, self.choose_variant)

    @cached_property
    def api_keys(self) -> "ApiKeyRepository":
        """API keys of the tenant."""
        from vectorforge.db.repositories.api_key_repo import ApiKeyRepository

        return ApiKeyRepository(self._db)

    @cached_property
    def idempotent_answers(self) -> "IdempotentAnswerRepository":
        """Answers stored under an ``Idempotency-Key``."""
        from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository

        streams = self._config.streams
        return IdempotentAnswerRepository(
            self._db,
            retention_s=streams.idempotency_kept_s,
            longest_s=self._config.query.query_timeout_s,
            max_keys=streams.idempotency_max_keys,
            max_bytes=streams.idempotency_max_bytes,
        )

    @cached_property
    def query_log_sink(self) -> QueryLogSink:
        """Sink of the tenant's query log: the queue, or the table itself."""
        queue = self._shared.aws.query_log_queue
        return self.query_logs if queue is None else queue.for_tenant(self.tenant_id)

    @cached_property
    def vector_store(self) -> VectorStore:
        """Chunks and vectors of the tenant."""
        make = self._shared.vector_store
        return make(self.tenant_id) if make else PgVectorStore(self._db, reader=self._shared.reader)

    @cached_property
    def retriever(self) -> BaseRetriever:
        """Search in the tenant's chunks, reranked if a reranker is set."""
        query, rerank = self._config.query, self._config.rerank
        search = HybridRetriever(
            self.embeddings,
            self.vector_store,
            self.collections,
            preprocess=self._preprocessor.preprocess,
            metrics=self._shared.metrics,
            max_top_k=query.max_top_k,
            query_vectors=self.caches.query_vectors,
            per_document=query.max_passages_per_document,
        )
        reranker = self._shared.reranker
        if reranker is None:
            return search
        from vectorforge.retriever.rerank import RerankingRetriever

        return RerankingRetriever(
            search,
            reranker,
            candidates=rerank.rerank_candidates,
            max_top_k=query.max_top_k,
            timeout_s=rerank.timeout_s,
        )

    @cached_property
    def _lookup(self) -> QueryLookupService:
        return QueryLookupService(
            self.caches.queries,
            self.find_collection,
            self.caches.answer_cache,
            admission=self.limits.admission,
            settings=self._config,
            note_log_text=self.caches.log_texts.note,
        )

    @cached_property
    def query_service(self) -> QueryService:
        """Answers to the tenant's queries."""
        return self._query_service(degraded=self._config.query.degraded_answers)

    @cached_property
    def strict_query_service(self) -> QueryService:
        """Like ``query_service``, but raises instead of degrading an answer."""
        return self._query_service(degraded=False)

    def _query_service(self, *, degraded: bool) -> QueryService:
        shared, config = self._shared, self._config
        through_queue, export = shared.aws.query_log_queue is not None, shared.trace_export
        return QueryService(
            self.retriever,
            ContextBuilder(),
            shared.llm_registry,
            self.query_log_sink,
            preprocessor=self._preprocessor,
            metrics=shared.metrics,
            tracer=shared.tracer,
            timeout_s=config.query.query_timeout_s,
            log_timeout_s=config.aws.query_log_timeout_s if through_queue else _TABLE_LOG_TIMEOUT_S,
            prices=PriceList(config.llm.model_prices),
            memory=ConversationMemory(self.conversations, config.query.history_max_tokens),
            rewriter=QueryRewriter(shared.llm_registry, timeout_s=config.query.rewrite_timeout_s),
            ladder=DegradationLadder(
                shared.llm_registry, quoter=shared.quoter, enabled=degraded, metrics=shared.metrics
            ),
            lookup=self._lookup,
            answer_cache=self.caches.answer_cache,
            log_table=None if through_queue else self.query_logs,
            end_writes=self.caches.end_writes,
            log_texts=self.caches.log_texts,
            export_trace=partial(export.offer, self.tenant_id) if export is not None else None,
        )

    @cached_property
    def originals(self) -> "OriginalRepository":
        """Files of the tenant's documents."""
        from vectorforge.db.repositories.original_repo import OriginalRepository

        return OriginalRepository(self._db)

    @cached_property
    def ingestion(self) -> "IngestionPipeline":
        """Ingestion of the tenant's documents."""
        from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
        from vectorforge.ingestion.originals import OriginalKeeper
        from vectorforge.ingestion.pipeline import IngestionPipeline

        return IngestionPipeline(
            self.vector_store,
            self.documents,
            self.embeddings,
            self._config.ingestion,
            models=EmbeddingModelRepository(self._db),
            charge=self.limits.charge,
            originals=OriginalKeeper(self.originals, self._shared.aws.originals_bucket),
            context_model=context_model(self._shared, self.limits),
        )

    @cached_property
    def ingestion_estimator(self) -> "IngestionEstimator":
        """Dry run of the ingestion of the tenant's documents."""
        from vectorforge.ingestion.estimate import IngestionEstimator

        prices = PriceList(self._config.llm.model_prices)
        return IngestionEstimator(self.ingestion, self.documents, self.embeddings, prices.estimate_cost)

    @cached_property
    def model_changes(self) -> "ModelChanges":
        """Embedding model switches of the tenant's collections."""
        from vectorforge.embedding_switch.service import ModelChanges

        prices = PriceList(self._config.llm.model_prices)
        return ModelChanges(self._db, self.embeddings, prices.estimate_cost, announce=self._announce_switch)

    @cached_property
    def eraser(self) -> "Eraser":
        """Erasure of the tenant's data; uploaded files are left to the process that ingests them."""
        return self._shared.eraser(self.tenant_id, leaves_files=self._shared.aws.ingestion_queue is not None)

    @cached_property
    def profiles(self) -> "ProfileServices":
        """Profiles of the tenant."""
        from vectorforge.bootstrap.profiles import ProfileServices

        return ProfileServices(
            self._config,
            self._catalogue,
            self.embeddings,
            self.vector_store,
            charge=self.limits.charge,
        )

    async def confirm_credential(self) -> None:
        """Recheck the running request's key if no transaction has, for requests without one.

        Raises:
            AuthenticationError: The key is revoked or expired.
        """
        if due_check() is not None:
            await self._db.run([], repeatable=True)
