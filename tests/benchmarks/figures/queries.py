"""Latency and CPU of queries to the service and to the baseline, alternating."""

import asyncio
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

import aiohttp
from figures.database import DIMENSION, fill, fresh_database, sentences, settle
from figures.measuring import Table, cpu_s, percentile, postgres_cpu_s, progress
from figures.server import TENANT, TOKENS, Server, started
from rich.progress import track

from tests.support.vendors.hashing_embedder import hashed_vector
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import EXACT_SCAN_LIMIT, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

CHUNKS = 20_000
IN_FLIGHT = 16
_KINDS = ("buffered answer", "stream", f"stream, {IN_FLIGHT} concurrent")


@dataclass(slots=True)
class Samples:
    """Measurements of one server and one kind of query."""

    first_byte_ms: list[float] = field(default_factory=list)
    first_token_ms: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU milliseconds of the server per query, one value per round."""
    database_cpu_ms: list[float] = field(default_factory=list)


class Asker:
    """Client of one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url}/v1/rag/query"
        self._number = 0

    async def ask(self, samples: Samples, *, stream: bool) -> None:
        """Send one unique query."""
        self._number += 1
        body = {"query": sentences(1_000_000 + self._number, 60), "stream": stream}
        started_at = time.perf_counter()
        first_byte = first_token = 0.0
        received = bytearray()
        async with self._session.post(self._url, json=body) as response:
            async for data in response.content.iter_any():
                now = time.perf_counter()
                first_byte = first_byte or now
                received += data
                if not first_token and b"event: token" in received:
                    first_token = now
        ended = time.perf_counter()
        _check(bytes(received), response.status, stream=stream)
        samples.first_byte_ms.append((first_byte - started_at) * 1000)
        samples.first_token_ms.append((first_token - started_at) * 1000)
        samples.total_ms.append((ended - started_at) * 1000)


def _check(received: bytes, status: int, *, stream: bool) -> None:
    last = b"word%d " % (TOKENS - 1)  # joined texts are one event
    if status != 200 or (stream and (last not in received or b"event: done" not in received)):
        raise RuntimeError(f"status {status}: {received[:300]!r}")
    if not stream and "word99" not in json.loads(received)["response"]:
        raise RuntimeError(f"wrong answer: {received[:300]!r}")


async def measure_queries(server: EmbeddedPostgres, *, rounds: int, questions: int) -> list[Table]:
    """Query both servers in turn.

    Args:
        server: Server for a separate database.
        rounds: Number of alternations of the servers.
        questions: Queries of each kind to each server per round; a multiple of 16.
    """
    with fresh_database(server, "queries") as (url, owner_url):
        async with Database(url) as database:
            collection_id = await prepare(database, CHUNKS)
        await build_indexes(owner_url, larger_than=EXACT_SCAN_LIMIT)
        settle(owner_url)
        with started("model") as model:
            options = {"database_url": url, "model_url": model.url, "collection": str(collection_id)}
            with started("floor", **options) as floor, started("service", **options) as service:
                servers = {"floor": floor, "service": service}
                return _tables(await _take_turns(servers, server.pid, rounds, questions), rounds, questions)


async def prepare(database: Database, chunks: int) -> UUID:
    """Create the tenant's collection with so many chunks, and return its id."""
    db = database.for_tenant(TENANT)
    collection = await CollectionRepository(db).create(
        "default",
        embedding_provider="hashing",
        embedding_model="hashing-v1",
        dimension=DIMENSION,
        distance_metric=DistanceMetric.COSINE,
    )
    vectors = [hashed_vector(sentences(seed, 700), DIMENSION) for seed in range(chunks)]
    await fill(PgVectorStore(db), collection.id, vectors)
    return collection.id


async def _take_turns(
    servers: dict[str, Server], postgres: int, rounds: int, questions: int
) -> dict[tuple[str, str], Samples]:
    found: defaultdict[tuple[str, str], Samples] = defaultdict(Samples)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        askers = {name: Asker(session, server.url) for name, server in servers.items()}
        for asker in askers.values():
            for _ in range(20):  # connections, imports and caches
                await asker.ask(Samples(), stream=False)
                await asyncio.gather(*(asker.ask(Samples(), stream=True) for _ in range(IN_FLIGHT)))
        for _ in track(range(rounds), "  asking", console=progress, transient=True):
            for kind in _KINDS:
                for name, server in servers.items():
                    samples = found[name, kind]
                    before = cpu_s(server.pid), postgres_cpu_s(postgres)
                    await _ask_all(askers[name], samples, kind, questions)
                    samples.cpu_ms.append((cpu_s(server.pid) - before[0]) * 1000 / questions)
                    spent = postgres_cpu_s(postgres) - before[1]
                    samples.database_cpu_ms.append(spent * 1000 / questions)
    return found


async def _ask_all(asker: Asker, samples: Samples, kind: str, questions: int) -> None:
    if kind == _KINDS[0] or kind == _KINDS[1]:
        for _ in range(questions):
            await asker.ask(samples, stream=kind == _KINDS[1])
        return
    for _ in range(questions // IN_FLIGHT):
        await asyncio.gather(*(asker.ask(samples, stream=True) for _ in range(IN_FLIGHT)))


def _tables(found: dict[tuple[str, str], Samples], rounds: int, questions: int) -> list[Table]:
    table = Table(
        f"Queries over {CHUNKS:,} chunks, the model answering {TOKENS} pieces at once",
        (
            "what", "server", "first byte ms p50", "p95", "first token ms p50", "p95",
            "complete ms p50", "p95", "server CPU ms", "database CPU ms",
        ),
    )  # fmt: skip
    overhead = Table(
        "Own overhead: service minus floor, medians",
        ("what", "first byte ms", "first token ms", "complete ms", "server CPU ms", "server CPU ratio"),
    )
    for kind in _KINDS:
        rows = {name: _row(found[name, kind], stream=kind != _KINDS[0]) for name in ("floor", "service")}
        for name, row in rows.items():
            table.add(kind, name, *row)
        less = [_minus(a, b) for a, b in zip(rows["service"], rows["floor"], strict=True)]
        ratio = _mean(found["service", kind].cpu_ms) / _mean(found["floor", kind].cpu_ms)
        overhead.add(kind, less[0], less[2], less[4], less[6], ratio)
    table.notes.append(
        f"{rounds} rounds of {questions} queries per row, both servers interleaved. Floor: {_FLOOR_NOTE}"
    )
    return [table, overhead]


_FLOOR_NOTE = (
    "a hand-written server that only searches and calls the model (tests/benchmarks/figures/floor.py). "
    "CPU is per query, the mean of all rounds."
)


def _row(samples: Samples, *, stream: bool) -> list[float | str]:
    cells: list[float | str] = []
    for values in (samples.first_byte_ms, samples.first_token_ms, samples.total_ms):
        shown = stream or values is not samples.first_token_ms
        cells += [percentile(values, 50), percentile(values, 95)] if shown else ["", ""]
    return [*cells, _mean(samples.cpu_ms), _mean(samples.database_cpu_ms)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _minus(a: float | str, b: float | str) -> float | str:
    return "" if isinstance(a, str) or isinstance(b, str) else a - b
