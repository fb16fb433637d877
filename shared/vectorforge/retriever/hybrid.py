"""Step 2 of a query: nearest vectors, and passages with the question's words."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Protocol
from uuid import UUID

from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import FRESH_VECTORS
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    InvalidInputError,
    NotFoundError,
)
from vectorforge.retriever.base import (
    BaseRetriever,
    Passages,
    QueryLookup,
    QueryPreprocessor,
    with_current_model,
)
from vectorforge.retriever.kept_vectors import QueryVectors, store_in_background
from vectorforge.retriever.rerank import search_capped
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, instrument
from vectorforge.types import Collection, DistanceMetric, RetrievedChunk, SearchMode, Vector
from vectorforge.vectorstore.base import NearestChunks, VectorStore

logger = logging.getLogger(__name__)

_NOTHING_BESIDE = nullcontext()
_REPAIRABLE = (EmbeddingAuthenticationError, EmbeddingInputError)
"""Words in place of vectors would hide what has to be repaired."""


class CollectionFinder(Protocol):
    """What the retriever asks of ``CollectionRepository``."""

    async def find_by_id(self, collection_id: UUID) -> Collection | None:
        """The collection, or None."""
        ...


class HybridRetriever(BaseRetriever):
    """Finds the passages nearest to the question, those with its words, or the best of both.

    The mode is the one that is asked for, or else the collection's. Unless it is lexical, the question is
    embedded with the collection's model.

    Args:
        embedding_registry: Where the collection's provider is found by name.
        vector_store: Bound to one tenant.
        collection_repo: Bound to the same tenant.
        preprocess: Cleans the query; default: ``QueryPreprocessor().preprocess``.
        metrics: Where ``retriever.*`` goes.
        max_top_k: Largest ``top_k`` accepted.
        query_vectors: Bound to the same tenant; None: every process embeds for itself.
        per_document: Passages of one document at most while others match, see ``document_cap``; 0: no cap.
            Passages of a profile have none.
    """

    tags: ClassVar[Mapping[str, str]] = {"retriever_type": "hybrid"}
    """Of its metrics."""

    def __init__(
        self,
        embedding_registry: EmbeddingProviderRegistry,
        vector_store: VectorStore,
        collection_repo: CollectionFinder,
        *,
        preprocess: Callable[[str], str] | None = None,
        metrics: MetricsCollector | None = None,
        max_top_k: int = 100,
        query_vectors: QueryVectors | None = None,
        per_document: int = 0,
    ) -> None:
        self._per_document = per_document
        self._embedding_registry = embedding_registry
        self._vector_store = vector_store
        self._collection_repo = collection_repo
        self._preprocess = preprocess or QueryPreprocessor().preprocess
        self._max_top_k = max_top_k
        self._query_vectors = query_vectors
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()

    @instrument("retriever.search", lambda self: self.tags)
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
        search_mode: SearchMode | None = None,
        allow_lexical_fallback: bool = False,
        known: QueryLookup | None = None,
    ) -> Passages:
        """See ``BaseRetriever.retrieve``."""
        self._check_top_k(top_k)
        query = self._preprocess(query)
        first = [known]

        async def search() -> Passages:
            return await self._search(
                first.pop() if first else None,  # looked up anew after that
                query=query,
                collection_id=collection_id,
                top_k=top_k,
                filters=filters,
                min_score=min_score,
                embedding_provider=embedding_provider,
                profile_id=profile_id,
                deadline=deadline,
                search_mode=search_mode,
                allow_lexical_fallback=allow_lexical_fallback,
            )

        return await with_current_model(search)

    async def _search(
        self,
        known: QueryLookup | None,
        *,
        query: str,
        collection_id: UUID,
        top_k: int,
        filters: Mapping[str, Any] | None,
        min_score: float | None,
        embedding_provider: str | None,
        profile_id: int | None,
        deadline: Deadline | None,
        search_mode: SearchMode | None,
        allow_lexical_fallback: bool,
    ) -> Passages:
        """One search with the collection as it is now; ``query`` is preprocessed."""
        collection, kept = await self._find(collection_id, query, embedding_provider, known)
        mode = self._mode(collection, search_mode)
        metric = self._resolve_metric(collection)
        fresh, error = None, None
        if mode is not SearchMode.LEXICAL and kept is None:
            replaceable = allow_lexical_fallback and mode is SearchMode.HYBRID
            # so that a provider that hangs leaves time for the words, and for an answer
            limit = _half(deadline) if replaceable else deadline
            try:
                fresh = await self._embed_query(query, collection, embedding_provider, limit)
            except (EmbeddingError, ConfigurationError) as exc:
                if not replaceable or isinstance(exc, _REPAIRABLE):
                    raise
                logger.warning("Searching by words only, without a vector: %s", type(exc).__name__)
                error = exc
        vector = None if mode is SearchMode.LEXICAL else fresh or kept
        async with self._keeping(known, collection, query, fresh, embedding_provider):
            nearest = partial(
                self._nearest,
                query_vector=vector,
                query_text=None if mode is SearchMode.DENSE else query,
                dense_weight=collection.dense_weight,
                filters=filters,
                metric=metric,
                collection_id=collection_id,
                profile_id=profile_id,
                space=collection.space or None,
            )
            if self._per_document and profile_id is None:
                found = await search_capped(nearest, top_k, self._per_document)
            else:
                found = await nearest(top_k)
        if error is not None and not found:
            raise error  # who answers without passages has other means
        if vector is None and min_score:
            logger.debug("min_score does not apply to a search by words only")
        results = Passages(found, None if vector is None else min_score)
        results.search_mode = SearchMode.LEXICAL if vector is None else mode
        results.vectors_error = error
        self._report(results, found, min_score)
        # exact text: A-019
        logger.info(f"Retrieved {len(results)} chunks for query (top_k={top_k}, metric={metric.value})")
        return results

    async def _nearest(self, top_k: int, **search: Any) -> NearestChunks:
        return await self._vector_store.search(top_k=top_k, **search)

    def _mode(self, collection: Collection, asked: SearchMode | None) -> SearchMode:
        mode = collection.search_mode if asked is None else SearchMode(asked)  # of a variant, it is text
        if mode is not SearchMode.DENSE and not collection.keeps_words:
            raise InvalidInputError(
                "The collection keeps no words: it is searched by vectors only, until its own search_mode is "
                "set to hybrid or lexical.",
                field="search_mode",
            )
        return mode

    def _check_top_k(self, top_k: int) -> None:
        if not 1 <= top_k <= self._max_top_k:
            raise InvalidInputError(
                f"top_k must be between 1 and {self._max_top_k}, not {top_k}.", field="top_k"
            )

    def _report(self, results: Passages, found: Sequence[RetrievedChunk], min_score: float | None) -> None:
        if results.below_min_score:
            kept = {chunk.chunk.id for chunk in results}
            for chunk in found:
                if chunk.chunk.id not in kept:
                    # exact text: D-018
                    logger.debug(f"Filtered out low-similarity chunk: {chunk.score:.3f} < {min_score}")
        self.metrics.observe("retriever.results_returned", len(results), self.tags)
        if not results:
            self.metrics.increment("retriever.empty_results", tags=self.tags)

    async def _find(
        self, collection_id: UUID, query: str, embedding_provider: str | None, known: QueryLookup | None
    ) -> tuple[Collection, Vector | None]:
        """The collection, and the question's vector if its own model has made it before.

        Raises:
            NotFoundError: There is no such collection.
        """
        vector: Vector | None = None
        collection: Collection | None
        unwanted = self._query_vectors is None or embedding_provider is not None or FRESH_VECTORS.get()
        if known is not None and (unwanted or known.query == query):
            collection, vector = known.collection, None if unwanted else known.vector
        elif self._query_vectors is None or unwanted:
            collection = await self._collection_repo.find_by_id(collection_id)
        else:
            collection, vector = await self._query_vectors.find(collection_id, query)
        if collection is None:
            raise NotFoundError(f"Collection {collection_id} not found")
        if vector is None or len(vector) != collection.dimension:
            return collection, None
        provider, model = collection.embedding_provider, collection.embedding_model
        self.metrics.increment("embedding.cache_hits", tags={"provider": provider, "model": model})
        return collection, vector

    def _keeping(
        self,
        known: QueryLookup | None,
        collection: Collection,
        query: str,
        vector: Vector | None,
        embedding_provider: str | None,
    ) -> AbstractAsyncContextManager[None]:
        """Keep the question's new vector while the block searches; its failure is not the search's."""
        vectors = self._query_vectors
        if vector is None or vectors is None or embedding_provider is not None:
            return _NOTHING_BESIDE
        if not self._embedding_registry.get(collection.embedding_provider).is_remote:
            return _NOTHING_BESIDE  # made again as fast as it is read
        if known is None:
            return store_in_background(partial(vectors.keep, collection, query, vector))
        known.made = (collection, query, vector)
        return _NOTHING_BESIDE

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
        vector = await provider.embed_query_text(
            collection.query_prefix + query, model=model, deadline=deadline
        )
        if len(vector) != collection.dimension:
            raise DimensionMismatchError(
                expected=collection.dimension, actual=len(vector), what="query's vector"
            )
        return vector

    def _resolve_metric(self, collection: Collection) -> DistanceMetric:
        return DistanceMetric(collection.embedding_config.get("metric", "cosine"))


def _half(deadline: Deadline | None) -> Deadline | None:
    """Half of the time that is left."""
    return None if deadline is None else Deadline.after(deadline.remaining_s() / 2)
