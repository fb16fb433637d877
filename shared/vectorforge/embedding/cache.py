"""Vectors kept so that the same text is not embedded twice."""

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

from vectorforge.errors import InvalidInputError
from vectorforge.types import Vector

CACHE_TENANT: ContextVar[str] = ContextVar("cache_tenant", default="")
"""Tenant whose entries of a shared cache are read and written; empty: a process without tenants."""

FRESH_VECTORS: ContextVar[bool] = ContextVar("fresh_vectors", default=False)
"""Whether vectors are made anew and then kept, whatever is kept already."""


class EmbeddingCache(Protocol):
    """Where vectors are kept; any store of bytes by key can be one.

    ``model_key`` names everything besides the text that decides a vector: provider, address, model, size.
    """

    def get_many(self, model_key: str, texts: Sequence[str], *, tenant_id: str = "") -> Mapping[str, Vector]:
        """Return text -> vector for the texts that this tenant has cached; the others are absent."""
        ...

    def put_many(self, model_key: str, vectors: Mapping[str, Vector], *, tenant_id: str = "") -> None:
        """Cache text -> vector for this tenant; no other one may find it, or notice it by the latency."""
        ...


class InMemoryEmbeddingCache:
    """Keeps the vectors used last, in this process, as 4-byte floats (6 KB for 1,536 dimensions).

    A full cache drops the least recently used vector of the tenant with the most, so that no tenant evicts
    another one's below an equal share.

    Args:
        max_entries: Vectors of all tenants together, 1 or more.

    Raises:
        InvalidInputError: ``max_entries`` is below 1.
    """

    def __init__(self, max_entries: int = 10_000) -> None:
        if max_entries < 1:
            raise InvalidInputError("max_entries must be at least 1.", field="max_entries")
        self._max_entries = max_entries
        self._shares: dict[str, OrderedDict[bytes, array[float]]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def get_many(
        self, model_key: str, texts: Sequence[str], *, tenant_id: str = ""
    ) -> dict[str, list[float]]:
        """Return text -> vector (a fresh list of float32 values) for texts that this tenant has cached."""
        found: dict[str, list[float]] = {}
        keys = _keys(model_key, texts)
        with self._lock:
            share = self._shares.get(tenant_id) or OrderedDict()
            for text, key in zip(texts, keys, strict=True):
                if key in share:
                    share.move_to_end(key)
                    found[text] = share[key].tolist()
        return found

    def put_many(self, model_key: str, vectors: Mapping[str, Vector], *, tenant_id: str = "") -> None:
        """Cache text -> vector for this tenant, rounded to float32."""
        keys = _keys(model_key, vectors)
        with self._lock:
            for key, vector in zip(keys, vectors.values(), strict=True):
                share = self._shares.setdefault(tenant_id, OrderedDict())
                self._count += key not in share
                share[key] = array("f", vector)
                share.move_to_end(key)
                if self._count > self._max_entries:
                    self._drop_one(tenant_id)

    def _drop_one(self, tenant_id: str) -> None:
        """Drop a vector of this tenant if it has an equal share or more, else of the one with the most."""
        if len(self._shares[tenant_id]) * len(self._shares) < self._max_entries:
            tenant_id = max(self._shares, key=lambda name: len(self._shares[name]))
        share = self._shares[tenant_id]
        share.popitem(last=False)
        self._count -= 1
        if not share:
            del self._shares[tenant_id]


def _keys(model_key: str, texts: Iterable[str]) -> list[bytes]:
    """sha256 of both, the model's as a hash of its own, so that they cannot run into each other."""
    model = hashlib.sha256(hashlib.sha256(model_key.encode()).digest())
    keys = []
    for text in texts:
        both = model.copy()
        both.update(text.encode(errors="surrogatepass"))
        keys.append(both.digest())
    return keys
