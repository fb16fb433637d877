"""The engine's cache: how it served the engine's queries, and values of callers."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


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
