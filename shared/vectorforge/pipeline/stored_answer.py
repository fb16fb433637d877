"""Stored answers: their form, the state of one query's look-up, and the memory of one process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from vectorforge.db.repositories.answer_cache_repo import CachedAnswer
from vectorforge.llm.types import LLMResponse
from vectorforge.pipeline.step_types import QueryStep
from vectorforge.pipeline.types import AnswerQuality, Citation, StructuredAnswer
from vectorforge.types import RetrievedChunk, Scan, SearchMode

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_LONGEST_S = 60.0
"""Seconds until an answer is read again, so that a deleted one soon disappears from all processes."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """Everything of an answer except its prompt, which is built again."""

    retrieved: list[RetrievedChunk]
    matched: int | None
    matched_is_at_least: bool
    search_mode: SearchMode | None
    scan: Scan | None
    below_min_score: int
    answer: str
    citations: list[Citation]
    invalid_citations: int
    finish_reason: str
    response: LLMResponse
    rewritten_query: str | None = None
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None
    steps: list[QueryStep] = field(default_factory=list)

    @classmethod
    def from_json(cls, text: str | bytes) -> "StoredAnswer":
        """Return the answer that ``to_json`` wrote.

        Raises:
            ValueError: The text is something else.
        """
        return _adapter().validate_json(text)

    def to_json(self) -> str:
        """Return the answer as JSON."""
        return _adapter().dump_json(self).decode()


@dataclass(slots=True)
class CacheState:
    """Answer cache as one query sees it. Step 0 sets the first two fields, the cache the others."""

    digest: bytes | None = None
    """Digest of everything that decides the answer except documents and collection; None: not looked up."""
    found: CachedAnswer | None = None
    """Result of step 0 for ``digest``."""
    key: bytes | None = None
    data_version: int | None = None
    """Version of the collection, read before the search, or searched if that is older; None if unknown."""
    stored: StoredAnswer | None = None
    """Answer to the same query on the same documents, fresh or expired."""
    hit: bool = False
    """True if the stored answer is the query's answer."""


@cache
def _adapter() -> "TypeAdapter[StoredAnswer]":
    from pydantic import TypeAdapter

    return TypeAdapter(StoredAnswer)


@dataclass(frozen=True, slots=True)
class _Entry:
    data_version: int
    answer: str
    expires_at: float


class AnswerMemory:
    """The answers used last, of all tenants; a tenant is part of each key.

    Args:
        max_bytes: Of all answers together; the least recently used one is dropped first. 0 stores none.
        clock: Clock, seconds.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.time) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, tenant_id: str, key: bytes, data_version: int) -> CachedAnswer | None:
        """Return a fresh answer made at this version."""
        with self._lock:
            entry = self._entries.get((tenant_id, key))
            if entry is None:
                return None
            fresh_for_s = entry.expires_at - self._clock()
            if entry.data_version != data_version or not 0 < fresh_for_s <= _LONGEST_S:
                self._delete((tenant_id, key))
                return None
            self._entries.move_to_end((tenant_id, key))
            return CachedAnswer(data_version, entry.answer, fresh_for_s, "memory")

    def store(self, tenant_id: str, key: bytes, data_version: int, answer: str, fresh_for_s: float) -> None:
        """Store a fresh answer for at most a minute."""
        with self._lock:
            self._delete((tenant_id, key))
            expires_at = self._clock() + min(fresh_for_s, _LONGEST_S)
            self._entries[tenant_id, key] = _Entry(data_version, answer, expires_at)
            self._bytes += _size(answer)
            while self._bytes > self._max_bytes:
                self._delete(next(iter(self._entries)))

    def clear(self, tenant_id: str) -> None:
        """Delete a tenant's answers."""
        with self._lock:
            for place in [place for place in self._entries if place[0] == tenant_id]:
                self._delete(place)

    def _delete(self, place: tuple[str, bytes]) -> None:
        entry = self._entries.pop(place, None)
        if entry is not None:
            self._bytes -= _size(entry.answer)


def _size(answer: str) -> int:
    """Return the approximate bytes: Python stores most characters in one or two."""
    return 2 * len(answer) + 200
