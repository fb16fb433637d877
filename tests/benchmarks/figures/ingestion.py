"""Throughput of the real ingestion pipeline in chunks per second."""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from figures.database import DIMENSION, fill, fresh_database, sentences
from figures.measuring import Table, postgres_cpu_s, progress
from rich.progress import track

from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import HashingEmbedder, hashed_vector
from vectorforge.config import EmbeddingSettings, IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

_FILLED = 10_000
_PARALLEL = 4
"""Documents ingested concurrently, as in ``vectorforge ingest``."""


def corpus(folder: Path | None, documents: int) -> Iterator[tuple[str, bytes]]:
    """Return sources and contents: the folder's ``corpus.jsonl``, or synthetic ones (6,000 characters)."""
    if folder is None:
        for number in range(documents):
            yield f"doc-{number}.md", f"# Document {number}\n\n{sentences(number, 6_000)}".encode()
        return
    with (folder / "corpus.jsonl").open(encoding="utf-8") as file:
        for line, _ in zip(file, range(documents), strict=False):
            row = json.loads(line)
            yield f"{row['doc_id']}.txt", f"{row.get('title') or ''}\n\n{row['text']}".encode()


class Room:
    """A pipeline on a separate database."""

    def __init__(self, db: TenantDatabase, provider: EmbeddingProvider) -> None:
        registry = EmbeddingProviderRegistry()
        registry.register(provider)
        self._db = db
        self._provider = provider
        self.store = PgVectorStore(db)
        self._pipeline = IngestionPipeline(self.store, DocumentRepository(db), registry, IngestionSettings())

    async def collection(self, name: str) -> Collection:
        return await CollectionRepository(self._db).create(
            name,
            embedding_provider=self._provider.name,
            embedding_model=self._provider.default_model,
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )

    async def ingest(self, collection: Collection, documents: Sequence[tuple[str, bytes]]) -> int:
        """Ingest all, four at a time; return the number of stored chunks."""
        waiting = iter(documents)

        async def work() -> int:
            chunks = 0
            for source, content in waiting:
                for result in await ingest_bytes(self._pipeline, collection, content, source):
                    if result.status is not DocumentStatus.SUCCEEDED:
                        raise RuntimeError(f"{source}: {result.error}")
                    chunks += result.chunks_added
            return chunks

        return sum(await asyncio.gather(*(work() for _ in range(_PARALLEL))))


async def measure_ingestion(
    server: EmbeddedPostgres, *, folder: Path | None, repeats: int, documents: int
) -> list[Table]:
    """Ingest with both embedders, into an empty and a filled collection, and without the HNSW index."""
    origin = "synthetic documents" if folder is None else folder.name
    table = Table(
        f"Ingestion, {origin}",
        ("embedder", "into", "chunks", "chunks/s", "client CPU ms/chunk", "database CPU ms/chunk"),
        notes=[f"Means of {repeats} runs, {_PARALLEL} documents at a time. Extraction to commit."],
    )
    cases = [
        (kind, filled, index) for kind in ("test", "local") for filled in (0, _FILLED) for index in (True,)
    ]
    cases.append(("test", 0, False))
    for kind, filled, index in track(cases, "  ingesting", console=progress, transient=True):
        share = documents if kind == "test" else max(1, documents // 4)
        runs = [
            await _one_run(server, kind, filled, index, list(corpus(folder, share))) for _ in range(repeats)
        ]
        into = f"{filled:,} chunks" if filled else "nothing"
        means = [statistics.mean(values) for values in zip(*runs, strict=True)]
        table.add(kind, into if index else f"{into}, without index", round(means[0]), *means[1:])
    table.notes.append(await _embedders())
    return [table]


async def _one_run(
    server: EmbeddedPostgres, kind: str, filled: int, index: bool, documents: list[tuple[str, bytes]]
) -> tuple[float, ...]:
    with fresh_database(server, "ingestion") as (url, owner_url):
        if index:
            await build_indexes(owner_url, larger_than=0, spaces=["cosine_384"])
        provider = _provider(kind)
        async with Database(url) as database:
            room = Room(database.for_tenant("local"), provider)
            collection = await room.collection("figures")
            await provider.embed_query("loads the model")
            if filled:
                vectors = [hashed_vector(sentences(n, 700), DIMENSION) for n in range(filled)]
                await fill(room.store, collection.id, vectors, quiet=True)
            before = time.perf_counter(), time.process_time(), postgres_cpu_s(server.pid)
            chunks = await room.ingest(collection, documents)
            after = time.perf_counter(), time.process_time(), postgres_cpu_s(server.pid)
        await provider.aclose()
    wall, cpu, database_cpu = (b - a for a, b in zip(before, after, strict=True))
    return chunks, chunks / wall, cpu * 1000 / chunks, database_cpu * 1000 / chunks


def _provider(kind: str) -> EmbeddingProvider:
    batch_size = EmbeddingSettings().embedding_batch_size
    if kind == "local":
        return LocalEmbeddingProvider(batch_size=batch_size)
    return HashingEmbedder(dimension=DIMENSION, batch_size=batch_size)


async def _embedders() -> str:
    """Measure the embedders' CPU time, for a chunk of 700 characters and for a query."""
    texts = [sentences(n, 700) for n in range(64)]
    parts = []
    for kind in ("test", "local"):
        provider = _provider(kind)
        await provider.embed_query("loads the model")
        cpu = time.process_time()
        await provider.embed_documents(texts)
        passage_ms = (time.process_time() - cpu) * 1000 / len(texts)
        times = []
        for text in texts:
            begun = time.perf_counter()
            await provider.embed_query(text[:60])
            times.append((time.perf_counter() - begun) * 1000)
        parts.append(f"{kind} {passage_ms:.2f} ms CPU per chunk, {statistics.median(times):.2f} ms per query")
        await provider.aclose()
    return f"The embedders alone: {'; '.join(parts)}."
