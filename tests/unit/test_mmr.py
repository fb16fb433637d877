"""Order of chunks by maximal marginal relevance, computed by hand."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.support.rag.chunks import make_chunk
from vectorforge.errors import InvalidInputError
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.retriever.rerank import RerankingRetriever, candidate_count, mmr_order
from vectorforge.types import RetrievedChunk

# Relevance 1, .9, .5 and 0 after scaling; cosines: ab .96, ac 0, ad .6, bc .28, bd .8, cd .8.
A, B, C, D = (5, 0), (0.96, 0.28), (0, 2), (0.6, 0.8)


def candidates(*vectors: Sequence[float] | None) -> list[RetrievedChunk]:
    values = (8, 7.6, 6, 4)
    return [
        replace(make_chunk(f"chunk {place}"), relevance=values[place], vector=vector)
        for place, vector in enumerate(vectors)
    ]


@pytest.mark.parametrize(
    ("mmr_lambda", "expected"),
    [
        (1.0, [0, 1, 2, 3]),
        # b .7*.9-.3*.96=.342, c .7*.5=.35, d -.18; then b .342, d -.24
        (0.7, [0, 2, 1, 3]),
        # b -.03, c .25, d -.3; then b -.03, d -.4
        (0.5, [0, 2, 1, 3]),
        # b -.96, c 0, d -.6; then b -.96, d -.8
        (0.0, [0, 2, 3, 1]),
    ],
)
def test_order_is_that_of_the_formula(mmr_lambda: float, expected: list[int]) -> None:
    assert mmr_order(candidates(A, B, C, D), 4, mmr_lambda) == expected
    assert mmr_order(candidates(A, B, C, D), 2, mmr_lambda) == expected[:2]


def test_chunk_without_a_vector_resembles_none() -> None:
    assert mmr_order(candidates(A, A, None, (0, 0)), 3, 0.0) == [0, 2, 3]


def test_equal_or_missing_candidates_keep_their_order() -> None:
    same = [replace(make_chunk(str(number)), score=0.5, relevance=None) for number in range(3)]
    assert mmr_order(same, 3, 0.3) == [0, 1, 2]
    assert mmr_order([], 3, 0.3) == []


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_lambda_outside_0_to_1_is_rejected(value: float) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1") as caught:
        candidate_count(5, 100, value)
    assert caught.value.field == "mmr_lambda"


def test_candidates_are_limited_by_the_server() -> None:
    assert [candidate_count(5, 100, 1), candidate_count(80, 100, 1), candidate_count(5, 20, 1)] == [
        70,
        80,
        20,
    ]


async def test_reranked_candidates_are_chosen_from_and_no_more_are_scored() -> None:
    scored: list[int] = []

    class Longest:
        async def scores(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
            scored.append(len(texts))
            return [10.0, 9.0, 5.0, 1.0]

    class Search(BaseRetriever):
        async def find(self, request: RetrievalRequest) -> RetrievedChunks:
            assert (request.candidates, request.mmr_lambda) == (4, None)
            return RetrievedChunks(candidates(A, B, C, D))

    retriever = RerankingRetriever(Search(), Longest(), candidates=4)
    found = await retriever.retrieve("query", uuid4(), 2, mmr_lambda=0.5)
    assert [chunk.chunk.text for chunk in found] == ["chunk 0", "chunk 2"]
    assert scored == [4]
