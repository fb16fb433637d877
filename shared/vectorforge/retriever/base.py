"""Retrieval interface: clean the query, describe the search, return ranked chunks.

``QueryPreprocessor`` is step 1 of a query. ``BaseRetriever`` is the interface of step 2.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar
from unicodedata import normalize
from uuid import UUID

from vectorforge.deadline import Deadline
from vectorforge.errors import EmbeddingModelChangedError, InvalidInputError, NotFoundError, VectorForgeError
from vectorforge.types import Collection, RetrievedChunk, SearchMode, Vector
from vectorforge.vectorstore.base import NearestChunks

logger = logging.getLogger(__name__)

MAX_QUERY_LENGTH = 10_000
"""Characters of a query; the rest is cut off."""

_SPACES = re.compile(r" {2,}")


@dataclass(frozen=True, slots=True)
class CleanQuery:
    """A query ready to be searched for."""

    text: str
    truncated: bool
    """True if its end was cut off."""


class QueryPreprocessor:
    """Trims, normalizes to NFC, collapses runs of spaces (line breaks and tabs stay) and bounds the length.

    Idempotent.
    """

    def __init__(self, max_query_length: int = MAX_QUERY_LENGTH) -> None:
        self._max_query_length = max_query_length

    def preprocess(self, query: str) -> str:
        """Return the cleaned query.

        Raises:
            InvalidInputError: Nothing is left; it is a ``ValueError`` too.
        """
        return self.clean(query).text

    def clean(self, query: str) -> CleanQuery:
        """Return the cleaned query; log a warning if it was cut.

        Raises:
            InvalidInputError: It is not text, or nothing is left.
        """
        check_query(query)
        # PostgreSQL cannot store NUL, and a lone surrogate cannot be encoded: both come from broken clients.
        query = query.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
        query = _SPACES.sub(" ", normalize("NFC", query.strip()))
        if not query:
            raise InvalidInputError("Query cannot be empty", field="query")
        limit = self._max_query_length
        if len(query) <= limit:
            return CleanQuery(query, truncated=False)
        logger.warning(f"Query truncated from {len(query)} to {limit} chars")  # exact text: A-028
        return CleanQuery(query[:limit].rstrip(), truncated=True)


def check_query(query: object) -> None:
    """Raise InvalidInputError unless the query is text."""
    if not isinstance(query, str):
        raise InvalidInputError("`query` must be text.", field="query")


_MAX_ATTEMPTS: Final = 3
"""Searches of one query while its collection's embedding model changes."""

T = TypeVar("T")


async def with_current_model(search: Callable[[], Awaitable[T]]) -> T:
    """Run a search that reads its collection; repeat it when the collection's model has changed meanwhile.

    Raises:
        EmbeddingModelChangedError: It changed during each attempt.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return await search()
        except EmbeddingModelChangedError:
            continue
    return await search()


@dataclass(frozen=True, slots=True)
class CollectionChoice:
    """Collection that a query names."""

    names: tuple[str, ...]
    """Names or ids; the first that exists is used, and an id wins over a name."""
    missing: Callable[[NotFoundError], NotFoundError] | None = None
    """Makes the error if none exists, from the last name's; None: the same."""
    check: Callable[[Collection], object] | None = None
    """Raises an error if the collection does not suit the query."""
    known_id: UUID | None = None
    """Id of a collection that the caller has read before: a query continues if it cannot be read again."""

    def not_found(self, error: NotFoundError) -> NotFoundError:
        """Return the error of the choice, from the last name's."""
        return error if self.missing is None else self.missing(error)

    @classmethod
    def of(cls, collection: "QueriedCollection") -> "CollectionChoice":
        """Return a choice as it is, or the choice of one collection."""
        if isinstance(collection, CollectionChoice):
            return collection
        known = collection.id if isinstance(collection, Collection) else collection
        return cls((str(known),), known_id=known if isinstance(known, UUID) else None)


QueriedCollection: TypeAlias = UUID | str | Collection | CollectionChoice
"""Collection of a query: its id, its name, the collection itself, or a choice among several."""


@dataclass(frozen=True, slots=True)
class QueryLookup:
    """Collection and cached vector of a query, read before its search."""

    collection: Collection
    query: str | None = None
    """Cleaned query that the vector was looked up for; None if none was."""
    vector: Vector | None = None
    """Cached vector of the query, by the collection's own model."""


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """One search; ``BaseRetriever.retrieve`` describes the fields."""

    query: str
    collection_id: UUID
    top_k: int = 10
    filters: Mapping[str, Any] | None = None
    min_score: float | None = 0.0
    embedding_provider: str | None = None
    profile_id: int | None = None
    deadline: Deadline | None = None
    search_mode: SearchMode | None = None
    allow_lexical_fallback: bool = False
    lookup: QueryLookup | None = None
    """Result of a look-up by the caller, who then stores ``RetrievedChunks.new_vector``; None: no look-up."""
    words: str | None = None
    """Query of the search by words; None for ``query``."""
    context: str | None = None
    """Further words for it, which count for less; see ``VectorStore.search``."""
    distinct: bool = False
    """Leave out chunks that repeat a better one; see ``choice.search_chosen``."""
    mmr_lambda: float | None = None
    candidates: int = 0
    """Return up to so many chunks with their vectors, to choose ``top_k`` of them; 0: ``top_k`` without."""
    min_version: int | None = None
    """Oldest version of the collection to search; None for any that is recent enough."""
    note_version: Callable[[int], object] | None = None
    """Receives the version of the collection that each search saw."""
    after: asyncio.Task[None] | None = None
    """Must end before the search uses the database, and runs while the query is embedded; None: nothing."""


class RetrievedChunks(NearestChunks):
    """Chunks found by a search, best first, with the search's statistics.

    Args:
        chunks: Chunks nearest to the query.
        min_score: Lowest score of a returned chunk; None for any.

    Attributes:
        below_min_score: Number of chunks dropped for their score.
        search_mode: Mode that found the chunks, or None if unknown.
        vectors_error: Error because of which a hybrid search ran without vectors, or None.
        rerank_error: Error because of which the reranker did not order the chunks, or None.
        new_vector: Collection, query and vector to store, if the caller has made the look-up; else None.
    """

    def __init__(self, chunks: Iterable[RetrievedChunk] = (), min_score: float | None = None) -> None:
        chunks = chunks if isinstance(chunks, NearestChunks) else NearestChunks(chunks)
        passing = [chunk for chunk in chunks if min_score is None or chunk.score >= min_score]
        at_least = chunks.matched_is_at_least
        super().__init__(passing, chunks.matched, matched_is_at_least=at_least, scan=chunks.scan)
        self.below_min_score = len(chunks) - len(passing)
        self.search_mode: SearchMode | None = None
        self.vectors_error: VectorForgeError | None = None
        self.rerank_error: VectorForgeError | None = None
        self.new_vector: tuple[Collection, str, Vector] | None = None

    @property
    def degraded(self) -> list[str]:
        """Fallbacks used: "lexical" without the vectors that were wanted, "not_reranked" after an error."""
        used = {"lexical": self.vectors_error, "not_reranked": self.rerank_error}
        return [step for step, error in used.items() if error is not None]


class BaseRetriever(ABC):
    """Finds the chunks that may answer a query. Never calls a language model."""

    @abstractmethod
    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        """Run a search; ``retrieve`` describes the result and the errors."""

    async def find_all(self, requests: Sequence[RetrievalRequest]) -> list[RetrievedChunks]:
        """Run searches at the same time, without a reranker; ``rerank`` follows when they are fused."""
        return list(await asyncio.gather(*map(self.find, requests)))

    async def rerank(self, request: RetrievalRequest, chunks: RetrievedChunks) -> RetrievedChunks:
        """Return the best ``top_k`` chunks of fused searches for the request's query."""
        del chunks[request.top_k :]
        return chunks

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
        mmr_lambda: float | None = None,
        min_version: int | None = None,
    ) -> RetrievedChunks:
        """Return the chunks that answer a query best, best first.

        Args:
            query: The query; surrounding blanks are ignored.
            collection_id: Collection to search.
            top_k: Largest number of chunks, at least 1.
            filters: Metadata filter, see ``vectorstore.filters``; None for none.
            min_score: Lowest score of a returned chunk; None for any. Ignored by a lexical search, whose
                scores are not similarities of vectors.
            embedding_provider: Embeds the query in place of the collection's provider.
            profile_id: Restricts the search to this profile; a filter can only narrow it further.
            deadline: Time by which the result is needed.
            search_mode: Mode of the search; None for the collection's.
            allow_lexical_fallback: Search lexically when the query cannot be embedded;
                ``RetrievedChunks.vectors_error`` then holds the reason.
            mmr_lambda: Chooses among 70 candidates by maximal marginal relevance (``retriever.rerank``): 1 by
                relevance alone, 0 by difference alone. None: ``top_k`` by relevance.
            min_version: Oldest version of the collection to search, which a write returned; None for any that
                is recent enough.

        Returns:
            0 to ``top_k`` chunks by descending relevance, in a dense search by descending score, with
            ``mmr_lambda`` in the order of choice; the score follows the collection's metric.

        Raises:
            InvalidInputError: The query is empty, ``top_k`` is out of range, the retriever does not support
                the mode, or the collection's documents belong to profiles and no profile is given.
            FilterError: The filter is malformed.
            NotFoundError: The collection does not exist.
            EmbeddingError: The query could not be embedded.
            DimensionMismatchError: The vector does not fit the collection.
            ConflictError: The collection has not reached ``min_version``.
            DatabaseError: The search failed.
        """
        return await self.find(
            RetrievalRequest(
                query,
                collection_id,
                top_k,
                filters,
                min_score,
                embedding_provider,
                profile_id=profile_id,
                deadline=deadline,
                search_mode=search_mode,
                allow_lexical_fallback=allow_lexical_fallback,
                mmr_lambda=mmr_lambda,
                min_version=min_version,
            )
        )

    async def retrieve_with_scores(self, query: str, collection_id: UUID, top_k: int) -> RetrievedChunks:
        """``retrieve`` without filters and with chunks of any score."""
        return await self.retrieve(query, collection_id, top_k, min_score=None)

    async def search(self, query: str, collection_id: UUID, top_k: int = 10) -> RetrievedChunks:
        """Alias of ``retrieve``."""
        return await self.retrieve(query, collection_id, top_k)
