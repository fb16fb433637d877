"""Values that callers of the engine keep for a while, in its process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class CacheManager:
    """Values by key, each for its time. Answers are not among them: the pipeline keeps those itself.

    May be used from several threads at once.

    Args:
        max_entries: Values at most; the one unused for longest goes first.
        clock: Seconds.
    """

    def __init__(self, max_entries: int = 1000, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[Any, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def get(self, key: str) -> Any | None:
        """The value, or None when there is none any more."""
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
        """Keep a value for ``ttl`` seconds, in place of an earlier one."""
        with self._lock:
            self._entries[key] = (value, self._clock() + ttl)
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def get_stats(self) -> dict[str, Any]:
        """``entries``, ``hits``, ``misses`` and ``hit_rate`` (0 to 1; None before the first ``get``)."""
        with self._lock:
            asked = self._hits + self._misses
            return {
                "entries": len(self._entries),
                "hits": self._hits,
                "misses": self._misses,
                "hit_rate": self._hits / asked if asked else None,
            }
