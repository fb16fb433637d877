"""BM25 over words taken as they stand: the reference that ``lexical_sql`` is compared with."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from vectorforge.vectorstore.search.lexical import K1, B

KeyT = TypeVar("KeyT", bound=Hashable)

_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: not stemmed, and none left out."""
    return _WORD.findall(text.lower())


def bm25(passages: Mapping[KeyT, str], question: str) -> dict[KeyT, float]:
    """Score the passages that hold any of a question's words, by the formula in ``lexical_sql``.

    Args:
        passages: All of a collection, with their headers.
        question: Any text.

    Returns:
        The scores, above 0, of those passages.
    """
    frequencies = {key: Counter(words_of(text)) for key, text in passages.items()}
    lengths = {key: counts.total() for key, counts in frequencies.items()}
    mean_length = max(sum(lengths.values()) / max(len(lengths), 1), 1)
    scores: dict[KeyT, list[float]] = {}
    for word in set(words_of(question)):
        holders = [key for key, counts in frequencies.items() if counts[word]]
        idf = math.log(1 + (len(passages) - len(holders) + 0.5) / (len(holders) + 0.5))
        for key in holders:
            frequency = frequencies[key][word]
            saturation = frequency + K1 * (1 - B + B * lengths[key] / mean_length)
            scores.setdefault(key, []).append(idf * frequency * (K1 + 1) / saturation)
    return {key: math.fsum(parts) for key, parts in scores.items()}
