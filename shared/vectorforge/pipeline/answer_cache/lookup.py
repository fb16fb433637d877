"""Step 0 of a query: one round trip for everything that is read before its search.

It finds the collection, the cached answer and the cached vector of the query, and reserves the request's
share of the tenant's limits.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from vectorforge.db.repositories.query_lookup_repo import PiggybackedStatement, QueryLookupRow
from vectorforge.errors import (
    AuthenticationError,
    DatabaseUnavailableError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    VectorForgeError,
)
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.run import QueryRun
from vectorforge.retriever.base import QueryLookup
from vectorforge.types import Collection

if TYPE_CHECKING:
    from vectorforge.limits.admission import Admission
    from vectorforge.limits.settings import Claim

logger = logging.getLogger(__name__)

_TIMEOUT_S = 1.0
"""Time limit of the look-up: the collection alone might be there at once."""
_FATAL = (AuthenticationError, DatabaseUnavailableError, LimitExceededError, InvalidInputError)
"""Errors that reading the collection alone would not avoid."""


class QueryLookupStore(Protocol):
    """Storage that looks queries up; ``QueryLookupRepository``."""

    async def find(
        self,
        name_or_id: str,
        query: str | None = None,
        digest: bytes | None = None,
        *,
        piggyback: PiggybackedStatement | None = None,
    ) -> QueryLookupRow | None:
        """Return the collection of this id or name with the cached data of the query; None: no collection."""
        ...


class CollectionFinder(Protocol):
    """Source of collections if the caches cannot be read; ``TenantServices``."""

    async def find_collection(self, name_or_id: str) -> Collection:
        """Return a collection by its id or its name.

        Raises:
            NotFoundError: It does not exist.
        """
        ...


class QueryLookupService:
    """Finds the collection of a query, with everything else that is read before the search.

    Args:
        queries: Look-up of one tenant.
        collections: Collections of the same tenant.
        answer_cache: Cache of the query service; None: no answers are looked up.
        admission: Admission of the request; None: it has no limits.
        claim: Computes the most that a run may use; called only if the tenant may have limits.
        note_log_text: Receives the tenant's policy for logged texts, which is read with the rest.
    """

    def __init__(
        self,
        queries: QueryLookupStore,
        collections: CollectionFinder,
        answer_cache: AnswerCache | None,
        *,
        admission: "Admission | None" = None,
        claim: "Callable[[QueryRun], Claim] | None" = None,
        note_log_text: Callable[[str | None], None] | None = None,
    ) -> None:
        self._queries = queries
        self._collections = collections
        self._answer_cache = answer_cache
        self._admission = admission
        self._claim = claim
        self._note_log_text = note_log_text

    async def look_up(self, run: QueryRun) -> None:
        """Set ``collection_id``, ``lookup`` and the first fields of ``cache``, and reserve the run's claim.

        A follow-up query, a malformed one and one whose caches cannot be read get their collection alone.

        Raises:
            LimitExceededError: A limit of the tenant is reached.
            InvalidInputError: The run may use more than a limit allows in its whole period.
            NotFoundError: The collection does not exist.
            DatabaseUnavailableError: No connection, or it was lost.
            AuthenticationError: The request's key is revoked or expired.
        """
        alone = run.request_error or run.config.history or run.config.conversation_id is not None
        text = None if alone else run.search_text
        if not alone and self._answer_cache is not None:
            run.cache.digest = self._answer_cache.digest(run)
        try:
            run.lookup = await self._find_first(run, text)
        except DatabaseUnavailableError:
            if run.choice.known_id is None:
                raise
            run.collection_id = run.choice.known_id  # the search fails next, which has fallbacks
        if self._admission is not None:  # unless it went with the look-up
            await self._admission.admit(lambda: self._claimed(run))
        if run.lookup is None:
            return
        collection = run.lookup.collection
        if run.choice.check is not None:
            run.choice.check(collection)
        run.collection_id, run.cache.data_version = collection.id, collection.data_version

    async def _find_first(self, run: QueryRun, text: str | None) -> QueryLookup:
        for name in run.choice.names:
            found = await self._find(run, name, text)
            if found is not None:
                return found
        raise run.choice.not_found()

    async def _find(self, run: QueryRun, name: str, text: str | None) -> QueryLookup | None:
        digest = run.cache.digest
        piggyback = None if self._admission is None else self._admission.piggyback(lambda: self._claimed(run))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                row = await self._queries.find(name, text, digest, piggyback=piggyback)
        except _FATAL:
            raise
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The caches were not read: %s", type(exc).__name__)
            run.cache.digest = None
            return await self._find_collection(name)
        if row is None:
            return None
        if self._note_log_text is not None:
            self._note_log_text(row.log_text)
        if digest is not None:
            run.cache.found = row.answer
        return QueryLookup(row.collection, text, row.vector)

    async def _find_collection(self, name: str) -> QueryLookup | None:
        try:
            return QueryLookup(await self._collections.find_collection(name))
        except NotFoundError:
            return None

    def _claimed(self, run: QueryRun) -> "Claim":
        if self._claim is None:
            from vectorforge.limits.settings import Claim

            return Claim()
        return self._claim(run)
