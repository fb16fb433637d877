"""DocRag's synchronous engine over the pipeline, on an event loop in a thread. See docs/use/docrag.md."""

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vectorforge.bootstrap import Application
from vectorforge.client import CollectionStorage
from vectorforge.docrag import responses
from vectorforge.docrag.config import Config, build_application, open_prepared, openai_client
from vectorforge.docrag.responses import (
    CacheManager,
    EmbeddingError,
    GenerationError,
    RAGError,
    RetrievalError,
    performance_stats,
    rag_error,
)
from vectorforge.docrag.splitter import RecursiveSplitter, chunk_document
from vectorforge.docrag.store import DocumentStore
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.guardrails.log_text import redact
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import QueryConfig, QueryResult
from vectorforge.pipeline.variants import Variant
from vectorforge.threads import LoopThread
from vectorforge.types import Collection, SearchMode

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["Config", "EmbeddingError", "GenerationError", "RAGEngine", "RAGError", "RetrievalError"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

Exchanges = Iterable[Mapping[str, str]]
"""``{"user_query": ..., "ai_response": ...}``, oldest first."""


class RAGEngine:
    """Store documentation and answer queries from it. Thread-safe.

    Args:
        config: Default: ``Config()``.
        application: Closed application; opened here, and closed by ``close``. Default: from the environment
            and ``config``; without a database URL with the embedded PostgreSQL, migrated first.
        tenant_id: Default: the tenant of ``vectorforge up``.

    Raises:
        ConfigurationError: A value of ``config`` or a setting is invalid.
        DatabaseUnavailableError: The database does not respond.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        application: Application | None = None,
        tenant_id: str | None = None,
    ) -> None:
        self.config = config or Config()
        self.cache = CacheManager(count_answers=lambda: self._run(self._store.count_cached_answers))
        self.text_splitter = RecursiveSplitter(self.config.CHUNK_SIZE, self.config.CHUNK_OVERLAP)
        with ExitStack() as stack:
            migrator_url = None
            if application is None:
                application, migrator_url = build_application(self.config, stack)
            self._application = application
            self._tenant = application.for_tenant(tenant_id or application.config.server.local_tenant)
            self._store = DocumentStore(self._tenant, self.config.COLLECTION_NAME, self.text_splitter)
            prepared = open_prepared(application, self._store, migrator_url)
            self._thread = LoopThread(prepared, name="RAGEngine")
            self._resources = stack.pop_all()

    @cached_property
    def openai_client(self) -> "OpenAI":
        """OpenAI's official synchronous client, created on first use; queries do not use it.

        Raises:
            ConfigurationError: There is no key.
        """
        client = self._run(lambda: openai_client(self._application))
        self._resources.callback(client.close)
        return client

    @property
    def chroma_client(self) -> CollectionStorage:
        """The collection as a store of vectors."""
        return CollectionStorage(self._thread, self._tenant, self.config.COLLECTION_NAME)

    @property
    def collection(self) -> Collection:
        """Current state of the collection, created if missing."""
        return self._run(self._store.collection)

    def chunk_document(self, content: str, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A text as chunks for ``add_documents``; see ``splitter.chunk_document``."""
        return chunk_document(content, metadata, self.text_splitter)

    def add_documents(self, documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Store documents. The documents of a source atomically replace its stored ones.

        Args:
            documents: ``content`` and ``source_url`` of each, and if known ``title``, ``doc_type`` and more,
                there or under ``metadata``. One with a ``chunk_index`` is not chunked again.

        Returns:
            For each document in order: ``source_url``, ``status`` ("succeeded", "unchanged", "failed"),
            ``error`` (None, or ``code``, ``message`` and ``retryable``), and of its source ``chunks_added``,
            ``chunks_kept`` and ``chunks_removed``. A failed document raises nothing.
        """
        return self._run(lambda: self._store.add(documents))

    def add_documents_batch(
        self, documents: Iterable[Mapping[str, Any]], batch_size: int = 10
    ) -> list[dict[str, Any]]:
        """Store documents like ``add_documents``, at most ``batch_size`` sources concurrently."""
        return self._run(lambda: self._store.add(documents, batch_size=max(1, batch_size)))

    def remove_existing_documents(self, source_url: str) -> int:
        """Delete a source in one transaction; return the number of its chunks.

        Not needed before ``add_documents``, which replaces atomically.
        """
        return self._run(lambda: self._store.remove(source_url))

    def retrieve_relevant_chunks(
        self, query: str, n_results: int = 5, min_similarity: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the chunks nearest to a query, best first.

        Args:
            query: The query.
            n_results: Maximum number of chunks.
            min_similarity: Chunks below it are dropped; None: no limit.

        Returns:
            ``content``, ``metadata``, ``similarity_score`` (1 - cosine distance), ``source_url``, ``title``,
            ``locations`` and ``location_text`` ("p. 12").
        """

        async def retrieve() -> list[dict[str, Any]]:
            collection = await self._store.collection()
            chunks = await self._tenant.retriever.retrieve(
                query, collection.id, n_results, min_score=min_similarity, search_mode=SearchMode.DENSE
            )
            return [responses.as_chunk(chunk) for chunk in chunks]

        return self._run(retrieve)

    def query(self, query: str, conversation_history: Exchanges | None = None) -> dict[str, Any]:
        """Answer a query.

        Returns:
            ``answer``, ``examples``, ``sources``, ``confidence`` ("high", "medium", "low"), ``response_time``
            (seconds), ``cached``, ``degraded``, ``dropped_sources``, ``passages``, ``quality`` (as
            ``assess_response_quality`` and ``AnswerQuality``; None without chunks) and ``request_id``.

        Raises:
            EmbeddingError: The query could not be embedded.
            RetrievalError: The search failed.
            GenerationError: The model failed.
            InvalidInputError: The query or the history is invalid.
        """
        return self._answer(
            query, self._query_config(conversation_history), self._tenant.strict_query_service
        )

    def query_with_variants(
        self, query: str, variant: str = "default", conversation_history: Exchanges | None = None
    ) -> dict[str, Any]:
        """Answer a query with a variant of the settings.

        Args:
            query: The query.
            variant: "default", "precise", "comprehensive" or one of the settings.
            conversation_history: As for ``query``.

        Raises:
            InvalidInputError: There is no such variant.
        """
        config = self._query_config(conversation_history, self._application.variants.find(variant))
        return self._answer(query, config, self._tenant.strict_query_service)

    def query_with_fallback(
        self,
        query: str,
        conversation_history: Exchanges | None = None,
        *,
        allow_ungrounded: bool | None = None,
    ) -> dict[str, Any]:
        """Answer a query with fallbacks; ``degraded`` names each one, in order.

        If the embedding fails: a cached answer, even an expired one. If the search fails: that, or an answer
        of the model without chunks ("ungrounded"). If the model fails: another provider, an expired answer.
        Else a fixed text, with ``error``; ``passages`` has the retrieved chunks.

        Args:
            query: The query.
            conversation_history: As for ``query``.
            allow_ungrounded: True: a model may answer without chunks after a failed embedding, too. False:
            never.
                None: after a failed search.

        Raises:
            InvalidInputError: The query or the history is invalid.
        """
        started = time.perf_counter()
        config = replace(
            self._query_config(conversation_history),
            allow_ungrounded="after_embedding" if allow_ungrounded is None else allow_ungrounded,
            quote_passages=False,
        )
        try:
            return self._answer(query, config, self._tenant.query_service)
        except RAGError as exc:
            logger.warning("Answered with the fixed text: %s", exc.message)
            return responses.unavailable(time.perf_counter() - started)

    assess_response_quality = staticmethod(responses.assess_response_quality)
    track_query_analytics = staticmethod(responses.track_query_analytics)

    def get_rag_performance_stats(self) -> dict[str, Any]:
        """Return statistics of the collection and of its queries since midnight, UTC."""
        return self._run(self._stats)

    def close(self) -> None:
        """Cancel running calls and close the application; safe to call twice."""
        self._thread.close()
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _stats(self) -> dict[str, Any]:
        registry = self._application.llm_registry
        model = self._query_config(None).llm_model
        if model is None and registry.list_providers():
            model = registry.get_default().default_model
        collection = await self._store.collection()
        return await performance_stats(self._tenant, collection, model=model)

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return self._thread.run(call)
        except VectorForgeError as exc:
            raise rag_error(exc) from exc

    def _query_config(self, history: Exchanges | None, variant: Variant | None = None) -> QueryConfig:
        models, earlier = self._application.llm_registry, responses.as_history(history)
        asks_openai = bool(models.list_providers()) and models.get_default().name == "openai"
        return self.config.query_config(earlier, asks_openai=asks_openai, variant=variant)

    def _answer(self, query: str, config: QueryConfig, service: QueryService) -> dict[str, Any]:
        async def ask() -> QueryResult:
            return await service.query(query, await self._store.collection_id(), config)

        result = self._run(ask)
        self.cache.count_query(cached=result.cached)
        if result.cached:
            logger.info(f"Cache hit for query: {redact(query[:50])}...")  # exact text: D-030
        response = responses.as_response(result)
        self.track_query_analytics(query, response, response["response_time"])
        return response
