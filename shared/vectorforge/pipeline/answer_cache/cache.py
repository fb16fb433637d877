"""Answer cache: keys, look-up, replay and storage of answers.

An answer is stored with the collection's data version, which is read before the search, or with the older one
that a read replica searched. Every write to the
collection raises that version in its own transaction, so an answer made of older documents is never found.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge import __version__
from vectorforge.db.repositories.answer_cache_repo import AnswerCacheRepository, CachedAnswer
from vectorforge.errors import VectorForgeError, reason_of
from vectorforge.pipeline.presets import preset_text
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stored_answer import AnswerMemory, StoredAnswer
from vectorforge.pipeline.types import QueryConfig, QueryEvent
from vectorforge.retriever.base import RetrievedChunks
from vectorforge.telemetry import MetricsCollector
from vectorforge.vectorstore.base import NearestChunks

if TYPE_CHECKING:
    from vectorforge.db.tenant_database import Call

logger = logging.getLogger(__name__)

_FORMAT = 6
"""Version of the stored form; another version has other keys."""
_NOT_IN_THE_PROMPT = frozenset(
    {
        "stream",
        "use_cache",
        "conversation_id",
        "begins_conversation",
        "sends_history",
        "regenerates",
        "allow_ungrounded",
        "quote_passages",
        "min_version",
    }
)
"""Fields of ``QueryConfig`` that change no answer. A conversation's messages are in ``history``."""
_IN_THE_PROMPT = [field.name for field in fields(QueryConfig) if field.name not in _NOT_IN_THE_PROMPT]
_MAX_CHARS = 1_000_000
"""Length of a stored answer with its chunks, as JSON; longer ones are not stored."""
_TIMEOUT_S = 1.0
"""Time limit of a read: without a cache there would be no such wait."""


@dataclass(eq=False, slots=True)
class AnswerCache:
    """Finds the answer of a run that ``is_cacheable`` before its search, and stores it. Never fails a query.

    Args:
        memory: Answers of this process.
        shared: Answers of one tenant that all processes share.
        tenant_id: That tenant.
        ttl_s: Seconds for which an answer is fresh.
        settings: Digest of everything outside a request that decides an answer: addresses, sizes, modes.
        metrics: Collector of ``pipeline.cache.*``.
    """

    memory: AnswerMemory
    shared: AnswerCacheRepository
    _: KW_ONLY
    tenant_id: str
    ttl_s: float
    settings: str
    metrics: MetricsCollector

    async def look_up(self, run: QueryRun) -> bool:
        """Return True if the same query has a fresh answer on the same documents, not before ``min_version``.

        Sets ``key`` and ``data_version`` of ``run.cache``; and, unless the request bypasses the cache or
        requires a later version, ``stored``, also to an expired answer.
        """
        state = run.cache
        state.key = answer_key(state.digest or self.digest(run), run.collection_id)
        try:
            found = await self._find(run, state.key)
            if found is None:
                return False
            state.data_version = found.data_version
            if found.data_version < (run.config.min_version or 0):
                return False  # the search rejects a version that the collection has not reached
            if found.answer is not None and run.config.use_cache:
                state.stored = StoredAnswer.from_json(found.answer)
        except (VectorForgeError, TimeoutError, ValueError) as exc:
            logger.warning("The answer cache was not read: %s", reason_of(exc))
            return False
        is_hit = found.fresh_for_s > 0 and state.stored is not None
        if is_hit:
            self.metrics.increment("pipeline.cache.hits", tags={"tier": found.tier})
        else:
            self.metrics.increment("pipeline.cache.misses")
        return is_hit

    def digest(self, run: QueryRun) -> bytes:
        """Return the digest of everything that decides the run's answer except documents and collection.

        Digested are the cleaned query, every field of the configuration that can change an answer (later
        fields included), the preset with its prompt, the chosen provider and model, tenant, settings and the
        version of the program.
        """
        config, preset, text = run.config, run.preset, run.search_text
        parts = {
            "format": _FORMAT,
            "program": __version__,
            "tenant": self.tenant_id,
            "question": text if preset.case_matters else " ".join(text.lower().split()),
            "config": {name: getattr(config, name) for name in _IN_THE_PROMPT},
            "preset": preset_text(preset.name),
            "provider": run.provider.name if run.provider else None,
            "model": run.model,
            "settings": self.settings,
        }
        return hashlib.sha256(_ENCODER.encode(parts).encode()).digest()

    async def _find(self, run: QueryRun, key: bytes) -> CachedAnswer | None:
        """Return the collection's version and its answer; memory answers only when the version is known."""
        state = run.cache
        if state.data_version is not None:
            remembered = self.memory.find(self.tenant_id, key, state.data_version)
            if remembered is not None:
                return remembered
        found = state.found
        if found is None:
            async with asyncio.timeout(min(_TIMEOUT_S, max(run.deadline.remaining_s(), 0.0))):
                found = await self.shared.find(key, run.collection_id)
        if found is not None and found.answer is not None and found.fresh_for_s > 0:
            self.memory.store(self.tenant_id, key, found.data_version, found.answer, found.fresh_for_s)
        return found

    def end_write(self, run: QueryRun) -> "list[Call]":
        """Return the statement that stores the run's answer for all processes; none if no query may get it.

        The answer is in this process's memory at once.
        """
        key, version = run.cache.key, run.cache.data_version
        if run.cache.hit or key is None or version is None or (answer := storable_answer(run)) is None:
            return []
        try:
            text = answer.to_json()
        except ValueError as exc:
            logger.warning("The answer was not stored: %s", reason_of(exc))
            return []
        if len(text) > _MAX_CHARS:
            return []
        self.memory.store(self.tenant_id, key, version, text, self.ttl_s)
        return [self.shared.end_write(key, run.collection_id, version, text)]


def storable_answer(run: QueryRun) -> StoredAnswer | None:
    """Return the run's answer, or None if another query must not get it.

    Stored is a complete answer of a model: no error, no fallback, nothing cut off, nothing of poor quality,
    nothing from a shortened prompt (a replay builds another one of the stored chunks), and nothing quoted,
    which costs as little to make again.
    """
    response, found = run.response, run.retrieved
    if response is None or response.metadata.get("extractive"):
        return None
    whole = run.outcome == "answered" and run.finish_reason == "stop" and bool(run.answer)
    poor = (run.quality is not None and run.quality.low) or (
        run.structured is not None and run.structured.confidence == "low"
    )
    if not whole or poor or run.degraded or run.overflowed:
        return None
    return StoredAnswer(
        retrieved=list(found),
        matched=found.matched,
        matched_is_at_least=found.matched_is_at_least,
        search_mode=found.search_mode,
        scan=found.scan,
        below_min_score=found.below_min_score,
        answer=run.answer,
        citations=run.citations,
        invalid_citations=run.invalid_citations,
        finish_reason=run.finish_reason,
        response=response,
        rewritten_query=run.rewritten_query,
        quality=run.quality,
        structured=run.structured,
        steps=run.steps,
    )


def restore_chunks(run: QueryRun, stored: StoredAnswer) -> None:
    """Set the chunks of a run without a search to those of a stored answer."""
    run.retrieved = RetrievedChunks(
        NearestChunks(
            stored.retrieved, stored.matched, matched_is_at_least=stored.matched_is_at_least, scan=stored.scan
        )
    )
    run.retrieved.search_mode = stored.search_mode
    run.retrieved.below_min_score = stored.below_min_score
    run.rewritten_query, run.steps = stored.rewritten_query, list(stored.steps)


def replay(run: QueryRun, stored: StoredAnswer) -> Iterator[QueryEvent]:
    """Make a stored answer the answer of a run that has its chunks.

    It counts no tokens and no cost: both are logged with the query that the answer was made for.

    Returns:
        ``TokenEvent`` and ``CitationEvent`` in the order of the text, then ``UsageEvent``.
    """
    run.cache.hit, run.outcome = True, "cached"
    return run.adopt(
        stored.answer,
        replace(stored.response, prompt_tokens=0, completion_tokens=0, total_tokens=0, latency_ms=0.0),
        stored.citations,
        invalid_citations=stored.invalid_citations,
        finish_reason=stored.finish_reason,
        quality=stored.quality,
        structured=stored.structured,
    )


def answer_key(digest: bytes, collection_id: UUID) -> bytes:
    """Return the key of an answer in a collection, by the digest of ``AnswerCache.digest``."""
    # PostgreSQL makes the same key for a collection found by name (QueryLookupRepository)
    return hashlib.sha256(digest + collection_id.bytes).digest()


def _plain(value: Any) -> Any:
    """Convert a value that ``json`` does not encode."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    if isinstance(value, UUID):
        return str(value)
    return list(value)


_ENCODER = json.JSONEncoder(sort_keys=True, default=_plain)
