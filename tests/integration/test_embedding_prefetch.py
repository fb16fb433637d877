"""Vectors of several small documents from one request: fewer requests, and each document's fate its own."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.vendors.hashing_embedder import DIMENSION, HashingEmbedder, hashed_vector
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import EmbeddingError, EmbeddingInputError
from vectorforge.ingestion.embedding_prefetch import AT_A_TIME, SMALL_BYTES
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker.worker import IngestionWorker
from vectorforge.types import Collection, DistanceMetric, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore


class Vendor(HashingEmbedder):
    """Counts requests, refuses a word, and may be down for some requests."""

    def __init__(self) -> None:
        super().__init__(batch_size=1000)
        self.asked: list[int] = []
        self.down_for = 0

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.asked.append(len(texts))
        if self.down_for:
            self.down_for -= 1
            raise EmbeddingError("The vendor is down.")
        if any("forbidden" in text for text in texts):
            raise EmbeddingInputError("Refused.", index=None)
        return await super()._call_api(texts, model)


@dataclass
class Room:
    db: TenantDatabase
    database: Database
    collection: Collection
    vendor: Vendor

    @property
    def pipeline(self) -> IngestionPipeline:
        registry = EmbeddingProviderRegistry()
        registry.register(self.vendor)
        settings = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)
        return IngestionPipeline(PgVectorStore(self.db), DocumentRepository(self.db), registry, settings)

    async def ingest(self, content: bytes, by: str, source: str = "f.jsonl") -> dict[str, str]:
        """What became of each document, by source."""
        if by == "pipeline":
            results = await self.pipeline.ingest_bytes(self.collection, content, source)
            return {result.source: result.status.value for result in results}
        jobs = JobRepository(self.db)
        job = await jobs.create(self.collection.id, [NewJobItem(source, None, content)])
        await IngestionWorker(self.database, lambda _: self.pipeline).run_until_idle()
        return {item.source: item.status for item in await jobs.items(job.id)}

    async def vectors(self) -> dict[str, Any]:
        rows = await self.db.fetch_all(
            """SELECT c.text, e.embedding::text AS vector FROM vectorforge.chunks c
            JOIN vectorforge.embeddings e ON e.tenant_id = c.tenant_id AND e.chunk_id = c.id
            WHERE c.to_version IS NULL"""
        )
        return {row["text"]: row["vector"] for row in rows}


@pytest.fixture
async def room(fresh_database_url: str) -> AsyncIterator[Room]:
    async with Database(fresh_database_url, pool_size=5) as database:
        db = database.for_tenant("tenant")
        collection = await CollectionRepository(db).create(
            "docs",
            embedding_provider="hashing",
            embedding_model="hashing-64",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        yield Room(db, database, collection, Vendor())


def lines(*texts: str) -> bytes:
    return "\n".join(json.dumps({"id": f"{n}", "text": text}) for n, text in enumerate(texts)).encode()


by_both = pytest.mark.parametrize("by", ["pipeline", "job"])


# Issue 7, point 4: ten records, one request; and each passage has the vector of its own text
@by_both
async def test_small_records_share_one_embedding_request(room: Room, by: str) -> None:
    texts = [f"Record {number} tells of number {number}." for number in range(10)]
    assert set((await room.ingest(lines(*texts), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [10]
    for text, vector in (await room.vectors()).items():
        assert json.loads(vector) == pytest.approx(hashed_vector(text, DIMENSION), abs=1e-6)
        texts.remove(text)
    assert texts == []


@by_both
async def test_prefetch_sends_one_request_per_group(room: Room, by: str) -> None:
    texts = [f"Record {number}." for number in range(AT_A_TIME + 5)]
    assert set((await room.ingest(lines(*texts), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [AT_A_TIME, 5]


# What has not changed costs nothing
@by_both
async def test_prefetch_embeds_new_texts_only(room: Room, by: str) -> None:
    await room.ingest(lines("one", "two", "three", "four"), by)
    room.vendor.asked.clear()
    found = await room.ingest(lines("one", "TWO", "three", "FOUR"), by)
    assert sorted(found.values()) == ["succeeded", "succeeded", "unchanged", "unchanged"]
    assert room.vendor.asked == [2]
    assert set(await room.vectors()) == {"one", "TWO", "three", "FOUR"}


# A text that the model refuses fails its own document
@by_both
async def test_rejected_text_fails_its_document_only(room: Room, by: str) -> None:
    found = await room.ingest(lines("one", "two forbidden", "three", "four"), by)
    assert list(found.values()) == ["succeeded", "failed", "succeeded", "succeeded"]
    assert set(await room.vectors()) == {"one", "three", "four"}
    assert 3 in room.vendor.asked, "the request without the refused text"


# Where the request for all fails, each asks for itself
@by_both
async def test_failed_first_request_is_retried_per_document(room: Room, by: str) -> None:
    room.vendor.down_for = 1
    assert set((await room.ingest(lines("one", "two", "three"), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [3, 1, 1, 1]


@by_both
async def test_large_documents_are_embedded_separately(room: Room, by: str) -> None:
    large = "word " * (SMALL_BYTES // 5)
    assert set((await room.ingest(lines("one", large, "two"), by)).values()) == {"succeeded"}
    assert room.vendor.asked[0] == 2
    assert len(room.vendor.asked) == 2


@by_both
async def test_duplicate_text_is_embedded_once(room: Room, by: str) -> None:
    assert set((await room.ingest(lines("same", "same", "other"), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [2]


# faults.md row 37: what stopped a worker is looked for document by document, and the right one given up
async def test_retried_items_of_killed_worker_are_embedded_separately(room: Room) -> None:
    jobs = JobRepository(room.db)
    items = [NewJobItem(f"{n}.txt", None, f"Text {n}.".encode()) for n in range(4)]
    job = await jobs.create(room.collection.id, items)
    assert await JobDispatcher(room.database).claim(60) is not None
    begun = await jobs.next_item(job.id)
    assert begun is not None
    await room.db.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now() - interval '1 s'")
    await IngestionWorker(room.database, lambda _: room.pipeline).run_until_idle()
    assert [(item.status, item.attempts) for item in await jobs.items(job.id)] == [
        ("succeeded", 2),
        *[("succeeded", 1)] * 3,
    ]
    assert room.vendor.asked == [1, 1, 1, 1]
