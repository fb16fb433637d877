"""QueryService over a scripted retriever and a scripted model: order, outcomes, log, metrics."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.support.rag.chunks import make_chunk
from tests.support.rag.fenced import unfenced
from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.unit.query_setup import COLLECTION, PASSAGES, Setup
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError, LLMError, LLMStreamError, LLMTimeoutError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.presets import RAG_QUERY
from vectorforge.pipeline.prompts import DEFAULT_SYSTEM_PROMPT
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import (
    CitationEvent,
    DoneEvent,
    ErrorEvent,
    HistoryMessage,
    MetaEvent,
    QueryConfig,
    QueryEvent,
    QueryResult,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)


async def test_query_runs_every_pipeline_step() -> (
    None
):
    setup = Setup()
    config = QueryConfig(top_k=3, min_score=0.2, filters={"a": 1}, embedding_provider="e", max_tokens=50)
    result = await setup.service.query("  When   does water boil? ", COLLECTION, config)

    assert setup.retriever.calls == [
        {
            "query": "When does water boil?",
            "collection_id": COLLECTION,
            "top_k": 3,
            "filters": {"a": 1},
            "min_score": 0.2,
            "embedding_provider": "e",
        }
    ]
    ((messages, request),) = setup.llm.calls
    context = "[Source 1]\nWater boils at 100 degrees.\n---\n[Source 2]\nIce melts at 0 degrees."
    assert [
        {**m, "content": unfenced(m["content"]) if m["role"] == "system" else m["content"]} for m in messages
    ] == [
        {"role": "system", "content": DEFAULT_SYSTEM_PROMPT.replace("{context}", context)},
        {"role": "user", "content": "When does water boil?"},
    ]
    assert (request.model, request.temperature, request.max_tokens) == ("scripted-1", 0.7, 50)
    assert result.answer == "Water boils at 100. [Source 1]"
    assert result.retrieved_chunks == PASSAGES
    assert [s.chunk_id for s in result.sources] == [p.chunk.id for p in PASSAGES]
    assert [c.chunk_id for c in result.citations] == [PASSAGES[0].chunk.id]
    assert result.llm_response is not None
    assert result.llm_response.total_tokens == 110


async def test_query_config_has_documented_defaults() -> None:  # A-101, C03, C04, C12
    config = QueryConfig()
    assert (config.top_k, config.min_score, config.filters) == (10, 0.0, None)
    assert (config.llm_provider, config.llm_model, config.embedding_provider) == (None, None, None)
    assert (config.temperature, config.max_tokens) == (0.7, 1024)
    assert (config.include_sources, config.stream) == (True, False)
    preset = RAG_QUERY.config()
    assert (preset.top_k, preset.min_score, preset.temperature, preset.top_p, preset.max_tokens) == (
        5,
        None,
        0.7,
        0.9,
        2048,
    )


async def test_named_provider_and_model_generate_the_answer() -> None:
    setup = Setup()
    other = ScriptedLLM(["other"], name="other")
    setup.registry.register(other)
    config = QueryConfig(llm_provider="other", llm_model="m2", temperature=None)
    result = await setup.service.query("q", COLLECTION, config)
    assert result.answer == "other"
    ((_, request),) = other.calls
    assert (request.model, request.temperature) == ("m2", None)
    assert setup.llm.calls == []


async def test_unknown_provider_raises_invalid_input() -> None:
    setup = Setup()
    with pytest.raises(InvalidInputError, match="nope"):
        await setup.service.query("q", COLLECTION, QueryConfig(llm_provider="nope"))


async def test_context_budget_is_three_times_max_tokens() -> None:  # A-106, C06
    setup = Setup([make_chunk("word " * 800, 0.9), make_chunk("word " * 800, 0.8)])
    result = await setup.service.query("q", COLLECTION, QueryConfig(max_tokens=400))
    assert len(result.retrieved_chunks) == 2
    assert len(result.used_chunk_ids) == 1
    assert setup.metrics.total("context.chunks_truncated") == 1


async def test_sources_of_model_have_no_heading_paths() -> None:
    chunk = make_chunk("Water boils at 100.", 0.9)
    placed = replace(chunk.chunk, locations=({"offsets": [0, 19], "heading": "Water"},))
    found = replace(chunk, chunk=placed)
    setup = Setup([found])
    await setup.service.query("When does water boil?", COLLECTION)
    (source,) = setup.llm.sources
    assert (source.text, source.headings) == ("Water boils at 100.", ())


async def test_context_of_short_answer_holds_whole_chunks() -> None:
    setup = Setup([make_chunk("word " * 400, 0.9), make_chunk("word " * 400, 0.8)])
    for max_tokens in (1, 5, 200):
        result = await setup.service.query("q", COLLECTION, QueryConfig(max_tokens=max_tokens))
        assert len(result.used_chunk_ids) == 2


async def test_latencies_match_their_steps() -> None:  # C27
    setup = Setup(llm=ScriptedLLM(delay_s=0.05))
    setup.retriever.delay_s = 0.03
    result = await setup.service.query("q", COLLECTION)
    assert result.retrieval_latency_ms >= 29
    assert result.generation_latency_ms >= 49
    assert result.retrieval_latency_ms < result.total_latency_ms - 45
    assert result.total_latency_ms >= result.retrieval_latency_ms + result.generation_latency_ms


async def test_query_without_results_calls_no_model() -> None:  # A-105, C11, C31
    setup = Setup([])
    result = await setup.service.query("q", COLLECTION)
    assert result.answer == "No relevant documents found for your query."
    assert (result.sources, result.retrieved_chunks, result.llm_response) == ([], [], None)
    assert result.generation_latency_ms == 0
    assert setup.llm.calls == []
    (row,) = setup.log.rows
    assert row.outcome == "empty"


async def test_stream_without_results_emits_same_answer() -> None:  # A-113, C11
    texts = [t async for t in Setup([]).service.query_stream("q", COLLECTION)]
    assert texts == ["No relevant documents found for your query."]


async def test_rag_query_without_results_sends_no_system_message() -> None:  # B-033, B-034, C11
    setup = Setup([])
    history = [HistoryMessage("user", "hi"), HistoryMessage("assistant", "hello")]
    await setup.service.query("q", COLLECTION, RAG_QUERY.config(history=history, rewrite=False))
    ((messages, _),) = setup.llm.calls
    assert messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "q"},
    ]


async def test_history_is_placed_between_context_and_query() -> None:  # B-034, C20
    setup = Setup()
    config = QueryConfig(history=[HistoryMessage("user", "earlier")], rewrite=False)
    await setup.service.query("q", COLLECTION, config)
    ((messages, _),) = setup.llm.calls
    assert [m["role"] for m in messages] == ["system", "user", "user"]
    assert messages[1]["content"] == "earlier"


async def test_unset_sampling_parameters_are_not_sent() -> None:  # C12
    setup = Setup()
    await setup.service.query("q", COLLECTION)
    ((_, request),) = setup.llm.calls
    assert (request.top_p, request.frequency_penalty, request.presence_penalty) == (None, None, None)


async def test_query_events_are_emitted_in_order() -> None:  # A-112, C41
    events = await Setup().events()
    assert [type(e) for e in events] == [
        MetaEvent,
        SourcesEvent,
        TokenEvent,
        TokenEvent,
        TokenEvent,
        CitationEvent,
        UsageEvent,
        DoneEvent,
    ]
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert done.result.answer == "".join(e.text for e in events if isinstance(e, TokenEvent))


async def test_streamed_result_equals_query_result() -> None:  # C41
    collected: list[QueryResult] = []
    setup = Setup()
    texts = [t async for t in setup.service.query_stream("q", COLLECTION, collector=collected.append)]
    result = await setup.service.query("q", COLLECTION)
    assert "".join(texts) == result.answer == collected[0].answer
    assert collected[0].citations == result.citations


async def test_tokens_are_emitted_before_model_finishes() -> None:
    gate = asyncio.Semaphore(0)
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=gate))
    async with aclosing(setup.service.query_stream("q", COLLECTION)) as stream:
        assert await anext(stream) == "one"
        gate.release()
        assert await anext(stream) == "two"


async def test_failing_model_ends_stream_with_one_error() -> None:  # C22
    setup = Setup(llm=ScriptedLLM(["half "], error=LLMStreamError("broke")))
    events = await setup.events()
    error = events[-1]
    assert isinstance(error, ErrorEvent)
    assert (error.stage, error.partial_answer) == ("generate", "half ")
    assert sum(isinstance(e, DoneEvent | ErrorEvent) for e in events) == 1
    (row,) = setup.log.rows
    assert (row.outcome, row.generated_response) == ("error", "half ")


async def test_query_stream_raises_model_error() -> None:
    setup = Setup(llm=ScriptedLLM(["half "], error=LLMStreamError("broke")))
    with pytest.raises(LLMStreamError):
        async for _ in setup.service.query_stream("q", COLLECTION):
            pass


async def test_unexpected_error_event_hides_its_message(caplog: pytest.LogCaptureFixture) -> None:  # C22
    events = await Setup(RuntimeError("password=hunter2")).events()
    error = events[-1]
    assert isinstance(error, ErrorEvent)
    assert "hunter2" not in error.error.message
    assert "failed in stage retrieve: builtins.RuntimeError" in caplog.text  # type and place, no text
    assert "query_setup.py" in caplog.text
    assert "hunter2" not in caplog.text


async def test_query_without_model_raises_error_naming_setting() -> None:
    setup = Setup()
    service = QueryService(setup.retriever, ContextBuilder(), LLMProviderRegistry(), setup.log)
    with pytest.raises(LLMError, match="VECTORFORGE_OPENAI_API_KEY"):
        await service.query("q", COLLECTION)


async def test_deadline_ends_stream_with_partial_answer() -> None:
    setup = Setup(llm=ScriptedLLM(["half [Source 1]"], error=LLMTimeoutError()))
    events: list[QueryEvent] = []
    async for event in setup.service.query_events("q", COLLECTION, deadline=Deadline.after(0.2)):
        events.append(event)
        if isinstance(event, TokenEvent):
            await asyncio.sleep(0.25)  # until the deadline has passed
    done = events[-1]
    assert isinstance(done, DoneEvent)
    assert (done.result.finish_reason, done.result.outcome) == ("deadline", "deadline")
    assert len(done.result.citations) == 1
    (usage,) = [e for e in events if isinstance(e, UsageEvent)]
    assert usage.estimated


async def test_custom_system_prompt_is_used() -> None:  # C08
    setup = Setup()
    await setup.service.query("q", COLLECTION, QueryConfig(system_prompt="Only: {context}"))
    ((messages, _),) = setup.llm.calls
    assert unfenced(messages[0]["content"]).startswith("Only: [Source 1]")
    with pytest.raises(InvalidInputError):
        await setup.service.query("q", COLLECTION, replace(QueryConfig(), system_prompt="none"))


@pytest.mark.parametrize("streamed", [True, False])
async def test_answer_over_max_tokens_is_cut(streamed: bool) -> None:
    setup = Setup(llm=ScriptedLLM(["Water boils at 100. [Source 1] ", *["on and on "] * 2000]))
    config = QueryConfig(max_tokens=100)
    if streamed:
        *events, done = await setup.events(config=config)
        assert isinstance(done, DoneEvent)
        result = done.result
        assert "".join(event.text for event in events if isinstance(event, TokenEvent)) == result.answer
        assert setup.llm.closed_early == 1
    else:
        result = await setup.service.query("When?", COLLECTION, config)
        assert result.llm_response is not None
        assert result.llm_response.content == result.answer
    assert (len(result.answer), result.finish_reason) == (6400, "length")
    assert [c.chunk_id for c in result.citations] == [PASSAGES[0].chunk.id]
    assert setup.log.rows[-1].generated_response == result.answer


async def test_query_without_results_total_latency_equals_retrieval_latency() -> None:
    setup = Setup()
    setup.retriever.found = []
    result = await setup.service.query("When does water boil?", COLLECTION)
    assert result.total_latency_ms == result.retrieval_latency_ms > 0
