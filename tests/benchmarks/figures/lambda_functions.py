"""Cost of each function before its first event and afterwards: imports, start, memory."""

import asyncio
import json
import logging
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from figures.database import fresh_database
from figures.lambda_streams import configuration
from figures.measuring import Table, cpu_s, progress, resident_mb
from figures.startup import fresh_import
from rich.progress import track

from infra.emulator.lambda_service import queue_events
from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.fake_aws import REGION, FakeAws
from tests.support.aws.live_query_function import QUERY_PATH, QuerySurroundings, query_surroundings
from tests.support.aws.sqs_events import Queue
from vectorforge.aws.query_log_record import record_fields, to_json
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.local.postgres import EmbeddedPostgres

_TENANT = "local"
Ask: TypeAlias = Callable[[FunctionProcess, int], Coroutine[Any, Any, None]]
_IMPORTED = {
    "fastapi + mangum": "fastapi, mangum, awslambdaric",
    "query": "functions.query.handler",
    "log_writer": "functions.log_writer.handler",
    "ingest": "functions.ingest.handler",
    "migrate": "functions.migrate.handler",
}


@dataclass(frozen=True, slots=True)
class _Contestant:
    name: str
    function: FunctionConfiguration
    ask: Ask
    """Sends event number n and checks the answer."""


def measure_imports(environment: Mapping[str, str], repeats: int) -> list[Table]:
    """Measure the CPU time of importing each handler in new interpreters, with and without bytecode."""
    table = Table(
        "Cold import of the handler, fresh interpreter",
        ("module", "CPU ms min", "wall ms min", "without bytecode: CPU ms", "modules"),
        notes=[f"{repeats} times each, interleaved, including the interpreter's own start."],
    )
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in _IMPORTED}
    with tempfile.TemporaryDirectory() as empty:
        uncached = {**environment, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": empty}
        first = {name: fresh_import(module, uncached)[1] for name, module in _IMPORTED.items()}
    for module in _IMPORTED.values():
        fresh_import(module, dict(environment))  # stores it
    for _ in track(range(repeats), "  importing", console=progress, transient=True):
        for name, module in _IMPORTED.items():
            runs[name].append(fresh_import(module, dict(environment)))
    for name, found in runs.items():
        wall, cpu, modules = zip(*found, strict=True)
        table.add(name, min(cpu) * 1000, min(wall) * 1000, first[name] * 1000, modules[0])
    return [table]


async def measure_functions(
    server: EmbeddedPostgres, environment: Mapping[str, str], *, starts: int, events: int
) -> list[Table]:
    """Measure the time from process start to the first poll, and memory after events."""
    begun = Table(
        "Process start to the first poll for an event",
        ("function", "wall ms min", "wall ms median", "CPU ms", "without bytecode: wall ms", "CPU ms"),
        notes=[f"{starts} times each, interleaved; without bytecode once."],
    )
    memory = Table(
        "Memory",
        ("function", "MB after init", "MB after the first event", f"MB after {events}", "first event ms"),
        notes=["Resident memory of the process, 10^6 bytes; one function at a time."],
    )
    async with _contestants(server, environment) as contestants:
        runs: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contestants}
        for one in contestants:
            await _start(one.function)  # stores the bytecode
        for _ in track(range(starts), "  starting", console=progress, transient=True):
            for one in contestants:
                runs[one.name].append(await _start(one.function))
        for one in contestants:
            wall, cpu = zip(*runs[one.name], strict=True)
            without = await _start_without_bytecode(one.function)
            begun.add(one.name, min(wall), statistics.median(wall), min(cpu), *without)
        for one in track(contestants, "  asking", console=progress, transient=True):
            memory.add(one.name, *await _weigh(one, events))
    return [begun, memory]


async def _start(function: FunctionConfiguration) -> tuple[float, float]:
    """Return milliseconds and CPU milliseconds from the process's start to its first poll."""
    async with FunctionProcess(function) as process:
        started = time.perf_counter()
        await process.start()
        wall = time.perf_counter() - started
        assert process.pid is not None
        return wall * 1000, cpu_s(process.pid) * 1000


async def _start_without_bytecode(function: FunctionConfiguration) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as empty:
        more = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": empty}
        return await _start(_with(function, more))


def _with(function: FunctionConfiguration, more: Mapping[str, str]) -> FunctionConfiguration:
    return FunctionConfiguration(
        handler=function.handler,
        command=function.command,
        name=function.name,
        environment={**function.environment, **more},
        timeout_s=function.timeout_s,
    )


async def _weigh(one: _Contestant, events: int) -> tuple[float, float, float, float]:
    async with FunctionProcess(one.function) as process:
        await process.start()
        assert process.pid is not None
        after_init = resident_mb(process.pid)
        started = time.perf_counter()
        await one.ask(process, 0)
        first_ms = (time.perf_counter() - started) * 1000
        after_first = resident_mb(process.pid)
        for number in range(1, events):
            await one.ask(process, number)
        return after_init, after_first, resident_mb(process.pid), first_ms


@asynccontextmanager
async def _contestants(
    server: EmbeddedPostgres, environment: Mapping[str, str]
) -> AsyncIterator[list[_Contestant]]:
    async with AsyncExitStack() as stack:
        app_url, owner_url = stack.enter_context(fresh_database(server, "lambda_functions"))
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # moto's server prints every request
        aws = stack.enter_context(FakeAws())
        surroundings = await stack.enter_async_context(query_surroundings(app_url, _TENANT))
        database = await stack.enter_async_context(Database(app_url, pool_size=1))
        log_queue = Queue(aws.client("sqs"), "query-log").url
        ingestion_queue = Queue(aws.client("sqs"), "ingestion")
        base = {**aws.environment, **environment}
        query = surroundings.environment(query_log_queue_url=log_queue) | base
        buffered = surroundings.environment(query_log_queue_url=log_queue, response_mode="buffered") | base
        writer_url = app_url.replace("vectorforge_app", "vectorforge_log_writer")
        writer = base | {"VECTORFORGE_LOG_WRITER_DATABASE_URL": writer_url}
        ingest = surroundings.environment(ingestion_queue_url=ingestion_queue.url) | base
        migrate = base | {"VECTORFORGE_MIGRATOR_DATABASE_URL": owner_url}
        question = _question(surroundings)
        yield [
            _Contestant(
                "plain FastAPI + Mangum on awslambdaric",
                configuration("lambda_plain.handler", AWSLAMBDARIC_COMMAND, environment),
                _get_one_chunk,
            ),
            _Contestant("query, streamed", surroundings.function(query), question),
            _Contestant(
                "query, buffered by Mangum on awslambdaric",
                surroundings.function(buffered, command=AWSLAMBDARIC_COMMAND),
                question,
            ),
            _Contestant("log_writer", _function("log_writer", writer), _write_log),
            _Contestant("ingest", _function("ingest", ingest), _ingest(ingestion_queue, database)),
            _Contestant("migrate", _function("migrate", migrate), _check_schema),
        ]


def _function(name: str, environment: Mapping[str, str]) -> FunctionConfiguration:
    return FunctionConfiguration(
        handler=f"functions.{name}.handler.handler", name=name, environment=environment, timeout_s=120
    )


async def _get_one_chunk(process: FunctionProcess, _number: int) -> None:
    async with FunctionUrl(process, response_mode="buffered") as front_door:
        await _http(front_door.url, "/chunks?number=1")


def _question(surroundings: QuerySurroundings) -> Ask:
    async def ask(process: FunctionProcess, number: int) -> None:
        streams = process.configuration.command != AWSLAMBDARIC_COMMAND
        body = {"query": f"Question {number}: how long does a refund take?", "stream": True}
        async with (
            FunctionUrl(process, response_mode="stream" if streams else "buffered") as front_door,
            surroundings.client(front_door.url) as client,
        ):
            text = (await client.post(QUERY_PATH, json=body)).text
        if "event: done" not in text:
            raise RuntimeError(f"no answer: {text[-300:]}")

    return ask


async def _http(url: str, path: str) -> None:
    import httpx2

    async with httpx2.AsyncClient(base_url=url) as client:
        (await client.get(path)).raise_for_status()


async def _write_log(process: FunctionProcess, _number: int) -> None:
    log = QueryLog(
        id=uuid.uuid4(),
        collection_id=uuid.uuid4(),
        query_text="How long does a refund take?",
        retrieved_chunk_ids=[],
        generated_response="Five days. " * 50,
        latency_ms=1.0,
        outcome="answered",
    )
    message = {
        "MessageId": str(uuid.uuid4()),
        "ReceiptHandle": "handle",
        "Body": to_json(record_fields(_TENANT, log)),
        "MD5OfBody": "",
        "Attributes": {"ApproximateReceiveCount": "1"},
    }
    arn = f"arn:aws:sqs:{REGION}:123456789012:query-log"
    await _expect_no_failures(process, queue_events.record(message, arn))


def _ingest(queue: Queue, database: Database) -> Ask:
    async def ask(process: FunctionProcess, number: int) -> None:
        tenant = database.for_tenant(_TENANT)
        collection = await CollectionRepository(tenant).find_by_name("default")
        assert collection is not None
        text = f"Document {number}. A refund takes five days. " * 20
        job = await JobRepository(tenant).create(
            collection.id, [NewJobItem(f"{number}.txt", None, text.encode())]
        )
        body = json.dumps({"tenant_id": _TENANT, "job_id": str(job.id)})
        await asyncio.to_thread(queue.send, body)
        records = await asyncio.to_thread(queue.receive, most=1)
        await _expect_no_failures(process, *records)
        done = await JobRepository(tenant).find_by_id(job.id)
        if done is None or done.status != "succeeded":
            raise RuntimeError(f"job {done}")

    return ask


async def _expect_no_failures(process: FunctionProcess, *records: Mapping[str, Any]) -> None:
    answer = await (await process.invoke({"Records": records})).result()
    if not records or answer != {"batchItemFailures": []}:
        raise RuntimeError(f"{len(records)} records answered with {answer}")


async def _check_schema(process: FunctionProcess, _number: int) -> None:
    answer = await (await process.invoke({"action": "check"})).result()
    if answer != {"pending": []}:
        raise RuntimeError(f"answered {answer}")
