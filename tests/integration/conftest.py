"""AWS as the integration tests reach it (moto, over HTTP), and the two ends of the query log's queue."""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.aws.sqs_events import Queue
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.query_log_queue import QueryLogQueue
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres

MakeWriter: TypeAlias = Callable[[str], QueryLogWriterFunction]
Logged: TypeAlias = list[logging.LogRecord]


@pytest.fixture(scope="session")
def fake_aws() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def clients(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsClients]:
    for name, value in fake_aws.environment.items():
        monkeypatch.setenv(name, value)
    clients = AwsClients()
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def faulty_aws() -> Iterator[FaultyAws]:
    with FaultyAws() as server:
        yield server


@pytest.fixture
def aws(faulty_aws: FaultyAws, monkeypatch: pytest.MonkeyPatch) -> FaultyAws:
    """Secrets Manager and SSM: nothing was called yet, and all is well."""
    for name, value in faulty_aws.environment.items():
        monkeypatch.setenv(name, value)
    faulty_aws.recover()
    return faulty_aws


@pytest.fixture
def queue(fake_aws: FakeAws) -> Queue:
    return Queue(fake_aws.client("sqs"))


@pytest.fixture
def bucket(clients: AwsClients, fake_aws: FakeAws) -> str:
    """A bucket that the functions of the test can reach."""
    return fake_aws.create_bucket()


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What the library logs during the test, whose function must not set up the loggers of the others."""
    records: Logged = []
    library = logging.getLogger("vectorforge")
    before = library.handlers[:], library.propagate, library.level, library.filters[:]

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    recorder = Recorder()
    recorder.setFormatter(LambdaPowertoolsFormatter())  # a second function takes it for its own handler
    library.addHandler(recorder)
    yield records
    library.handlers[:], library.propagate, level, library.filters[:] = before
    library.setLevel(level)
    for mark in ("init", "powertools_handler"):  # by which Powertools knows a logger it has set up
        vars(library).pop(mark, None)


@pytest.fixture
def make_writer(bucket: str, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWriter]:
    """Makes log-writer functions for a database."""
    made: list[QueryLogWriterFunction] = []

    def make(url: str) -> QueryLogWriterFunction:
        monkeypatch.setenv("VECTORFORGE_LOG_WRITER_DATABASE_URL", url)
        monkeypatch.setenv("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET", bucket)
        made.append(QueryLogWriterFunction())
        made[-1].startup()
        return made[-1]

    yield make
    for function in made:
        function.shutdown()


@pytest.fixture
def writer(postgres_server: EmbeddedPostgres, make_writer: MakeWriter) -> QueryLogWriterFunction:
    return make_writer(postgres_server.log_writer_url)


@pytest.fixture
async def sender(clients: AwsClients, queue: Queue, bucket: str) -> AsyncIterator[QueryLogQueue]:
    sender = QueryLogQueue(clients, queue.url, overflow_bucket=bucket, timeout_s=20)
    sender.warm()
    yield sender
    sender.close()


@pytest.fixture
def rows(direct_database: Database) -> Callable[[str], Awaitable[list[QueryLog]]]:
    """The rows of a tenant."""

    async def find(tenant: str) -> list[QueryLog]:
        return await QueryLogRepository(direct_database.for_tenant(tenant)).list(limit=1000)

    return find


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, here and in processes started from here.

    A shell script that starts the tests in the background has it ignored, which processes inherit.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
