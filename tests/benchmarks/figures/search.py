"""Latency of the two ways to search, and what the index misses."""

import time
from collections.abc import Sequence
from uuid import UUID

import numpy as np
from figures.database import DIMENSION, fill, fresh_database, settle
from figures.measuring import Table, percentile, postgres_cpu_s, progress
from rich.progress import track

from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

_EXACT, _INDEXED = 10_000, 30_000
_CLUSTERS = 200
_TOP_K = 10


def clustered(count: int, rng: np.random.Generator, centers: np.ndarray) -> np.ndarray:
    """Unit vectors around the centers; the spread is as long as the way to the center."""
    dimension = centers.shape[1]
    noise = rng.standard_normal((count, dimension)) / np.sqrt(dimension)
    vectors = centers[rng.integers(0, len(centers), count)] + noise
    found: np.ndarray = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return found


async def measure_search(server: EmbeddedPostgres, *, questions: int) -> list[Table]:
    """Search a collection of 10,000 vectors exactly, then one of 30,000 through its index."""
    table = Table(
        f"Search through the vector store, {DIMENSION} dimensions, top {_TOP_K}",
        ("vectors", "scan", "ms p50", "ms p95", "client CPU ms", "database CPU ms", f"recall@{_TOP_K}"),
        notes=[f"{questions} queries, one at a time; synthetic vectors in {_CLUSTERS} clusters."],
    )
    rng = np.random.default_rng(7)
    centers = rng.standard_normal((_CLUSTERS, DIMENSION))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    vectors, queries = clustered(_INDEXED, rng, centers), clustered(questions, rng, centers)
    with fresh_database(server, "search") as (url, owner_url):
        async with Database(url) as database:
            db = database.for_tenant("local")
            collection = await CollectionRepository(db).create(
                "figures",
                embedding_provider="none",
                embedding_model="none",
                dimension=DIMENSION,
                distance_metric=DistanceMetric.COSINE,
            )
            store = PgVectorStore(db)
            await fill(store, collection.id, _lists(vectors[:_EXACT]), seed=0)
            settle(owner_url)
            table.add(
                _EXACT, "exact", *await _ask(store, collection.id, server.pid, vectors[:_EXACT], queries)
            )
            await fill(store, collection.id, _lists(vectors[_EXACT:]), seed=_EXACT)
            await build_indexes(owner_url, larger_than=_EXACT)
            settle(owner_url)
            table.add(_INDEXED, "HNSW", *await _ask(store, collection.id, server.pid, vectors, queries))
            exact = PgVectorStore(db, exact_scan_limit=_INDEXED)
            table.add(_INDEXED, "exact", *await _ask(exact, collection.id, server.pid, vectors, queries))
    return [table]


async def _ask(
    store: PgVectorStore, collection_id: UUID, postgres: int, vectors: np.ndarray, queries: np.ndarray
) -> list[float]:
    times, hits = [], 0
    nearest = [{float(d) for d in np.sort(1 - vectors @ query)[:_TOP_K]} for query in queries]
    await store.search(query_vector=_lists(queries)[0], top_k=_TOP_K, collection_id=collection_id,
                       metric=DistanceMetric.COSINE)  # fmt: skip
    before = time.process_time(), postgres_cpu_s(postgres)
    found = []
    for query in track(_lists(queries), "  searching", console=progress, transient=True):
        started = time.perf_counter()
        found.append(await store.search(query_vector=query, top_k=_TOP_K, collection_id=collection_id,
                                        metric=DistanceMetric.COSINE))  # fmt: skip
        times.append((time.perf_counter() - started) * 1000)
    after = time.process_time(), postgres_cpu_s(postgres)
    for rows, wanted in zip(found, nearest, strict=True):
        worst = max(wanted) + 1e-6  # single precision
        hits += sum(row.distance <= worst for row in rows)
    cpu, database_cpu = ((b - a) * 1000 / len(queries) for a, b in zip(before, after, strict=True))
    return [percentile(times, 50), percentile(times, 95), cpu, database_cpu, hits / (_TOP_K * len(queries))]


def _lists(vectors: np.ndarray) -> Sequence[Sequence[float]]:
    rows: list[list[float]] = vectors.tolist()
    return rows
