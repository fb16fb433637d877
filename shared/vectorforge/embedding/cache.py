"""Cache of vectors, so that the same text is not embedded twice."""

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar

from vectorforge.errors import InvalidInputError
from vectorforge.types import Vector

CACHE_TENANT: ContextVar[str] = ContextVar("cache_tenant", default="")
"""Tenant of the current cache reads and writes; empty in a process without tenants."""

FRESH_VECTORS: ContextVar[bool] = ContextVar("fresh_vectors", default=False)
"""True to ignore cached vectors and replace them."""


class InMemoryEmbeddingCache:
    """LRU cache in this process, with 4-byte floats (6 KB for 1,536 dimensions).

    A full cache drops the least recently used vector of the tenant with the most, so that no tenant evicts
    vectors of another that holds less than an equal share. ``model_key`` identifies everything else that
    determines a vector: provider, address, model, size. Other tenants neither find a vector nor notice it by
    latency.

    Args:
        max_entries: Vectors of all tenants together, at least 1.

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
        """Return text -> vector (a new list of float32 values) for the texts that this tenant has cached."""
        vectors: dict[str, list[float]] = {}
        keys = _keys(model_key, texts)
        with self._lock:
            share = self._shares.get(tenant_id) or OrderedDict()
            for text, key in zip(texts, keys, strict=True):
                if key in share:
                    share.move_to_end(key)
                    vectors[text] = share[key].tolist()
        return vectors

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
        """Drop a vector of this tenant if it has at least an equal share, else of the largest tenant."""
        if len(self._shares[tenant_id]) * len(self._shares) < self._max_entries:
            tenant_id = max(self._shares, key=lambda name: len(self._shares[name]))
        share = self._shares[tenant_id]
        share.popitem(last=False)
        self._count -= 1
        if not share:
            del self._shares[tenant_id]


def _keys(model_key: str, texts: Iterable[str]) -> list[bytes]:
    """Return the sha256 of hashed model key and text; hashing the key first keeps the two apart."""
    model = hashlib.sha256(hashlib.sha256(model_key.encode()).digest())
    keys = []
    for text in texts:
        both = model.copy()
        both.update(text.encode(errors="surrogatepass"))
        keys.append(both.digest())
    return keys
