"""Distances, and the ranking of a search with all distances and words at hand: the oracle's."""

import math
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from uuid import UUID

from vectorforge.types import Chunk, DistanceMetric, RetrievedChunk, SearchMode
from vectorforge.vectorstore.search.lexical import DOCUMENT_SHARE, SHARPNESS
from vectorforge.vectorstore.search.statement import LEG_DEPTH
from vectorforge.vectorstore.validation import score_of


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranks chunks as ``VectorStore.search`` says.

    Args:
        mode: What they are ranked by.
        metric: Whose distances they are.
        distances: Of every chunk that matches, by id; not looked at in a lexical search.
        lexical: BM25 of those that hold a word of the question.
        dense_weight: Of the score by vector in a hybrid search.
        documents: The document of each chunk.
    """

    mode: SearchMode
    metric: DistanceMetric
    distances: Mapping[UUID, float]
    lexical: Mapping[UUID, float]
    dense_weight: float
    documents: Mapping[UUID, UUID]
    fused: dict[UUID, float] = field(default_factory=dict, init=False)

    def best(self, top_k: int) -> list[UUID]:
        """The ids of the best, equal ones by id."""
        if self.mode is SearchMode.DENSE:
            return self._nearest(top_k)
        if self.mode is SearchMode.LEXICAL:
            return self._by_words(top_k)
        self._fuse(max(top_k, LEG_DEPTH))
        order = {key: (-value, self.distances[key], key) for key, value in self.fused.items()}
        return sorted(order, key=order.__getitem__)[:top_k]

    def relevance(self, chunk_id: UUID) -> float:
        """What a chunk of a hybrid or lexical search is ranked by; ``best`` comes first."""
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
        """A chunk with its scores."""
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
    """The distance pgvector's operator for the metric returns, in double precision.

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
    """The sum of the products of two vectors of the same length."""
    return math.fsum(map(operator.mul, left, right))
