"""Maximal marginal relevance: chunks that answer a query and differ from one another.

Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing
Summaries", SIGIR 1998, https://doi.org/10.1145/290941.291025.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from operator import mul
from typing import Final

from vectorforge.errors import InvalidInputError
from vectorforge.retriever.base import RetrievalRequest, RetrievedChunks
from vectorforge.types import RetrievedChunk, Vector

MMR_CANDIDATES: Final = 70
"""Chunks to choose from, as many as each leg of a hybrid search has."""


def candidate_count(top_k: int, max_top_k: int, mmr_lambda: float) -> int:
    """Return the number of chunks among which ``top_k`` are chosen.

    Raises:
        InvalidInputError: ``mmr_lambda`` is not between 0 and 1.
    """
    if not 0 <= mmr_lambda <= 1:
        raise InvalidInputError("mmr_lambda must be between 0 and 1.", field="mmr_lambda")
    return max(top_k, min(MMR_CANDIDATES, max_top_k))


async def find_diverse(
    find: Callable[[RetrievalRequest], Awaitable[RetrievedChunks]], request: RetrievalRequest, most: int
) -> RetrievedChunks:
    """Run a search that has ``mmr_lambda``; ``find`` returns at most ``most`` candidates."""
    mmr_lambda = request.mmr_lambda or 0.0
    count = candidate_count(request.top_k, most, mmr_lambda)
    chunks = await find(replace(request, mmr_lambda=None, candidates=count))
    chunks[:] = [chunks[place] for place in mmr_order(chunks, request.top_k, mmr_lambda)]
    return chunks


def mmr_order(chunks: Sequence[RetrievedChunk], top_k: int, mmr_lambda: float) -> list[int]:
    """Return the places of at most ``top_k`` chunks, in the order in which they are chosen.

    Each time the chunk with the largest ``lambda * relevance - (1 - lambda) * similarity`` is chosen, the
    better ranked of equal ones. Its similarity is the largest cosine to a chosen chunk.

    Args:
        chunks: Candidates with their vectors, best first; one without a vector resembles none.
        top_k: Number of chunks.
        mmr_lambda: 0 to 1; 1 retains the order.
    """
    # Scaled to 0..1 over the candidates: a reranker's scores may have any range.
    values = [chunk.score if chunk.relevance is None else chunk.relevance for chunk in chunks]
    lowest, width = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    relevance = [(value - lowest) / width if width else 1.0 for value in values]
    units = [_unit(chunk.vector) for chunk in chunks]
    similarity = [-1.0] * len(chunks)
    rest, chosen = list(range(len(chunks))), list[int]()
    while rest and len(chosen) < top_k:
        best = max(rest, key=lambda at: mmr_lambda * relevance[at] - (1 - mmr_lambda) * similarity[at])
        rest.remove(best)
        chosen.append(best)
        for at in rest:
            similarity[at] = max(similarity[at], sum(map(mul, units[at], units[best])))
    return chosen


def _unit(vector: Vector | None) -> list[float]:
    """Return the vector with length 1; empty without one."""
    length = math.hypot(*vector or ())
    return [number / length for number in vector or ()] if length else []
