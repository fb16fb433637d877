"""Step 2 of a query: nearest vectors."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol
from uuid import UUID

from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import FRESH_VECTORS
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import DimensionMismatchError, InvalidInputError, NotFoundError, VectorForgeError
from vectorforge.retriever.base import BaseRetriever, Passages, with_current_model
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, instrument
from vectorforge.types import Collection, DistanceMetric, Vector
from vectorforge.vectorstore.base import NearestChunks, VectorStore

logger = logging.getLogger(__name__)

_KEEP_TIMEOUT_S = 1.0
_TAGS = {"retriever_type": "dense"}


class CollectionFinder(Protocol):
    """What the retriever asks of ``CollectionRepository``."""

    async def find_by_id(self, collection_id: UUID) -> Collection | None:
        """The collection, or None."""
        ...


class QueryVectors(Protocol):
    """Where vectors of questions are kept for all processes; ``QueryVectorRepository``."""

    async def find(self, collection_id: UUID, query: str) -> tuple[Collection | None, Vector | None]:
        """The collection, and the question's vector in its space; each None when it is not there."""
        ...

    async def keep(self, collection: Collection, query: str, vector: Vector) -> None:
        """Keep the vector that the collection's own model made of the question."""
        ...


class DenseRetriever(BaseRetriever):
    """Embeds the question with the collection's model and takes the nearest passages.

    Args:
        embedding_registry: Where the collection's provider is found by name.
        vector_store: Bound to one tenant.
        collection_repo: Bound to the same tenant.
        preprocess: Cleans the question; ``QueryPreprocessor().preprocess``. It sits a room higher, so it
            is handed in.
        metrics: Where ``retriever.*`` goes.
        max_top_k: Largest ``top_k`` accepted.
        query_vectors: Bound to the same tenant; None: every process embeds for itself.
    """

    def __init__(
        self,
        embedding_registry: EmbeddingProviderRegistry,
        vector_store: VectorStore,
        collection_repo: CollectionFinder,
        *,
        preprocess: Callable[[str], str],
        metrics: MetricsCollector | None = None,
        max_top_k: int = 100,
        query_vectors: QueryVectors | None = None,
    ) -> None:
        self._embedding_registry = embedding_registry
        self._vector_store = vector_store
        self._collection_repo = collection_repo
        self._preprocess = preprocess
        self._max_top_k = max_top_k
        self._query_vectors = query_vectors
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()

    @instrument("retriever.search", lambda _: _TAGS)
    async def retrieve(
        self,
        query: str,
        collection_id: UUID,
        top_k: int = 10,
        filters: Mapping[str, Any] | None = None,
        min_score: float | None = 0.0,
        embedding_provider: str | None = None,
        *,
        profile_id: int | None = None,
        deadline: Deadline | None = None,
    ) -> Passages:
        """See ``BaseRetriever.retrieve``."""
        if not 1 <= top_k <= self._max_top_k:
            raise InvalidInputError(
                f"top_k must be between 1 and {self._max_top_k}, not {top_k}.", field="top_k"
            )
        query = self._preprocess(query)

        async def search() -> tuple[NearestChunks, DistanceMetric]:
            collection, vector = await self._find(collection_id, query, embedding_provider)
            if collection is None:
                raise NotFoundError(f"Collection {collection_id} not found")
            metric = self._resolve_metric(collection)
            meanwhile: AbstractAsyncContextManager[None] = nullcontext()
            if vector is None:
                vector = await self._embed_query(query, collection, embedding_provider, deadline)
                meanwhile = self._keeping(collection, query, vector, embedding_provider)
            async with meanwhile:
                found = await self._vector_store.search(
                    query_vector=vector,
                    top_k=top_k,
                    filters=filters,
                    metric=metric,
                    collection_id=collection_id,
                    profile_id=profile_id,
                    space=collection.space or None,
                )
            return found, metric

        found, metric = await with_current_model(search)
        results = Passages(found, min_score)
        for chunk in found[len(results) :]:  # the worst are the last
            # exact text: D-018
            logger.debug(f"Filtered out low-similarity chunk: {chunk.score:.3f} < {min_score}")
        self.metrics.observe("retriever.results_returned", len(results), _TAGS)
        if not results:
            self.metrics.increment("retriever.empty_results", tags=_TAGS)
        # exact text: A-019
        logger.info(f"Retrieved {len(results)} chunks for query (top_k={top_k}, metric={metric.value})")
        return results

    async def _find(
        self, collection_id: UUID, query: str, embedding_provider: str | None
    ) -> tuple[Collection | None, Vector | None]:
        """The collection, and the question's vector if its own model has made it before."""
        if self._query_vectors is None or embedding_provider is not None or FRESH_VECTORS.get():
            return await self._collection_repo.find_by_id(collection_id), None
        collection, vector = await self._query_vectors.find(collection_id, query)
        if collection is None or vector is None or len(vector) != collection.dimension:
            return collection, None
        provider, model = collection.embedding_provider, collection.embedding_model
        self.metrics.increment("embedding.cache_hits", tags={"provider": provider, "model": model})
        return collection, vector

    @asynccontextmanager
    async def _keeping(
        self, collection: Collection, query: str, vector: Vector, embedding_provider: str | None
    ) -> AsyncIterator[None]:
        """Keep the question's vector while the block searches; that it fails is not the search's failure."""
        vectors = self._query_vectors
        worth_it = self._embedding_registry.get(collection.embedding_provider).is_remote
        if vectors is None or embedding_provider is not None or not worth_it:
            yield
            return

        async def keep() -> None:
            try:
                async with asyncio.timeout(_KEEP_TIMEOUT_S):
                    await vectors.keep(collection, query, vector)
            except (VectorForgeError, TimeoutError) as exc:
                logger.warning("The question's vector was not kept: %s", type(exc).__name__)

        task = asyncio.create_task(keep())
        try:
            yield
        except BaseException:
            task.cancel()
            raise
        finally:
            await asyncio.gather(task, return_exceptions=True)

    async def _embed_query(
        self,
        query: str,
        collection: Collection,
        embedding_provider: str | None = None,
        deadline: Deadline | None = None,
    ) -> Vector:
        config = collection.embedding_config
        if (
            embedding_provider is not None
            and embedding_provider not in self._embedding_registry.list_providers()
        ):
            raise InvalidInputError(
                f"embedding_provider must be one of: {', '.join(self._embedding_registry.list_providers())}.",
                field="embedding_provider",
            )
        provider_name = embedding_provider or config["default_provider"]
        provider = self._embedding_registry.get(provider_name)
        # Another provider does not know the collection's model by name; it uses its own.
        model = config["model"] if provider_name == config["default_provider"] else None
        vector = await provider.embed_query(collection.query_prefix + query, model=model, deadline=deadline)
        if len(vector) != collection.dimension:
            raise DimensionMismatchError(
                expected=collection.dimension, actual=len(vector), what="query's vector"
            )
        return vector

    def _resolve_metric(self, collection: Collection) -> DistanceMetric:
        return DistanceMetric(collection.embedding_config.get("metric", "cosine"))
