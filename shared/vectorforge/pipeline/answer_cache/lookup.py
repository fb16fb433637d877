"""Step 0 of a query: one round trip for everything that is read before its search.

It finds the collection, the cached answer and the cached vector of the query, and reserves the request's
share of the tenant's limits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from vectorforge.config import VectorForgeConfig
from vectorforge.db.repositories.query_lookup_repo import QueryLookupRepository
from vectorforge.errors import (
    AuthenticationError,
    DatabaseUnavailableError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    VectorForgeError,
)
from vectorforge.limits.settings import Claim
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.step_types import MAX_SEARCH_ROUNDS
from vectorforge.retriever.base import QueryLookup
from vectorforge.types import Collection

if TYPE_CHECKING:
    from vectorforge.limits.admission import Admission

logger = logging.getLogger(__name__)

_TIMEOUT_S = 1.0
"""Time limit of the look-up: the collection alone might be there at once."""
_FATAL = (AuthenticationError, DatabaseUnavailableError, LimitExceededError, InvalidInputError)
"""Errors that reading the collection alone would not avoid."""

_PROMPT_TOKENS = 500
"""Upper bound of the presets' own prompts and of the text around chunks and messages."""
_BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 per token; English and most scripts with multi-byte letters have about four. A claim is
settled soon, so no tokenizer is loaded for it."""
_REWRITING_TOKENS = 2_500
"""Upper bound of a rewrite: see ``conversation.QueryRewriter``."""
_PLANNING_TOKENS = {"minimal": 0, "low": 1_500, "auto": 1_500, "medium": 9_500}
"""Upper bound of the planning calls: see ``planning.QueryPlanner``."""


@dataclass(eq=False, slots=True)
class QueryLookupService:
    """Finds the collection of a query, with everything else that is read before the search.

    Args:
        queries: Look-up of one tenant.
        find_collection: Finds a collection of the same tenant by id or name, or raises ``NotFoundError``.
        answer_cache: Cache of the query service; None: no answers are looked up.
        admission: Admission of the request; None: it has no limits.
        settings: Bound what a run may use at most, if the tenant may have limits.
        note_log_text: Receives the tenant's policy for logged texts, which is read with the rest.
    """

    queries: QueryLookupRepository
    find_collection: Callable[[str], Awaitable[Collection]]
    answer_cache: AnswerCache | None
    _: KW_ONLY
    admission: "Admission | None"
    settings: VectorForgeConfig
    note_log_text: Callable[[str | None], None]

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
        if not alone and self.answer_cache is not None and run.is_cacheable:
            run.cache.digest = self.answer_cache.digest(run)
        try:
            run.lookup = await self._find_first(run, text)
        except DatabaseUnavailableError:
            if run.choice.known_id is None:
                raise
            run.collection_id = run.choice.known_id  # the search fails next, which has fallbacks
        if self.admission is not None:  # unless it went with the look-up
            await self.admission.admit(lambda: query_claim(run, self.settings))
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
        try:
            return QueryLookup(await self.find_collection(run.choice.names[-1]))
        except NotFoundError as exc:
            raise run.choice.not_found(exc) from None

    async def _find(self, run: QueryRun, name: str, text: str | None) -> QueryLookup | None:
        digest = run.cache.digest
        piggyback = (
            None
            if self.admission is None
            else self.admission.piggyback(lambda: query_claim(run, self.settings))
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                row = await self.queries.find(name, text, digest, piggyback=piggyback)
        except _FATAL:
            raise
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The caches were not read: %s", type(exc).__name__)
            run.cache.digest = None
            with suppress(NotFoundError):
                return QueryLookup(await self.find_collection(name))
            return None
        if row is None:
            return None
        self.note_log_text(row.log_text)
        if digest is not None:
            run.cache.found = row.answer
        return QueryLookup(row.collection, text, row.vector)


def query_claim(run: QueryRun, settings: VectorForgeConfig) -> Claim:
    """Return the most that a prepared run may use: its prompt's budget and its longest answer, at its price.

    Where neither a number of tokens nor of characters bounds the chunks, they are assumed to be as long as
    the settings cut them. The extractive provider uses nothing, and a model without a price costs nothing.
    """
    is_stream, config, provider = not run.buffered, run.config, run.provider
    if provider is None or run.is_extractive:
        return Claim(is_stream=is_stream)
    messages = (*config.history, *config.following)
    texts = [run.query, config.system_prompt or "", *(message.content for message in messages)]
    if config.has_tools or config.response_format is not None:
        texts.append(str([config.offered_tools, config.response_format, *(m.tool_calls for m in messages)]))
    prompt_tokens = _PROMPT_TOKENS + _context_tokens(run, settings) + sum(map(_tokens, texts))
    if config.conversation_id is not None:
        prompt_tokens += settings.query.history_max_tokens
    if config.rewrite and (config.history or config.conversation_id is not None):
        prompt_tokens += _REWRITING_TOKENS
    prompt_tokens += _PLANNING_TOKENS.get(config.effort, 0)
    answer_tokens = config.max_tokens
    if config.response_format is not None:  # may be repaired once
        prompt_tokens, answer_tokens = 2 * prompt_tokens + answer_tokens, 2 * answer_tokens
    if config.search_tool is not None:
        calls = 1 + MAX_SEARCH_ROUNDS
        prompt_tokens, answer_tokens = calls * prompt_tokens, calls * answer_tokens
    model = run.model or provider.default_model
    cost = run.prices.estimate_cost(provider.name, model, prompt_tokens, answer_tokens)
    return Claim(is_stream=is_stream, tokens=prompt_tokens + answer_tokens, cost_usd=cost or 0.0)


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def _context_tokens(run: QueryRun, settings: VectorForgeConfig) -> int:
    context = run.preset.context_config(run.config)
    if context.max_context_chars is not None:
        return context.max_context_chars // _BYTES_PER_TOKEN
    if context.max_context_tokens is not None:
        return context.max_context_tokens
    return run.config.top_k * settings.ingestion.chunk_size_chars // _BYTES_PER_TOKEN
