"""Replacing documents in PostgreSQL: writers and readers at the same time."""

import asyncio
import random
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.types import ChunkDraft, DistanceMetric, RetrievedChunk
from vectorforge.vectorstore.pgvector import PgVectorStore
from vectorforge.vectorstore.writes.document import delete_document

COSINE = DistanceMetric.COSINE
SIZE = 8
WAITS = "wait_event_type = 'Lock'"


def edition(number: int) -> list[ChunkDraft]:
    """Return an edition: half of its chunks are new, half unchanged; all have its number."""
    generator = random.Random(number)
    texts = [f"kept {position}" for position in range(SIZE // 2)]
    texts += [f"edition {number} {position}" for position in range(SIZE // 2)]
    generator.shuffle(texts)
    vectors = [random_vector(generator, 4) for _ in texts]
    return chunk_drafts(texts, vectors, [{"edition": number}] * SIZE)


async def everything(
    store: PgVectorStore, collection_id: UUID, filters: dict[str, Any] | None = None
) -> list[RetrievedChunk]:
    return await store.search(
        query_vector=[1, 0, 0, 0], top_k=1000, collection_id=collection_id, metric=COSINE, filters=filters
    )


async def count(db: TenantDatabase, condition: str) -> int:
    row = await db.fetch_one(f"SELECT count(*) AS n FROM {condition}")
    assert row is not None
    return int(row["n"])


async def data_version(db: TenantDatabase, collection_id: UUID) -> int:
    row = await db.fetch_one(
        "SELECT data_version FROM vectorforge.collections WHERE id = %s", (collection_id,)
    )
    assert row is not None
    return int(row["data_version"])


# C19: exactly one edition, with every search plan
@pytest.mark.slow
async def test_reader_during_replacements_sees_whole_versions(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    stores = [PgVectorStore(tenant_db), PgVectorStore(tenant_db, exact_scan_limit=0)]
    first = edition(0)
    await stores[0].replace_document(collection_id, document_draft(first), first)
    done = asyncio.Event()

    async def read(store: PgVectorStore, filters: dict[str, Any] | None) -> set[int]:
        seen: set[int] = set()
        while not done.is_set():
            found = await everything(store, collection_id, filters)
            editions = {result.chunk.metadata["edition"] for result in found}
            assert len(editions) == 1, editions
            assert {result.chunk.text for result in found} == {draft.text for draft in edition(*editions)}
            assert len(found) == SIZE
            seen |= editions
        return seen

    readers = [
        asyncio.create_task(read(store, filters))
        for store in stores
        for filters in (None, {"edition": {"$gte": 0}})
    ]
    for number in range(1, 51):
        chunks = edition(number)
        stored = await stores[0].replace_document(collection_id, document_draft(chunks), chunks)
        assert (stored.version, stored.chunks_kept, stored.chunks_removed) == (
            number + 1,
            SIZE // 2,
            SIZE // 2,
        )
    done.set()
    for seen in await asyncio.gather(*readers):
        assert len(seen) > 5
    assert await count(tenant_db, "vectorforge.embeddings") == SIZE
    assert await count(tenant_db, "vectorforge.chunks WHERE to_version IS NULL") == SIZE
    assert (
        await count(tenant_db, "vectorforge.chunks WHERE to_version IS NOT NULL") == SIZE // 2
    )  # the last ones
    assert await data_version(tenant_db, collection_id) == 51


# faults.md 36
async def test_50_writers_of_one_document_leave_one_edition(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    store = PgVectorStore(tenant_db)

    async def write(number: int) -> int:
        chunks = edition(number)
        return (await store.replace_document(collection_id, document_draft(chunks), chunks)).version

    versions = await asyncio.gather(*(write(number) for number in range(50)))
    assert sorted(versions) == list(range(1, 51))
    found = await everything(store, collection_id)
    assert len(found) == SIZE
    assert len({result.chunk.metadata["edition"] for result in found}) == 1
    assert await count(tenant_db, "vectorforge.documents") == 1
    assert await count(tenant_db, "vectorforge.embeddings") == SIZE


async def test_50_writers_of_same_content_store_one_version(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    store, chunks = PgVectorStore(tenant_db), edition(1)
    draft = document_draft(chunks)
    stored = await asyncio.gather(*(store.replace_document(collection_id, draft, chunks) for _ in range(50)))
    assert sorted(result.unchanged for result in stored) == [False] + [True] * 49
    assert {(result.document_id, result.version) for result in stored} == {(stored[0].document_id, 1)}
    assert await data_version(tenant_db, collection_id) == 1


# No deadlock: writers of several documents, deletions of documents and of the collection itself
async def test_concurrent_writes_and_deletions_do_not_deadlock(tenant_db: TenantDatabase) -> None:
    store = PgVectorStore(tenant_db)
    for attempt in range(4):
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        ids = []
        for number in range(4):
            chunks = edition(number)
            draft = document_draft(chunks, source=f"{number % 4}")
            ids.append((await store.replace_document(collection_id, draft, chunks)).document_id)

        async def write(number: int, collection_id: UUID = collection_id) -> None:
            chunks = edition(10 + number)
            draft = document_draft(chunks, source=f"{number % 4}")
            await store.replace_document(collection_id, draft, chunks)

        async def drop(collection_id: UUID = collection_id, delay_s: float = attempt / 200) -> None:
            await asyncio.sleep(delay_s)
            await CollectionRepository(tenant_db).delete(collection_id)

        results = await asyncio.gather(
            *(write(number) for number in range(12)),
            *(store.delete_document(document_id) for document_id in ids),
            drop(),
            return_exceptions=True,
        )
        assert [
            error
            for error in results
            if isinstance(error, BaseException) and not isinstance(error, NotFoundError)
        ] == []
        assert await count(tenant_db, "vectorforge.embeddings") == 0


# The lock order: a document's deletion is uncommitted when its collection is deleted
async def test_concurrent_document_and_collection_deletion_succeeds(tenant_db: TenantDatabase) -> None:
    collection_id, chunks = await insert_collection(tenant_db, 4, COSINE), edition(1)
    stored = await PgVectorStore(tenant_db).replace_document(collection_id, document_draft(chunks), chunks)
    async with tenant_db.transaction() as connection:
        assert await delete_document(connection, tenant_db.tenant_id, stored.document_id)
        statement = "DELETE FROM vectorforge.collections WHERE id = %s"
        dropping = asyncio.create_task(tenant_db.execute(statement, (collection_id,)))
        async with asyncio.timeout(20):
            waiting = f"pg_stat_activity WHERE starts_with(query, '{statement[:30]}') AND {WAITS}"
            while await count(tenant_db, waiting) == 0:  # noqa: ASYNC110 - a lock announces nothing
                await asyncio.sleep(0.02)
    assert await dropping == 1
    assert await count(tenant_db, "vectorforge.documents") == 0


async def test_unchanged_document_writes_no_rows(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    store, chunks = PgVectorStore(tenant_db), edition(1)
    rows_written = " UNION ALL ".join(
        f"SELECT id, xmin::text, ctid::text FROM vectorforge.{table}"
        for table in ("chunks", "documents", "collections")
    )
    await store.replace_document(collection_id, document_draft(chunks), chunks)
    before = await tenant_db.fetch_all(f"{rows_written} ORDER BY 1")
    assert (await store.replace_document(collection_id, document_draft(chunks), chunks)).unchanged
    assert await tenant_db.fetch_all(f"{rows_written} ORDER BY 1") == before


async def test_rejected_replacement_changes_nothing(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    store = PgVectorStore(tenant_db)
    unknown = chunk_drafts(["a"], [None])
    with pytest.raises(ConflictError):
        await store.replace_document(collection_id, document_draft(unknown), unknown)
    assert await count(tenant_db, "vectorforge.documents") == 0
    assert await data_version(tenant_db, collection_id) == 0
    chunks = edition(1)
    with pytest.raises(NotFoundError):
        await store.replace_document(uuid4(), document_draft(chunks), chunks)


async def test_document_with_1201_chunks_is_stored_in_batches(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    store, generator = PgVectorStore(tenant_db), random.Random(1)
    chunks = chunk_drafts([f"t{n}" for n in range(1201)], [random_vector(generator, 4) for _ in range(1201)])
    stored = await store.replace_document(collection_id, document_draft(chunks), chunks)
    assert stored.chunks_added == 1201
    moved = chunk_drafts(["new", *(f"t{n}" for n in range(1201))], [[1, 1, 1, 1], *[None] * 1201])
    stored = await store.replace_document(collection_id, document_draft(moved), moved)
    assert (stored.chunks_added, stored.chunks_kept, stored.chunks_removed) == (1, 1201, 0)
    found = await everything(store, collection_id)
    assert len(found) == 1000
    draft = document_draft(moved)
    for result in found:
        assert draft.text[result.chunk.start_offset : result.chunk.end_offset] == result.chunk.text
