"""Cost of searches and query log rows in the database, and disk space per chunk."""

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import numpy as np
import psycopg
from figures.database import fill, fresh_database, settle
from figures.measuring import Table, progress
from figures.pooled import Load, Meter, pooled
from figures.search import clustered
from psycopg.conninfo import conninfo_to_dict
from rich.progress import track

from tests.support.postgres.pgbouncer import PgBouncer
from tests.support.rag.query_logs import make_log
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import EXACT_SCAN_LIMIT, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

TOP_K = 10
_CLUSTERS = 200
_STORED_AT_ONCE = 1_000
_INDEX_AFTERWARDS = 5_000
"""Number of chunks from which the index is built after storing them, as for a bulk load."""
_LOG_BATCHES = (1, 10, 100)
_ANSWER = "The refund takes five working days after the parcel has arrived [Source 1]. " * 10

_SIZES: LiteralString = """
SELECT pg_table_size('vectorforge.chunks'), pg_indexes_size('vectorforge.chunks'),
       pg_table_size(partition), hnsw, pg_indexes_size(partition) - hnsw
FROM (SELECT %s::regclass AS partition, coalesce(pg_relation_size(to_regclass(%s)), 0) AS hnsw) AS named
"""


class Room:
    """A growing collection of one dimension, in a separate database."""

    def __init__(self, database: Database, owner_url: str, dimension: int) -> None:
        self._db = database.for_tenant("local")
        self._owner_url = owner_url
        self._partition = f"vectorforge.embeddings_cosine_{dimension}"
        self._rng = np.random.default_rng(7)
        centers = self._rng.standard_normal((_CLUSTERS, dimension))
        self._centers = centers / np.linalg.norm(centers, axis=1, keepdims=True)
        self._store = PgVectorStore(self._db)
        self._collection: UUID | None = None
        self.chunks = 0

    async def grow(self, chunks: int) -> None:
        """Store synthetic chunks up to this number."""
        if self._collection is None:
            made = await CollectionRepository(self._db).create(
                "figures",
                embedding_provider="none",
                embedding_model="none",
                dimension=self._centers.shape[1],
                distance_metric=DistanceMetric.COSINE,
            )
            self._collection = made.id
        afterwards = chunks - self.chunks >= _INDEX_AFTERWARDS
        if afterwards:
            self._drop_index()
        label = f"  storing {chunks:,} chunks"
        starts = range(self.chunks, chunks, _STORED_AT_ONCE)
        for start in track(starts, label, console=progress, transient=True):
            vectors = self.vectors(min(_STORED_AT_ONCE, chunks - start))
            await fill(self._store, self._collection, vectors, seed=start, quiet=True)
        if afterwards:
            progress.print("  building the index")
            space = self._partition.removeprefix("vectorforge.embeddings_")
            await build_indexes(self._owner_url, larger_than=0, spaces=[space])
        settle(self._owner_url)
        self.chunks = chunks

    def vectors(self, count: int) -> Sequence[Sequence[float]]:
        """Return new unit vectors in clusters, equal in every run."""
        found: list[list[float]] = clustered(count, self._rng, self._centers).tolist()
        return found

    async def search(self, query: Sequence[float]) -> None:
        """Search once, and check the number of rows."""
        assert self._collection is not None
        found = await self._store.search(
            query_vector=query, top_k=TOP_K, collection_id=self._collection, metric=DistanceMetric.COSINE
        )
        if len(found) != TOP_K:
            raise RuntimeError(f"{len(found)} rows")

    def bytes_per_chunk(self) -> list[float]:
        """Return the sizes of the chunks' table, its indexes, the vectors and their indexes."""
        with psycopg.connect(self._owner_url) as connection:
            row = connection.execute(_SIZES, (self._partition, f"{self._partition}_hnsw")).fetchone()
        assert row is not None
        return [size / self.chunks for size in row]

    def _drop_index(self) -> None:
        with psycopg.connect(self._owner_url, autocommit=True) as connection:
            connection.execute(f"DROP INDEX IF EXISTS {self._partition}_hnsw".encode())


async def measure_searches(
    server: EmbeddedPostgres,
    *,
    dimensions: Sequence[int],
    sizes: Sequence[int],
    clients: Sequence[int],
    seconds: float,
) -> list[Table]:
    """Search collections of each dimension and size with each number of clients."""
    load = Table(
        f"Searches through PgBouncer, top {TOP_K}",
        (
            *("dimensions", "chunks", "scan", "clients", "searches/s", "ms p50", "ms p95", "database CPU ms"),
            *("connection held ms", "connections, mean", "most", "by Little's law"),
        ),
        notes=[
            f"{seconds:.0f} s each. Invented vectors in {_CLUSTERS} clusters; all clients in one process."
        ],
    )
    disk = Table(
        "Disk, bytes a chunk",
        ("dimensions", "chunks", "text", "its indexes", "vector", "HNSW index", "its other indexes", "all"),
        notes=[
            "Passages of 700 invented characters, after VACUUM. A document's own row and text are not in it."
        ],
    )
    for dimension in dimensions:
        with fresh_database(server, f"capacity_{dimension}") as (url, owner_url), pooled(server) as bouncer:
            async with Database(bouncer.route(url), pool_size=max(clients)) as database:
                room = Room(database, owner_url, dimension)
                meter = Meter(server, bouncer, str(conninfo_to_dict(url)["dbname"]))
                for size in sorted(sizes):
                    await room.grow(size)
                    way = "exact" if size <= EXACT_SCAN_LIMIT else "HNSW"
                    for count in clients:
                        found = await _search(room, meter, clients=count, seconds=seconds)
                        load.add(dimension, size, way, count, *_cells(found))
                    parts = room.bytes_per_chunk()
                    disk.add(dimension, size, *parts, sum(parts))
    return [load, disk]


async def _search(room: Room, meter: Meter, *, clients: int, seconds: float) -> Load:
    progress.print(f"  {room.chunks:,} chunks, {clients} clients")
    queries = room.vectors(1_000)
    for query in queries[: 2 * clients]:  # opens connections and fills caches
        await room.search(query)
    return await meter.run(
        lambda number: room.search(queries[number % len(queries)]), clients=clients, seconds=seconds
    )


def _cells(load: Load) -> list[float]:
    return [
        *(load.per_second, load.p50_ms, load.p95_ms, load.database_cpu_ms, load.held_ms),
        *(load.connections_mean, load.connections_most, load.connections_by_littles_law),
    ]


async def measure_query_log(server: EmbeddedPostgres, *, seconds: float) -> list[Table]:
    """Write batches of the query log as the log writer does: one statement per batch, sequentially."""
    table = Table(
        "Query log through PgBouncer",
        ("rows a batch", "rows/s", "batch ms p50", "ms p95", "database CPU ms a row", "bytes a row"),
        notes=[f"{seconds:.0f} s each; answers of {len(_ANSWER)} characters, indexes included in the bytes."],
    )
    for batch in _LOG_BATCHES:
        with fresh_database(server, f"capacity_log_{batch}") as (url, owner_url), pooled(server) as bouncer:
            load = await _write(server, bouncer, url, batch=batch, seconds=seconds)
            settle(owner_url)
            with psycopg.connect(owner_url) as connection:
                found = connection.execute(
                    "SELECT pg_total_relation_size('vectorforge.query_logs')::float / count(*)"
                    " FROM vectorforge.query_logs"
                ).fetchone()
        assert found is not None
        rows_a_second, cpu_ms = load.per_second * batch, load.database_cpu_ms / batch
        table.add(batch, rows_a_second, load.p50_ms, load.p95_ms, cpu_ms, *found)
    return [table]


async def _write(
    server: EmbeddedPostgres, bouncer: PgBouncer, url: str, *, batch: int, seconds: float
) -> Load:
    progress.print(f"  {batch} rows a batch")
    writer_url = bouncer.route(url.replace("vectorforge_app", "vectorforge_log_writer"))
    async with Database(writer_url, pool_size=1) as database:
        writer = QueryLogWriter(database)

        async def write(_: int) -> None:
            logs = [("local", make_log(generated_response=_ANSWER)) for _ in range(batch)]
            written = await writer.write(logs)
            if written.stored != batch:
                raise RuntimeError(f"{written} of {batch}")

        await write(0)
        return await Meter(server, bouncer, str(conninfo_to_dict(url)["dbname"])).run(
            write, clients=1, seconds=seconds
        )
