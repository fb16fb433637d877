"""QueryService over a scripted retriever and a scripted model: order, outcomes, log, metrics."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from vectorforge.deadline import Deadline
from vectorforge.errors import (
    DatabaseUnavailableError,
    EmbeddingError,
    InvalidInputError,
    LLMError,
    LLMStreamError,
    LLMTimeoutError,
    NotFoundError,
    VectorForgeError,
)
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
from vectorforge.retriever.base import BaseRetriever, KnownQuestion, Passages
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.testing.fenced import unfenced
from vectorforge.testing.passages import make_passage
from vectorforge.testing.query_parts import LogList
from vectorforge.testing.scripted_llm import ScriptedLLM
from vectorforge.types import RetrievedChunk, SearchMode

COLLECTION = uuid4()
PASSAGES = [make_passage("Water boils at 100 degrees.", 0.9), make_passage("Ice melts at 0 degrees.", 0.7)]


class ScriptedRetriever(BaseRetriever):
    """Returns what it is told to; records its calls."""

    def __init__(self, found: list[RetrievedChunk] | Exception) -> None:
        self.found = found
        self.delay_s = 0.0
        self.calls: list[dict[str, Any]] = []
        self.called = asyncio.Event()

    async def retrieve(
        self,
        query: str,
        collection_id: UUID,
        top_k: int = 10,
        filters: Mapping[str, Any] | None = None,
        min_score: float | None = 0.0,
        embedding_provider: str | None = None,
        *,
        profile_id: int | None = None,
        deadline: Deadline | None = None,
        search_mode: SearchMode | None = None,
        words_suffice: bool = False,
        known: KnownQuestion | None = None,
    ) -> Passages:
        self.called.set()
        self.calls.append(
            {
                "query": query,
                "collection_id": collection_id,
                "top_k": top_k,
                "filters": filters,
                "min_score": min_score,
                "embedding_provider": embedding_provider,
            }
        )
        self.called.set()
        await asyncio.sleep(self.delay_s)
        if isinstance(self.found, Exception):
            raise self.found
        return Passages(self.found)


class Setup:
    """A service with everything around it in reach."""

    def __init__(
        self,
        found: list[RetrievedChunk] | Exception | None = None,
        llm: ScriptedLLM | None = None,
        log_error: Exception | None = None,
    ) -> None:
        self.metrics = InMemoryMetrics()
        self.retriever = ScriptedRetriever(PASSAGES if found is None else found)
        self.llm = llm or ScriptedLLM(["Water boils ", "at 100. [Sour", "ce 1]"], metrics=self.metrics)
        self.registry = LLMProviderRegistry()
        self.registry.register(self.llm)
        self.registry.set_default(self.llm.provider_name())
        self.log = LogList(log_error)
        self.service = QueryService(
            self.retriever, ContextBuilder(), self.registry, self.log, metrics=self.metrics
        )

    async def events(self, query: str = "When?", config: QueryConfig | None = None) -> list[QueryEvent]:
        return [event async for event in self.service.query_events(query, COLLECTION, config)]


async def test_query_goes_through_every_step() -> (
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


async def test_defaults_of_a_query() -> None:  # A-101, C03, C04, C12
    config = QueryConfig()
    assert (config.top_k, config.min_score, config.filters) == (10, 0.0, None)
    assert (config.llm_provider, config.llm_model, config.embedding_provider) == (None, None, None)
    assert (config.temperature, config.max_tokens) == (0.7, 1024)
    assert (config.include_sources, config.stream) == (True, False)
    door = RAG_QUERY.config()
    assert (door.top_k, door.min_score, door.temperature, door.top_p, door.max_tokens) == (
        5,
        None,
        0.7,
        0.9,
        2048,
    )


async def test_the_named_provider_and_model_answer() -> None:
    setup = Setup()
    other = ScriptedLLM(["other"], name="other")
    setup.registry.register(other)
    config = QueryConfig(llm_provider="other", llm_model="m2", temperature=None)
    result = await setup.service.query("q", COLLECTION, config)
    assert result.answer == "other"
    ((_, request),) = other.calls
    assert (request.model, request.temperature) == ("m2", None)
    assert setup.llm.calls == []


async def test_an_unknown_provider_is_the_callers_error() -> None:
    setup = Setup()
    with pytest.raises(InvalidInputError, match="nope"):
        await setup.service.query("q", COLLECTION, QueryConfig(llm_provider="nope"))


async def test_the_context_may_take_three_times_the_answer() -> None:  # A-106, C06
    setup = Setup([make_passage("word " * 400, 0.9), make_passage("word " * 400, 0.8)])
    result = await setup.service.query("q", COLLECTION, QueryConfig(max_tokens=200))
    assert len(result.retrieved_chunks) == 2
    assert len(result.used_chunk_ids) == 1
    assert setup.metrics.total("context.chunks_truncated") == 1


async def test_latencies_are_those_of_their_steps() -> None:  # C27
    setup = Setup(llm=ScriptedLLM(delay_s=0.05))
    setup.retriever.delay_s = 0.03
    result = await setup.service.query("q", COLLECTION)
    assert result.retrieval_latency_ms >= 29
    assert result.generation_latency_ms >= 49
    assert result.retrieval_latency_ms < result.total_latency_ms - 45
    assert result.total_latency_ms >= result.retrieval_latency_ms + result.generation_latency_ms


async def test_nothing_found_asks_no_model() -> None:  # A-105, C11, C31
    setup = Setup([])
    result = await setup.service.query("q", COLLECTION)
    assert result.answer == "No relevant documents found for your query."
    assert (result.sources, result.retrieved_chunks, result.llm_response) == ([], [], None)
    assert result.generation_latency_ms == 0
    assert setup.llm.calls == []
    (row,) = setup.log.rows
    assert row.outcome == "empty"


async def test_nothing_found_streams_the_same_sentence() -> None:  # A-113, C11
    texts = [t async for t in Setup([]).service.query_stream("q", COLLECTION)]
    assert texts == ["No relevant documents found for your query."]


async def test_rag_query_asks_the_model_without_a_system_message() -> None:  # B-033, B-034, C11
    setup = Setup([])
    history = [HistoryMessage("user", "hi"), HistoryMessage("assistant", "hello")]
    await setup.service.query("q", COLLECTION, RAG_QUERY.config(history=history))
    ((messages, _),) = setup.llm.calls
    assert messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "q"},
    ]


async def test_history_stands_between_context_and_question() -> None:  # B-034, C20
    setup = Setup()
    await setup.service.query("q", COLLECTION, QueryConfig(history=[HistoryMessage("user", "earlier")]))
    ((messages, _),) = setup.llm.calls
    assert [m["role"] for m in messages] == ["system", "user", "user"]
    assert messages[1]["content"] == "earlier"


async def test_sampling_that_was_not_set_stays_unset() -> None:  # C12
    setup = Setup()
    await setup.service.query("q", COLLECTION)
    ((_, request),) = setup.llm.calls
    assert (request.top_p, request.frequency_penalty, request.presence_penalty) == (None, None, None)


async def test_events_come_in_order() -> None:  # A-112, C41
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


async def test_stream_and_query_agree() -> None:  # C41
    collected: list[QueryResult] = []
    setup = Setup()
    texts = [t async for t in setup.service.query_stream("q", COLLECTION, collector=collected.append)]
    result = await setup.service.query("q", COLLECTION)
    assert "".join(texts) == result.answer == collected[0].answer
    assert collected[0].citations == result.citations


async def test_tokens_arrive_before_the_model_has_finished() -> None:
    gate = asyncio.Semaphore(0)
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=gate))
    async with aclosing(setup.service.query_stream("q", COLLECTION)) as stream:
        assert await anext(stream) == "one"
        gate.release()
        assert await anext(stream) == "two"


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (NotFoundError("Collection x not found"), "retrieve"),
        (EmbeddingError("no embedding"), "retrieve"),
        (DatabaseUnavailableError(), "retrieve"),
    ],
)
async def test_a_failed_search_is_raised_and_logged(
    error: VectorForgeError, stage: str
) -> None:
    setup = Setup(error)
    with pytest.raises(type(error)):
        await setup.service.query("q", COLLECTION)
    (row,) = setup.log.rows
    assert (row.outcome, row.error_code, row.error_stage) == ("error", error.code, stage)
    tags = {"stage": stage, "error_type": type(error).__name__}
    assert setup.metrics.get("pipeline.query.errors", tags).total == 1


async def test_a_failing_model_ends_the_stream_with_one_error() -> None:  # C22
    setup = Setup(llm=ScriptedLLM(["half "], error=LLMStreamError("broke")))
    events = await setup.events()
    error = events[-1]
    assert isinstance(error, ErrorEvent)
    assert (error.stage, error.partial_answer) == ("generate", "half ")
    assert sum(isinstance(e, DoneEvent | ErrorEvent) for e in events) == 1
    (row,) = setup.log.rows
    assert (row.outcome, row.generated_response) == ("error", "half ")


async def test_query_stream_raises_what_broke() -> None:
    setup = Setup(llm=ScriptedLLM(["half "], error=LLMStreamError("broke")))
    with pytest.raises(LLMStreamError):
        async for _ in setup.service.query_stream("q", COLLECTION):
            pass


async def test_a_bug_is_an_error_event_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:  # C22
    events = await Setup(RuntimeError("password=hunter2")).events()
    error = events[-1]
    assert isinstance(error, ErrorEvent)
    assert "hunter2" not in error.error.message
    assert "failed in stage retrieve: builtins.RuntimeError" in caplog.text  # type and place, no text
    assert "test_rag_pipeline.py" in caplog.text
    assert "hunter2" not in caplog.text


async def test_without_a_model_the_query_says_what_to_set() -> None:
    setup = Setup()
    service = QueryService(setup.retriever, ContextBuilder(), LLMProviderRegistry(), setup.log)
    with pytest.raises(LLMError, match="VECTORFORGE_OPENAI_API_KEY"):
        await service.query("q", COLLECTION)


async def test_the_answer_is_logged() -> None:  # C01, C31
    setup = Setup()
    result = await setup.service.query("When?", COLLECTION)
    (row,) = setup.log.rows
    assert row.id == result.request_id
    assert row.collection_id == COLLECTION
    assert row.query_text == "When?"
    assert row.retrieved_chunk_ids == [p.chunk.id for p in PASSAGES]
    assert row.generated_response == result.answer
    assert row.outcome == "answered"
    assert (row.provider, row.model, row.prompt_tokens) == ("scripted", "scripted-1", 100)


async def test_the_log_comes_before_the_last_event() -> None:  # C01
    setup = Setup()
    async for event in setup.service.query_events("q", COLLECTION):
        if isinstance(event, DoneEvent):
            assert len(setup.log.rows) == 1
        else:
            assert setup.log.rows == []


async def test_a_failing_log_is_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    setup = Setup(log_error=DatabaseUnavailableError("no database"))
    result = await setup.service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: no database"]
    assert setup.metrics.get("query_log.write.errors", {"error_type": "DatabaseUnavailableError"}).total == 1


async def test_the_start_is_logged_before_anything_leaves() -> None:  # C01; fault 45
    setup = Setup()
    setup.log.start_delay_s = 0.05
    async for event in setup.service.query_events("  When? ", COLLECTION):
        (row,) = setup.log.started
        if isinstance(event, MetaEvent):
            assert (row.id, row.outcome, row.query_text) == (event.request_id, "started", "When?")
            assert (row.provider, row.model, row.generated_response) == ("scripted", "scripted-1", "")
    assert [row.id for row in setup.log.rows] == [row.id]


async def test_the_search_runs_beside_the_logging_of_the_start() -> None:  # C01
    setup = Setup()
    setup.log.start_delay_s = 0.1
    events = asyncio.create_task(setup.events())
    await setup.retriever.called.wait()
    assert setup.log.started == []  # the search does not wait for it
    assert isinstance((await events)[-1], DoneEvent)


async def test_a_start_that_cannot_be_logged_is_only_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = Setup()
    setup.log.start_error = DatabaseUnavailableError("no queue")
    result = await setup.service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: no queue"]
    assert [row.outcome for row in setup.log.rows] == ["answered"]


async def test_a_log_that_hangs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.log.start_delay_s = setup.log.delay_s = 3600
    service = QueryService(setup.retriever, ContextBuilder(), setup.registry, setup.log, log_timeout_s=0.01)
    async with asyncio.timeout(30):
        result = await service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: TimeoutError"] * 2


async def test_leaving_after_the_first_event_ends_the_search() -> None:  # C31
    setup = Setup()
    setup.retriever.delay_s = 3600
    async with asyncio.timeout(30), aclosing(setup.service.query_events("q", COLLECTION)) as events:
        await anext(events)
    assert [row.outcome for row in setup.log.rows] == ["aborted"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_leaving_while_the_start_is_logged_loses_neither_record() -> None:  # C01, C31
    setup = Setup()
    setup.log.start_delay_s = 0.05
    task = asyncio.create_task(setup.events())
    await setup.retriever.called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(setup.log.started) == 1
    assert [row.outcome for row in setup.log.rows] == ["aborted"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_search_that_fails_before_the_start_is_logged_fails_after_it() -> None:  # C01, A-118
    setup = Setup(EmbeddingError("no embedding"))
    setup.log.start_delay_s = 0.05
    events = await setup.events()
    assert [type(event) for event in events] == [MetaEvent, ErrorEvent]
    assert len(setup.log.started) == 1
    assert [row.outcome for row in setup.log.rows] == ["error"]


async def test_a_question_that_is_refused_never_started() -> None:  # C31
    setup = Setup()
    with pytest.raises(InvalidInputError):
        await setup.service.query("   ", COLLECTION)
    assert setup.log.started == []
    assert [row.outcome for row in setup.log.rows] == ["error"]


async def test_closing_the_stream_stops_the_model_and_logs_an_abort() -> None:  # C31
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=asyncio.Semaphore(0)))
    async with aclosing(setup.service.query_events("q", COLLECTION)) as events:
        async for event in events:
            if isinstance(event, TokenEvent):
                break
    (row,) = setup.log.rows
    assert (row.outcome, row.generated_response) == ("aborted", "one")
    assert setup.llm.closed_early == 1


async def test_cancelling_the_task_logs_an_abort() -> None:  # C31
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=asyncio.Semaphore(0)))
    task = asyncio.create_task(setup.events())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row.outcome for row in setup.log.rows] == ["aborted"]


async def test_a_client_that_leaves_while_the_log_is_written_is_logged_too() -> None:  # A-117, C31
    setup = Setup()
    setup.log.delay_s = 0.1
    task = asyncio.create_task(setup.events())
    await asyncio.sleep(0.05)
    assert setup.log.rows == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row.outcome for row in setup.log.rows] == ["answered"]


async def test_at_the_deadline_what_is_there_is_the_answer() -> None:
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


async def test_a_template_of_the_caller_is_used() -> None:  # C08
    setup = Setup()
    await setup.service.query("q", COLLECTION, QueryConfig(system_prompt="Only: {context}"))
    ((messages, _),) = setup.llm.calls
    assert unfenced(messages[0]["content"]).startswith("Only: [Source 1]")
    with pytest.raises(InvalidInputError):
        await setup.service.query("q", COLLECTION, replace(QueryConfig(), system_prompt="none"))
