"""The query log's whole way: service, SQS, log writer, table. SQS and S3 by moto over HTTP, PostgreSQL real."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_queue import QueryLogQueue
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.serverless.query_log_writer import QueryLogWriterFunction
from vectorforge.testing.aws_services import Queue, aws_environment, aws_server, create_bucket

Rows = Callable[[str], Any]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with aws_server() as address:
        yield address


@pytest.fixture
def clients(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsClients]:
    for name, value in aws_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    clients = AwsClients()
    yield clients
    clients.close()


@pytest.fixture
def queue(clients: AwsClients) -> Queue:
    return Queue(clients)


@pytest.fixture
def bucket(clients: AwsClients) -> str:
    return create_bucket(clients)


@pytest.fixture
def writer(
    postgres_server: EmbeddedPostgres, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QueryLogWriterFunction]:
    monkeypatch.setenv("VECTORFORGE_LOG_WRITER_DATABASE_URL", postgres_server.log_writer_url)
    monkeypatch.setenv("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET", bucket)
    function = QueryLogWriterFunction()
    function.startup()
    yield function
    function.shutdown()


@pytest.fixture
async def sender(clients: AwsClients, queue: Queue, bucket: str) -> AsyncIterator[QueryLogQueue]:
    sender = QueryLogQueue(clients, queue.url, overflow_bucket=bucket, timeout_s=20)
    sender.warm()
    yield sender
    sender.close()


@pytest.fixture
def rows(direct_database: Database) -> Callable[[str], Any]:
    """The rows of a tenant."""

    async def find(tenant: str) -> list[QueryLog]:
        return await QueryLogRepository(direct_database.for_tenant(tenant)).list(limit=1000)

    return find


def make_log(**changes: Any) -> QueryLog:
    log = QueryLog(
        id=uuid4(),
        collection_id=uuid4(),
        query_text="How long must the dough rise?",
        retrieved_chunk_ids=[uuid4(), uuid4()],
        generated_response="Two hours. [Source 1]",
        latency_ms=812.25,
        used_chunk_ids=[uuid4()],
        provider="openai",
        model="gpt-4o",
        prompt_tokens=900,
        completion_tokens=12,
        retrieval_ms=31.125,
        generation_ms=700.5,
        created_at=datetime.now(UTC),
    )
    return replace(log, **changes)


def started(log: QueryLog) -> QueryLog:
    return replace(log, outcome="started", generated_response="", retrieved_chunk_ids=[], used_chunk_ids=[])


async def test_a_record_becomes_a_row(
    sender: QueryLogQueue,
    queue: Queue,
    writer: QueryLogWriterFunction,
    rows: Rows,
    make_tenant: Callable[[], str],
) -> None:  # C01, F-003
    tenant, log = make_tenant(), make_log()
    await sender.for_tenant(tenant).start(started(log))
    await sender.for_tenant(tenant).create(log)
    assert queue.deliver(writer) == 1
    assert await rows(tenant) == [log]
