"""An embedder without a model: words are hashed into a vector. For tests only."""

import asyncio
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.types import Vector

DIMENSION = 64

_WORD = re.compile(r"\w+")


def hashed_vector(text: str, dimension: int = DIMENSION) -> list[float]:
    """Return word counts, at positions and with signs given by each word's CRC-32; L2 norm 1.

    Texts that share words are similar. The result is the same on every machine and never zero.
    """
    counts = [0.0] * dimension
    for word in _WORD.findall(text.lower()) or [text]:
        crc = zlib.crc32(word.encode())
        counts[crc % dimension] += 1.0 if crc >> 31 else -1.0
    if not any(counts):  # words may cancel each other out
        counts[0] = 1.0
    norm = math.hypot(*counts)
    return [count / norm for count in counts]


class HashingEmbedder(EmbeddingProvider):
    """Embeds by ``hashed_vector``: instant, deterministic, lexical; no retries by default.

    Args:
        name: Name of the provider.
        dimension: Length of the vectors.
        delay_s: Seconds to wait in each call, so that a test can act in the middle.
        **options: See ``EmbeddingProvider``.
    """

    is_remote: ClassVar[bool] = False

    def __init__(
        self, *, name: str = "hashing", dimension: int = DIMENSION, delay_s: float = 0.0, **options: Any
    ) -> None:
        self._name = name
        super().__init__(**{"retries": 0, **options})
        self._dimension = dimension
        self._delay_s = delay_s
        self.texts: list[str] = []
        """Every text embedded so far, in order."""
        self.requests: list[int] = []
        """Number of texts in each call."""

    def provider_name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def default_model(self) -> str:
        """The only model, "hashing-v1"."""
        return "hashing-v1"

    def dimension(self, model: str | None = None) -> int | None:
        """The configured dimension."""
        return self._dimension

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        await asyncio.sleep(self._delay_s)
        self.texts.extend(texts)
        self.requests.append(len(texts))
        return [hashed_vector(text, self._dimension) for text in texts]
