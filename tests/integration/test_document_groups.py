"""Small documents together: one request to the model and one transaction, but separate results."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.rag.ingested import ingest_bytes
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
from vectorforge.ingestion.group import GROUP_BYTES, GROUP_SIZE, SMALL_BYTES
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.types import Collection, DistanceMetric, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore


class Vendor(HashingEmbedder):
    """Counts requests, rejects a word, and may be down for some requests."""

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
        """Ingest documents, and return each one's result by source."""
        if by == "pipeline":
            results = await ingest_bytes(self.pipeline, self.collection, content, source)
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


# Ten records share one request, and each chunk has the vector of its own text
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
    texts = [f"Record {number}." for number in range(GROUP_SIZE + 5)]
    assert set((await room.ingest(lines(*texts), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [GROUP_SIZE, 5]


# Unchanged documents cost nothing
@by_both
async def test_prefetch_embeds_new_texts_only(room: Room, by: str) -> None:
    await room.ingest(lines("one", "two", "three", "four"), by)
    room.vendor.asked.clear()
    found = await room.ingest(lines("one", "TWO", "three", "FOUR"), by)
    assert sorted(found.values()) == ["succeeded", "succeeded", "unchanged", "unchanged"]
    assert room.vendor.asked == [2]
    assert set(await room.vectors()) == {"one", "TWO", "three", "FOUR"}


# A text that the model rejects fails its own document
@by_both
async def test_rejected_text_fails_its_document_only(room: Room, by: str) -> None:
    found = await room.ingest(lines("one", "two forbidden", "three", "four"), by)
    assert list(found.values()) == ["succeeded", "failed", "succeeded", "succeeded"]
    assert set(await room.vectors()) == {"one", "three", "four"}
    assert 3 in room.vendor.asked, "the request without the refused text"


# If the shared request fails, each document has its own
@by_both
async def test_failed_first_request_is_retried_per_document(room: Room, by: str) -> None:
    room.vendor.down_for = 1
    assert set((await room.ingest(lines("one", "two", "three"), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [3, 1, 1, 1]


@by_both
async def test_large_documents_are_embedded_separately(room: Room, by: str) -> None:
    large = "word " * (SMALL_BYTES // 5)
    assert set((await room.ingest(lines("one", "two", large, "three"), by)).values()) == {"succeeded"}
    assert (room.vendor.asked[0], room.vendor.asked[-1]) == (2, 1)
    assert len(room.vendor.asked) == 3


@by_both
async def test_duplicate_text_is_embedded_once(room: Room, by: str) -> None:
    assert set((await room.ingest(lines("same", "same", "other"), by)).values()) == {"succeeded"}
    assert room.vendor.asked == [2]


# faults.md row 37: the document that stops a worker is searched one by one, and only it fails
async def test_retried_items_of_killed_worker_are_embedded_separately(room: Room) -> None:
    jobs = JobRepository(room.db)
    items = [NewJobItem(f"{n}.txt", None, f"Text {n}.".encode()) for n in range(4)]
    job = await jobs.create(room.collection.id, items)
    assert await JobDispatcher(room.database).claim(60) is not None
    begun = await jobs.next_items(job.id, limit=4, item_bytes=SMALL_BYTES, total_bytes=GROUP_BYTES)
    assert len(begun) == 4
    await room.db.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now() - interval '1 s'")
    await IngestionWorker(room.database, lambda _: room.pipeline).run_until_idle()
    assert [(item.status, item.attempts) for item in await jobs.items(job.id)] == [("succeeded", 2)] * 4
    assert room.vendor.asked == [1, 1, 1, 1]


async def transactions(room: Room) -> set[str]:
    """Return the transactions that wrote the documents."""
    rows = await room.db.fetch_all("SELECT xmin::text AS written_by FROM vectorforge.documents")
    return {row["written_by"] for row in rows}


@by_both
async def test_new_small_documents_are_stored_in_one_transaction(room: Room, by: str) -> None:
    texts = [f"Record {number} tells of number {number}." for number in range(40)]
    assert set((await room.ingest(lines(*texts), by)).values()) == {"succeeded"}
    assert len(await transactions(room)) == 1
    collection = await CollectionRepository(room.db).find_by_id(room.collection.id)
    assert collection is not None
    assert (collection.document_count, collection.chunk_count) == (40, 40)


@by_both
async def test_changed_documents_in_a_group_are_replaced_one_by_one(room: Room, by: str) -> None:
    await room.ingest(lines("one", "two", "three"), by)
    found = await room.ingest(lines("one", "TWO", "three", "four", "five"), by)
    assert list(found.values()) == ["unchanged", "succeeded", "unchanged", "succeeded", "succeeded"]
    assert set(await room.vectors()) == {"one", "TWO", "three", "four", "five"}
    rows = await room.db.fetch_all("SELECT source, version FROM vectorforge.documents ORDER BY source")
    assert [row["version"] for row in rows] == [1, 2, 1, 1, 1]


async def test_repeated_source_in_a_job_keeps_the_last_version(room: Room) -> None:
    jobs = JobRepository(room.db)
    items = [NewJobItem("a.txt", None, text.encode()) for text in ("first", "second", "third")]
    job = await jobs.create(room.collection.id, [*items, NewJobItem("b.txt", None, b"other")])
    await IngestionWorker(room.database, lambda _: room.pipeline).run_until_idle()
    assert [item.status for item in await jobs.items(job.id)] == ["succeeded"] * 4
    assert set(await room.vectors()) == {"third", "other"}


async def test_unreadable_document_in_a_group_fails_alone(room: Room) -> None:
    jobs = JobRepository(room.db)
    items = [NewJobItem(f"{n}.txt", None, text) for n, text in enumerate((b"one", b"  \n ", b"three"))]
    job = await jobs.create(room.collection.id, items)
    await IngestionWorker(room.database, lambda _: room.pipeline).run_until_idle()
    found = [(item.status, item.error and item.error.code) for item in await jobs.items(job.id)]
    assert found == [("succeeded", None), ("failed", "document_empty"), ("succeeded", None)]
    finished = await jobs.find_by_id(job.id)
    assert finished is not None
    assert (finished.documents_done, finished.documents_failed, finished.status) == (2, 1, "partial")


async def test_tokens_of_a_group_are_charged_once(room: Room) -> None:
    charged: list[int] = []

    async def charge(tokens: int) -> None:
        charged.append(tokens)

    registry = EmbeddingProviderRegistry()
    registry.register(room.vendor)
    settings = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)
    store, documents = PgVectorStore(room.db), DocumentRepository(room.db)
    pipeline = IngestionPipeline(store, documents, registry, settings, charge=charge)
    room.vendor.down_for = 1  # then each document has a request of its own
    results = await ingest_bytes(pipeline, room.collection, lines("one", "two", "three"), "f.jsonl")
    assert [result.status.value for result in results] == ["succeeded"] * 3
    assert len(charged) == 1
    await ingest_bytes(pipeline, room.collection, lines("one", "two", "three"), "f.jsonl")
    assert len(charged) == 1
