"""Log records of queries with every outcome."""

import asyncio
import logging
from contextlib import aclosing
from itertools import count

import pytest

from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.unit.query_setup import COLLECTION, PASSAGES, Setup
from vectorforge.errors import (
    DatabaseUnavailableError,
    EmbeddingError,
    InvalidInputError,
    NotFoundError,
    VectorForgeError,
)
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.guardrails.log_text import LogTextPolicies, LogTexts
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, MetaEvent, TokenEvent


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (NotFoundError("Collection x not found"), "retrieve"),
        (EmbeddingError("no embedding"), "retrieve"),
        (DatabaseUnavailableError(), "retrieve"),
    ],
)
async def test_failed_search_is_raised_and_logged(
    error: VectorForgeError, stage: str
) -> None:
    setup = Setup(error)
    with pytest.raises(type(error)):
        await setup.service.query("q", COLLECTION)
    (row,) = setup.log.rows
    assert (row.outcome, row.error_code, row.error_stage) == ("error", error.code, stage)
    tags = {"stage": stage, "error_type": type(error).__name__}
    assert setup.metrics.get("pipeline.query.errors", tags).total == 1


async def test_answered_query_is_logged() -> None:  # C01, C31
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


async def test_query_log_is_written_before_done_event() -> None:  # C01
    setup = Setup()
    async for event in setup.service.query_events("q", COLLECTION):
        if isinstance(event, DoneEvent):
            assert len(setup.log.rows) == 1
        else:
            assert setup.log.rows == []


async def test_failing_query_log_emits_warning_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    setup = Setup(log_error=DatabaseUnavailableError("no database"))
    result = await setup.service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: no database"]
    assert setup.metrics.get("query_log.write.errors", {"error_type": "DatabaseUnavailableError"}).total == 1


async def test_query_start_is_logged_before_first_event() -> None:  # C01; fault 45
    setup = Setup()
    setup.log.start_delay_s = 0.05
    async for event in setup.service.query_events("  When? ", COLLECTION):
        (row,) = setup.log.started
        if isinstance(event, MetaEvent):
            assert (row.id, row.outcome, row.query_text) == (event.request_id, "started", "When?")
            assert (row.provider, row.model, row.generated_response) == ("scripted", "scripted-1", "")
    assert [row.id for row in setup.log.rows] == [row.id]


async def test_search_runs_concurrently_with_start_log() -> None:  # C01
    setup = Setup()
    setup.log.start_delay_s = 0.1
    events = asyncio.create_task(setup.events())
    await setup.retriever.called.wait()
    assert setup.log.started == []  # the search does not wait for it
    assert isinstance((await events)[-1], DoneEvent)


async def test_failing_start_log_emits_warning_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = Setup()
    setup.log.start_error = DatabaseUnavailableError("no queue")
    result = await setup.service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: no queue"]
    assert [row.outcome for row in setup.log.rows] == ["answered"]


async def test_hanging_query_log_times_out(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.log.start_delay_s = setup.log.delay_s = 3600
    service = QueryService(setup.retriever, ContextBuilder(), setup.registry, setup.log, log_timeout_s=0.01)
    async with asyncio.timeout(30):
        result = await service.query("q", COLLECTION)
    assert result.answer
    assert caplog.messages == ["Failed to log query: TimeoutError"] * 2


async def test_slow_processing_of_texts_loses_no_record() -> None:  # C01; fault 40
    """The sink's time limit is not that of the texts: nothing has printed the record by then."""

    class SlowSettings:
        async def log_text(self) -> str:
            await asyncio.sleep(0.05)
            return "off"

    ticks = count(0, 100)
    policies = LogTextPolicies(clock=lambda: float(next(ticks)))  # every policy is outdated at once
    texts = LogTexts(policies, SlowSettings(), "acme", timeout_s=5)
    setup = Setup()
    service = QueryService(
        setup.retriever, ContextBuilder(), setup.registry, setup.log, log_timeout_s=0.01, log_texts=texts
    )
    assert (await service.query("q", COLLECTION)).answer
    assert [row.outcome for row in setup.log.started + setup.log.rows] == ["started", "answered"]
    assert [row.query_text for row in setup.log.rows] == [""]


async def test_disconnect_after_first_event_cancels_search() -> None:  # C31
    setup = Setup()
    setup.retriever.delay_s = 3600
    async with asyncio.timeout(30), aclosing(setup.service.query_events("q", COLLECTION)) as events:
        await anext(events)
    assert [row.outcome for row in setup.log.rows] == ["aborted"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_disconnect_during_start_log_stores_both_records() -> None:  # C01, C31
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


async def test_search_failure_before_start_log_is_raised_after_it() -> None:  # C01, A-118
    setup = Setup(EmbeddingError("no embedding"))
    setup.log.start_delay_s = 0.05
    events = await setup.events()
    assert [type(event) for event in events] == [MetaEvent, ErrorEvent]
    assert len(setup.log.started) == 1
    assert [row.outcome for row in setup.log.rows] == ["error"]


async def test_rejected_query_logs_no_start() -> None:  # C31
    setup = Setup()
    with pytest.raises(InvalidInputError):
        await setup.service.query("   ", COLLECTION)
    assert setup.log.started == []
    assert [row.outcome for row in setup.log.rows] == ["error"]


async def test_closed_stream_stops_model_and_logs_abort() -> None:  # C31
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=asyncio.Semaphore(0)))
    async with aclosing(setup.service.query_events("q", COLLECTION)) as events:
        async for event in events:
            if isinstance(event, TokenEvent):
                break
    (row,) = setup.log.rows
    assert (row.outcome, row.generated_response) == ("aborted", "one")
    assert setup.llm.closed_early == 1


async def test_cancelled_task_logs_abort() -> None:  # C31
    setup = Setup(llm=ScriptedLLM(["one", "two"], gate=asyncio.Semaphore(0)))
    task = asyncio.create_task(setup.events())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row.outcome for row in setup.log.rows] == ["aborted"]


async def test_disconnect_during_end_log_still_logs_answer() -> None:  # A-117, C31
    setup = Setup()
    setup.log.delay_s = 0.1
    task = asyncio.create_task(setup.events())
    await asyncio.sleep(0.05)
    assert setup.log.rows == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row.outcome for row in setup.log.rows] == ["answered"]
