"""Fixtures of the tests of functions and of the Lambda service."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess, ProcessHook
from infra.emulator.lambda_service.invocation import HookPoint
from tests.functions.driven_runtime_api import DrivenRuntimeApi
from tests.functions.migrate_process import Stack, running
from tests.functions.queue_sources import LONG, consumer
from tests.functions.raw_runtime import RawRuntime
from tests.functions.sample_processes import configuration
from tests.functions.scripted_function import ScriptedFunction
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.ingest_stage import Stage, build
from tests.support.aws.sqs_events import Queue
from tests.support.http.tls import NO_AUTHORITIES
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


@pytest.fixture(scope="module")
def endpoint(aws_server: FakeAws) -> str:
    return aws_server.url


@pytest.fixture
def sqs(aws_server: FakeAws) -> Any:
    return aws_server.client("sqs")


@pytest.fixture
def make_queue(sqs: Any, request: pytest.FixtureRequest) -> Callable[..., str]:
    def make(**attributes: str) -> str:
        number = len(sqs.list_queues().get("QueueUrls", []))
        made = sqs.create_queue(
            QueueName=f"queue-{number}", Attributes={"VisibilityTimeout": LONG, **attributes}
        )
        return str(made["QueueUrl"])

    return make


@pytest.fixture
async def consume() -> AsyncIterator[FunctionProcess]:
    async with FunctionProcess(consumer()) as process:
        yield process


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=120, verify=NO_AUTHORITIES) as http:
        yield http


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedFunction]:
    async with DrivenRuntimeApi() as api, RawRuntime(api.address) as runtime:
        yield ScriptedFunction(api, runtime)


Connect = Callable[[DrivenRuntimeApi], Any]


@pytest.fixture
async def api() -> AsyncIterator[DrivenRuntimeApi]:
    async with DrivenRuntimeApi() as server:
        yield server


@pytest.fixture
async def runtime(api: DrivenRuntimeApi) -> AsyncIterator[RawRuntime]:
    async with RawRuntime(api.address) as client:
        yield client


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:
        yield lambda api: stack.enter_async_context(RawRuntime(api.address))


Start = Callable[..., Awaitable[FunctionProcess]]


@pytest.fixture
async def start_sample() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def make(
            handler: str = "plain", hooks: Mapping[HookPoint, ProcessHook] | None = None, **settings: Any
        ) -> FunctionProcess:
            return await stack.enter_async_context(
                FunctionProcess(configuration(handler, **settings), hooks=hooks)
            )

        yield make
