"""The engine's cache: how it served the engine's queries, and values of callers.

The engine's numbers: what is stored, and how its questions of today went.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.paging import QueryFilter
from vectorforge.types import Collection


class CacheManager:
    """A view on the pipeline's answer cache, and a store of callers' own values, each with its expiry.

    May be used from several threads at once.

    Args:
        max_entries: Values of callers at most; the one unused for longest goes first.
        clock: Seconds.
        count_answers: Returns the number of cached answers that a next equal query gets.
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

        Entries are the collection's cached answers, by any process, and the values set here. Hits and misses
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
    """Numbers under the design's names; the day begins at midnight, UTC.

    Args:
        tenant: Whose collection it is.
        collection: As it is now.
        model: Who answers; None: nobody.

    Returns:
        ``cache_stats`` of the collection as ``CacheStatistics`` has it, with ``hit_rate_last_day`` (0 to 1;
        None without queries); ``vector_store_stats`` with ``collection_count`` (of the tenant),
        ``document_count`` and ``chunk_count`` (of the collection); ``embedding_stats`` with ``model``,
        ``dimension`` and ``daily_requests`` (queries that were searched for); ``generation_stats`` with
        ``model``, ``avg_response_time`` (seconds) and ``success_rate`` (share of queries that were answered,
        0 to 1, without those that were aborted). The last two are None on a day without queries.
    """
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
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
