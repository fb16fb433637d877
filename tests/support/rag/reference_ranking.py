"""BM25 and ranking computed in this process: the reference for the SQL of ``vectorstore.search``."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from uuid import UUID

from vectorforge.types import DistanceMetric, RetrievedChunk, SearchMode
from vectorforge.vectorstore.search.fusion import DOCUMENT_SHARE, WORDS_SHARE
from vectorforge.vectorstore.search.search import LEG_DEPTH, score_of
from vectorforge.vectorstore.search.words import CONTEXT_SHARE, K1, B


def ranked(
    mode: SearchMode,
    metric: DistanceMetric,
    candidates: Sequence[RetrievedChunk],
    dense_weight: float,
    top_k: int,
) -> list[RetrievedChunk]:
    """Return the best chunks as ``VectorStore.search`` does, with their scores and relevance.

    Args:
        mode: Mode of the search.
        metric: Metric of the distances.
        candidates: All matching chunks, with ``distance`` (unused in a lexical search) and the BM25
            ``lexical_score`` (unless the search is dense).
        dense_weight: Weight of the vector score in a hybrid search.
        top_k: Number of chunks.
    """
    if mode is SearchMode.LEXICAL:
        return _by_words(candidates)[:top_k]
    scored = [replace(chunk, score=score_of(metric, chunk.distance)) for chunk in candidates]
    nearest = sorted(scored, key=lambda chunk: (chunk.distance, chunk.chunk.id))
    if mode is SearchMode.HYBRID:
        nearest = _fused(nearest, metric, dense_weight, max(top_k, LEG_DEPTH))
    return nearest[:top_k]


def _by_words(candidates: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    """Return the chunks with words of the query, best first, with their relevance as score."""
    best = max((chunk.lexical_score or 0.0 for chunk in candidates), default=0.0)
    scored = []
    for chunk in candidates:
        if chunk.lexical_score:
            relevance = chunk.lexical_score / best
            scored.append(replace(chunk, relevance=relevance, score=relevance, distance=1 - relevance))
    return sorted(scored, key=lambda chunk: (-chunk.score, chunk.chunk.id))


def _fused(
    nearest: Sequence[RetrievedChunk], metric: DistanceMetric, dense_weight: float, depth: int
) -> list[RetrievedChunk]:
    """Return the best of both legs by relevance, as ``VectorStore.search`` defines it."""
    words = {chunk.chunk.id: chunk.score for chunk in _by_words(nearest)}
    legs = {*list(words)[:depth], *(chunk.chunk.id for chunk in nearest[:depth])}
    candidates = [chunk for chunk in nearest if chunk.chunk.id in legs]
    highest = max((chunk.score for chunk in candidates), default=1.0)
    most = {DistanceMetric.COSINE: 1.0, DistanceMetric.INNER_PRODUCT: max(1.0, highest)}.get(metric, highest)
    own = {
        chunk.chunk.id: dense_weight * max(chunk.score, 0.0) / most
        + (1 - dense_weight) * WORDS_SHARE * words.get(chunk.chunk.id, 0.0)
        for chunk in candidates
    }
    of_document = defaultdict(list)
    for chunk in candidates:
        of_document[chunk.chunk.document_id].append(own[chunk.chunk.id])
    fused = [
        replace(
            chunk,
            relevance=(1 - DOCUMENT_SHARE) * own[chunk.chunk.id]
            + DOCUMENT_SHARE * fmean(of_document[chunk.chunk.document_id]),
        )
        for chunk in candidates
    ]
    return sorted(fused, key=lambda chunk: (-(chunk.relevance or 0.0), chunk.distance, chunk.chunk.id))


def bm25(texts: Mapping[UUID, Sequence[str | None]], query: str, context: str = "") -> dict[UUID, float]:
    """Score the chunks that have any of a query's words, by the formula in ``vectorstore.search.words``.

    Args:
        texts: All chunks of a collection, with their headers.
        query: Any text.
        context: Further words, with less weight.

    Returns:
        The scores of those chunks, above 0.
    """
    counts = {key: Counter(_words(*parts)) for key, parts in texts.items()}
    mean_length = max(sum(count.total() for count in counts.values()) / max(len(counts), 1), 1)
    scores: dict[UUID, list[float]] = defaultdict(list)
    shares = dict.fromkeys(_words(context), CONTEXT_SHARE) | dict.fromkeys(_words(query), 1.0)
    for word, share in shares.items():
        holders = {key: count for key, count in counts.items() if count[word]}
        idf = math.log(1 + (len(counts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for key, count in holders.items():
            saturation = count[word] + K1 * (1 - B + B * count.total() / mean_length)
            scores[key].append(share * idf * count[word] * (K1 + 1) / saturation)
    return {key: math.fsum(parts) for key, parts in scores.items()}


_UNSPACED = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
_WORD = re.compile(rf"({_UNSPACED}+)|((?:(?!{_UNSPACED})\w)+)")


def _words(*texts: str | None) -> list[str]:
    """Return words; of scripts without spaces pairs of characters, as ``vectorforge.lexemes`` does."""
    text = "\n".join(filter(None, texts)).lower()
    words = []
    for run, word in _WORD.findall(text):
        words += [word] if word else [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
    return words
