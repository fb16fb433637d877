"""A prompt longer than the model's context, and its shortened retry."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import LogList
from vectorforge.errors import LLMContextOverflowError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import Completion, Message, ProviderCall
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import (
    CitationEvent,
    DoneEvent,
    ErrorEvent,
    HistoryMessage,
    QueryConfig,
    QueryEvent,
    SourcesEvent,
    TokenEvent,
)
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk

MAX_TOKENS = 512
LABELS = range(1, 13)


class SmallContextLLM(BaseLLMProvider):
    """Rejects prompts longer than its context, otherwise cites every possible source.

    Args:
        limit: Maximum tokens of prompt and longest answer.
        ratio: The model's tokens per token of ours.
        says_numbers: Whether the error has both numbers.
        refuses_after: Text before the rejection, or None for none.
    """

    def __init__(
        self, limit: int, *, ratio: float = 1.0, says_numbers: bool = True, refuses_after: str | None = None
    ) -> None:
        super().__init__(default_model="small-1")
        self.limit, self.ratio, self.says_numbers = limit, ratio, says_numbers
        self.refuses_after = refuses_after
        self.calls: list[Sequence[Message]] = []
        self.fitted: list[bool] = []

    def provider_name(self) -> str:
        return "small"

    def count(self, messages: Sequence[Message]) -> int:
        return math.ceil(self.ratio * sum(estimate_tokens(message["content"]) for message in messages))

    def refusal(self, call: ProviderCall) -> LLMContextOverflowError | None:
        prompt = self.count(call.messages)
        self.calls.append(call.messages)
        self.fitted.append(prompt + call.config.max_tokens <= self.limit)
        if self.fitted[-1]:
            return None
        if not self.says_numbers:
            return LLMContextOverflowError()
        return LLMContextOverflowError(prompt_tokens=prompt, limit_tokens=self.limit)

    async def _call_api(self, call: ProviderCall) -> Completion:
        if (refusal := self.refusal(call)) is not None:
            raise refusal
        return self._end("".join(f"So it is [Source {number}]. " for number in LABELS))

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        if (refusal := self.refusal(call)) is not None:
            if self.refuses_after is not None:
                yield self.refuses_after
            raise refusal
        for number in LABELS:
            yield f"So it is [Source {number}]. "
        yield self._end()

    async def _list_models(self) -> list[str]:
        return [self.default_model]

    def _end(self, content: str = "") -> Completion:
        return Completion("small-1", "stop", content, prompt_tokens=100, completion_tokens=10)


class Found(BaseRetriever):
    """Finds the same chunks for every query."""

    def __init__(self, passages: list[RetrievedChunk]) -> None:
        self.passages = passages

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        return RetrievedChunks(self.passages)


def words(count: int, name: str) -> str:
    return " ".join(f"{name}{number}" for number in range(count)) + "."


def passages_of(*sizes: int) -> list[RetrievedChunk]:
    return [make_chunk(words(size, f"passage{number}word"), 0.9) for number, size in enumerate(sizes)]


def conversation(*sizes: int) -> tuple[HistoryMessage, ...]:
    return tuple(
        message
        for number, size in enumerate(sizes)
        for message in (
            HistoryMessage("user", words(size, f"question{number}word")),
            HistoryMessage("assistant", words(size, f"answer{number}word")),
        )
    )


class OverflowQuery:
    """Result of a query, and its requests to the model."""

    def __init__(
        self,
        llm: SmallContextLLM,
        passages: list[RetrievedChunk],
        history: tuple[HistoryMessage, ...] = (),
        **config: Any,
    ) -> None:
        self.llm = llm
        self.log = LogList()
        registry = LLMProviderRegistry()
        registry.register(llm)
        registry.set_default("small")
        service = QueryService(Found(passages), ContextBuilder(), registry, self.log)
        settings = QueryConfig(max_tokens=MAX_TOKENS, history=history, rewrite=False, **config)

        async def ask() -> list[QueryEvent]:
            return [event async for event in service.query_events("When?", uuid4(), settings)]

        self.events = asyncio.run(ask())
        self.last = self.events[-1]
        self.service, self.settings = service, settings

    @property
    def sent(self) -> str:
        """Return all texts of the last prompt."""
        return "\n".join(message["content"] for message in self.llm.calls[-1])


def least_prompt() -> int:
    """Return the tokens, as we count, of a prompt without chunks and conversation."""
    payload = ContextBuilder().build("When?", [])
    return estimate_tokens(payload.system_prompt) + estimate_tokens(payload.user_message)


# Fault 11: trimmed and retried once, else 422; only sent chunks are cited
@given(
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=8),
    turns=st.lists(st.integers(1, 80), max_size=5),
    limit=st.integers(MAX_TOKENS - 50, MAX_TOKENS + 4000),
    ratio=st.floats(0.5, 2.5),
    says_numbers=st.booleans(),
)
def test_retry_after_overflow_fits_limit_or_fails(
    sizes: list[int], turns: list[int], limit: int, ratio: float, says_numbers: bool
) -> None:
    llm = SmallContextLLM(limit, ratio=ratio, says_numbers=says_numbers)
    passages = passages_of(*sizes)
    overflow = OverflowQuery(llm, passages, conversation(*turns))
    assert 1 <= len(llm.calls) <= 2
    if len(llm.calls) == 2:
        first, second = map(llm.count, llm.calls)
        assert (llm.fitted[0], second < first) == (False, True)
    if not says_numbers:
        assert isinstance(overflow.last, DoneEvent) is llm.fitted[-1]
    elif 0.95 * (limit - MAX_TOKENS) / ratio >= least_prompt() + 40:
        assert isinstance(overflow.last, DoneEvent)  # if the error has the numbers, the first retry succeeds
    if isinstance(overflow.last, ErrorEvent):
        assert type(overflow.last.error) is LLMContextOverflowError
        assert not any(isinstance(event, TokenEvent | CitationEvent) for event in overflow.events)
        return
    assert isinstance(overflow.last, DoneEvent)
    result, found = overflow.last.result, [passage.chunk.id for passage in passages]
    used = result.used_chunk_ids
    assert used == found[: len(used)]
    assert used
    assert [source.chunk_id for source in result.sources] == used
    assert all(source.text in overflow.sent for source in result.sources)
    for number in range(len(passages)):
        assert (f"passage{number}word0" in overflow.sent) == (number < len(used))
    assert {citation.chunk_id for citation in result.citations} == set(used)
    cited = [event.citation for event in overflow.events if isinstance(event, CitationEvent)]
    assert cited == result.citations
    assert result.invalid_citations == len(LABELS) - len(used)
    [sources] = [event for event in overflow.events if isinstance(event, SourcesEvent)]
    assert [source.chunk_id for source in sources.sources][: len(used)] == used
    [row] = overflow.log.rows
    assert (row.used_chunk_ids, row.prompt_tokens, row.completion_tokens) == (used, 100, 10)


def test_retry_drops_old_turns_before_chunks() -> None:
    llm = SmallContextLLM(MAX_TOKENS + 1100)
    overflow = OverflowQuery(llm, passages_of(60, 60), conversation(60, 60, 5))
    assert isinstance(overflow.last, DoneEvent)
    assert len(overflow.last.result.used_chunk_ids) == 2
    first, second = ("\n".join(m["content"] for m in call) for call in llm.calls)
    assert "question0word0" in first
    assert "question0word0" not in second
    assert "answer2word0" in second
    assert second.count("passage1word") == 60


def test_retry_with_oversized_history_retains_all_chunks() -> None:
    llm = SmallContextLLM(MAX_TOKENS + 600, says_numbers=False)
    overflow = OverflowQuery(llm, passages_of(10, 10), conversation(150))
    assert isinstance(overflow.last, DoneEvent)
    assert len(overflow.last.result.used_chunk_ids) == 2
    assert "question0word" not in overflow.sent


def test_retry_with_oversized_chunk_cuts_it() -> None:
    llm = SmallContextLLM(MAX_TOKENS + 400)
    overflow = OverflowQuery(llm, passages_of(120))
    assert isinstance(overflow.last, DoneEvent)
    [source] = overflow.last.result.sources
    assert 0 < len(source.text) < len(words(120, "passage0word"))
    assert source.text in overflow.sent


def test_overflow_with_nothing_to_drop_is_not_retried() -> None:
    for limit in (MAX_TOKENS + 20, 10):
        llm = SmallContextLLM(limit, says_numbers=limit != 10)
        overflow = OverflowQuery(llm, passages_of(1))
        assert isinstance(overflow.last, ErrorEvent)
        assert (overflow.last.error.code, len(llm.calls)) == ("context_length_exceeded", 1)
        [row] = overflow.log.rows
        assert (row.outcome, row.error_code, row.prompt_tokens) == ("error", "context_length_exceeded", 0)


def test_overflow_after_first_token_is_not_retried() -> None:
    llm = SmallContextLLM(MAX_TOKENS + 400, refuses_after="So ")
    overflow = OverflowQuery(llm, passages_of(120, 120))
    assert isinstance(overflow.last, ErrorEvent)
    assert (overflow.last.partial_answer, len(llm.calls)) == ("So ", 1)


def test_overflow_of_non_streamed_answer_is_retried() -> None:
    llm = SmallContextLLM(MAX_TOKENS + 700)
    overflow = OverflowQuery(llm, passages_of(60, 60, 60))
    assert isinstance(overflow.last, DoneEvent)
    whole = asyncio.run(overflow.service.query("When?", uuid4(), overflow.settings))
    assert whole.used_chunk_ids == overflow.last.result.used_chunk_ids
    assert [citation.chunk_id for citation in whole.citations] == whole.used_chunk_ids
    assert whole.funnel.dropped_by_budget == 3 - len(whole.used_chunk_ids) > 0
    assert len(llm.calls) == 4


@pytest.mark.parametrize("preset", ["rag_query", "docrag", "profile"])
def test_overflow_shortens_prompt_of_each_preset(preset: str) -> None:
    llm = SmallContextLLM(MAX_TOKENS + 900, ratio=1.5)
    overflow = OverflowQuery(llm, passages_of(60, 60, 60, 60), conversation(30, 30), preset=preset)
    assert isinstance(overflow.last, DoneEvent), overflow.last
    assert llm.fitted == [False, True]
    assert overflow.last.result.used_chunk_ids
