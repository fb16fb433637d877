"""DocRag's preset: context, prompts and budget byte for byte, and the conversion of the model's JSON."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rag.chunks import make_chunk
from tests.support.rag.fenced import unfenced
from tests.support.rag.query_parts import LogList
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.errors import LLMStreamError
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import Message
from vectorforge.pipeline.context import ContextBuilder, ContextConfig, ContextPayload
from vectorforge.pipeline.presets import DOCRAG, history_of, last_exchanges
from vectorforge.pipeline.prompts import DOCRAG_SYSTEM_PROMPT
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.structured import structured_answer
from vectorforge.pipeline.types import (
    DoneEvent,
    ErrorEvent,
    HistoryMessage,
    QueryConfig,
    StructuredAnswer,
    TokenEvent,
)
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk

DOCS = "https://docs.example"
ONE = make_chunk("Install with pip.", 0.9, source=f"{DOCS}/install", title="Install")
TWO = make_chunk("Run the server.", 0.8, source=f"{DOCS}/run")
HISTORY = history_of((f"question {n}", f"answer {n} " + "x" * 300) for n in range(1, 6))
MODEL_JSON = {
    "answer": "Use pip.",
    "examples": ["pip install x"],
    "sources": [f"{DOCS}/install", "https://made.up/page"],
    "confidence": "high",
}


class FixedRetriever(BaseRetriever):
    def __init__(self, found: Sequence[RetrievedChunk]) -> None:
        self.found = found

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        return RetrievedChunks(list(self.found))


def service_with(
    llm: ScriptedLLM | ExtractiveProvider, found: Sequence[RetrievedChunk] = (ONE, TWO)
) -> QueryService:
    registry = LLMProviderRegistry()
    registry.register(llm)
    return QueryService(FixedRetriever(found), ContextBuilder(), registry, LogList())


def config_with(history: Sequence[HistoryMessage]) -> ContextConfig:
    return ContextConfig(
        system_prompt_template=DOCRAG.system_prompt,
        chunk_separator=DOCRAG.chunk_separator,
        format=DOCRAG.context_format,
        max_context_tokens=DOCRAG.max_context_tokens,
        model=DOCRAG.counting_model,
        user_template=DOCRAG.user_template,
        exchanges=last_exchanges(history),
    )


def built(
    passages: Sequence[RetrievedChunk], history: Sequence[HistoryMessage] = (), query: str = "How?"
) -> ContextPayload:
    return ContextBuilder().build(query, passages, config_with(history))


HEADING = "\n--- RELEVANT DOCUMENTATION ---"
FIRST = f"\nSource: {DOCS}/install - Install\nContent: Install with pip.\n---"
SECOND = f"\nSource: {DOCS}/run\nContent: Run the server.\n---"


@pytest.mark.parametrize(
    ("passages", "context"),
    [
        ([], HEADING),
        ([ONE], f"{HEADING}\n{FIRST}"),
        ([ONE, TWO, ONE], f"{HEADING}\n{FIRST}\n{SECOND}\n{FIRST}"),
    ],
)
def test_docrag_context_format_is_exact(passages: list[RetrievedChunk], context: str) -> None:  # D-020, C05
    assert built(passages).assembled_context == context


def test_docrag_context_shows_score_with_source() -> None:  # C05
    written = DOCRAG.context_format.write(1, ONE, include_score=True)
    assert written.startswith(f"\nSource: {DOCS}/install - Install (relevance: 0.90)\nContent: ")


def test_docrag_history_precedes_chunks_in_prompt() -> None:  # D-019, C20
    answers = {n: f"answer {n} " + "x" * 300 for n in range(1, 6)}
    lines = [
        line
        for n in (3, 4, 5)
        for line in (f"Previous Q: question {n}", f"Previous A: {answers[n][:200]}...")
    ]
    assert built([ONE], HISTORY).assembled_context == "\n".join([*lines, HEADING, FIRST])


def test_docrag_prompts_are_exact() -> None:  # D-023, D-025, C08
    payload = built([ONE], query="Why {context}?")
    assert payload.system_prompt == DOCRAG_SYSTEM_PROMPT
    assert payload.system_prompt.startswith("You are a helpful technical documentation assistant.\n")
    for field in ('"answer"', '"examples"', '"sources"', '"confidence"', "high, medium or low", "JSON"):
        assert field in payload.system_prompt
    assert unfenced(payload.user_message) == (
        f"Context from documentation:\n{HEADING}\n{FIRST}\n\nUser question: Why {{context}}?\n\n"
        "Please provide a helpful answer based on the context above."
    )


def test_placeholders_in_documents_are_not_substituted() -> None:
    payload = built([make_chunk("Set {query} and {context}.", source="a.md")])
    assert "Content: Set {query} and {context}.\n" in payload.user_message


def test_docrag_budget_drops_history_before_chunks() -> None:  # C06, D-021, D-022
    passages = [make_chunk("word " * 700, source=f"{n}.md") for n in range(7)]
    payload = built(passages, HISTORY)  # chunks alone exceed the budget
    assert payload.exchanges_truncated == 3
    assert payload.used == passages[: len(payload.used)]
    assert 0 < len(payload.used) < 7
    assert payload.token_count <= 4000
    short = built(passages[:2], HISTORY)
    assert (short.exchanges_truncated, short.chunks_truncated) == (0, 0)


def test_docrag_budget_drops_oldest_exchange_first() -> None:  # C06
    history = history_of([("old " * 2000, "a"), ("new", "b")])
    passages = [make_chunk("word " * 2500, source="a.md")]
    payload = built(passages, history)
    assert payload.exchanges_truncated == 1
    assert payload.assembled_context.startswith("Previous Q: new\nPrevious A: b...\n\n--- RELEVANT")
    assert payload.used == passages


@given(st.lists(st.integers(1, 9000), max_size=6), st.lists(st.integers(0, 9000), max_size=4))
def test_docrag_context_stays_in_budget(sizes: list[int], questions: list[int]) -> None:  # C06
    passages = [make_chunk("a word. " * (size // 8 + 1), source="a.md") for size in sizes]
    payload = built(passages, history_of(("q " * (n // 2), "a") for n in questions))
    assert estimate_tokens(payload.assembled_context, "gpt-4o") == payload.token_count <= 4000
    assert [c.chunk.id for c in payload.used] == [c.chunk.id for c in passages[: len(payload.used)]]
    assert bool(payload.used) == bool(passages)
    if payload.chunks_truncated:
        assert payload.exchanges_truncated == len(last_exchanges(history_of(("", "") for _ in questions)))


async def sent_messages(**options: Any) -> tuple[list[Message], Any]:
    llm = ScriptedLLM([json.dumps(MODEL_JSON)])
    await service_with(llm).query("How?", uuid4(), DOCRAG.config(rewrite=False, **options))
    return llm.calls[0]


async def test_docrag_model_receives_two_messages_and_schema() -> None:  # D-024, D-027, C20
    messages, config = await sent_messages(history=HISTORY)
    assert [m["role"] for m in messages] == ["system", "user"]
    assert messages[0]["content"] == DOCRAG_SYSTEM_PROMPT
    assert unfenced(messages[1]["content"]).startswith(
        "Context from documentation:\nPrevious Q: question 3\n"
    )
    assert list(config.response_schema["properties"]) == ["answer", "examples", "sources", "confidence"]
    assert (config.temperature, config.max_tokens, config.top_p) == (0.3, 1000, None)


async def test_docrag_prompt_includes_third_last_exchange() -> None:  # C20, D-033
    prompts = []
    for third_last in ("Which OS? ", "Which cloud? "):
        history = history_of([(third_last, "That one."), ("b", "B."), ("c", "C.")])
        prompts.append(unfenced((await sent_messages(history=history))[0][1]["content"]))
    assert prompts[0] != prompts[1]


async def test_docrag_custom_system_prompt_holds_context() -> None:  # C08
    messages, _ = await sent_messages(system_prompt="Answer with JSON from: {context}")
    assert unfenced(messages[0]["content"]) == f"Answer with JSON from: {HEADING}\n{FIRST}\n{SECOND}"
    assert messages[1]["content"] == "How?"


async def test_docrag_streamed_answer_equals_whole_answer() -> None:  # C09, C10, D-026
    written = json.dumps(MODEL_JSON)
    service = service_with(ScriptedLLM(list(written)))
    whole = await service.query("How?", uuid4(), DOCRAG.config())
    events = [e async for e in service.query_events("How?", uuid4(), DOCRAG.config())]
    tokens = [e.text for e in events if isinstance(e, TokenEvent)]
    assert tokens == list("Use pip.")  # as the model writes them
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert done.result.answer == whole.answer == "Use pip."
    assert done.result.structured == whole.structured
    assert whole.structured == StructuredAnswer(
        examples=("pip install x",),
        source_urls=(f"{DOCS}/install",),
        dropped_source_urls=1,
        confidence="high",
    )
    assert "made.up" not in repr(whole.structured)


async def test_docrag_plain_text_answer_has_default_structure(
    caplog: pytest.LogCaptureFixture,
) -> None:  # D-028
    with caplog.at_level(logging.ERROR):
        result = await service_with(ScriptedLLM(["Just ", "text."])).query("How?", uuid4(), DOCRAG.config())
    assert (result.answer, result.structured) == ("Just text.", StructuredAnswer())
    assert result.structured is not None
    assert (result.structured.examples, result.structured.source_urls) == ((), ())
    assert result.structured.confidence == "low"
    assert caplog.messages == ["The model's answer is not a JSON object; it is treated as text."]


async def test_docrag_stream_broken_within_json_returns_partial_answer() -> None:
    llm = ScriptedLLM(['{"answer": "Half of', " it"], error=LLMStreamError("broken"))
    service = service_with(llm)
    events = [e async for e in service.query_events("How?", uuid4(), DOCRAG.config())]
    last = events[-1]
    assert isinstance(last, ErrorEvent)
    assert last.partial_answer == "Half of it"


async def test_docrag_extractive_answer_lists_cited_sources() -> None:
    llm = ExtractiveProvider(embed=HashingEmbedder().embed_documents)
    result = await service_with(llm).query("How to install with pip?", uuid4(), DOCRAG.config())
    assert "Install with pip." in result.answer
    elsewhere = await service_with(llm).query("How to install with pip?", uuid4(), QueryConfig())
    assert result.answer == elsewhere.answer  # the template around the query is not part of it
    assert result.structured is not None
    assert result.structured.source_urls[0] == f"{DOCS}/install"


async def test_docrag_without_results_returns_empty_answer_without_model_call() -> None:  # C11
    llm = ScriptedLLM([json.dumps(MODEL_JSON)])
    result = await service_with(llm, found=[]).query("How?", uuid4(), DOCRAG.config())
    assert (result.outcome, result.structured, llm.calls) == ("empty", StructuredAnswer(), [])


async def test_other_presets_do_not_request_json() -> None:
    llm = ScriptedLLM(['{"answer": "x"}'])
    result = await service_with(llm).query("How?", uuid4(), QueryConfig())
    assert (result.answer, result.structured) == ('{"answer": "x"}', None)
    assert llm.calls[0][1].response_schema is None


@pytest.mark.parametrize(
    ("model_json", "expected"),
    [
        ({}, StructuredAnswer()),
        ({"confidence": " High "}, StructuredAnswer(confidence="high")),
        ({"confidence": "certain"}, StructuredAnswer()),
        ({"confidence": 3, "examples": None, "sources": 5}, StructuredAnswer(dropped_source_urls=1)),
        ({"examples": "one"}, StructuredAnswer(examples=("one",))),
        (
            {"examples": [{"language": "sh", "code": "ls"}, {"x": "ü"}, ""]},
            StructuredAnswer(examples=("ls", '{"x": "ü"}')),
        ),
        (
            {"sources": [f"<{DOCS}/run/>", f"{DOCS}/install#pip", f"{DOCS}/run", f"{DOCS}/runs", DOCS]},
            StructuredAnswer(source_urls=(f"{DOCS}/run", f"{DOCS}/install"), dropped_source_urls=2),
        ),
        ({"sources": [{"url": f"{DOCS}/run"}]}, StructuredAnswer(source_urls=(f"{DOCS}/run",))),
    ],
)
def test_docrag_answer_tolerates_missing_and_odd_properties(
    model_json: Mapping[str, Any], expected: StructuredAnswer
) -> None:  # C09, C10
    assert structured_answer(model_json, [ONE, TWO]) == expected
