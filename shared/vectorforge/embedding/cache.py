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

FRESH_VECTORS: ContextVar[bool] = ContextVar("fresh_vectors", default=False)
"""Whether vectors are made anew and then kept, whatever is kept already."""


class EmbeddingCache(Protocol):
    """Where vectors are kept; any store of bytes by key can be one.

    ``model_key`` names everything besides the text that decides a vector: provider, address, model, size.
    """

    def get_many(self, model_key: str, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Text -> vector, for the texts that are known; the others are absent."""
        ...

    def put_many(self, model_key: str, vectors: Mapping[str, Vector]) -> None:
        """Keep text -> vector."""
        ...


class InMemoryEmbeddingCache:
    """Keeps the vectors used last, in this process, as 4-byte floats (6 KB for 1,536 dimensions).

    Args:
        max_entries: Vectors at most, 1 or more; the one unused for longest goes first.

    Raises:
        InvalidInputError: ``max_entries`` is below 1.
    """

    def __init__(self, max_entries: int = 10_000) -> None:
        if max_entries < 1:
            raise InvalidInputError("max_entries must be at least 1.", field="max_entries")
        self._max_entries = max_entries
        self._vectors: OrderedDict[bytes, array[float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._vectors)

    def get_many(self, model_key: str, texts: Sequence[str]) -> dict[str, list[float]]:
        """Text -> vector (a fresh list of float32 values), for the texts that are known."""
        found: dict[str, list[float]] = {}
        keys = _keys(model_key, texts)
        with self._lock:
            for text, key in zip(texts, keys, strict=True):
                if key in self._vectors:
                    self._vectors.move_to_end(key)
                    found[text] = self._vectors[key].tolist()
        return found

    def put_many(self, model_key: str, vectors: Mapping[str, Vector]) -> None:
        """Keep text -> vector, rounded to float32."""
        keys = _keys(model_key, vectors)
        with self._lock:
            for key, vector in zip(keys, vectors.values(), strict=True):
                self._vectors[key] = array("f", vector)
                self._vectors.move_to_end(key)
            while len(self._vectors) > self._max_entries:
                self._vectors.popitem(last=False)


def _keys(model_key: str, texts: Iterable[str]) -> list[bytes]:
    """sha256 of both, the model's as a hash of its own, so that they cannot run into each other."""
    model = hashlib.sha256(hashlib.sha256(model_key.encode()).digest())
    keys = []
    for text in texts:
        both = model.copy()
        both.update(text.encode(errors="surrogatepass"))
        keys.append(both.digest())
    return keys
