"""Compare the kinds of vector index by cost and recall, and the ways to write many vectors.

uv run --group dev python tests/benchmarks/storage_figures.py --vectors 100000 500000
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from uuid import UUID, uuid4

import numpy as np
import psycopg
from figures.database import fresh_database, private_server
from figures.measuring import Table, percentile, progress
from figures.report import machine, print_report
from figures.search import clustered
from pgvector.psycopg import register_vector
from rich.progress import track

from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import build_bytes, build_indexes
from vectorforge.db.schema.vector_indexes import list_indexes
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, DistanceMetric, VectorIndex
from vectorforge.vectorstore.pgvector import PgVectorStore

_TOP_K = 10
_CLUSTERS = 200
_WRITTEN = ("tenant_id", "space", "collection_id", "document_id", "chunk_id", "embedding")


async def measure_kind(
    server: EmbeddedPostgres, table: Table, kind: VectorIndex, vectors: np.ndarray, queries: np.ndarray
) -> None:
    """Store the vectors, build their index, and search."""
    with fresh_database(server, "storage") as (url, owner_url):
        async with Database(url) as database:
            db = database.for_tenant("local")
            collection = await CollectionRepository(db).create(
                "figures",
                embedding_provider="none",
                embedding_model="none",
                dimension=vectors.shape[1],
                distance_metric=DistanceMetric.COSINE,
                vector_index=kind,
            )
            copied_s = _copy(owner_url, collection, vectors)
            [before] = [index for index in await list_indexes(owner_url) if index.space == collection.space]
            started = time.perf_counter()
            [built] = await build_indexes(owner_url, larger_than=0)
            build_s = time.perf_counter() - started
            times, recall = await _ask(PgVectorStore(db), collection, vectors, queries)
    memory = build_bytes(before.vectors, before.vector_bytes)
    table.add(
        len(vectors), kind.value, round(len(vectors) / copied_s), build_s, memory / 1e6,
        built.index_bytes / 1e6, percentile(times, 50), percentile(times, 95), recall,
    )  # fmt: skip


def _copy(owner_url: str, collection: Collection, vectors: np.ndarray) -> float:
    """COPY BINARY as a superuser, without row-level security; return the seconds."""
    document: UUID = uuid4()
    with psycopg.connect(owner_url) as connection:
        register_vector(connection)
        # The counting triggers belong to the tables' owner, which sees a tenant's rows only.
        connection.execute("SELECT set_config('vectorforge.tenant', 'local', false)")
        connection.execute(
            "INSERT INTO vectorforge.documents (tenant_id, collection_id, id, source, media_type, text,"
            " size_chars, content_hash, chunk_count)"
            " VALUES ('local', %s, %s, 's', 't', '', 0, sha256(''), %s)",
            (collection.id, document, len(vectors)),
        )
        started = time.perf_counter()
        statement = f"COPY vectorforge.embeddings ({', '.join(_WRITTEN)}) FROM STDIN BINARY"
        with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.set_types(["text", "text", "uuid", "uuid", "uuid", "vector"])
            for number in track(range(len(vectors)), "  copying", console=progress, transient=True):
                row = ("local", collection.space, collection.id, document, UUID(int=number), vectors[number])
                copy.write_row(row)
        connection.commit()
        return time.perf_counter() - started


async def _ask(
    store: PgVectorStore, collection: Collection, vectors: np.ndarray, queries: np.ndarray
) -> tuple[list[float], float]:
    nearest = [set(np.argpartition(-(vectors @ query), _TOP_K)[:_TOP_K].tolist()) for query in queries]
    times, hits = [], 0
    for number, query in enumerate([queries[0], *queries]):
        started = time.perf_counter()
        found = await store.search(
            query_vector=query.tolist(),
            top_k=_TOP_K,
            collection_id=collection.id,
            metric=DistanceMetric.COSINE,
            space=collection.space,
        )
        if number:  # the first one warms up
            times.append((time.perf_counter() - started) * 1000)
            hits += len({result.chunk.id.int for result in found} & nearest[number - 1])
    return times, hits / (_TOP_K * len(queries))


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vectors", type=int, nargs="+", default=[100_000])
    parser.add_argument("--kinds", type=VectorIndex, nargs="+", default=list(VectorIndex))
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = Table(
        f"Kinds of vector index, {options.dimension} dimensions, top {_TOP_K}",
        ("vectors", "kind", "copied/s", "build s", "build memory MB", "index MB", "ms p50", "ms p95",
         f"recall@{_TOP_K}"),
        notes=[f"{options.questions} questions, one at a time; invented vectors in {_CLUSTERS} clusters."],
    )  # fmt: skip
    with private_server() as server:
        for count in options.vectors:
            vectors, queries = _invent(count, options.questions, options.dimension)
            for kind in options.kinds:
                asyncio.run(measure_kind(server, table, kind, vectors, queries))
                sys.stderr.write(f"{table.rows[-1]}\n")
        print_report(machine(), [table], as_json=options.json)


def _invent(count: int, questions: int, dimension: int) -> Sequence[np.ndarray]:
    rng = np.random.default_rng(7)
    centers = rng.standard_normal((_CLUSTERS, dimension))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    return clustered(count, rng, centers), clustered(questions, rng, centers)


if __name__ == "__main__":
    _main()
