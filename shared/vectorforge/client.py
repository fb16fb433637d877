"""Synchronous client of the library: search and query from scripts, notebooks and threads.

Everything runs on one event loop in its own thread. A call blocks the calling thread; in a coroutine use the
asynchronous services of ``bootstrap``, or ``asyncio.to_thread``.
"""

import atexit
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Self

from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import VectorForgeConfig
from vectorforge.db.repositories.collection_repo import MAX_DIMENSION
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.pipeline.presets import RAG_QUERY, validated_options
from vectorforge.pipeline.types import QueryResult
from vectorforge.threads import LoopThread
from vectorforge.types import Collection, DistanceMetric, RetrievedChunk, SearchMode, location_text
from vectorforge.vectorstore.validation import MAX_TOP_K, checked_integer


class RAGService:
    """Search and query one collection of one tenant. Thread-safe.

    Args:
        application: Closed application; opened here, and closed by ``close``.
        tenant_id: Default: ``config.server.local_tenant``, the tenant of ``vectorforge up``.
        collection: Name of the collection; default ``config.query.default_collection``.
        migrator_url: Connection string to migrate the database first; None: no migration.

    Raises:
        DatabaseUnavailableError: The database does not respond.
        MigrationError: The schema does not match this version.
    """

    def __init__(
        self,
        application: Application,
        *,
        tenant_id: str | None = None,
        collection: str | None = None,
        migrator_url: str | None = None,
    ) -> None:
        config = application.config
        self.tenant_id = tenant_id or config.server.local_tenant
        self._tenant = application.for_tenant(self.tenant_id)
        self._max_top_k = config.query.max_top_k
        self._name = config.query.default_collection if collection is None else collection
        self._thread = LoopThread(open_migrated(application, migrator_url), name="RAGService")
        self.storage = CollectionStorage(self._thread, self._tenant, self._name)
        self.embedder = CollectionEmbedder(self._thread, self._tenant, self._name)

    @property
    def is_open(self) -> bool:
        """False after ``close``, and in a forked child."""
        return self._thread.is_running

    def search_documents(
        self,
        query: str,
        limit: int = 10,
        filters: Mapping[str, Any] | None = None,
        *,
        search_mode: SearchMode | str = SearchMode.DENSE,
        mmr_lambda: float | None = None,
    ) -> list[dict[str, Any]]:
        """Return the chunks nearest to a query, best first.

        Args:
            query: The query.
            limit: Maximum number of chunks, from 1 to ``config.query.max_top_k``.
            filters: Required metadata: plain values must be equal, and all must match.
            search_mode: "dense" ranks by ``score`` (similarity of vectors), the others by relevance.
            mmr_lambda: As for ``BaseRetriever.retrieve``.

        Returns:
            ``text``, ``score`` (cosine: -1 to 1), ``document_source``, ``metadata``, ``chunk_id``,
            ``document_id``, ``title``, ``locations`` and ``location_text`` ("p. 12") of each.

        Raises:
            NotFoundError: The collection does not exist.
            InvalidInputError: An argument is invalid; ``FilterError`` for the filters.
            EmbeddingError: The query could not be embedded.
        """
        if search_mode not in list(SearchMode):
            message = "`search_mode` must be one of dense, hybrid and lexical."
            raise InvalidInputError(message, field="search_mode")
        mode = SearchMode(search_mode)
        checked_integer(limit, "limit", self._max_top_k)

        async def search() -> list[dict[str, Any]]:
            collection = await self._tenant.find_collection(self._name)
            chunks = await self._tenant.retriever.retrieve(
                query, collection.id, limit, filters, None, search_mode=mode, mmr_lambda=mmr_lambda
            )
            return [_result(chunk) for chunk in chunks]

        return self._thread.run(search)

    def query(
        self,
        query: str,
        k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        *,
        variant: str | None = None,
        **options: Any,
    ) -> QueryResult:
        """Answer a query with the defaults and the prompt of ``/v1/rag/query``.

        Args:
            query: The query.
            k: Chunks to retrieve, from 1 to ``config.query.max_top_k``; default: 5, or the variant's.
            filters: As for ``search_documents``.
            variant: Name of a variant; default: from the split in the settings.
            **options: Other fields of ``QueryConfig``, which override the variant. Their values may be as in
                JSON: names of modes, messages as mappings.

        Raises:
            TypeError: An option is unknown.
            InvalidInputError: An option has an invalid value.
            VectorForgeError: As ``QueryService.query``.
        """
        explicit = validated_options({**options, **({} if k is None else {"top_k": k})})
        config = RAG_QUERY.config(
            self._tenant.choose_variant(variant, explicit.get("conversation_id")), filters=filters, **explicit
        )

        async def answer() -> QueryResult:
            return await self._tenant.query_service.query(query, self._name, config)

        return self._thread.run(answer)

    def close(self) -> None:
        """Cancel running calls and close the application; safe to call twice."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CollectionStorage:
    """Vector store of the service's collection."""

    def __init__(self, thread: LoopThread, tenant: TenantServices, collection_name: str) -> None:
        self._thread = thread
        self._tenant = tenant
        self.collection_name = collection_name

    def create_collection(self, vector_size: int) -> Collection:
        """Create the collection with cosine distance and the default embedding model, of this dimension.

        Raises:
            ConflictError: The collection exists.
            DimensionMismatchError: The model has another dimension.
            InvalidInputError: The dimension is not an integer from 1 to 16,000.
        """
        checked_integer(vector_size, "vector_size", MAX_DIMENSION)
        return self._thread.run(
            lambda: self._tenant.create_collection(
                self.collection_name, dimension=vector_size, distance_metric=DistanceMetric.COSINE
            )
        )

    def search(
        self,
        query_vector: Sequence[float],
        limit: int = 10,
        filter_conditions: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the chunks nearest to a vector as ``search_documents`` does; ``limit`` is 1 to 1,000.

        Raises:
            NotFoundError: The collection does not exist.
            DimensionMismatchError: The vector has another dimension.
            InvalidInputError: An argument is invalid; ``FilterError`` for the conditions.
        """
        checked_integer(limit, "limit", MAX_TOP_K)

        async def search() -> list[dict[str, Any]]:
            collection = await self._tenant.find_collection(self.collection_name)
            chunks = await self._tenant.vector_store.search(
                query_vector=query_vector,
                top_k=limit,
                collection_id=collection.id,
                metric=collection.distance_metric,
                filters=filter_conditions,
            )
            return [_result(chunk) for chunk in chunks]

        return self._thread.run(search)


class CollectionEmbedder:
    """Embedding model of the service's collection, or the default one before it exists."""

    def __init__(self, thread: LoopThread, tenant: TenantServices, collection_name: str) -> None:
        self._thread = thread
        self._tenant = tenant
        self._name = collection_name

    @property
    def dimension(self) -> int:
        """Length of the vectors."""

        async def measure() -> int:
            provider, model, _, _ = await self._model()
            return provider.dimension(model) or len(await provider.embed_query("dimension", model=model))

        return self._thread.run(measure)

    def embed_text(self, text: str) -> list[float]:
        """Return the vector of a query with the collection's prefix.

        Raises:
            InvalidInputError: It is not text.
            EmbeddingError: It could not be embedded.
        """
        _check_text(text, "text")

        async def embed() -> list[float]:
            provider, model, query_prefix, _ = await self._model()
            return await provider.embed_query(query_prefix + text, model=model)

        return self._thread.run(embed)

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of chunks, in order, with the collection's prefix; errors as ``embed_text``."""
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise InvalidInputError("`texts` must be a list of texts.", field="texts")
        texts = list(texts)
        for place, text in enumerate(texts):
            _check_text(text, f"texts.{place}")

        async def embed() -> list[list[float]]:
            provider, model, _, document_prefix = await self._model()
            return await provider.embed_documents([document_prefix + text for text in texts], model=model)

        return self._thread.run(embed)

    async def _model(self) -> tuple[EmbeddingProvider, str, str, str]:
        try:
            collection = await self._tenant.find_collection(self._name)
        except NotFoundError:
            provider = self._tenant.embeddings.get_default()
            query_prefix, document_prefix, _ = provider.traits()
            return provider, provider.default_model, query_prefix, document_prefix
        provider = self._tenant.embeddings.get(collection.embedding_provider)
        return provider, collection.embedding_model, collection.query_prefix, collection.document_prefix


@asynccontextmanager
async def open_migrated(application: Application, migrator_url: str | None) -> AsyncIterator[None]:
    """Migrate the database with this connection string, if any, and open the application."""
    if migrator_url is not None:
        from vectorforge.db.schema.migrate import migrate

        await migrate(migrator_url)
    async with application:
        yield


_service: RAGService | None = None
_resources = ExitStack()
_lock = threading.Lock()


def get_rag_service() -> RAGService:
    """Return the service of this process, created from ``VECTORFORGE_*`` by the first call.

    Without a database URL it uses the embedded PostgreSQL. After ``close`` the next call creates another.

    Raises:
        ConfigurationError: A setting is invalid.
        DatabaseUnavailableError: The database does not respond.
    """
    global _service
    with _lock:
        if _service is None or not _service.is_open:
            from vectorforge.local.laptop import local_setup

            _resources.close()  # of the closed service
            with ExitStack() as stack:
                setup = stack.enter_context(local_setup(VectorForgeConfig.from_environment(), create=True))
                _service = RAGService(
                    Application.build(setup.config),
                    migrator_url=setup.migrator_url if setup.embedded else None,
                )
                stack.callback(_service.close)
                _resources.push(stack.pop_all())
            atexit.register(_resources.close)
        return _service


def _check_text(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"`{field}` must be text.", field=field)


def _result(result: RetrievedChunk) -> dict[str, Any]:
    return {
        "text": result.chunk.text,
        "score": result.score,
        "document_source": result.document_source,
        "title": result.document_title,
        "metadata": dict(result.chunk.metadata),
        "chunk_id": str(result.chunk.id),
        "document_id": str(result.chunk.document_id),
        "locations": list(result.chunk.locations),
        "location_text": location_text(result.chunk.locations),
    }
