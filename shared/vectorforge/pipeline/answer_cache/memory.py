"""Answers kept in this process, before those that all processes share."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.pipeline.answer_cache.cache import AnswerStore

if TYPE_CHECKING:
    from vectorforge.db.types import Call

_LONGEST_S = 60.0
"""An answer is asked for again then, so that a deleted one is gone from all processes soon."""


@dataclass(frozen=True, slots=True)
class _Entry:
    tenant_id: str
    data_version: int
    answer: str
    expires_at: float


class AnswerMemory:
    """The answers used last, of all tenants; a tenant is part of each key.

    Args:
        max_bytes: Of all answers together; the one unused for longest goes first. 0 keeps none.
        clock: Seconds.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.time) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, tenant_id: str, key: bytes, data_version: int) -> FoundAnswer | None:
        """A fresh answer made at this version."""
        with self._lock:
            entry = self._entries.get((tenant_id, key))
            if entry is None:
                return None
            fresh_for_s = entry.expires_at - self._clock()
            if entry.data_version != data_version or not 0 < fresh_for_s <= _LONGEST_S:
                self._forget((tenant_id, key))
                return None
            self._entries.move_to_end((tenant_id, key))
            return FoundAnswer(data_version, entry.answer, fresh_for_s, "memory")

    def keep(self, tenant_id: str, key: bytes, data_version: int, answer: str, fresh_for_s: float) -> None:
        """Remember a fresh answer, for a minute at most."""
        with self._lock:
            self._forget((tenant_id, key))
            expires_at = self._clock() + min(fresh_for_s, _LONGEST_S)
            self._entries[tenant_id, key] = _Entry(tenant_id, data_version, answer, expires_at)
            self._bytes += _size(answer)
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._entries)))

    def clear(self, tenant_id: str) -> None:
        """Forget a tenant's answers."""
        with self._lock:
            for place in [place for place in self._entries if place[0] == tenant_id]:
                self._forget(place)

    def _forget(self, place: tuple[str, bytes]) -> None:
        entry = self._entries.pop(place, None)
        if entry is not None:
            self._bytes -= _size(entry.answer)


class MemoryFirst:
    """One tenant's answers: those of this process, then the shared ones.

    Args:
        memory: Of the process.
        shared: Of the tenant.
        tenant_id: That tenant.
        ttl_s: Seconds for which an answer is fresh.
    """

    def __init__(self, memory: AnswerMemory, shared: AnswerStore, tenant_id: str, *, ttl_s: float) -> None:
        self._memory = memory
        self._shared = shared
        self._tenant_id = tenant_id
        self._ttl_s = ttl_s

    async def find(
        self, key: bytes, collection_id: UUID, data_version: int | None, known: FoundAnswer | None = None
    ) -> FoundAnswer | None:
        """See ``AnswerStore.find``. Memory alone answers only when the version is known."""
        if data_version is not None:
            remembered = self._memory.find(self._tenant_id, key, data_version)
            if remembered is not None:
                return remembered
        found = await self._shared.find(key, collection_id, data_version, known)
        if found is not None and found.answer is not None and found.fresh_for_s > 0:
            self._memory.keep(self._tenant_id, key, found.data_version, found.answer, found.fresh_for_s)
        return found

    async def keep(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> None:
        """See ``AnswerStore.keep``."""
        self._memory.keep(self._tenant_id, key, data_version, answer, self._ttl_s)
        await self._shared.keep(key, collection_id, data_version, answer)

    def end_write(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> "Call":
        """See ``AnswerStore.end_write``; the answer is in memory at once."""
        self._memory.keep(self._tenant_id, key, data_version, answer, self._ttl_s)
        return self._shared.end_write(key, collection_id, data_version, answer)


def _size(answer: str) -> int:
    """Bytes, about: Python keeps text in one to four a character, most in one."""
    return 2 * len(answer) + 200
