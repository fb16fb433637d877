"""Traces exported by the log writer: rows are stored once, and only the export is retried."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest

from tests.support.aws.lambda_context import LambdaContext
from tests.support.aws.sqs_events import Queue, failed_ids
from tests.support.http.otlp_receiver import OtlpReceiver
from tests.support.rag.query_logs import make_log, message, started
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.trace_export import DELIVERIES
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.telemetry import SPAN_NAMES, QueryTrace, RecordingTracer

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]
MakeWriter: TypeAlias = Callable[[str], QueryLogWriterFunction]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("VECTORFORGE_TRACING", "otel")
        monkeypatch.setenv("VECTORFORGE_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("VECTORFORGE_OTLP_HEADERS", "x-team=search")
        yield receiver


@pytest.fixture
def writer(
    backend: OtlpReceiver, postgres_server: EmbeddedPostgres, make_writer: MakeWriter
) -> QueryLogWriterFunction:
    return make_writer(postgres_server.log_writer_url)


def traced(log: QueryLog) -> QueryLog:
    tracer, trace = RecordingTracer(), QueryTrace.begin()
    for name in SPAN_NAMES:
        with tracer.span(name, trace):
            pass
    return make_log(id=log.id, trace=trace.record())


async def test_stored_records_are_exported_in_one_request(
    queue: Queue, writer: QueryLogWriterFunction, rows: Rows, tenant: str, backend: OtlpReceiver
) -> None:
    logs = [traced(make_log()) for _ in range(4)]
    untraced = make_log()
    queue.send(*(message(tenant, one) for log in logs for one in (started(make_log(id=log.id)), log)))
    queue.send(message(tenant, untraced), "poison")
    event = queue.event(batch_size=20)
    assert event is not None
    answer = writer(event, LambdaContext())
    assert len(failed_ids(answer)) == 1  # the poison
    assert len(backend.requests) == 1
    assert backend.requests[0][1]["x-team"] == "search"
    ids = [span.attributes["vectorforge.query.id"] for span in backend.spans if span.name == "query"]
    assert sorted(ids) == sorted(str(log.id) for log in logs)
    assert {row.id for row in await rows(tenant)} == {log.id for log in [*logs, untraced]}


async def test_failed_export_is_retried_by_the_queue_without_storing_twice(
    queue: Queue, writer: QueryLogWriterFunction, rows: Rows, tenant: str, backend: OtlpReceiver
) -> None:
    backend.statuses = [503]
    log = traced(make_log())
    queue.send(message(tenant, log))
    assert queue.deliver(writer) == 2
    assert [span.name for span in backend.spans] == list(SPAN_NAMES)
    assert [row.id for row in await rows(tenant)] == [log.id]
    assert queue.bodies(dead=True) == []


async def test_backend_that_stays_away_sends_no_stored_record_to_dead_letters(
    queue: Queue, writer: QueryLogWriterFunction, rows: Rows, tenant: str, backend: OtlpReceiver
) -> None:
    backend.statuses = [503] * 100
    log = traced(make_log())
    queue.send(message(tenant, log))
    assert queue.deliver(writer) == DELIVERIES
    assert len(backend.requests) == DELIVERIES
    assert queue.bodies(dead=True) == []
    assert [row.id for row in await rows(tenant)] == [log.id]


async def test_record_that_is_not_stored_is_not_exported(
    queue: Queue, make_writer: MakeWriter, tenant: str, backend: OtlpReceiver
) -> None:
    queue.send(message(tenant, traced(make_log())))
    event = queue.event()
    assert event is not None
    away = make_writer("postgresql://vectorforge_log_writer@127.0.0.1:1/vectorforge")
    assert len(failed_ids(away(event, LambdaContext()))) == 1
    assert backend.requests == []


async def test_silent_backend_delays_messages_within_the_invocation(
    queue: Queue, writer: QueryLogWriterFunction, rows: Rows, tenant: str, backend: OtlpReceiver
) -> None:
    backend.is_released.clear()
    log = traced(make_log())
    queue.send(message(tenant, log))
    event = queue.event()
    assert event is not None
    answer = writer(event, LambdaContext(remaining_ms=4_000))
    assert len(failed_ids(answer)) == 1
    assert [row.id for row in await rows(tenant)] == [log.id]
