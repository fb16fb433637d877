"""Choice and order of a search's chunks.

At most so many of a document, none that repeats another one, and first those with the query's words together.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from math import log
from typing import Final, TypeAlias
from uuid import UUID

from vectorforge.types import RetrievedChunk
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.validation import MAX_TOP_K

_WIDER: Final = 10
"""Factor by which the search is widened if it does not return enough chunks to choose from."""

_FIRST_WORDS: Final = 8


async def search_chosen(
    search: Callable[[int], Awaitable[NearestChunks]],
    top_k: int,
    *,
    per_document: int = 0,
    distinct: bool = False,
    enough: int = MAX_TOP_K,
) -> NearestChunks:
    """Return the best chunks of those that pass.

    If enough of the best pass, it is one search; else the search is widened, up to ``MAX_TOP_K``.

    Args:
        search: Returns so many chunks, or all matching ones.
        top_k: Number of chunks.
        per_document: Chunks of one document at most, while others match: chunks beyond the cap fill the rest.
            0: no cap.
        distinct: Leave out chunks that repeat a better one, also if fewer than ``top_k`` remain.
        enough: Number of chunks that suffice, so that the search is not widened.

    Returns:
        The chunks in the order of ``search``.
    """
    searched = top_k
    while True:
        chunks = await search(searched)
        chosen, beyond_cap = _choose(chunks, top_k, per_document, distinct=distinct)
        if len(chosen) >= min(top_k, enough) or len(chunks) < searched or searched >= MAX_TOP_K:
            break
        searched = min(searched * _WIDER, MAX_TOP_K)
    chosen += beyond_cap[: top_k - len(chosen)]
    return NearestChunks(
        [chunks[place] for place in sorted(chosen)],
        chunks.matched,
        matched_is_at_least=chunks.matched_is_at_least,
        scan=chunks.scan,
        version=chunks.version,
    )


def _choose(
    chunks: Sequence[RetrievedChunk], top_k: int, per_document: int, *, distinct: bool
) -> tuple[list[int], list[int]]:
    """Return the places of at most ``top_k`` chunks, and of those that only the cap excludes."""
    of_document: Counter[UUID] = Counter()
    kept: list[str] = []
    chosen: list[int] = []
    beyond_cap: list[int] = []
    for place, found in enumerate(chunks):
        if len(chosen) == top_k:
            break
        if distinct:
            text = found.chunk.text.lower()
            if _repeats(text, kept):
                continue
            kept.append(text)
        of_document[found.chunk.document_id] += 1
        if per_document and of_document[found.chunk.document_id] > per_document:
            beyond_cap.append(place)
        else:
            chosen.append(place)
    return chosen, beyond_cap


def _repeats(text: str, others: Sequence[str]) -> bool:
    """Return True if another text has the same words, in any order: another word may be "not".

    Most lack the longest of the first words. Reading all words of each takes 3 % of a query's CPU time.
    """
    first = sorted(text.split(None, _FIRST_WORDS)[:_FIRST_WORDS], key=len, reverse=True)
    similar = [other for other in others if all(map(other.__contains__, first))]
    return bool(similar) and set(text.split()) in [set(other.split()) for other in similar]


_PROXIMITY: Final = 0.4
"""Increase of the relevance of a chunk with all of the query's words next to each other, in their order."""
ORDERED: Final = 10
"""Chunks that are ordered by proximity, also if fewer are wanted."""
_START: Final = 5
"""Letters that the forms of a word have in common, as in ``vectorforge.truncated``."""
_LEAST_LETTERS: Final = 4
"""Shorter words are rarely meaningful: most are articles, prepositions and the like, in many languages."""
_APART: Final = 3
_WINDOW: Final = 30
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u309f\u3400-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
"""A word, or a character of a script without spaces between words."""

_Places: TypeAlias = list[tuple[int, str]]
"""Words of the query in a text with their positions, in their order."""


def nearest_words_first(query: str, chunks: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    """Order the best ten chunks by their relevance and the proximity of the query's words in them.

    BM25 does not know where words are: a chunk may have them in different sentences. Proximity is the mean of
    two shares: of the query's pairs of neighboring words, those at most three words apart in their order; and
    of its words, those in the best 30 words. Words are weighted by their rarity among the ten. Similar to the
    windows of Metzler and Croft 2005, https://doi.org/10.1145/1076034.1076115.

    Args:
        query: The query.
        chunks: Chunks, best first; those without a relevance stay as they are.

    Returns:
        The chunks; the relevance of the best ten is ``min(1, relevance * (1 + 0.4 * proximity))``.
    """
    if len(chunks) < 2 or chunks[0].relevance is None:
        return list(chunks)
    best = chunks[:ORDERED]
    nearness = _proximities(query, [found.chunk.text for found in best])
    raised = [
        (found.relevance or 0.0) * (1 + _PROXIMITY * near) for found, near in zip(best, nearness, strict=True)
    ]
    order = sorted(range(len(best)), key=lambda place: -raised[place])
    return [*(replace(best[at], relevance=min(1.0, raised[at])) for at in order), *chunks[ORDERED:]]


def _proximities(query: str, texts: Sequence[str]) -> list[float]:
    """Return the proximity of the query's words in each text, 0 to 1."""
    words = _WORD.findall(query.lower())
    sought = [word[:_START] for word in words if len(word) >= _LEAST_LETTERS or _counts_though_short(word)]
    wanted = frozenset(sought)
    found = [
        [
            (at, start)
            for at, word in enumerate(_WORD.findall(text.lower()))
            if (start := word[:_START]) in wanted
        ]
        for text in texts
    ]
    counts = Counter(chain.from_iterable({word for _, word in places} for places in found))
    # BM25's inverse document frequency
    rarity = {
        word: log(1 + (len(texts) - counts[word] + 0.5) / (counts[word] + 0.5))
        for word in dict.fromkeys(sought)
    }
    pairs = {pair: min(map(rarity.__getitem__, pair)) for pair in pairwise(sought) if pair[0] != pair[1]}
    all_words, all_pairs = sum(rarity.values()) or 1.0, sum(pairs.values()) or 1.0
    return [
        (_in_order(places, pairs) / all_pairs + _in_window(places, rarity) / all_words) / 2
        for places in found
    ]


def _counts_though_short(word: str) -> bool:
    """Return True for numbers and scripts without spaces, not for hiragana, mostly endings and particles."""
    return word.isdigit() or (word >= _UNSPACED[0] and not "\u3040" <= word <= "\u309f")


def _in_order(places: _Places, pairs: Mapping[tuple[str, str], float]) -> float:
    """Return the sum of the weights of the pairs whose words follow each other."""
    near = {(word, after) for (at, word), (then, after) in pairwise(places) if then - at <= _APART}
    return sum(weight for pair, weight in pairs.items() if pair in near)


def _in_window(places: _Places, rarity: Mapping[str, float]) -> float:
    """Return the sum of the weights of the words in the best ``_WINDOW`` words."""
    best, total, start, inside = 0.0, 0.0, 0, dict.fromkeys(rarity, 0)
    for at, word in places:
        total += 0.0 if inside[word] else rarity[word]
        inside[word] += 1
        while places[start][0] < at - _WINDOW:
            left = places[start][1]
            inside[left] -= 1
            total -= 0.0 if inside[left] else rarity[left]
            start += 1
        best = max(best, total)
    return best
