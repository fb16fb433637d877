"""Stored answers: their form, the state of one query's look-up, and their storage in memory and database."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.llm.types import LLMResponse
from vectorforge.pipeline.types import AnswerQuality, Citation, StructuredAnswer
from vectorforge.types import RetrievedChunk, Scan, SearchMode

if TYPE_CHECKING:
    from pydantic import TypeAdapter
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from vectorforge.db.types import Call


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
    found: FoundAnswer | None = None
    """Result of step 0 for ``digest``."""
    key: bytes | None = None
    data_version: int | None = None
    """Version of the collection, read before the search; None if unknown."""
    stored: StoredAnswer | None = None
    """Answer to the same query on the same documents, fresh or expired."""
    hit: bool = False
    """True if the stored answer is the query's answer."""


@cache
def _adapter() -> "TypeAdapter[StoredAnswer]":
    from pydantic import TypeAdapter

    return TypeAdapter(StoredAnswer)


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


class AnswerStore(Protocol):
    """Storage of one tenant's answers."""

    async def find(
        self, key: bytes, collection_id: UUID, data_version: int | None, known: FoundAnswer | None = None
    ) -> FoundAnswer | None:
        """Return the collection's version and the answer of this key, fresh or expired.

        Args:
            key: 32 bytes.
            collection_id: Collection of the version.
            data_version: That version, if it was read in this request already.
            known: Result of this method, if it was read with the version.

        Returns:
            None if the collection does not exist.
        """
        ...

    async def keep(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> None:
        """Store an answer that was made after the version was read; it replaces an earlier one."""
        ...

    def end_write(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> "Call":
        """Return the statement of ``keep``, which may be run twice."""
        ...


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
