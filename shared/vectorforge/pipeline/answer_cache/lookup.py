"""One look at the database before a question is searched for: its collection, and what is kept of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from vectorforge.db.repositories.query_lookup_repo import PiggybackedStatement, QueryLookupRow
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    AuthenticationError,
    DatabaseUnavailableError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    VectorForgeError,
)
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryConfig
from vectorforge.retriever.base import MAX_QUERY_LENGTH, QueryLookup, QueryPreprocessor
from vectorforge.types import Collection

logger = logging.getLogger(__name__)

_NOT_YET = UUID(int=0)
_TIMEOUT_S = 1.0
"""For the database: the collection alone might be there at once."""


class QueryLookupStore(Protocol):
    """Where questions are looked up; ``QueryLookupRepository``."""

    async def find(
        self,
        name_or_id: str,
        query: str | None = None,
        digest: bytes | None = None,
        *,
        piggyback: PiggybackedStatement | None = None,
    ) -> QueryLookupRow | None:
        """The collection of this id or name, and what is kept of the question; None: no such collection."""
        ...


class CollectionFinder(Protocol):
    """Where collections are found when no more than that can be; ``TenantServices``."""

    async def find_collection(self, name_or_id: str) -> Collection:
        """A collection by its id or its name.

        Raises:
            NotFoundError: There is none.
        """
        ...


class QueryLookupService:
    """Finds collections for questions, with all that the question's own steps would read one by one.

    Args:
        questions: Of one tenant.
        collections: Of the same tenant.
        llm_registry: As the query service's.
        preprocessor: As the query service's.
        answer_cache: As the query service's; None: no answers are looked for.
        max_query_length: Characters that a question is cut to.
        note_log_text: Told the tenant's policy for logged texts, which is read with the rest.
    """

    def __init__(
        self,
        questions: QueryLookupStore,
        collections: CollectionFinder,
        llm_registry: LLMProviderRegistry,
        preprocessor: QueryPreprocessor,
        answer_cache: AnswerCache | None,
        *,
        max_query_length: int = MAX_QUERY_LENGTH,
        note_log_text: Callable[[str | None], None] | None = None,
    ) -> None:
        self._questions = questions
        self._collections = collections
        self._llm_registry = llm_registry
        self._preprocessor = preprocessor
        self._answer_cache = answer_cache
        self._max_query_length = max_query_length
        self._note_log_text = note_log_text

    async def find(
        self, name_or_id: str, query: str, config: QueryConfig, piggyback: PiggybackedStatement | None = None
    ) -> QueryLookup:
        """The collection, an id wins, and what is kept of the question asked with this configuration.

        For a question that follows others or is not usable it is the collection alone, and so it is when
        what is kept cannot be read; ``piggyback`` may not have gone then.

        Raises:
            LimitExceededError: ``piggyback`` says so, and so is InvalidInputError.
            NotFoundError: There is no such collection.
            DatabaseUnavailableError: No connection, or it was lost.
            AuthenticationError: The request's key is revoked or over.
        """
        text, digest = self._prepare(query, config)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await self._questions.find(name_or_id, text, digest, piggyback=piggyback)
        except (AuthenticationError, DatabaseUnavailableError, LimitExceededError, InvalidInputError):
            raise
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The caches were not read: %s", type(exc).__name__)
            return QueryLookup(await self._collections.find_collection(name_or_id))
        if found is None:
            raise NotFoundError(f"Collection {name_or_id} not found")
        if self._note_log_text is not None:
            self._note_log_text(found.log_text)
        return QueryLookup(found.collection, text, found.vector, found.answer, digest)

    def _prepare(self, query: str, config: QueryConfig) -> tuple[str | None, bytes | None]:
        """The question as it will be searched for, and the digest of what decides its answer."""
        if config.history or config.conversation_id is not None or len(query) > self._max_query_length:
            return None, None
        run = QueryRun(query, _NOT_YET, config, _NOT_YET, Deadline.never(), buffered=True)
        try:
            run.search_text = self._preprocessor.preprocess(query)
            run.choose_provider(self._llm_registry)
            return run.search_text, None if self._answer_cache is None else self._answer_cache.digest(run)
        except VectorForgeError:
            return None, None  # the query itself will say so
