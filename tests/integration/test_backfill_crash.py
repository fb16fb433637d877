"""kill -9 of a worker that re-embeds a collection: another process continues at the same point."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.backfill_process import BATCH, DIMENSION
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import DIMENSION as OLD_DIMENSION
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.repo import EmbeddingSwitchRepository, SwitchState
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

SCRIPT = Path(__file__).with_name("backfill_process.py")
DOCUMENTS = 20
TEXTS = {f"the boiler of house {number}" for number in range(DOCUMENTS)}


@contextmanager
def worker_process(url: str, stop_at: str = "") -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen([sys.executable, str(SCRIPT), url, stop_at], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@dataclass
class Change:
    """A collection in a separate database, whose model is being changed."""

    url: str
    admin_url: str
    collection: Collection
    switches: EmbeddingSwitchRepository

    def document_order(self) -> list[str]:
        """Return the texts in the order of embedding: by the ids of their documents."""
        with psycopg.connect(self.admin_url) as admin:
            rows = admin.execute("SELECT text FROM vectorforge.chunks ORDER BY document_id")
            return [row[0] for row in rows]

    def embedded(self) -> dict[str, int]:
        """Return the number of vectors of the new model by text."""
        with psycopg.connect(self.admin_url) as admin:
            rows = admin.execute(
                "SELECT c.text, count(*) FROM vectorforge.chunks c"
                " JOIN vectorforge.embeddings e ON e.chunk_id = c.id AND e.space = %s GROUP BY c.text",
                [f"cosine_{DIMENSION}"],
            )
            return dict(rows.fetchall())


@pytest.fixture
async def change(make_database: Callable[..., str]) -> AsyncIterator[Change]:
    admin_url = make_database()
    url = make_conninfo(admin_url, user="vectorforge_app")
    embeddings = EmbeddingProviderRegistry()
    embeddings.register(HashingEmbedder())
    async with Database(url, pool_size=3) as database:
        db = database.for_tenant("tenant")
        collection = await CollectionRepository(db).create(
            "docs",
            embedding_provider="hashing",
            embedding_model="hashing-v1",
            dimension=OLD_DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        pipeline = IngestionPipeline(
            PgVectorStore(db), DocumentRepository(db), embeddings, IngestionSettings()
        )
        for text in sorted(TEXTS):
            await ingest_bytes(pipeline, collection, text.encode(), f"{text}.txt")
        switches = EmbeddingSwitchRepository(db)
        await switches.start(
            collection.id,
            provider="new",
            model="hashing-v1",
            dimension=DIMENSION,
            query_prefix="",
            document_prefix="",
        )
        yield Change(url, admin_url, collection, switches)


# faults.md row 37, for the backfill
async def test_killed_backfill_resumes_and_repeats_at_most_one_batch(change: Change) -> None:
    order = change.document_order()
    second_batch = order[BATCH : 2 * BATCH]
    with worker_process(change.url, stop_at=second_batch[0]) as process:
        assert process.stdout is not None
        lines = [(await asyncio.to_thread(process.stdout.readline)).strip() for _ in range(2 * BATCH)]
        process.kill()  # SIGKILL, while the second batch is being embedded
        process.wait()
    assert sorted(lines) == sorted(order[: 2 * BATCH])
    assert change.embedded() == dict.fromkeys(order[:BATCH], 1)

    with worker_process(change.url) as process:
        async with asyncio.timeout(60):
            while (await change.switches.get(change.collection.id)).state is not SwitchState.READY:  # noqa: ASYNC110 - polls a database
                await asyncio.sleep(0.05)
        process.kill()
        assert process.stdout is not None
        again = process.stdout.read().split("\n")[:-1]
    assert sorted(again) == sorted(order[BATCH:])  # the first batch stayed
    assert change.embedded() == dict.fromkeys(TEXTS, 1)
    switched = await change.switches.switch(change.collection.id)
    assert (switched.state, switched.vectors) == (SwitchState.SWITCHED, DOCUMENTS)
