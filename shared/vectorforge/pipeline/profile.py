"""A question, the passages of one profile, a context for a model. Asks no language model itself."""

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
from vectorforge.pipeline.query import QueryPreprocessor
from vectorforge.retriever.base import with_current_model
from vectorforge.retriever.profile import ProfilesNow, ProfileVectorStore, RetrievedChunk
from vectorforge.types import SearchMode, Vector
from vectorforge.vectorstore.filters import parse as filter_language
from vectorforge.vectorstore.validation import checked_profile

__all__ = ["RAGRetrievalPipeline", "RetrievedChunk"]


class RAGRetrievalPipeline:
    """Finds passages of profiles. Knows neither a language model nor the database that profiles come from.

    Args:
        vector_store: The profiles' collection, of one tenant.
        embedding_provider: The collection's.
        preprocessor: Cleans the question.
        max_top_k: Largest ``top_k`` accepted.
        now: Asked for store and provider anew when the collection's embedding model has changed; None: that
            is an error.

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
    ) -> list[RetrievedChunk]:
        """The passages of a profile that answer a question best, best first.

        Args:
            query: The question.
            profile_id: The profile; of one that does not exist there are no passages.
            top_k: Passages at most, 1 to ``max_top_k``.
            filters: Metadata filter, see ``vectorstore.filters``. It narrows the profile's passages; nothing
                in it reaches another profile.
            min_score: Passages scoring less are left out; None keeps all. Not applied to a search by words
                only, whose scores say nothing of vectors.
            deadline: When the passages are no longer wanted.
            search_mode: What passages are found by.

        Returns:
            0 to ``top_k`` passages.

        Raises:
            InvalidInputError: The question is empty, or ``top_k`` or ``profile_id`` is out of range.
            FilterError: The filter cannot be understood.
            EmbeddingError: The question could not be embedded.
            EmbeddingModelChangedError: The collection's model has changed, and it cannot be read again.
            DatabaseError: The search failed.
        """
        checked_profile(profile_id)
        if not 1 <= top_k <= self._max_top_k:
            raise InvalidInputError(f"top_k must be between 1 and {self._max_top_k}.", field="top_k")
        filter_language.parse(filters)  # before the embedding is paid for
        text = self._preprocessor.preprocess(query)
        if search_mode is SearchMode.LEXICAL:
            min_score = None
        words = None if search_mode is SearchMode.DENSE else text

        async def search() -> list[RetrievedChunk]:
            store, provider = self._profiles
            collection = store.collection
            vector: Vector | None = None
            if search_mode is not SearchMode.LEXICAL:
                vector = await provider.embed_query(
                    collection.query_prefix + text, model=collection.embedding_model, deadline=deadline
                )
            try:
                return await store.search(vector, profile_id, top_k, filters, query_text=words)
            except EmbeddingModelChangedError:
                if self._now is not None:
                    self._profiles = await self._now()
                raise

        found = await (search() if self._now is None else with_current_model(search))
        return [chunk for chunk in found if min_score is None or chunk.score >= min_score]

    async def format_context(
        self, chunks: Sequence[RetrievedChunk], max_length: int = PROFILE_CONTEXT_CHARS
    ) -> str:
        """Passages as text for a model: ``[Source 1]``, what it is from, the passage.

        Args:
            chunks: Best first.
            max_length: Characters at most, labels and separators included.

        Returns:
            As many whole passages as fit, from the best on; of a best one that alone is too long, its start
            up to the end of a sentence. Empty without passages.

        Raises:
            InvalidInputError: ``max_length`` is below 200, which holds no passage.
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
