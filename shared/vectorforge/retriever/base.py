"""Step 1 of a query: clean the question.

Step 2 of a query: the interface of everything that finds passages.
"""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.deadline import Deadline
from vectorforge.errors import EmbeddingModelChangedError, InvalidInputError, VectorForgeError
from vectorforge.types import Collection, RetrievedChunk, SearchMode, Vector
from vectorforge.vectorstore.base import NearestChunks

logger = logging.getLogger(__name__)

MAX_QUERY_LENGTH = 10_000
"""Characters of a question; what is longer is cut."""

_SPACES = re.compile(r" {2,}")


@dataclass(frozen=True, slots=True)
class CleanQuery:
    """A question ready to be searched for."""

    text: str
    truncated: bool
    """Whether its end was cut off."""


class QueryPreprocessor:
    """Trims, collapses runs of spaces (line breaks and tabs stay) and bounds the length. Idempotent."""

    def __init__(self, max_query_length: int = MAX_QUERY_LENGTH) -> None:
        self._max_query_length = max_query_length

    def preprocess(self, query: str) -> str:
        """The cleaned question.

        Raises:
            InvalidInputError: Nothing is left; it is a ``ValueError`` too.
        """
        return self.clean(query).text

    def clean(self, query: str) -> CleanQuery:
        """The cleaned question and whether it was cut, which is also logged as a warning.

        Raises:
            InvalidInputError: Nothing is left.
        """
        # PostgreSQL cannot store NUL, and a lone surrogate cannot be encoded: both come from broken clients.
        query = query.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
        query = _SPACES.sub(" ", query.strip())
        if not query:
            raise InvalidInputError("Query cannot be empty", field="query")
        limit = self._max_query_length
        if len(query) <= limit:
            return CleanQuery(query, truncated=False)
        logger.warning(f"Query truncated from {len(query)} to {limit} chars")  # exact text: A-028
        return CleanQuery(query[:limit].rstrip(), truncated=True)


_MODELS_MET: Final = 3
"""Changes of the model during one question are hardly ever two."""

T = TypeVar("T")


async def with_current_model(search: Callable[[], Awaitable[T]]) -> T:
    """A search that reads its collection, embeds and asks; again when the collection's model has changed.

    Raises:
        EmbeddingModelChangedError: It changed each time.
    """
    for _ in range(_MODELS_MET - 1):
        try:
            return await search()
        except EmbeddingModelChangedError:
            continue
    return await search()


@dataclass(slots=True)
class QueryLookup:
    """What was looked up of a question before its search, all at once; the search fills in the rest."""

    collection: Collection
    query: str | None = None
    """The cleaned question that a vector was looked for; None: none was."""
    vector: Vector | None = None
    """Of the question, by the collection's own model."""
    answer: FoundAnswer | None = None
    """What is kept for ``digest``."""
    digest: bytes | None = None
    """Of all that decides the answer but the collection; None: no answer was looked for."""
    made: tuple[Collection, str, Vector] | None = None
    """Collection, question and new vector, for whoever keeps vectors at the question's end."""


class Passages(NearestChunks):
    """The result of a search: passages, best first, and what became of the others.

    Args:
        found: The passages nearest to the question.
        min_score: The score to reach; None keeps all.

    Attributes:
        below_min_score: Passages that were among the best and scored too low.
        search_mode: What they were found by; None: not known.
        vectors_error: Why they were found by words only, though vectors were wanted; None: all is well.
    """

    def __init__(self, found: Iterable[RetrievedChunk] = (), min_score: float | None = None) -> None:
        found = found if isinstance(found, NearestChunks) else NearestChunks(found)
        kept = [chunk for chunk in found if min_score is None or chunk.score >= min_score]
        super().__init__(kept, found.matched, matched_is_at_least=found.matched_is_at_least, scan=found.scan)
        self.below_min_score = len(found) - len(kept)
        self.search_mode: SearchMode | None = None
        self.vectors_error: VectorForgeError | None = None

    @property
    def degraded(self) -> list[str]:
        """Steps down from the full search, as of an answer: "lexical" without vectors that were wanted."""
        return [] if self.vectors_error is None else ["lexical"]


class BaseRetriever(ABC):
    """Finds the passages that may answer a question. Never calls a language model."""

    @abstractmethod
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
        """The passages that answer a question best, best first.

        Args:
            query: The question; blanks around it do not matter.
            collection_id: Where to look.
            top_k: Passages at most, 1 or more.
            filters: Metadata filter, see ``vectorstore.filters``; None for none.
            min_score: Passages scoring less are left out (equal stays); None keeps all. Not applied to a
                search by words only, whose scores say nothing of vectors.
            embedding_provider: Embeds the question in place of the collection's provider.
            profile_id: Only passages of this profile; a filter can only narrow it further.
            deadline: When an answer is no longer wanted.
            search_mode: What passages are found by; None leaves it to the collection.
            allow_lexical_fallback: Search by words alone when the query cannot be embedded
                now; ``Passages.vectors_error`` then says why.
            known: What the caller has looked up of the question. He keeps its new vector, too.

        Returns:
            0 to ``top_k`` passages, relevance descending, in a dense search score descending; the score
            follows the collection's metric.

        Raises:
            InvalidInputError: The question is empty, ``top_k`` is out of range, the retriever does not search
                in this mode, or the collection's documents belong to profiles and none is named.
            FilterError: The filter cannot be understood.
            NotFoundError: There is no such collection.
            EmbeddingError: The question could not be embedded.
            DimensionMismatchError: The vector does not fit the collection.
            DatabaseError: The search failed.
        """

    async def retrieve_with_scores(self, query: str, collection_id: UUID, top_k: int) -> Passages:
        """``retrieve`` without filters and with passages of any score."""
        return await self.retrieve(query, collection_id, top_k, min_score=None)

    async def search(self, query: str, collection_id: UUID, top_k: int = 10) -> Passages:
        """Another name of ``retrieve``."""
        return await self.retrieve(query, collection_id, top_k)
