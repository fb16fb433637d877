"""The spans of a query: five sequential steps within the whole, each closed once however the query ends."""

import asyncio
from contextlib import aclosing
from uuid import uuid4

import pytest

from tests.support.aws.span_list import SpanList
from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import LogList
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    DatabaseUnavailableError,
    InvalidInputError,
    LLMStreamError,
    LLMTimeoutError,
    NotFoundError,
)
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.rag import QueryService
from vectorforge.pipeline.types import ErrorEvent, TokenEvent
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.telemetry import SPAN_NAMES, InMemoryMetrics

COLLECTION = uuid4()
STEPS = ["preprocess", "retrieve", "context", "generate", "log"]


class OnePassage(BaseRetriever):
    """Finds a chunk, or raises."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        if self._error is not None:
            raise self._error
        return RetrievedChunks([make_chunk("Water boils at 100 degrees.")])


class Traced:
    """A service and its recorded spans."""

    def __init__(
        self,
        llm: ScriptedLLM | None = None,
        *,
        search_error: Exception | None = None,
        log_error: Exception | None = None,
        log_timeout_s: float = 0.2,
    ) -> None:
        self.metrics = InMemoryMetrics()
        self.spans = SpanList()
        self.llm = llm or ScriptedLLM(["It ", "boils. [Source 1]"])
        registry = LLMProviderRegistry()
        registry.register(self.llm)
        self.log = LogList(log_error)
        self.service = QueryService(
            OnePassage(search_error),
            ContextBuilder(),
            registry,
            self.log,
            metrics=self.metrics,
            tracer=self.spans,
            log_timeout_s=log_timeout_s,
        )


def finished(*steps: str) -> list[tuple[str, str]]:
    return [(step, "end") for step in steps]


async def test_query_steps_emit_non_overlapping_spans() -> None:
    traced = Traced()
    events = [type(e).__name__ async for e in traced.service.query_events("When?", COLLECTION)]
    assert events[-1] == "DoneEvent"
    steps = [(step, what) for step in STEPS for what in ("begin", "end")]
    assert traced.spans.seen == [("query", "begin"), *steps, ("query", "end")]
    assert {name for name, _ in traced.spans.seen} == set(SPAN_NAMES)


async def test_non_streamed_query_emits_same_spans() -> None:
    traced = Traced()
    await traced.service.query("When?", COLLECTION)
    assert traced.spans.ended() == finished(*STEPS, "query")


async def test_generate_span_lasts_until_last_token() -> None:
    traced = Traced()
    open_at_token = [
        traced.spans.seen[-1]
        async for event in traced.service.query_events("When?", COLLECTION)
        if isinstance(event, TokenEvent)
    ]
    assert open_at_token == [("generate", "begin")] * 2


@pytest.mark.parametrize(
    ("question", "traced", "failed"),
    [
        ("", Traced(), ("preprocess", "error: InvalidInputError")),
        ("When?", Traced(search_error=NotFoundError()), ("retrieve", "error: NotFoundError")),
        ("When?", Traced(search_error=OSError()), ("retrieve", "error: OSError")),
        ("When?", Traced(ScriptedLLM(["a"], error=LLMStreamError())), ("generate", "error: LLMStreamError")),
    ],
)
async def test_failed_step_span_is_marked_as_error(
    question: str, traced: Traced, failed: tuple[str, str]
) -> None:
    events = [event async for event in traced.service.query_events(question, COLLECTION)]
    assert isinstance(events[-1], ErrorEvent)
    before = STEPS[: STEPS.index(failed[0])]
    assert traced.spans.ended() == [*finished(*before), failed, ("log", "end"), ("query", "end")]


async def test_failed_log_span_is_marked_without_failing_query() -> None:
    traced = Traced(log_error=DatabaseUnavailableError())
    await traced.service.query("When?", COLLECTION)
    assert traced.spans.ended() == [
        *finished(*STEPS[:-1]),
        ("log", "error: DatabaseUnavailableError"),
        ("query", "end"),
    ]


async def test_log_timeout_counts_as_error() -> None:
    traced = Traced()
    traced.log.delay_s = 60
    await traced.service.query("When?", COLLECTION)
    assert traced.spans.ended()[-2] == ("log", "error: TimeoutError")
    assert traced.metrics.get("query_log.write.errors", {"error_type": "TimeoutError"}).total == 1


async def test_log_write_after_deadline_is_limited_to_one_second() -> None:
    traced = Traced(ScriptedLLM(["never"], delay_s=60), log_timeout_s=60)
    traced.log.delay_s = 60
    async with asyncio.timeout(30):
        with pytest.raises(LLMTimeoutError):
            await traced.service.query("When?", COLLECTION, deadline=Deadline.after(0.05))
    assert traced.spans.ended()[-2] == ("log", "error: TimeoutError")


async def test_stream_closed_early_leaves_no_open_span() -> None:
    traced = Traced()
    async with aclosing(traced.service.query_events("When?", COLLECTION)) as events:
        async for event in events:
            if isinstance(event, TokenEvent):
                break
    assert traced.spans.ended() == finished(*STEPS, "query")  # a disconnect is not an error
    assert traced.log.rows[-1].outcome == "aborted"


async def test_cancelled_query_leaves_no_open_span() -> None:
    traced = Traced(ScriptedLLM(["never"], delay_s=60))
    task = asyncio.create_task(traced.service.query("When?", COLLECTION))
    while ("generate", "begin") not in traced.spans.seen:  # noqa: ASYNC110 - spans have no event
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert traced.spans.ended() == finished(*STEPS, "query")


async def test_rejected_query_raises_and_is_traced() -> None:
    traced = Traced()
    with pytest.raises(InvalidInputError):
        await traced.service.query(" ", COLLECTION)
    assert traced.spans.ended()[0] == ("preprocess", "error: InvalidInputError")
