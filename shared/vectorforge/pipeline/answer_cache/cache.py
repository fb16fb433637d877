"""Answers that were given before: under which key they are kept, when they are taken, and when not.

An answer is kept with the collection's data version, which is read before the search. Every write to the
collection raises that version in its own transaction, so an answer made of older documents is never found.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from vectorforge import __version__
from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.errors import VectorForgeError
from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.answer_cache.stored_answer import StoredAnswer
from vectorforge.pipeline.presets import preset_text
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryConfig
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector

if TYPE_CHECKING:
    from vectorforge.db.types import Call

logger = logging.getLogger(__name__)

_FORMAT = 5
"""Of what is kept; another one is another key."""
_NOT_IN_THE_PROMPT = frozenset(
    {"stream", "use_cache", "conversation_id", "allow_ungrounded", "quote_passages"}
)
"""Fields of ``QueryConfig`` that change no answer. A conversation's messages are in ``history``."""
_IN_THE_PROMPT = [field.name for field in fields(QueryConfig) if field.name not in _NOT_IN_THE_PROMPT]
_MAX_CHARS = 1_000_000
"""Of an answer with its passages, as JSON; a larger one is not kept."""
_TIMEOUT_S = 1.0
"""For the database, looking up and keeping alike: without a cache there would be no such wait."""


class AnswerStore(Protocol):
    """Where the answers of one tenant are kept."""

    async def find(
        self, key: bytes, collection_id: UUID, data_version: int | None, known: FoundAnswer | None = None
    ) -> FoundAnswer | None:
        """The collection's version and the answer of this key, fresh or expired.

        Args:
            key: 32 bytes.
            collection_id: Whose version counts.
            data_version: That version, when it was read in this request already.
            known: What this would return, when it was read with that.

        Returns:
            None when there is no such collection.
        """
        ...

    async def keep(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> None:
        """Store an answer that was made after the version was read; it takes the place of an earlier one."""
        ...

    def end_write(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> "Call":
        """The statement by which ``keep`` stores an answer; running it twice changes nothing more."""
        ...


class AnswerCache:
    """Looks for a query's answer before its search, and keeps it at its end. Never fails a query.

    Args:
        store: Of one tenant.
        tenant_id: That tenant.
        settings: Digest of what else decides an answer and is no part of a request: addresses, sizes, modes.
        metrics: Where ``pipeline.cache.*`` goes.
    """

    def __init__(
        self,
        store: AnswerStore,
        *,
        tenant_id: str,
        settings: str,
        metrics: MetricsCollector | None = None,
    ) -> None:
        self._store = store
        self._tenant_id = tenant_id
        self._settings = settings
        self._metrics: MetricsCollector = metrics or InMemoryMetrics()

    async def look_up(self, run: QueryRun) -> bool:
        """Whether the run's question was answered before on the same documents, not too long ago.

        Sets ``run.cache_key`` and ``run.data_version``; and, unless the caller wants a new answer,
        ``run.stored``, also when that has expired.
        """
        digest = self.digest(run)
        if digest is None:
            return False
        run.cache_key = _key_of(digest, run.collection_id)
        try:
            found = await self._find(run, run.cache_key)
            if found is None:
                return False
            run.data_version = found.data_version
            if found.answer is not None and run.config.use_cache:
                run.stored = StoredAnswer.from_json(found.answer)
        except (VectorForgeError, TimeoutError, ValueError) as exc:
            logger.warning("The answer cache was not read: %s", _text(exc))
            return False
        is_hit = found.fresh_for_s > 0 and run.stored is not None
        if is_hit:
            self._metrics.increment("pipeline.cache.hits", tags={"tier": found.tier})
        else:
            self._metrics.increment("pipeline.cache.misses")
        return is_hit

    def digest(self, run: QueryRun) -> bytes | None:
        """Of everything that decides the run's answer but the documents and their collection.

        None when answers like it are not kept.
        """
        if run.known is not None and run.known.digest is not None:
            return run.known.digest
        if run.provider is None or ProviderCapability.EXTRACTIVE in run.provider.capabilities:
            return None  # quoting again costs no more than looking here
        return _digest(run, self._tenant_id, self._settings)

    async def _find(self, run: QueryRun, key: bytes) -> FoundAnswer | None:
        if run.known is not None and run.known.digest is not None:
            return await self._store.find(key, run.collection_id, run.data_version, run.known.answer)
        async with asyncio.timeout(min(_TIMEOUT_S, max(run.deadline.remaining_s(), 0.0))):
            return await self._store.find(key, run.collection_id, run.data_version)

    async def keep(self, run: QueryRun) -> None:
        """Keep the run's answer, if it is one for others, too."""
        try:
            text = _worth_keeping(run)
            if text is None or run.cache_key is None or run.data_version is None:
                return
            async with asyncio.timeout(_TIMEOUT_S):
                await self._store.keep(run.cache_key, run.collection_id, run.data_version, text)
        except (VectorForgeError, TimeoutError, ValueError) as exc:
            logger.warning("The answer was not kept: %s", _text(exc))

    def end_write(self, run: QueryRun) -> "list[Call]":
        """The statement by which ``keep`` keeps the run's answer, or none."""
        try:
            text = _worth_keeping(run)
        except ValueError as exc:
            logger.warning("The answer was not kept: %s", _text(exc))
            return []
        if text is None or run.cache_key is None or run.data_version is None:
            return []
        return [self._store.end_write(run.cache_key, run.collection_id, run.data_version, text)]


def _worth_keeping(run: QueryRun) -> str | None:
    """The run's answer as JSON, if it is one for others, too."""
    if run.cached or run.cache_key is None or run.data_version is None:
        return None
    answer = StoredAnswer.of(run)
    text = None if answer is None else answer.to_json()
    return None if text is None or len(text) > _MAX_CHARS else text


def answer_key(run: QueryRun, tenant_id: str, settings: str) -> bytes:
    """sha256 of everything that decides the answer, but for the documents.

    That is the question as it is searched for, every field of the configuration that can change an answer
    (one that is added later counts by itself), the preset with its prompt, the provider and model that were
    chosen, collection, tenant, settings and the program's version.

    Args:
        run: Has its provider.
        tenant_id: Whose answer it is.
        settings: See ``AnswerCache``.
    """
    return _key_of(_digest(run, tenant_id, settings), run.collection_id)


def _key_of(digest: bytes, collection_id: UUID) -> bytes:
    # so made that PostgreSQL can make it, too, for a collection it knows by name (QuestionRepository)
    return hashlib.sha256(digest + collection_id.bytes).digest()


def _digest(run: QueryRun, tenant_id: str, settings: str) -> bytes:
    config, preset, text = run.config, run.preset, run.search_text
    parts = {
        "format": _FORMAT,
        "program": __version__,
        "tenant": tenant_id,
        "question": text if preset.case_matters else " ".join(text.lower().split()),
        "config": {name: getattr(config, name) for name in _IN_THE_PROMPT},
        "preset": preset_text(preset.name),
        "provider": run.provider.name if run.provider else None,
        "model": run.model,
        "settings": settings,
    }
    return hashlib.sha256(_ENCODER.encode(parts).encode()).digest()


def _plain(value: Any) -> Any:
    """JSON for what ``json`` does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    if isinstance(value, UUID):
        return str(value)
    return list(value)


_ENCODER = json.JSONEncoder(sort_keys=True, default=_plain)


def _text(exc: Exception) -> str:
    # Only our own errors' texts are known to hold no secret.
    return exc.message if isinstance(exc, VectorForgeError) else type(exc).__name__
