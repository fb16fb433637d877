"""Retrieval within one profile, and a context of the chunks; calls no language model."""

from collections.abc import Mapping, Sequence
from typing import Any

from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import EmbeddingModelChangedError, InvalidInputError
from vectorforge.pipeline.context import ContextBuilder, ContextConfig
from vectorforge.pipeline.presets import (
    MIN_CONTEXT_CHARS,
    PROFILE_CONTEXT_CHARS,
    ProfileContextFormat,
)
from vectorforge.retriever.base import QueryPreprocessor, with_current_model
from vectorforge.retriever.profile import ProfilesNow, ProfileVectorStore, RetrievedChunk
from vectorforge.types import SearchMode, Vector
from vectorforge.vectorstore.filters import parse as filter_language
from vectorforge.vectorstore.validation import checked_profile

__all__ = ["RAGRetrievalPipeline", "RetrievedChunk"]


class RAGRetrievalPipeline:
    """Finds chunks of profiles.

    Args:
        vector_store: Collection of the profiles, of one tenant.
        embedding_provider: Provider of the collection.
        preprocessor: Cleans the query.
        max_top_k: Largest ``top_k`` accepted.
        now: Returns store and provider after the collection's embedding model has changed; None: that is an
            error.

    Raises:
        ConfigurationError: The provider is not the collection's.
    """

    def __init__(
        self,
        vector_store: ProfileVectorStore,
        embedding_provider: EmbeddingProvider,
        *,
        preprocessor: QueryPreprocessor | None = None,
        max_top_k: int = 100,
        now: ProfilesNow | None = None,
    ) -> None:
        vector_store.check_provider(embedding_provider)
        self._profiles = (vector_store, embedding_provider)
        self._now = now
        self._preprocessor = preprocessor or QueryPreprocessor()
        self._max_top_k = max_top_k

    async def retrieve(
        self,
        query: str,
        profile_id: int,
        top_k: int = 5,
        filters: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        *,
        deadline: Deadline | None = None,
        search_mode: SearchMode = SearchMode.DENSE,
        mmr_lambda: float | None = None,
    ) -> list[RetrievedChunk]:
        """Return the chunks of a profile that answer a query best, best first.

        Args:
            query: The query.
            profile_id: The profile; an unknown one has no chunks.
            top_k: Largest number of chunks, 1 to ``max_top_k``.
            filters: Metadata filter, see ``vectorstore.filters``; it cannot reach another profile.
            min_score: Lowest score returned; None returns all. Ignored by a lexical search, whose scores
                are not similarities of vectors.
            deadline: Time by which the chunks are needed.
            search_mode: Mode of the search.
            mmr_lambda: As for ``BaseRetriever.retrieve``.

        Returns:
            0 to ``top_k`` chunks.

        Raises:
            InvalidInputError: The query is empty, or ``top_k`` or ``profile_id`` is out of range.
            FilterError: The filter is malformed.
            EmbeddingError: The query could not be embedded.
            EmbeddingModelChangedError: The collection's model has changed, and ``now`` is None.
            DatabaseError: The search failed.
        """
        checked_profile(profile_id)
        if not 1 <= top_k <= self._max_top_k:
            raise InvalidInputError(f"top_k must be between 1 and {self._max_top_k}.", field="top_k")
        filter_language.parse(filters)  # before the embedding costs anything
        text = self._preprocessor.preprocess(query)
        if search_mode is SearchMode.LEXICAL:
            min_score = None
        words = None if search_mode is SearchMode.DENSE else text
        count = top_k
        if mmr_lambda is not None:
            from vectorforge.retriever.rerank import candidate_count, mmr_order  # few queries need it

            count = candidate_count(top_k, self._max_top_k, mmr_lambda)

        async def search() -> list[RetrievedChunk]:
            store, provider = self._profiles
            collection = store.collection
            vector: Vector | None = None
            if search_mode is not SearchMode.LEXICAL:
                vector = await provider.embed_query(
                    collection.query_prefix + text, model=collection.embedding_model, deadline=deadline
                )
            try:
                return await store.search(
                    vector, profile_id, count, filters, query_text=words, with_vectors=mmr_lambda is not None
                )
            except EmbeddingModelChangedError:
                if self._now is not None:
                    self._profiles = await self._now()
                raise

        found = await (search() if self._now is None else with_current_model(search))
        found = [chunk for chunk in found if min_score is None or chunk.score >= min_score]
        if mmr_lambda is None:
            return found
        return [found[place] for place in mmr_order([chunk.found for chunk in found], top_k, mmr_lambda)]

    async def format_context(
        self, chunks: Sequence[RetrievedChunk], max_length: int = PROFILE_CONTEXT_CHARS
    ) -> str:
        """Return chunks as text for a model: ``[Source 1]``, origin, text.

        Args:
            chunks: Best first.
            max_length: Largest number of characters, labels and separators included.

        Returns:
            As many whole chunks as fit, best first; if the best one does not fit, its start up to the end of
            a sentence. Empty without chunks.

        Raises:
            InvalidInputError: ``max_length`` is below 200.
        """
        if max_length < MIN_CONTEXT_CHARS:
            raise InvalidInputError(f"max_length must be at least {MIN_CONTEXT_CHARS}.", field="max_length")
        config = ContextConfig(
            system_prompt_template="{context}",
            max_context_chars=max_length,
            include_sources=False,
            format=ProfileContextFormat(),
        )
        return ContextBuilder().build("", [chunk.found for chunk in chunks], config).assembled_context
