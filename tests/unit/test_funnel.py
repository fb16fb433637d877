"""The funnel of an answer: its numbers add up for every outcome."""

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import LogList
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.errors import LLMError
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import Funnel, QueryConfig, QueryResult
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.types import RetrievedChunk
from vectorforge.vectorstore.base import NearestChunks


class NearestOf(BaseRetriever):
    """Finds the nearest of these chunks."""

    def __init__(self, stored: list[RetrievedChunk]) -> None:
        self.stored = sorted(stored, key=lambda chunk: -chunk.score)

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        found = NearestChunks(self.stored[: request.top_k], matched=len(self.stored))
        return RetrievedChunks(found, request.min_score)


async def ask(
    stored: list[RetrievedChunk], answer: str, error: LLMError | None = None, **config: Any
) -> QueryResult:
    registry = LLMProviderRegistry()
    registry.register(ScriptedLLM([answer] if error is None else (), error=error))
    quoter = ExtractiveProvider()
    ladder = DegradationLadder(registry, quoter=quoter, enabled=True)
    service = QueryService(NearestOf(stored), ContextBuilder(), registry, LogList(), ladder=ladder)
    return await service.query("How warm is tea?", uuid4(), QueryConfig(**config))


scores = st.floats(-1, 1)
labels = st.lists(st.integers(0, 15), max_size=6)


@given(
    passages=st.lists(st.tuples(scores, st.integers(1, 60)), max_size=14),
    top_k=st.integers(1, 12),
    min_score=st.none() | scores,
    max_tokens=st.integers(1, 200),
    cited=labels,
    fails=st.booleans(),
)
async def test_funnel_counts_add_up(
    passages: list[tuple[float, int]],
    top_k: int,
    min_score: float | None,
    max_tokens: int,
    cited: list[int],
    fails: bool,
) -> None:
    stored = [make_chunk("Tea is warm. " * words, score) for score, words in passages]
    answer = "Tea is warm" + "".join(f" [Source {number}]" for number in cited) + "."
    error = LLMError("The model failed.") if fails and passages else None
    try:
        result = await ask(stored, answer, error, top_k=top_k, min_score=min_score, max_tokens=max_tokens)
    except LLMError:
        return  # nothing was left to quote
    funnel = result.funnel
    assert funnel.matched == len(stored)
    assert funnel.candidates == min(top_k, len(stored))
    assert funnel.candidates == funnel.below_min_score + funnel.dropped_by_budget + funnel.used
    assert funnel.used == len(result.used_chunk_ids)
    assert funnel.candidates - funnel.below_min_score == len(result.retrieved_chunks)
    assert funnel.cited == len({citation.chunk_id for citation in result.citations})
    assert 0 <= funnel.cited <= funnel.used
    assert min(funnel.below_min_score, funnel.dropped_by_budget) >= 0


async def test_funnel_counts_each_step() -> None:
    long = "Tea is best at eighty degrees. " * 60
    stored = [make_chunk(long, score) for score in (0.9, 0.8, 0.7, 0.2, 0.1, 0.0)]
    # the context's 3 * 400 tokens fit two chunks of some 470
    answer = "Tea is best at 80 [Source 1], [Source 1] and [Source 7]."
    result = await ask(stored, answer, top_k=5, min_score=0.5, max_tokens=400)
    assert result.funnel == Funnel(matched=6, candidates=5, below_min_score=2, dropped_by_budget=1, cited=1)
    assert result.funnel.used == 2
    assert result.funnel.below_min_score == 2


@pytest.mark.parametrize("min_score", [None, 0.5])
async def test_funnel_without_results_is_empty(min_score: float | None) -> None:
    nothing = await ask([], "Never said.", min_score=min_score)
    assert (nothing.outcome, nothing.funnel) == ("empty", Funnel(matched=0))
    poor = await ask([make_chunk("Coffee.", 0.1)], "Never said.", min_score=0.5)
    assert (poor.outcome, poor.funnel) == ("empty", Funnel(matched=1, candidates=1, below_min_score=1))


def test_funnel_matched_is_none_without_store_count() -> None:
    found = RetrievedChunks(NearestChunks([make_chunk("Tea.", 0.9)]), None)
    assert (len(found), found.matched, found.matched_is_at_least) == (1, None, False)
    assert found[:1] == list(found)
