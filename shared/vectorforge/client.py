"""The library's synchronous door: search and ask without ``async``, from scripts, notebooks and threads.

Everything runs on one event loop in a thread of its own. A call blocks the thread it is made in; within a
coroutine use the asynchronous services of ``bootstrap``, or ``asyncio.to_thread``.
"""

import atexit
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from vectorforge.background import LoopThread
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import VectorForgeConfig
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.pipeline.presets import RAG_QUERY
from vectorforge.pipeline.types import QueryResult
from vectorforge.types import Collection, DistanceMetric, RetrievedChunk, SearchMode


class RAGService:
    """Searches and asks one collection of one tenant. May be used from several threads at once.

    Args:
        application: Not open yet; opened here, and closed by ``close``.
        tenant_id: Default: ``config.server.local_tenant``, the tenant of ``vectorforge up``.
        collection: Name of the collection; default ``config.query.default_collection``.
        migrator_url: The database is migrated by this first; None: it is up to date.

    Raises:
        DatabaseUnavailableError: The database does not answer.
        MigrationError: The schema is not the one this version needs.
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
        self._name = collection or config.query.default_collection
        self._thread = LoopThread(open_migrated(application, migrator_url), name="RAGService")
        self.storage = CollectionStorage(self._thread, self._tenant, self._name)
        self.embedder = CollectionEmbedder(self._thread, self._tenant, self._name)

    @property
    def is_open(self) -> bool:
        """Whether it can be used: until ``close``, and not in a forked child."""
        return self._thread.is_running

    def search_documents(
        self,
        query: str,
        limit: int = 10,
        filters: Mapping[str, Any] | None = None,
        *,
        search_mode: SearchMode | str = SearchMode.DENSE,
    ) -> list[dict[str, Any]]:
        """The passages nearest to a question, best first.

        Args:
            query: The question.
            limit: Passages at most, from 1 to ``config.query.max_top_k``.
            filters: Metadata a passage must have: plain values are equal, all must hold.
            search_mode: "dense" orders by ``score``, the similarity of vectors; "hybrid" and "lexical" by
                relevance, which counts the query's words too.

        Returns:
            ``text``, ``score`` (of a cosine collection -1 to 1, not clamped), ``document_source``,
            ``metadata``, ``chunk_id``, ``document_id`` and ``title`` of each.

        Raises:
            NotFoundError: The collection does not exist.
            InvalidInputError: ``query``, ``limit`` or ``search_mode`` is not usable; ``FilterError`` for the
                filters.
            EmbeddingError: The question could not be embedded.
        """
        if search_mode not in list(SearchMode):
            raise InvalidInputError(
                "`search_mode` must be one of dense, hybrid and lexical.", field="search_mode"
            )
        mode = SearchMode(search_mode)

        async def search() -> list[dict[str, Any]]:
            collection = await self._tenant.find_collection(self._name)
            found = await self._tenant.retriever.retrieve(
                query, collection.id, limit, filters, None, search_mode=mode
            )
            return [_result(chunk) for chunk in found]

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
        """Answer a question as ``/v1/rag/query`` does: same defaults, same prompt.

        Args:
            query: The question.
            k: Passages to retrieve, from 1 to ``config.query.max_top_k``; None takes 5, or the variant's.
            filters: As for ``search_documents``.
            variant: Name of a variant; None leaves it to the split in the settings.
            **options: Other fields of ``QueryConfig``, e.g. ``temperature`` or ``max_tokens``; they win over
                the variant.

        Raises:
            InvalidInputError: There is no such variant.
            VectorForgeError: As ``QueryService.query``.
        """
        explicit = {**options, **({} if k is None else {"top_k": k})}
        config = RAG_QUERY.config(
            self._tenant.choose_variant(variant, options.get("conversation_id")), filters=filters, **explicit
        )

        async def ask() -> QueryResult:
            return await self._tenant.query_service.query(query, self._name, config)

        return self._thread.run(ask)

    def close(self) -> None:
        """End calls under way and close the application; safe to call twice."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CollectionStorage:
    """The service's collection as a store of vectors."""

    def __init__(self, thread: LoopThread, tenant: TenantServices, collection_name: str) -> None:
        self._thread = thread
        self._tenant = tenant
        self.collection_name = collection_name

    def create_collection(self, vector_size: int) -> Collection:
        """Make the collection, with cosine distance and the default embedding model.

        Args:
            vector_size: Must be the model's dimension, e.g. 768 for Nomic Embed v1.5.

        Raises:
            ConflictError: It exists.
            DimensionMismatchError: The model has another dimension.
        """
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
        """The passages nearest to a vector, as ``RAGService.search_documents`` returns them.

        Args:
            query_vector: Of the collection's dimension, e.g. from ``embedder.embed_text``.
            limit: Passages at most, from 1 to 1,000.
            filter_conditions: As ``filters`` there.

        Raises:
            NotFoundError: The collection does not exist.
            DimensionMismatchError: The vector has another dimension.
            InvalidInputError: ``limit`` or the vector is not usable; ``FilterError`` for the conditions.
        """

        async def search() -> list[dict[str, Any]]:
            collection = await self._tenant.find_collection(self.collection_name)
            found = await self._tenant.vector_store.search(
                query_vector=query_vector,
                top_k=limit,
                collection_id=collection.id,
                metric=collection.distance_metric,
                filters=filter_conditions,
            )
            return [_result(chunk) for chunk in found]

        return self._thread.run(search)


class CollectionEmbedder:
    """The embedding model of the service's collection; before that exists, the default one."""

    def __init__(self, thread: LoopThread, tenant: TenantServices, collection_name: str) -> None:
        self._thread = thread
        self._registry = tenant.embeddings
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
        """The vector of a question, with the collection's prefix before it; may raise ``EmbeddingError``."""

        async def embed() -> list[float]:
            provider, model, query_prefix, _ = await self._model()
            return await provider.embed_query(query_prefix + text, model=model)

        return self._thread.run(embed)

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of passages, in order, each with the collection's prefix; errors as ``embed_text``."""

        async def embed() -> list[list[float]]:
            provider, model, _, document_prefix = await self._model()
            return await provider.embed_documents([document_prefix + text for text in texts], model=model)

        return self._thread.run(embed)

    async def _model(self) -> tuple[EmbeddingProvider, str, str, str]:
        """Provider, model, prefix of questions, prefix of passages."""
        try:
            made = await self._tenant.find_collection(self._name)
        except NotFoundError:
            provider = self._registry.get_default()
            return provider, provider.default_model, provider.query_prefix, provider.document_prefix
        provider = self._registry.get(made.embedding_provider)
        return provider, made.embedding_model, made.query_prefix, made.document_prefix


@asynccontextmanager
async def open_migrated(application: Application, migrator_url: str | None) -> AsyncIterator[None]:
    """Migrate the database by this connection string, if there is one, and open the application.

    Raises:
        DatabaseUnavailableError: The database does not answer.
    """
    if migrator_url is not None:
        from vectorforge.db.schema.migrate import migrate

        await migrate(migrator_url)
    async with application:
        yield


_service: RAGService | None = None
_resources = ExitStack()
_making = threading.Lock()


def get_rag_service() -> RAGService:
    """The service of this process, made from ``VECTORFORGE_*`` by the first call and shared by all.

    Without a database URL it uses the embedded PostgreSQL, as ``vectorforge up`` and ``RAGEngine`` do. It is
    closed when the process ends; closed earlier, the next call makes another one.

    Raises:
        ConfigurationError: A setting is not usable.
        DatabaseUnavailableError: The database does not answer.
    """
    global _service
    with _making:
        if _service is None or not _service.is_open:
            from vectorforge.local.laptop import local_setup

            _resources.close()  # of one that was closed
            with ExitStack() as stack:
                setup = stack.enter_context(local_setup(VectorForgeConfig.from_environment()))
                _service = RAGService(
                    Application.build(setup.config),
                    migrator_url=setup.migrator_url if setup.embedded else None,
                )
                stack.callback(_service.close)
                _resources.push(stack.pop_all())
            atexit.register(_resources.close)
        return _service


def _result(found: RetrievedChunk) -> dict[str, Any]:
    return {
        "text": found.chunk.text,
        "score": found.score,
        "document_source": found.document_source,
        "title": found.document_title,
        "metadata": dict(found.chunk.metadata),
        "chunk_id": str(found.chunk.id),
        "document_id": str(found.chunk.document_id),
    }
