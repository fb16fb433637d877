"""Step 2 of a query: search by vectors, by words, or both."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import FRESH_VECTORS
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    ConflictError,
    DimensionMismatchError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    InvalidInputError,
    NotFoundError,
    VectorForgeError,
)
from vectorforge.retriever.base import (
    BaseRetriever,
    QueryPreprocessor,
    RetrievalRequest,
    RetrievedChunks,
    with_current_model,
)
from vectorforge.retriever.choice import ORDERED, nearest_words_first, search_chosen
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, measure
from vectorforge.types import (
    DEFAULT_DENSE_WEIGHT,
    Collection,
    DistanceMetric,
    RetrievedChunk,
    SearchMode,
    Vector,
)
from vectorforge.vectorstore.base import NearestChunks, VectorStore
from vectorforge.vectorstore.validation import checked_integer

if TYPE_CHECKING:
    from vectorforge.db.repositories.query_lookup_repo import QueryVectorRepository

logger = logging.getLogger(__name__)

_STORE_TIMEOUT_S = 1.0
_FUSED_DEPTH = 20
_FOREIGN_WEIGHT: Final = 0.3
_FOREIGN_SCRIPT_WEIGHT: Final = 0.1
"""Weights of vectors by an English model for documents in other languages, and for queries in other scripts:
see docs/decisions/retrieval.md."""
_LETTER: Final = re.compile(r"[^\W\d_]")
_OTHER_LETTER: Final = re.compile(r"[^\W\d_a-zA-Z\u00aa-\u024f\u1e00-\u1eff]")
"""A letter that is not Latin."""
_NOT_REPLACEABLE = (EmbeddingAuthenticationError, EmbeddingInputError)
"""Errors to repair: a lexical fallback would hide them."""


class CollectionFinder(Protocol):
    """Source of collections; ``CollectionRepository``."""

    async def find_by_id(self, collection_id: UUID) -> Collection | None:
        """Return the collection, or None."""
        ...


class HybridRetriever(BaseRetriever):
    """Searches one tenant's collections in the mode of the request, or else of the collection.

    Unless the mode is lexical, the query is embedded with the collection's model.

    Args:
        embedding_registry: Providers by name.
        vector_store: Bound to one tenant.
        collection_repo: Bound to the same tenant.
        preprocess: Cleans the query; default: ``QueryPreprocessor().preprocess``.
        metrics: Collector of ``retriever.*``.
        max_top_k: Largest ``top_k`` accepted.
        query_vectors: Vector cache of the same tenant; None: every process embeds for itself.
        per_document: Largest number of chunks of one document while others match, see ``search_chosen``;
            0: no cap. A search within a profile has no cap.
        retriever_type: Tag of the metrics.
    """

    def __init__(
        self,
        embedding_registry: EmbeddingProviderRegistry,
        vector_store: VectorStore,
        collection_repo: CollectionFinder,
        *,
        preprocess: Callable[[str], str] | None = None,
        metrics: MetricsCollector | None = None,
        max_top_k: int = 100,
        query_vectors: "QueryVectorRepository | None" = None,
        per_document: int = 0,
        retriever_type: str = "hybrid",
    ) -> None:
        self._per_document = per_document
        self._embedding_registry = embedding_registry
        self._vector_store = vector_store
        self._collection_repo = collection_repo
        self._preprocess = preprocess or QueryPreprocessor().preprocess
        self._max_top_k = max_top_k
        self._query_vectors = query_vectors
        self._tags = {"retriever_type": retriever_type}
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        """Search; see ``BaseRetriever.retrieve``."""
        if request.mmr_lambda is not None:
            from vectorforge.retriever.rerank import find_diverse  # few queries need it

            return await find_diverse(self.find, request, self._max_top_k)
        with measure(self.metrics, "retriever.search", self._tags):
            checked_integer(request.top_k, "top_k", self._max_top_k)
            query, lookup = self._preprocess(request.query), request.lookup

            async def search() -> RetrievedChunks:
                nonlocal lookup
                attempt = replace(request, query=query, lookup=lookup)
                lookup = None  # a retry reads the collection
                return await self._search(attempt, by_lookup=request.lookup is not None)

            return await with_current_model(search)

    async def find_all(self, requests: Sequence[RetrievalRequest]) -> list[RetrievedChunks]:
        """Search for all at once, with one round trip to the database; see ``BaseRetriever.find_all``.

        Each search returns at least ``_FUSED_DEPTH`` chunks: one that is good for several queries may not be
        among the best of any.
        """
        from vectorforge.vectorstore.search.batch import search_together  # most queries are one search

        depth = min(_FUSED_DEPTH, self._max_top_k)
        wider = [replace(request, top_k=max(request.top_k, depth)) for request in requests]
        return await search_together([partial(self.find, request) for request in wider])

    async def _search(self, request: RetrievalRequest, *, by_lookup: bool) -> RetrievedChunks:
        if request.lookup is None:
            await _end_of(request.after)
        collection, vector = await self._find_collection(request)
        mode = _mode(collection, request.search_mode)
        new_vector, error = None, None
        if mode is SearchMode.LEXICAL:
            vector = None
        elif vector is None:
            vector, error = await self._embed_or_fall_back(request, collection, mode)
            new_vector = vector if self._stores_vectors(collection, request) else None
        await _end_of(request.after)
        async with self._storing(collection, request.query, None if by_lookup else new_vector):
            chunks = await self._choose_chunks(request, collection, vector, mode)
        if error is not None and not chunks:
            raise error  # without chunks the caller has other fallbacks
        if vector is None and request.min_score:
            logger.debug("min_score does not apply to a lexical search")
        results = RetrievedChunks(chunks, None if vector is None else request.min_score)
        results.search_mode = SearchMode.LEXICAL if vector is None else mode
        results.vectors_error = error
        if by_lookup and new_vector is not None:
            results.new_vector = (collection, request.query, new_vector)
        self._report(results, chunks, request.min_score)
        # exact text: A-019
        logger.info(
            f"Retrieved {len(results)} chunks for query (top_k={request.top_k}, "
            f"metric={_metric(collection).value})"
        )
        return results

    async def _choose_chunks(
        self, request: RetrievalRequest, collection: Collection, vector: Vector | None, mode: SearchMode
    ) -> NearestChunks:
        nearest = partial(
            self._store_for(request, collection).search,
            query_vector=vector,
            **_optional_arguments(request, mode),
            dense_weight=self._dense_weight(collection, request.query),
            filters=request.filters,
            metric=_metric(collection),
            collection_id=request.collection_id,
            profile_id=request.profile_id,
            space=collection.space or None,
        )

        async def search(top_k: int) -> NearestChunks:
            nearest_chunks = await nearest(top_k=top_k)
            if request.note_version is not None and nearest_chunks.version is not None:
                request.note_version(nearest_chunks.version)
            return nearest_chunks

        wanted, by_words = request.candidates or request.top_k, mode is not SearchMode.DENSE
        per_document = self._per_document if request.profile_id is None else 0
        chosen = await search_chosen(
            search,
            max(wanted, ORDERED) if by_words and not per_document else wanted,  # a cap counts what is wanted
            per_document=per_document,
            distinct=request.distinct,
            enough=request.top_k,
        )
        if by_words:
            chosen[:] = nearest_words_first(request.words or request.query, chosen)[:wanted]
        return chosen

    def _dense_weight(self, collection: Collection, query: str) -> float:
        weight = collection.dense_weight
        foreign = _foreign_weight(collection, query) if weight == DEFAULT_DENSE_WEIGHT else None
        if foreign is None or list(self._embedding_registry.languages(collection)) != ["en"]:
            return weight
        return foreign

    def _store_for(self, request: RetrievalRequest, collection: Collection) -> VectorStore:
        wanted, current = request.min_version, collection.data_version
        if wanted is not None and wanted > current:
            raise ConflictError(f"`min_version` must be at most {current}, the collection's version.")
        return self._vector_store.at_version(collection.id, current, wanted)

    def _report(
        self, results: RetrievedChunks, chunks: Sequence[RetrievedChunk], min_score: float | None
    ) -> None:
        if results.below_min_score:
            returned = {chunk.chunk.id for chunk in results}
            for chunk in chunks:
                if chunk.chunk.id not in returned:
                    # exact text: D-018
                    logger.debug(f"Filtered out low-similarity chunk: {chunk.score:.3f} < {min_score}")
        self.metrics.observe("retriever.results_returned", len(results), self._tags)
        if not results:
            self.metrics.increment("retriever.empty_results", tags=self._tags)

    async def _find_collection(self, request: RetrievalRequest) -> tuple[Collection, Vector | None]:
        """Return the collection and the cached vector of the query by its own model.

        Raises:
            NotFoundError: The collection does not exist.
        """
        collection: Collection | None
        vector: Vector | None = None
        lookup = request.lookup
        is_uncached = request.embedding_provider is not None or FRESH_VECTORS.get()
        cache = None if is_uncached else self._query_vectors
        if lookup is not None and (cache is None or lookup.query == request.query):
            collection, vector = lookup.collection, None if cache is None else lookup.vector
        elif cache is None:
            collection = await self._collection_repo.find_by_id(request.collection_id)
        else:
            collection, vector = await cache.find(request.collection_id, request.query)
        if collection is None:
            raise NotFoundError(f"Collection {request.collection_id} not found")
        if vector is None or len(vector) != collection.dimension:
            return collection, None
        provider, model = collection.embedding_provider, collection.embedding_model
        self.metrics.increment("embedding.cache_hits", tags={"provider": provider, "model": model})
        return collection, vector

    async def _embed_or_fall_back(
        self, request: RetrievalRequest, collection: Collection, mode: SearchMode
    ) -> tuple[Vector | None, VectorForgeError | None]:
        """Return the query's new vector, or the error because of which a lexical search replaces it."""
        replaceable = request.allow_lexical_fallback and mode is SearchMode.HYBRID
        # so that a hanging provider leaves time for the lexical search and an answer
        deadline = request.deadline
        if replaceable and deadline is not None:
            deadline = Deadline.after(deadline.remaining_s() / 2)
        try:
            return await self._embed_query(request, collection, deadline), None
        except (EmbeddingError, ConfigurationError) as exc:
            if not replaceable or isinstance(exc, _NOT_REPLACEABLE):
                raise
            logger.warning("Falling back to a lexical search: %s", type(exc).__name__)
            return None, exc

    async def _embed_query(
        self, request: RetrievalRequest, collection: Collection, deadline: Deadline | None
    ) -> Vector:
        registry, named = self._embedding_registry, request.embedding_provider
        if named is not None and named not in registry.list_providers():
            raise InvalidInputError(registry.unknown(named), field="embedding_provider")
        config = collection.embedding_config
        provider_name = named or config["default_provider"]
        # Another provider does not know the collection's model by name; it uses its own.
        model = config["model"] if provider_name == config["default_provider"] else None
        vector = await self._embedding_registry.get(provider_name).embed_query_text(
            collection.query_prefix + request.query, model=model, deadline=deadline
        )
        if len(vector) != collection.dimension:
            raise DimensionMismatchError(
                expected=collection.dimension, actual=len(vector), what="query's vector"
            )
        return vector

    def _stores_vectors(self, collection: Collection, request: RetrievalRequest) -> bool:
        if self._query_vectors is None or request.embedding_provider is not None:
            return False
        # A local model embeds as fast as the cache is read.
        return self._embedding_registry.get(collection.embedding_provider).is_remote

    @asynccontextmanager
    async def _storing(
        self, collection: Collection, query: str, vector: Vector | None
    ) -> AsyncIterator[None]:
        """Store a vector while the block runs; a failure is logged, an error of the block cancels it."""
        vectors = self._query_vectors
        if vector is None or vectors is None:
            yield
            return

        async def store() -> None:
            try:
                async with asyncio.timeout(_STORE_TIMEOUT_S):
                    await vectors.store(collection, query, vector)
            except (VectorForgeError, TimeoutError) as exc:
                logger.warning("The query's vector was not stored: %s", type(exc).__name__)

        task = asyncio.create_task(store())
        try:
            yield
        except BaseException:
            task.cancel()
            raise
        finally:
            await asyncio.gather(task, return_exceptions=True)


async def _end_of(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        await asyncio.shield(task)  # a canceled search does not wait for it


def _metric(collection: Collection) -> DistanceMetric:
    return DistanceMetric(collection.embedding_config.get("metric", "cosine"))


def _foreign_weight(collection: Collection, query: str) -> float | None:
    """Return the weight of vectors by an English model; None if query and documents may be English."""
    others, letters = len(_OTHER_LETTER.findall(query)), len(_LETTER.findall(query))
    if 2 * others > letters:
        return _FOREIGN_SCRIPT_WEIGHT
    read = collection.languages
    is_foreign = read and "english" not in read and (collection.detect_language or "simple" not in read)
    return _FOREIGN_WEIGHT if is_foreign else None


def _optional_arguments(request: RetrievalRequest, mode: SearchMode) -> dict[str, Any]:
    given: dict[str, Any] = {"with_vectors": request.candidates > 0}
    if mode is not SearchMode.DENSE:
        given |= {"query_text": request.words or request.query, "context_text": request.context}
    return {"query_text": None} | {name: value for name, value in given.items() if value}


def _mode(collection: Collection, requested: SearchMode | None) -> SearchMode:
    # SearchMode(): a variant's mode is text
    mode = collection.search_mode if requested is None else SearchMode(requested)
    if mode is not SearchMode.DENSE and not collection.keeps_words:
        raise InvalidInputError(
            "The collection keeps no words: it is searched by vectors only, until its own search_mode is "
            "set to hybrid or lexical.",
            field="search_mode",
        )
    return mode
