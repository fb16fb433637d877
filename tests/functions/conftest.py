"""Fixtures of several tests of functions."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.functions.migrate_process import Stack, running
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.ingest_stage import Stage, build
from tests.support.aws.sqs_events import Queue
from tests.support.vendors.hashing_embedder import HashingEmbedder


@pytest.fixture
def stack() -> Iterator[Stack]:
    waiting = Stack()
    with running(waiting.server):
        yield waiting


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def aws(aws_server: FakeAws, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server


@pytest.fixture
async def stage(aws: FakeAws, fresh_database_url: str) -> AsyncIterator[Stage]:
    queue = Queue(aws.client("sqs"), "ingestion")
    embedder = HashingEmbedder(batch_size=1)
    async with build(fresh_database_url, queue.url, embedder) as application:
        yield Stage(queue, application, embedder, fresh_database_url)
