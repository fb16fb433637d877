"""Distances, BM25 and ranking computed in this process: the reference for the SQL of ``search``."""

import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar
from uuid import UUID

from vectorforge.types import Chunk, DistanceMetric, RetrievedChunk, SearchMode
from vectorforge.vectorstore.search.lexical import DOCUMENT_SHARE, K1, SHARPNESS, B
from vectorforge.vectorstore.search.statement import LEG_DEPTH
from vectorforge.vectorstore.validation import score_of

KeyT = TypeVar("KeyT", bound=Hashable)

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranks chunks as ``VectorStore.search`` does.

    Args:
        mode: Mode of the ranking.
        metric: Metric of the distances.
        distances: Distance of every matching chunk, by id; unused in a lexical search.
        lexical: BM25 scores of the chunks that hold a word of the query.
        dense_weight: Weight of the vector score in a hybrid search.
        documents: Document of each chunk.
    """

    mode: SearchMode
    metric: DistanceMetric
    distances: Mapping[UUID, float]
    lexical: Mapping[UUID, float]
    dense_weight: float
    documents: Mapping[UUID, UUID]
    fused: dict[UUID, float] = field(default_factory=dict, init=False)

    def best(self, top_k: int) -> list[UUID]:
        """Return the ids of the best chunks, equal ones by id."""
        if self.mode is SearchMode.DENSE:
            return self._nearest(top_k)
        if self.mode is SearchMode.LEXICAL:
            return self._by_words(top_k)
        self._fuse(max(top_k, LEG_DEPTH))
        order = {key: (-value, self.distances[key], key) for key, value in self.fused.items()}
        return sorted(order, key=order.__getitem__)[:top_k]

    def relevance(self, chunk_id: UUID) -> float:
        """Return the relevance of a chunk in a hybrid or lexical search; requires ``best`` first."""
        return self._words(chunk_id) if self.mode is SearchMode.LEXICAL else self.fused[chunk_id]

    def _words(self, chunk_id: UUID) -> float:
        return self.lexical.get(chunk_id, 0.0) / max(self.lexical.values(), default=1.0)

    def _fuse(self, depth: int) -> None:
        candidates = {*self._nearest(depth), *self._by_words(depth)}
        scores = {key: score_of(self.metric, self.distances[key]) for key in candidates}
        lowest, highest = min([0.0, *scores.values()]), max(scores.values(), default=0.0)
        width = highest - lowest
        own = {
            key: self.dense_weight * (((score - lowest) / width) ** SHARPNESS if width else 0.0)
            + (1 - self.dense_weight) * self._words(key)
            for key, score in scores.items()
        }
        of_document = defaultdict(list)
        for key, value in own.items():
            of_document[self.documents[key]].append(value)
        for key, value in own.items():
            mean = fmean(of_document[self.documents[key]])
            self.fused[key] = (1 - DOCUMENT_SHARE) * value + DOCUMENT_SHARE * mean

    def result(self, chunk: Chunk, source: str, title: str | None) -> RetrievedChunk:
        """Return a chunk with its scores."""
        relevance = None if self.mode is SearchMode.DENSE else self.relevance(chunk.id)
        if self.mode is SearchMode.LEXICAL and relevance is not None:
            score, distance = relevance, 1 - relevance
        else:
            distance = self.distances[chunk.id]
            score = score_of(self.metric, distance)
        lexical_score = None if relevance is None else self.lexical.get(chunk.id, 0.0)
        return RetrievedChunk(chunk, score, distance, source, title, relevance, lexical_score)

    def _nearest(self, count: int) -> list[UUID]:
        return sorted(self.distances, key=lambda chunk_id: (self.distances[chunk_id], chunk_id))[:count]

    def _by_words(self, count: int) -> list[UUID]:
        return sorted(self.lexical, key=lambda chunk_id: (-self.lexical[chunk_id], chunk_id))[:count]


def distance_between(metric: DistanceMetric, left: Sequence[float], right: Sequence[float]) -> float:
    """Return the distance of pgvector's operator for the metric, in double precision.

    Args:
        metric: Cosine: 1 - cosine, in [0, 2]; inner product: its negative; L2: Euclidean distance.
        left: A vector, not all zero.
        right: A vector of the same length, not all zero.

    Returns:
        The distance; lower is nearer.
    """
    match metric:
        case DistanceMetric.COSINE:
            cosine = inner_product(left, right) / (math.hypot(*left) * math.hypot(*right))
            return 1.0 - max(-1.0, min(1.0, cosine))
        case DistanceMetric.INNER_PRODUCT:
            return -inner_product(left, right)
        case DistanceMetric.L2:
            return math.dist(left, right)


def inner_product(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the inner product of two vectors of the same length."""
    return math.fsum(map(operator.mul, left, right))


def words_of(text: str) -> list[str]:
    """Return all words of a text in lower case, without stemming."""
    return _WORD.findall(text.lower())


def bm25(texts: Mapping[KeyT, str], query: str) -> dict[KeyT, float]:
    """Score the chunks that hold any of a query's words, by the formula in ``search.lexical``.

    Args:
        texts: All chunks of a collection, with their headers.
        query: Any text.

    Returns:
        The scores of those chunks, above 0.
    """
    frequencies = {key: Counter(words_of(text)) for key, text in texts.items()}
    lengths = {key: counts.total() for key, counts in frequencies.items()}
    mean_length = max(sum(lengths.values()) / max(len(lengths), 1), 1)
    scores: dict[KeyT, list[float]] = {}
    for word in set(words_of(query)):
        holders = [key for key, counts in frequencies.items() if counts[word]]
        idf = math.log(1 + (len(texts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for key in holders:
            frequency = frequencies[key][word]
            saturation = frequency + K1 * (1 - B + B * lengths[key] / mean_length)
            scores.setdefault(key, []).append(idf * frequency * (K1 + 1) / saturation)
    return {key: math.fsum(parts) for key, parts in scores.items()}
