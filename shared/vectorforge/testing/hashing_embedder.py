"""An embedder without a model: words are hashed into 64 dimensions. For tests only; it knows no meaning."""

import asyncio
import math
import re
import zlib
from collections.abc import Sequence

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.types import Vector

DIMENSION = 64


class HashingEmbedder(EmbeddingProvider):
    """Equal texts have equal vectors of length 1; texts that share words have similar ones.

    Args:
        delay_s: Seconds to wait in each call, so that a test can act in the middle.
    """

    def __init__(self, *, delay_s: float = 0.0, batch_size: int = 64) -> None:
        super().__init__(retries=0, batch_size=batch_size)
        self._delay_s = delay_s
        self.texts: list[str] = []
        """Every text embedded so far, in order."""

    def provider_name(self) -> str:
        """Always "hashing"."""
        return "hashing"

    @property
    def default_model(self) -> str:
        """The only model."""
        return "hashing-64"

    def dimension(self, model: str | None = None) -> int | None:
        """Always 64."""
        return DIMENSION

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        await asyncio.sleep(self._delay_s)
        self.texts.extend(texts)
        return [_embed(text) for text in texts]


def _embed(text: str) -> list[float]:
    counts = [0.0] * DIMENSION
    for word in re.findall(r"\w+", text.lower()) or [text]:
        counts[zlib.crc32(word.encode()) % DIMENSION] += 1.0
    norm = math.hypot(*counts)
    return [count / norm for count in counts]
