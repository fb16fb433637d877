"""AWS resources billed for a query without its model: bytes of logs and answers, messages, milliseconds."""

import asyncio
import json
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures.database import fresh_database
from figures.measuring import Table, cpu_s, progress
from pydantic import SecretStr
from rich.progress import track

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.live_query_function import (
    DIMENSION,
    EMBEDDING_KEY,
    QUERY_PATH,
    QuerySurroundings,
    query_surroundings,
)
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import settings_for
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.fake_vendor import Reply
from vectorforge.bootstrap import Application
from vectorforge.config import EmbeddingSettings
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.tokens import estimate_tokens
from vectorforge.types import DistanceMetric

_ROOT = Path(__file__).resolve().parents[3]
_TENANT = "local"
_ANSWER = (
    "According to the documents",
    " [Source 1]",
    *(f" word{number % 40}" for number in range(296)),
    ".",
    "",
)
"""Pieces of the answer, about one token each."""
_SELECTIONS = ("essential", "all")
_SETTING = "VECTORFORGE_CLOUDWATCH_METRICS"
_INIT_S = 60.0  # bytes do not depend on the machine's load


@dataclass(slots=True)
class _Question:
    """Observations of the queries of one process, one entry each."""

    log_bytes: list[int] = field(default_factory=list)
    log_lines: list[int] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    answer_bytes: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    message_bytes: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    request_bytes: list[int] = field(default_factory=list)
    reply_bytes: list[int] = field(default_factory=list)


async def measure_bill(
    server: EmbeddedPostgres, environment: Mapping[str, str], *, repeats: int
) -> list[Table]:
    """Measure everything that AWS bills for a query and its log records, as one table."""
    table = Table(
        "Billed resources of one query",
        ("what", "median"),
        notes=[
            f"{repeats} queries in one warm process, streamed; an answer of {len(_ANSWER)} pieces at once.",
            "Over this project's documents, with the chunks and the prompt of /v1/rag/query.",
            "Lambda's own log lines (start, report) are not included: the emulated service writes none.",
        ],
    )
    async with _surroundings(server, environment) as (surroundings, queue, base):
        query_body: dict[str, _Question] = {}
        for selection in _SELECTIONS:
            query_body[selection] = await _ask(surroundings, queue, {**base, _SETTING: selection}, repeats)
        writer = await _write(queue, surroundings, base)
        look = await _look(surroundings, base)
    one = query_body["essential"]
    table.add("query function: CPU ms, mean", statistics.mean(one.cpu_ms))
    for selection, seen in query_body.items():
        table.add(
            f"query function: bytes of log, {selection} metrics", int(statistics.median(seen.log_bytes))
        )
        table.add(
            f"query function: lines of log, {selection} metrics", int(statistics.median(seen.log_lines))
        )
    for name, values in {
        "answer: bytes to the client": one.answer_bytes,
        "prompt: tokens": one.prompt_tokens,
        "model: bytes of the request": one.request_bytes,
        "model: bytes of the reply": one.reply_bytes,
        "query log: messages": one.messages,
        "query log: bytes of its messages": one.message_bytes,
    }.items():
        table.add(name, int(statistics.median(values)))
    table.add("log writer: ms per batch of one query", writer[0])
    table.add("log writer: bytes of log per batch", writer[1])
    table.add("ingest function: ms of a scheduled run without jobs", look[0])
    table.add("ingest function: bytes of log of a scheduled run", look[1])
    return [table]


@asynccontextmanager
async def _surroundings(
    server: EmbeddedPostgres, environment: Mapping[str, str]
) -> AsyncIterator[tuple[QuerySurroundings, Queue, dict[str, str]]]:
    async with AsyncExitStack() as stack:
        app_url, _ = stack.enter_context(fresh_database(server, "lambda_bill"))
        aws = stack.enter_context(FakeAws())
        surroundings = await stack.enter_async_context(query_surroundings(app_url, _TENANT, fill=False))
        surroundings.vendor.unscripted = Reply(_ANSWER, usage=(1, len(_ANSWER)))
        await _fill(surroundings)
        queue = Queue(aws.client("sqs"), "query-log")
        yield surroundings, queue, {**aws.environment, **environment}


async def _fill(surroundings: QuerySurroundings) -> None:
    """Ingest the project's own documents into the tenant's default collection."""
    embedding = EmbeddingSettings(
        default_provider="http",
        embedding_base_url=surroundings.embeddings.base_url,
        embedding_api_key=SecretStr(EMBEDDING_KEY),
        embedding_model="fake-embeddings",
        embedding_dimension=DIMENSION,
    )
    application = Application.build(settings_for(surroundings.app_url, embedding=embedding))
    async with application:
        services = application.for_tenant(_TENANT)
        collection = await services.collections.create(
            application.config.query.default_collection,
            embedding_provider="http",
            embedding_model="fake-embeddings",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        for file in track(
            sorted((_ROOT / "docs").rglob("*.md")), "  reading", console=progress, transient=True
        ):
            await ingest_bytes(
                services.ingestion, collection, file.read_bytes(), file.relative_to(_ROOT).as_posix()
            )


async def _ask(
    surroundings: QuerySurroundings, queue: Queue, more: Mapping[str, str], repeats: int
) -> _Question:
    seen = _Question()
    environment = surroundings.environment(query_log_queue_url=queue.url) | dict(more)
    function = surroundings.function(environment, init_timeout_s=_INIT_S)
    lines: list[str] = []
    async with (
        FunctionProcess(function, on_log=lines.append) as process,
        FunctionUrl(process, response_mode="stream") as front_door,
        surroundings.client(front_door.url, timeout=120) as client,
    ):
        for number in track(range(repeats + 1), "  asking", console=progress, transient=True):
            lines.clear()
            body = {
                "query": f"Question {number}: how long is a record of the query log kept?",
                "stream": True,
            }
            cpu = cpu_s(process.pid) if process.pid else 0.0
            text = (await client.post(QUERY_PATH, json=body)).text
            if "event: done" not in text:
                raise RuntimeError(f"no answer: {text[-300:]}")
            await process.invocations[-1].completed.wait()
            await asyncio.sleep(0.1)  # its last lines are still in a pipe
            if number == 0:
                await asyncio.to_thread(queue.bodies)
                continue  # the first one opens connections
            messages = await asyncio.to_thread(queue.receive)
            seen.log_bytes.append(sum(len(line.encode()) + 1 for line in lines))
            seen.log_lines.append(len(lines))
            assert process.pid is not None
            seen.cpu_ms.append((cpu_s(process.pid) - cpu) * 1000)
            seen.answer_bytes.append(len(text.encode()))
            seen.messages.append(len(messages))
            seen.message_bytes.append(sum(len(message["body"]) for message in messages))
            if number < repeats:
                await asyncio.to_thread(queue.delete, messages)
            else:
                await asyncio.to_thread(queue.show, messages)  # for the log writer
            query_body = surroundings.vendor.bodies[-1]
            prompt = "".join(message["content"] for message in query_body["messages"])
            seen.prompt_tokens.append(estimate_tokens(prompt))
            seen.request_bytes.append(len(json.dumps(query_body)))
            seen.reply_bytes.append(_streamed_bytes(surroundings, query_body))
    return seen


def _streamed_bytes(surroundings: QuerySurroundings, query_body: Any) -> int:
    reply = surroundings.vendor.unscripted
    assert isinstance(reply, Reply)
    return sum(len(surroundings.vendor.text_event(text, reply, query_body)) for text in reply.texts)


async def _write(queue: Queue, surroundings: QuerySurroundings, base: Mapping[str, str]) -> tuple[float, int]:
    """Write the last query's records under new ids; return median milliseconds and bytes of log."""
    records = await asyncio.to_thread(queue.receive)
    url = surroundings.app_url.replace("vectorforge_app", "vectorforge_log_writer")
    function = _function("log_writer", {**base, "VECTORFORGE_LOG_WRITER_DATABASE_URL": url})

    def event() -> dict[str, Any]:
        query_id = str(uuid.uuid4())
        return {
            "Records": [
                {**one, "body": json.dumps({**json.loads(one["body"]), "id": query_id})} for one in records
            ]
        }

    return await _repeat(function, event)


async def _look(surroundings: QuerySurroundings, base: Mapping[str, str]) -> tuple[float, int]:
    queue_url = base.get("AWS_ENDPOINT_URL", "http://localhost") + "/123456789012/ingestion"
    environment = surroundings.environment(ingestion_queue_url=queue_url) | dict(base)
    event = json.loads((_ROOT / "events" / "ingest_scheduled.json").read_text())
    return await _repeat(_function("ingest", environment), lambda: event)


async def _repeat(function: FunctionConfiguration, event: Any, times: int = 20) -> tuple[float, int]:
    """Return median milliseconds and bytes of log of a warm invocation."""
    lines: list[str] = []
    wall_ms, log_bytes = [], []
    async with FunctionProcess(function, on_log=lines.append) as process:
        for _ in range(times):
            lines.clear()
            begun = time.perf_counter()
            await (await process.invoke(event())).result()
            wall_ms.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.05)
            log_bytes.append(sum(len(line.encode()) + 1 for line in lines))
    return statistics.median(wall_ms[1:]), int(statistics.median(log_bytes[1:]))


def _function(name: str, environment: Mapping[str, str]) -> FunctionConfiguration:
    return FunctionConfiguration(
        handler=f"functions.{name}.handler.handler",
        name=name,
        environment=environment,
        timeout_s=120,
        init_timeout_s=_INIT_S,
    )
