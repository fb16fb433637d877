"""A tenant, a fake vendor, AWS (moto over HTTP), and both ends of the query log's queue."""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.aws.sqs_events import Queue
from tests.support.short_sample import install
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.query_log_queue import QueryLogQueue
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.local.postgres import EmbeddedPostgres

MakeWriter: TypeAlias = Callable[[str], QueryLogWriterFunction]
Logged: TypeAlias = list[logging.LogRecord]


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    """Return a tenant of this test alone."""
    return make_tenant()


@pytest.fixture(scope="session")
def short_sample(private_dir: Callable[[str], Path]) -> dict[str, str]:
    """Return variables with which ``vectorforge up`` has a short sample."""
    return install(private_dir("installed"))


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    """Start the model's vendor."""
    async with FakeOpenAI() as server:
        yield server


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
    """Return Secrets Manager and SSM without failures or recorded calls."""
    for name, value in faulty_aws.environment.items():
        monkeypatch.setenv(name, value)
    faulty_aws.recover()
    return faulty_aws


@pytest.fixture
def queue(fake_aws: FakeAws) -> Queue:
    return Queue(fake_aws.client("sqs"))


@pytest.fixture
def bucket(clients: AwsClients, fake_aws: FakeAws) -> str:
    """Create a bucket that the functions of the test can access."""
    return fake_aws.create_bucket()


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Record the library's logs during the test, and restore the loggers that its function sets up."""
    records: Logged = []
    library = logging.getLogger("vectorforge")
    before = library.handlers[:], library.propagate, library.level, library.filters[:]

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    recorder = Recorder()
    recorder.setFormatter(LambdaPowertoolsFormatter())  # else a second function mistakes it for its own
    library.addHandler(recorder)
    yield records
    library.handlers[:], library.propagate, level, library.filters[:] = before
    library.setLevel(level)
    for mark in ("init", "powertools_handler"):  # Powertools' marks of a logger it has set up
        vars(library).pop(mark, None)


@pytest.fixture
def make_writer(bucket: str, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWriter]:
    """Create log-writer functions for a database."""
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
    await sender.aclose()


@pytest.fixture
def rows(direct_database: Database) -> Callable[[str], Awaitable[list[QueryLog]]]:
    """Return the rows of a tenant."""

    async def find(tenant: str) -> list[QueryLog]:
        return await QueryLogRepository(direct_database.for_tenant(tenant)).list(limit=1000)

    return find


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, here and in child processes.

    A shell script that starts the tests in the background ignores it, which child processes inherit.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
