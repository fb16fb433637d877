"""Recall and latency of searches: every share that a filter lets through, small tenants among others."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast
from uuid import UUID

import numpy as np
from figures.database import settle
from figures.measuring import Table, percentile, postgres_cpu_s, progress
from figures.scale import (
    OWNER,
    SHARES,
    Generator,
    Holding,
    Scale,
    Stored,
    Vectors,
    holdings,
    store,
    text,
)
from peers.database import BenchmarkDatabase
from rich.progress import track

from vectorforge.db.connection import Database
from vectorforge.types import DistanceMetric, Vector
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.pgvector import PgVectorStore

TOP_K = 10
_SINGLE_PRECISION = 1e-6
_WARMING_UP = 10
_FILTER_VALUE = 1
"""Share of the key in a filter."""


@dataclass(frozen=True)
class Searched:
    """Results of searches of one kind."""

    chunks: int
    """Share of the large tenant in the partition."""
    what: str
    matching: int
    """Chunks that match tenant and filter."""
    rows_wanted: int
    """min(k, matching)"""
    rows_min: int
    """Length of the shortest result."""
    recall: float | None
    """Share of the nearest chunks that was found, or None if words count, too."""
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    """CPU milliseconds of the client's process per search."""
    database_cpu_ms: float
    scan: str
    """Plan reported by the search; empty without a report."""


async def measure_scale(database: BenchmarkDatabase, scale: Scale, questions: int) -> list[dict[str, Any]]:
    """Store the chunks unless they exist, and search them with every plan.

    Args:
        database: Server on which the chunks stay in a separate database.
        scale: Size of the data.
        questions: Number of queries in each mode.
    """
    async with stored_scale(database, scale) as (opened, stored):
        ids = {tenant: UUID(id_) for tenant, id_ in stored["collections"].items()}
        searcher = _Searcher(opened, ids, database.server.pid, scale)
        found: list[Searched] = []
        for holding in holdings(scale):
            found += await searcher.measure(holding, questions)
        return [asdict(searched) for searched in found]


@asynccontextmanager
async def stored_scale(database: BenchmarkDatabase, scale: Scale) -> AsyncIterator[tuple[Database, Stored]]:
    """Store the chunks unless they exist; yield the database as the service's role, and the record."""
    app_url, owner_url = database.migrated(scale.database, [scale.database])
    async with Database(app_url) as opened:
        stored = database.loaded.facts(scale.database)
        if stored is None:
            stored = {**await store(opened, owner_url, database.server.pid, scale)}
            database.loaded.put(scale.database, stored)
        settle(owner_url)
        yield opened, cast("Stored", stored)


class _Searcher:
    def __init__(self, database: Database, ids: Mapping[str, UUID], postgres: int, scale: Scale) -> None:
        self._database = database
        self._ids = ids
        self._postgres = postgres
        self._scale = scale
        self._generator = Generator()

    async def measure(self, holding: Holding, questions: int) -> list[Searched]:
        vectors, queries = holding.vectors(self._generator), holding.questions(self._generator, questions)
        if holding.tenant != OWNER:
            everything = np.arange(holding.chunks)
            what = f"tenant of {holding.chunks:,} clustered"
            return [await self._dense(holding, what, None, vectors, everything, queries)]
        metadata = holding.metadata()
        found = [await self._dense(holding, "no filter", None, vectors, np.arange(len(vectors)), queries)]
        for key, values in SHARES.items():
            matching = np.array([n for n, facts in enumerate(metadata) if facts[key] == _FILTER_VALUE])
            what = f"filter for {100 / values:g} %"
            found.append(await self._dense(holding, what, {key: _FILTER_VALUE}, vectors, matching, queries))
        if self._scale.words:
            found += [await self._words(holding, hybrid, queries) for hybrid in (True, False)]
        return found

    async def _dense(
        self,
        holding: Holding,
        what: str,
        filters: Mapping[str, Any] | None,
        vectors: Vectors,
        matching: "np.ndarray[Any, Any]",
        queries: Vectors,
    ) -> Searched:
        searches = [{"query_vector": query, "filters": filters} for query in queries.tolist()]
        found, figures = await self._run(holding, what, searches)
        wanted = min(TOP_K, len(matching))
        hits, candidates = 0, vectors if len(matching) == len(vectors) else vectors[matching]
        for query, rows in zip(queries, found, strict=True):
            farthest = np.partition(1 - candidates @ query, wanted - 1)[wanted - 1]
            hits += sum(row.distance <= farthest + _SINGLE_PRECISION for row in rows)
        return Searched(
            chunks=self._scale.chunks,
            what=what,
            matching=len(matching),
            rows_wanted=wanted,
            rows_min=min(map(len, found)),
            recall=hits / (wanted * len(found)),
            **figures,
        )

    async def _words(self, holding: Holding, hybrid: bool, queries: Vectors) -> Searched:
        """Return queries with a chunk's number and six of its words: lexical, or hybrid with vectors."""
        rng = np.random.default_rng(5)
        questions = [
            " ".join(text(int(number), self._scale.words).split()[1:8])
            for number in rng.integers(0, holding.chunks, len(queries))
        ]
        vectors: list[Vector | None] = queries.tolist() if hybrid else [None] * len(queries)
        searches = [
            {"query_vector": vector, "query_text": question}
            for vector, question in zip(vectors, questions, strict=True)
        ]
        what = "vectors and words" if hybrid else "words only"
        found, figures = await self._run(holding, what, searches)
        return Searched(
            chunks=self._scale.chunks,
            what=what,
            matching=holding.chunks,
            rows_wanted=TOP_K,
            rows_min=min(map(len, found)),
            recall=None,
            **figures,
        )

    async def _run(
        self, holding: Holding, what: str, searches: Sequence[Mapping[str, Any]]
    ) -> tuple[list[NearestChunks], dict[str, Any]]:
        vector_store = PgVectorStore(self._database.for_tenant(holding.tenant))

        async def search(arguments: Mapping[str, Any]) -> NearestChunks:
            return await vector_store.search(
                top_k=TOP_K,
                collection_id=self._ids[holding.tenant],
                metric=DistanceMetric.COSINE,
                **arguments,
            )

        for arguments in searches[:_WARMING_UP]:
            await search(arguments)
        found, times = [], []
        before = time.process_time(), postgres_cpu_s(self._postgres)
        label = f"  {self._scale.chunks:,}: {what}"
        for arguments in track(searches, label, console=progress, transient=True):
            begun = time.perf_counter()
            found.append(await search(arguments))
            times.append((time.perf_counter() - begun) * 1000)
        after = time.process_time(), postgres_cpu_s(self._postgres)
        cpu, database_cpu = ((b - a) * 1000 / len(searches) for a, b in zip(before, after, strict=True))
        return found, {
            "p50_ms": statistics.median(times),
            "p95_ms": percentile(times, 95),
            "cpu_ms": cpu,
            "database_cpu_ms": database_cpu,
            "scan": f"{scan.method} ({scan.reason})" if (scan := found[-1].scan) else "",
        }


def measure(database: BenchmarkDatabase, scale: Scale, questions: int) -> list[dict[str, Any]]:
    """``measure_scale``, for callers without an event loop."""
    return asyncio.run(measure_scale(database, scale, questions))


def tables(figures: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return one table."""
    table = Table(
        f"{figures[0]['chunks']:,} chunks, top {TOP_K}",
        (
            "what", "matching", "fewest rows", f"recall@{TOP_K}", "ms p50", "ms p95", "client CPU ms",
            "database CPU ms", "scan",
        ),
    )  # fmt: skip
    for row in figures:
        recall = "" if row["recall"] is None else float(row["recall"])
        table.add(
            row["what"],
            row["matching"],
            f"{row['rows_min']} of {row['rows_wanted']}",
            recall,
            row["p50_ms"],
            row["p95_ms"],
            row["cpu_ms"],
            row["database_cpu_ms"],
            row["scan"],
        )
    return [table]
