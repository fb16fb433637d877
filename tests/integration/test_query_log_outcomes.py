"""Every query results in one row through the queue, however it ends, even when SQS is down."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, settings_for
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.cli.app import run
from vectorforge.config import AwsSettings
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, LLMStreamError, LLMTimeoutError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.types import DoneEvent, MetaEvent, QueryConfig, TokenEvent
from vectorforge.types import Collection

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]
NewTenant: TypeAlias = Callable[[], str]


class QueryStage:
    """A tenant of an application whose logs go through the queue, with one document."""

    def __init__(self, services: TenantServices, collection: Collection) -> None:
        self.services = services
        self.collection = collection
        self.tenant = services.tenant_id

    async def ask(self, question: str = "When does water boil?", **options: Any) -> UUID:
        result = await self.services.query_service.query(question, self.collection.id, **options)
        return result.request_id


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM(["At 100 ", "degrees. [Source 1]"], gate=asyncio.Semaphore(100))


@pytest.fixture
async def application(
    clients: AwsClients, queue: Queue, bucket: str, postgres_server: EmbeddedPostgres, llm: ScriptedLLM
) -> AsyncIterator[Application]:
    aws = AwsSettings(query_log_queue_url=queue.url, query_log_overflow_bucket=bucket, query_log_timeout_s=5)
    failing = ScriptedLLM(["half "], error=LLMStreamError("broke"), name="failing")
    late = ScriptedLLM(["half [Source 1]"], error=LLMTimeoutError(), name="late")
    application = build_application(settings_for(postgres_server.app_url, aws=aws), llm, failing, late)
    assert application.aws.query_log_queue is not None
    application.aws.query_log_queue.warm()
    async with application:
        yield application


@pytest.fixture
async def query_stage(application: Application, make_tenant: NewTenant) -> QueryStage:
    return await prepare(application, make_tenant())


async def prepare(application: Application, tenant: str) -> QueryStage:
    services = application.for_tenant(tenant)
    collection = await services.create_collection("guides")
    await ingest_bytes(
        services.ingestion,
        collection,
        b"Water boils at 100 degrees.",
        source="w.txt",
        media_type="text/plain",
    )
    return QueryStage(services, collection)


async def test_query_outcomes_have_exactly_one_row(
    query_stage: QueryStage, queue: Queue, writer: QueryLogWriterFunction, rows: Rows
) -> None:  # C01, C31, A-111, A-112, A-114, A-150
    service = query_stage.services.query_service
    expected = {await query_stage.ask(): "answered"}
    expected[await query_stage.ask(config=QueryConfig(filters={"kind": "none"}))] = "empty"
    for outcome, options in {
        "error": {"config": QueryConfig(llm_provider="failing")},
        "aborted": {},
        "deadline": {"config": QueryConfig(llm_provider="late"), "deadline": Deadline.after(0.4)},
    }.items():
        events = service.query_events("When?", query_stage.collection.id, **options)  # type: ignore[arg-type]
        async with aclosing(events):
            async for event in events:
                if isinstance(event, MetaEvent):
                    expected[event.request_id] = outcome
                elif isinstance(event, TokenEvent) and outcome == "aborted":
                    break
                elif isinstance(event, TokenEvent) and outcome == "deadline":
                    await asyncio.sleep(0.5)  # until the deadline has passed
    assert await rows(query_stage.tenant) == []  # no record bypasses the queue
    queue.deliver(writer)
    found = await rows(query_stage.tenant)
    assert {row.id: row.outcome for row in found} == expected
    assert len(found) == 5
    answered = next(row for row in found if row.outcome == "answered")
    assert answered.generated_response == "At 100 degrees. [Source 1]"
    assert (len(answered.retrieved_chunk_ids), len(answered.used_chunk_ids)) == (1, 1)
    aborted = next(row for row in found if row.outcome == "aborted")
    assert aborted.generated_response == "At 100 "


async def test_start_record_is_queued_before_the_first_event(
    query_stage: QueryStage, queue: Queue, writer: QueryLogWriterFunction, rows: Rows
) -> None:  # C01; fault 45
    events = query_stage.services.query_service.query_events(
        "When does water boil?", query_stage.collection.id
    )
    meta = await anext(events)
    assert isinstance(meta, MetaEvent)
    queue.deliver(writer)  # as if the process had been killed here
    (row,) = await rows(query_stage.tenant)
    assert (row.id, row.outcome, row.query_text) == (meta.request_id, "started", "When does water boil?")
    assert (row.model, row.generated_response, list(row.retrieved_chunk_ids)) == ("scripted-1", "", [])
    found = await query_stage.services.query_logs.list(outcome="started")
    assert [log.id for log in found] == [row.id]
    async for event in events:
        if isinstance(event, DoneEvent):
            queue.deliver(writer)
            (row,) = await rows(query_stage.tenant)
            assert row.outcome == "answered"  # the final record is there before the last event


async def test_rejected_query_is_logged(
    query_stage: QueryStage, queue: Queue, writer: QueryLogWriterFunction, rows: Rows
) -> None:  # C31
    service = query_stage.services.query_service
    with pytest.raises(DeadlineExceededError):
        await service.query("When?", query_stage.collection.id, deadline=Deadline.after(0))
    queue.deliver(writer)
    (row,) = await rows(query_stage.tenant)
    assert (row.outcome, row.error_code, row.error_stage) == ("error", "deadline_exceeded", "retrieve")


async def test_query_without_queue_is_logged_to_the_table(
    postgres_server: EmbeddedPostgres, llm: ScriptedLLM, make_tenant: NewTenant, rows: Rows
) -> None:
    async with build_application(settings_for(postgres_server.app_url), llm) as application:
        assert application.aws.query_log_queue is None
        query_stage = await prepare(application, make_tenant())
        request_id = await query_stage.ask()
    assert [(row.id, row.outcome) for row in await rows(query_stage.tenant)] == [(request_id, "answered")]


@contextmanager
def deaf_port() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    yield port


@pytest.mark.parametrize(
    ("port", "reason"), [(closed_port, "EndpointConnectionError"), (deaf_port, "TimeoutError")]
)
async def test_query_during_sqs_outage_is_answered_and_replayable(
    port: Callable[[], Any],
    reason: str,
    postgres_server: EmbeddedPostgres,
    llm: ScriptedLLM,
    make_tenant: NewTenant,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # A-117, C01; fault 41
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    question = "Zażółć gęślą 🙂?"
    with port() as number:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{number}")
        # botocore retries rejections within the time; only silence must time out.
        aws = AwsSettings(
            query_log_queue_url="http://sqs/queue", query_log_timeout_s=0.25 if port is deaf_port else 5
        )
        application = build_application(settings_for(postgres_server.app_url, aws=aws), llm)
        assert application.aws.query_log_queue is not None
        application.aws.query_log_queue.warm()
        async with application:
            query_stage = await prepare(application, make_tenant())
            caplog.clear()
            result = await query_stage.services.query_service.query(question, query_stage.collection.id)
    assert result.answer == "At 100 degrees. [Source 1]"
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [w for w in warnings if "log" in w] == [f"Failed to log query: {reason}"] * 2

    lines = [line for line in capsys.readouterr().out.splitlines() if "vectorforge.query_log" in line]
    assert [json.loads(line)["outcome"] for line in lines] == ["started", "answered"]
    assert all(line.isascii() for line in lines)
    file = tmp_path / "function.log"
    file.write_text("\n".join(f"2026-11-22T10:00:00.000000+00:00 2026/11/22/[$LATEST]ab {x}" for x in lines))
    monkeypatch.setenv("VECTORFORGE_LOG_WRITER_DATABASE_URL", postgres_server.log_writer_url)
    for _ in range(2):
        assert await asyncio.to_thread(run, ["logs", "replay", str(file), "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["records"], first["added"], first["already_there"]) == (2, 1, 1)
    assert (second["records"], second["added"], second["already_there"]) == (2, 0, 2)
    (row,) = await rows(query_stage.tenant)
    assert (row.id, row.outcome) == (result.request_id, "answered")
    assert row.query_text == question
