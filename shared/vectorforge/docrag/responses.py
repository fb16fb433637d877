"""Errors, responses, cache counters and statistics of the DocRag engine.

Each error is also the pipeline's error of the same kind, so that either can be caught.
"""

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vectorforge import errors
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.paging import QueryFilter
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.citations.wording import LOW_RELEVANCE, completeness, relevance
from vectorforge.pipeline.presets import UNAVAILABLE_ANSWER, accuracy_indicators, history_of
from vectorforge.pipeline.types import HistoryMessage, QueryResult, StructuredAnswer
from vectorforge.types import Collection, RetrievedChunk, location_text


class RAGError(errors.VectorForgeError):
    """The engine failed."""


class EmbeddingError(RAGError, errors.EmbeddingError):
    """A text could not be embedded."""


class RetrievalError(RAGError, errors.RetrievalError):
    """The search failed."""


class GenerationError(RAGError, errors.LLMError):
    """The answer could not be generated."""


def rag_error(error: errors.VectorForgeError) -> errors.VectorForgeError:
    """The engine's error for one of the pipeline's; what the caller has to change stays as it is."""
    if isinstance(error, RAGError) or not error.is_fault:
        return error
    own: RAGError
    if isinstance(error, errors.EmbeddingError):
        own = EmbeddingError(f"Failed to generate embedding: {error.message}")
    elif isinstance(error, errors.LLMError):
        own = GenerationError(f"Failed to generate response: {error.message}")
    elif isinstance(error, errors.RetrievalError | errors.DatabaseError):
        own = RetrievalError(f"Failed to retrieve documents: {error.message}")
    else:
        return error
    own.retryable, own.retry_after_s = error.retryable, error.retry_after_s
    own.__cause__ = error
    return own


logger = logging.getLogger(__name__)


def as_history(exchanges: Iterable[Mapping[str, str]] | None) -> tuple[HistoryMessage, ...]:
    """Earlier exchanges, oldest first.

    Raises:
        InvalidInputError: One has no ``user_query`` or no ``ai_response``.
    """
    pairs = []
    for exchange in exchanges or ():
        pair = (exchange.get("user_query"), exchange.get("ai_response"))
        if not isinstance(pair[0], str) or not isinstance(pair[1], str):
            raise InvalidInputError(
                "Each exchange needs the texts user_query and ai_response.", field="conversation_history"
            )
        pairs.append((pair[0], pair[1]))
    return history_of(pairs)


def as_response(result: QueryResult) -> dict[str, Any]:
    """Return an answer as a dictionary."""
    structured = result.structured or StructuredAnswer()
    return {
        "answer": result.answer,
        "examples": list(structured.examples),
        "sources": list(structured.source_urls),
        "confidence": structured.confidence,
        "dropped_sources": structured.dropped_source_urls,
        "response_time": result.total_latency_ms / 1000,
        "cached": result.cached,
        "degraded": list(result.degraded),
        "variant": result.variant,
        "request_id": str(result.request_id),
        "passages": [as_chunk(chunk) for chunk in result.retrieved_chunks],
        "quality": _as_quality(result, structured),
        **({"error": "service_unavailable"} if "template" in result.degraded else {}),
    }


def unavailable(response_time: float) -> dict[str, Any]:
    """Return the fixed answer of an unavailable service, ``response_time`` in seconds."""
    return {
        "answer": UNAVAILABLE_ANSWER,
        "examples": [],
        "sources": [],
        "confidence": "low",
        "dropped_sources": 0,
        "response_time": response_time,
        "cached": False,
        "degraded": ["template"],
        "variant": None,
        "request_id": None,
        "passages": [],
        "quality": None,
        "error": "service_unavailable",
    }


def as_chunk(chunk: RetrievedChunk) -> dict[str, Any]:
    """Return a chunk under the design's names."""
    return {
        "content": chunk.chunk.text,
        "metadata": dict(chunk.chunk.metadata),
        "similarity_score": chunk.score,
        "source_url": chunk.document_source,
        "title": chunk.document_title or "",
        "locations": list(chunk.chunk.locations),
        "location_text": location_text(chunk.chunk.locations),
    }


def assess_response_quality(
    query: str, response: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Rate an answer by its words, without a model; a heuristic.

    Returns:
        ``relevance_score`` (share of the answer's words in the chunks, 0 to 1; 0 for an empty answer; a
        warning is logged below 0.3), ``completeness_score`` (share of the query's content words that the
        chunks hold and the answer takes up, 0 to 1) and ``accuracy_indicators`` ("sources_provided",
        "examples_provided").
    """
    answer, texts = response.get("answer") or "", [chunk.get("content") or "" for chunk in chunks]
    share = relevance(answer, texts)
    if share < LOW_RELEVANCE:
        logger.warning("Low answer quality: relevance %.2f", share)
    return {
        "relevance_score": share,
        "completeness_score": completeness(query, answer, texts),
        "accuracy_indicators": accuracy_indicators(
            response.get("examples") or (), response.get("sources") or ()
        ),
    }


def _as_quality(result: QueryResult, structured: StructuredAnswer) -> dict[str, Any] | None:
    """The quality under the design's names, and under those of ``AnswerQuality``."""
    quality = result.quality
    if quality is None:
        return None
    return {
        "relevance_score": quality.relevance,
        "completeness_score": quality.completeness,
        "accuracy_indicators": accuracy_indicators(structured.examples, structured.source_urls),
        **asdict(quality),
    }


def track_query_analytics(query: str, response: Mapping[str, Any], processing_time: float) -> dict[str, Any]:
    """Log sizes and qualities of an answer and its seconds, without its text, and return them."""
    analytics = {
        "query_length": len(query),
        "response_length": len(response.get("answer", "")),
        "sources_count": len(response.get("sources", ())),
        "examples_count": len(response.get("examples", ())),
        "processing_time": processing_time,
        "confidence_level": response.get("confidence", "unknown"),
        "cached": response.get("cached", False),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    logger.info(f"Query analytics: {json.dumps(analytics)}")  # exact text: D-042
    return analytics


class CacheManager:
    """View on the pipeline's answer cache, and a thread-safe cache of callers' values with expiry.

    Args:
        max_entries: Values of callers; the least recently used one is dropped first.
        clock: Seconds.
        count_answers: Returns the number of cached answers.
    """

    def __init__(
        self,
        max_entries: int = 1000,
        *,
        clock: Callable[[], float] = time.monotonic,
        count_answers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._max_entries = max_entries
        self._clock = clock
        self._count_answers = count_answers
        self._entries: OrderedDict[str, tuple[Any, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def get(self, key: str) -> Any | None:
        """Return the value, or None if there is none or it has expired."""
        with self._lock:
            value, until = self._entries.get(key, (None, float("-inf")))
            if until <= self._clock():
                self._entries.pop(key, None)
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            return value

    def set(self, key: str, value: Any, ttl: float = 3600.0) -> None:
        """Cache a value for ``ttl`` seconds, in place of an earlier one."""
        with self._lock:
            self._entries[key] = (value, self._clock() + ttl)
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def count_query(self, *, cached: bool) -> None:
        """Count a query of the engine as a hit or a miss."""
        with self._lock:
            self._hits += cached
            self._misses += not cached

    def get_stats(self) -> dict[str, Any]:
        """Return ``entries``, ``hits``, ``misses`` and ``hit_rate`` (0 to 1; None before the first look-up).

        Entries are the collection's cached answers of all processes and the values set here. Hits and misses
        are those of this engine's queries and of ``get``.

        Raises:
            DatabaseError: The answers cannot be counted.
        """
        answers = self._count_answers()
        with self._lock:
            lookups = self._hits + self._misses
            return {
                "entries": answers + len(self._entries),
                "hits": self._hits,
                "misses": self._misses,
                "hit_rate": self._hits / lookups if lookups else None,
            }


_SUCCEEDED = ("answered", "cached", "empty")


async def performance_stats(
    tenant: TenantServices, collection: Collection, *, model: str | None
) -> dict[str, Any]:
    """Return statistics under the design's names; the day starts at midnight, UTC.

    Returns:
        ``cache_stats`` of the collection as ``CacheStatistics`` has it, with ``hit_rate_last_day`` (0 to 1;
        None without queries); ``vector_store_stats`` with ``collection_count`` (of the tenant),
        ``document_count`` and ``chunk_count`` (of the collection); ``embedding_stats`` with ``model``,
        ``dimension`` and ``daily_requests`` (queries with a search); ``generation_stats`` with ``model``,
        ``avg_response_time`` (seconds) and ``success_rate`` (share of answered queries, 0 to 1, without
        aborted ones). The last two are None on a day without queries.
    """
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    today = QueryFilter(since=midnight, collection_id=collection.id)
    usage = (await tenant.statistics.collect(today, "day")).totals
    mean_ms = await tenant.statistics.mean_latency_ms(today)
    cache = await tenant.caches.shared_answers.statistics(collection.id)
    hit_rate = cache.hits_last_day / cache.answered_last_day if cache.answered_last_day else None
    ended = sum(usage.outcomes.get(name, 0) for name in (*_SUCCEEDED, "error", "deadline"))
    succeeded = sum(usage.outcomes.get(name, 0) for name in _SUCCEEDED)
    return {
        "cache_stats": {**asdict(cache), "hit_rate_last_day": hit_rate},
        "vector_store_stats": {
            "collection_count": len(await tenant.collections.list()),
            "document_count": collection.document_count,
            "chunk_count": collection.chunk_count,
        },
        "embedding_stats": {
            "model": collection.embedding_model,
            "dimension": collection.dimension,
            "daily_requests": usage.queries - usage.cached,
        },
        "generation_stats": {
            "model": model,
            "avg_response_time": None if mean_ms is None else mean_ms / 1000,
            "success_rate": succeeded / ended if ended else None,
        },
    }
