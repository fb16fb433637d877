"""Faults around the query function: effects on client, process and log."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from tests.campaigns.query_log.delivery import Deliveries, LogQueue, log_writer, sqs_server
from tests.support.aws.fake_aws import aws_environment
from tests.support.aws.live_query_function import (
    QUERY_PATH,
    LockStep,
    QuerySurroundings,
    query_surroundings,
)
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.vendors.fake_vendor import Reply
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository

TENANT = "acme"
WORDS = ("five ", "days ", "[Source 1].")


@dataclass
class Account:
    """A separate database with one tenant, and the vendors."""

    admin_url: str
    surroundings: QuerySurroundings
    stack: AsyncExitStack
    options: InvocationOptions = field(default_factory=InvocationOptions)

    @property
    def log_writer_url(self) -> str:
        return make_conninfo(self.admin_url, user="vectorforge_log_writer")

    async def deploy(
        self, environment: dict[str, str] | None = None, **configuration: Any
    ) -> tuple[FunctionProcess, httpx2.AsyncClient]:
        """Run the query function in one process behind a function URL; yield a client."""
        variables = self.surroundings.environment(llm_max_retries="0") | (environment or {})
        enter = self.stack.enter_async_context
        function = await enter(FunctionProcess(self.surroundings.function(variables, **configuration)))
        door = await enter(FunctionUrl(WithOptions(function, self.options)))
        return function, await enter(self.surroundings.client(door.url))

    async def rows(self) -> list[QueryLog]:
        async with Database(self.surroundings.app_url, pool_size=1) as database:
            return await QueryLogRepository(database.for_tenant(TENANT)).list()


@dataclass
class WithOptions:
    """The function behind a service with options for the next invocations."""

    function: FunctionProcess
    options: InvocationOptions

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        return await self.function.invoke(event, **(options | self.options))


@dataclass
class Queued:
    """The account's query log as a queue; the log writer starts on demand."""

    queue: LogQueue
    environment: dict[str, str]

    async def drained(self, account: Account, *, concurrency: int = 2) -> tuple[list[QueryLog], Deliveries]:
        """Return the rows after the log writer has stored all records, and the delivery counts."""
        async with log_writer(
            self.queue, account.log_writer_url, rng=random.Random(1), killed=0.0, concurrency=concurrency
        ) as deliveries:
            await self.queue.empty()
        return await account.rows(), deliveries


@pytest.fixture
async def account(make_database: Callable[..., str]) -> AsyncIterator[Account]:
    admin_url = make_database()
    app_url = make_conninfo(admin_url, user="vectorforge_app")
    async with query_surroundings(app_url, TENANT) as surroundings, AsyncExitStack() as stack:
        yield Account(admin_url, surroundings, stack)


@pytest.fixture
async def queued() -> AsyncIterator[Queued]:
    async with sqs_server() as endpoint:
        queue = await asyncio.to_thread(LogQueue, endpoint, visibility_s=5)
        settings = {"VECTORFORGE_QUERY_LOG_QUEUE_URL": queue.url, **aws_environment(endpoint)}
        # The test machine may be slower than 0.25 s; lateness is covered by another test.
        yield Queued(queue, {**settings, "VECTORFORGE_QUERY_LOG_TIMEOUT_S": "5"})


def question(number: int = 1) -> dict[str, Any]:
    return {"query": f"Question {number}: how long does a refund take?", "stream": True}


async def ask(client: httpx2.AsyncClient, number: int = 1) -> list[ReceivedEvent]:
    """Return all events of an answer after checking their order."""
    async with client.stream("POST", QUERY_PATH, json=question(number)) as response:
        assert response.status_code == 200, await response.aread()
        events = [event async for event in read_events(response.aiter_lines())]
    check_order(events)
    return events


def is_stopped(pid: int) -> bool:
    """Return whether the process is stopped (state T)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_provider_fault_after_first_token_emits_one_error_and_one_log_row(
    account: Account, queued: Queued
) -> None:
    """One error event, a regular end, one row, and the process continues."""
    function, client = await account.deploy(queued.environment)
    endings: tuple[Literal["cut", "error", "eof"], ...] = ("cut", "error", "eof")
    for number, ending in enumerate(endings):
        account.surroundings.vendor.script(Reply(texts=WORDS, ending=ending))
        names = [event.name for event in await ask(client, number)]
        assert "token" in names
        assert names.count("error") == 1
        assert names[-1] == "error"
        invocation = function.invocations[-1]
        assert (invocation.error, invocation.trailers, invocation.reply_status) == (None, {}, 202)
    assert (await ask(client, len(endings)))[-1].name == "done"
    assert function.starts == 1

    rows, _ = await queued.drained(account)
    outcomes = sorted((row.query_text[:10], row.outcome, row.error_stage) for row in rows)
    assert outcomes == [
        *((f"Question {number}", "error", "generate") for number in range(len(endings))),
        (f"Question {len(endings)}", "answered", None),
    ]
    assert {row.generated_response for row in rows if row.outcome == "error"} == {"".join(WORDS)}


async def test_lost_service_connection_aborts_query(account: Account) -> None:  # row 15
    """The runtime notices it while the model is silent, and closes the model's stream."""
    function, client = await account.deploy()
    gate = LockStep(free=2)
    account.surroundings.vendor.script(Reply(texts=("word " * 400,) * 3, gate=gate))
    account.options["abort_after"] = 3000
    with pytest.raises(httpx2.RemoteProtocolError):
        await ask(client)
    async with asyncio.timeout(10):
        await account.surroundings.vendor.requests[-1].client_closed.wait()
    account.options.pop("abort_after")

    assert (await ask(client, 2))[-1].name == "done"
    assert function.starts == 1
    outcomes = {row.query_text[:10]: row.outcome for row in await account.rows()}
    assert outcomes == {"Question 1": "aborted", "Question 2": "answered"}


async def test_stream_ends_two_seconds_before_function_timeout(
    account: Account,
) -> None:  # row 16
    function, client = await account.deploy()
    assert (await ask(client))[-1].name == "done"
    function.configuration = replace(function.configuration, timeout_s=4.0)
    account.surroundings.vendor.script(Reply(texts=(*WORDS, "never"), gate=LockStep(free=3)))
    events = await ask(client, 2)
    assert "".join(event.data["text"] for event in events if event.name == "token") == "".join(WORDS)
    assert [event.name for event in events[-2:]] == ["usage", "done"]
    assert events[-1].data["finish_reason"] == "deadline"
    assert any(event.name == "citation" for event in events)
    assert (await ask(client, 3))[-1].name == "done"
    assert function.starts == 1
    outcomes = {row.query_text[:10]: row.outcome for row in await account.rows()}
    assert outcomes["Question 2"] == "deadline"


async def test_frozen_function_has_logged_the_query(account: Account) -> None:  # row 17
    function, client = await account.deploy(freeze_between_invocations=True)
    await ask(client)
    await function.invocations[-1].completed.wait()
    assert function.pid is not None
    async with asyncio.timeout(10):
        while not is_stopped(function.pid):  # noqa: ASYNC110 - polls the kernel
            await asyncio.sleep(0.01)
    assert [row.outcome for row in await account.rows()] == ["answered"]


async def test_connections_are_reused_between_invocations(account: Account) -> None:  # row 18
    function, client = await account.deploy(freeze_between_invocations=True)
    for number in range(3):
        assert (await ask(client, number))[-1].name == "done"
    assert function.starts == 1
    assert {request.connection for request in account.surroundings.vendor.requests} == {0}
    with psycopg.connect(account.admin_url) as admin:
        found = admin.execute(_BACKENDS.format("count(*)")).fetchone()
    assert found is not None
    assert 1 <= found[0] <= 3


async def test_connections_lost_while_frozen_are_replaced(account: Account) -> None:  # row 19
    function, client = await account.deploy(freeze_between_invocations=True)
    await ask(client)
    await function.invocations[-1].completed.wait()
    assert function.pid is not None
    async with asyncio.timeout(10):
        while not is_stopped(function.pid):  # noqa: ASYNC110 - polls the kernel
            await asyncio.sleep(0.01)
    with psycopg.connect(account.admin_url, autocommit=True) as admin:
        terminated = admin.execute(_BACKENDS.format("pg_terminate_backend(pid)")).fetchall()
    assert terminated
    account.surroundings.vendor.drop_connections()
    account.surroundings.embeddings.drop_connections()

    assert (await ask(client, 2))[-1].name == "done"
    assert function.starts == 1
    assert account.surroundings.vendor.requests[-1].connection == 1  # a new one


async def test_throttled_query_returns_429_and_no_log_message_is_lost(
    account: Account, queued: Queued
) -> None:  # row 46
    gate = LockStep()
    account.surroundings.vendor.script(Reply(texts=WORDS, gate=gate))
    configuration = account.surroundings.function(account.surroundings.environment() | queued.environment)
    async with (
        LambdaFunction(configuration, concurrency=1) as function,
        FunctionUrl(function) as door,
        account.surroundings.client(door.url) as client,
        asyncio.TaskGroup() as tasks,
    ):
        query_task = tasks.create_task(ask(client))
        await gate.waiting.wait()
        refused = await client.post(QUERY_PATH, json=question(2))
        assert refused.status_code == 429
        gate.release(len(WORDS))
        assert (await query_task)[-1].name == "done"
        for number in range(3, 13):
            assert (await ask(client, number))[-1].name == "done"
    rows, deliveries = await queued.drained(account, concurrency=1)
    assert deliveries.throttled > 0
    prefixes = {f"Question {number}:" for number in (1, *range(3, 13))}
    assert {row.query_text.partition(" how")[0] for row in rows} == prefixes
    assert {row.outcome for row in rows} == {"answered"}


async def test_killed_function_cuts_stream_and_logs_start(account: Account, queued: Queued) -> None:  # row 45
    function, client = await account.deploy(queued.environment)
    account.surroundings.vendor.script(Reply(texts=WORDS, gate=LockStep()))
    received: list[str] = []

    async def kill_at_the_first_token() -> None:
        async with client.stream("POST", QUERY_PATH, json=question()) as response:
            async for event in read_events(response.aiter_lines()):
                received.append(event.name)
                if event.name == "token":
                    await function.kill()

    with pytest.raises(httpx2.RemoteProtocolError):
        await kill_at_the_first_token()
    assert received == ["meta", "sources", "token"]
    assert function.invocations[-1].error is not None

    assert (await ask(client, 2))[-1].name == "done"  # in a new environment
    assert function.starts == 2
    rows, _ = await queued.drained(account)
    assert sorted((row.query_text[:10], row.outcome) for row in rows) == [
        ("Question 1", "started"),
        ("Question 2", "answered"),
    ]


_BACKENDS = (
    "SELECT {} FROM pg_stat_activity WHERE datname = current_database() AND usename = 'vectorforge_app'"
)
