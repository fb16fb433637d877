"""First byte and cost of a chunk: our runtime against plain FastAPI and Mangum under the same service."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from figures.database import fresh_database
from figures.measuring import Table, percentile, progress
from rich.progress import track

from infra.emulator.lambda_service.front_doors import FunctionUrl, ResponseMode
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    RUNTIME_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import QUERY_PATH, query_surroundings
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

_FOLDER = str(Path(__file__).resolve().parents[1])
_OURS, _PLAIN = "vectorforge.runtime", "Mangum on awslambdaric"
_WORDS, _PAUSE_MS = 50, 10
_TENANT = "local"


def configuration(
    handler: str, command: Sequence[str], environment: Mapping[str, str]
) -> FunctionConfiguration:
    """Configure a function with a handler in this folder, e.g. "lambda_plain.handler"."""
    variables = {**environment, "PYTHONPATH": _FOLDER}
    name = f"figures.{handler}"
    return FunctionConfiguration(handler=name, command=command, environment=variables, timeout_s=120)


@asynccontextmanager
async def _deployed(
    function: FunctionConfiguration, mode: ResponseMode, headers: Mapping[str, str] | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        FunctionProcess(function) as process,
        FunctionUrl(process, response_mode=mode) as front_door,
        httpx2.AsyncClient(base_url=front_door.url, timeout=120, headers=dict(headers or {})) as client,
    ):
        yield client


async def measure_first_bytes(
    server: EmbeddedPostgres, environment: Mapping[str, str], repeats: int
) -> list[Table]:
    """Measure warm functions with sequential requests, alternating between both kinds."""
    table = Table(
        f"First byte at the client, warm, {repeats} requests each",
        ("answer", "runtime", "first byte ms p50", "p95", "whole ms p50", "p95"),
        notes=["Through a function URL of the local service; both in the same run, interleaved."],
    )
    async with (
        _deployed(configuration("lambda_handlers.streamed", RUNTIME_COMMAND, environment), "stream") as ours,
        _deployed(
            configuration("lambda_plain.handler", AWSLAMBDARIC_COMMAND, environment), "buffered"
        ) as plain,
    ):
        for name, path in (
            ("FastAPI, one chunk", "/chunks?number=1"),
            (
                f"FastAPI, {_WORDS} chunks, {_PAUSE_MS} ms apart",
                f"/chunks?number={_WORDS}&pause_ms={_PAUSE_MS}",
            ),
        ):
            await _compare(table, name, ours, plain, ("GET", path, None), repeats)
    with fresh_database(server, "lambda_figures") as (app_url, _):
        async with query_surroundings(app_url, _TENANT) as surroundings:
            words = tuple(f"word{number} " for number in range(_WORDS))
            surroundings.vendor.unscripted = Reply(texts=words, pause_s=_PAUSE_MS / 1000)
            streamed = {**surroundings.environment(), **environment}
            buffered = {**surroundings.environment(response_mode="buffered"), **environment}
            key = surroundings.client("http://unused").headers["authorization"]
            async with (
                _deployed(surroundings.function(streamed), "stream", {"authorization": key}) as ours,
                _deployed(
                    surroundings.function(buffered, command=AWSLAMBDARIC_COMMAND),
                    "buffered",
                    {"authorization": key},
                ) as plain,
            ):
                query_body = {"query": "How long does a refund take?", "stream": True}
                name = f"query function, {_WORDS} tokens, {_PAUSE_MS} ms apart"
                await _compare(table, name, ours, plain, ("POST", QUERY_PATH, query_body), repeats)
    return [table]


async def _compare(
    table: Table,
    name: str,
    ours: httpx2.AsyncClient,
    plain: httpx2.AsyncClient,
    request: tuple[str, str, object],
    repeats: int,
) -> None:
    times: dict[str, list[tuple[float, float]]] = {_OURS: [], _PLAIN: []}
    for client in (ours, plain):
        for _ in range(3):
            await _ask(client, *request)
    for _ in track(range(repeats), f"  {name}", console=progress, transient=True):
        times[_OURS].append(await _ask(ours, *request))
        times[_PLAIN].append(await _ask(plain, *request))
    for runtime, found in times.items():
        first, whole = zip(*found, strict=True)
        table.add(name, runtime, *(percentile(values, p) for values in (first, whole) for p in (50, 95)))


async def _ask(client: httpx2.AsyncClient, method: str, path: str, body: object) -> tuple[float, float]:
    """Return the milliseconds to the first byte of the body, and to its end."""
    started, first = time.perf_counter(), 0.0
    async with client.stream(method, path, json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_raw():
            first = first or time.perf_counter()
    return (first - started) * 1000, (time.perf_counter() - started) * 1000


async def measure_chunks(environment: Mapping[str, str], chunks: int) -> list[Table]:
    """Measure the cost of a chunk: ``send`` of our runtime, and ``sendall`` of a bare socket."""
    table = Table(
        f"One chunk of 60 bytes in the function, {chunks} each",
        ("transport", "pace", "µs median", "µs p95", "CPU µs"),
        notes=["Time of one `await send` or `sendall`. CPU of the process for each, including wake-ups."],
    )
    ours = FunctionProcess(configuration("lambda_handlers.timed", RUNTIME_COMMAND, environment))
    floor = FunctionProcess(configuration("lambda_handlers.raw_socket", RUNTIME_COMMAND, environment))
    async with (
        ours,
        floor,
        FunctionUrl(ours) as front_door,
        httpx2.AsyncClient(timeout=120) as client,
        _sink() as port,
    ):
        for pace, pause_ms in (("back to back", 0), ("one every 5 ms", 5)):
            for _ in range(2):  # the first is warm-up
                event = {"host": "127.0.0.1", "port": port, "number": chunks, "pause_ms": pause_ms}
                bare = str(await (await floor.invoke(event)).result())
                body = (await client.get(f"{front_door.url}/?{chunks},{pause_ms}")).text.lstrip("x")
            table.add("raw socket, sendall", pace, *_numbers(bare))
            table.add("ASGI send of vectorforge.runtime", pace, *_numbers(body))
    return [table]


def _numbers(line: str) -> list[float]:
    return [float(value) for value in line.split(",")[1:]]


@asynccontextmanager
async def _sink() -> AsyncIterator[int]:
    """Yield a port whose data is read and dropped."""

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(drop, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
