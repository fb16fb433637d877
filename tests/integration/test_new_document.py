"""Documents stored in one statement: the same result as step by step, and only for eligible documents."""

import asyncio
import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.support.postgres.pin_detector import PinDetector
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    InvalidInputError,
    NotFoundError,
)
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft
from vectorforge.vectorstore.pgvector import PgVectorStore
from vectorforge.vectorstore.writes.chunk_rows import VECTOR_BATCH, new_id, store_new
from vectorforge.vectorstore.writes.document import DocumentWriter
from vectorforge.vectorstore.writes.replacement import PreparedDocument, prepare

COSINE = DistanceMetric.COSINE
ROWS = {
    "documents": "id, collection_id, source_key, created_at, updated_at",
    "chunks": "id, collection_id, document_id",
    "embeddings": "collection_id, document_id, chunk_id",
    "chunk_terms": "chunk_id, collection_id, document_id, scope, number, batch",
}
"""Tables, and their columns that differ between writes."""


def drafts(count: int = 3, *, seed: int = 1, **options: Any) -> tuple[DocumentDraft, list[ChunkDraft]]:
    generator = random.Random(seed)
    texts = [f"passage {number} of edition {seed}" for number in range(count)]
    chunks = chunk_drafts(
        texts, [random_vector(generator, 4) for _ in texts], [{"page": n} for n in range(count)]
    )
    return document_draft(chunks, metadata={"kind": "guide"}, **options), chunks


async def stored_rows(db: TenantDatabase, collection_id: UUID) -> dict[str, list[str]]:
    found = {}
    for table, varying in ROWS.items():
        leaving_out = "".join(f" - '{column}'" for column in varying.split(", "))
        rows = await db.fetch_all(
            f"""SELECT (to_jsonb(t){leaving_out})::text AS row
            FROM vectorforge.{table} AS t WHERE collection_id = %s""",
            (collection_id,),
        )
        found[table] = sorted(row["row"] for row in rows)
    return found


async def store(
    db: TenantDatabase, collection_id: UUID, document: DocumentDraft, chunks: list[ChunkDraft]
) -> bool:
    prepared = PreparedDocument(document, *prepare(document, chunks))
    return await store_new(db, collection_id, [prepared]) != [None]


# The rows equal those of the step-by-step writer, in every column
async def test_single_statement_insert_matches_stepwise_insert(tenant_db: TenantDatabase) -> None:
    document, chunks = drafts()
    document = replace(document, parent_source="all.jsonl")
    at_once, by_steps = [await insert_collection(tenant_db, 4, COSINE) for _ in range(2)]
    assert await store(tenant_db, at_once, document, chunks)
    metadata, prepared = prepare(document, chunks)
    async with tenant_db.transaction() as connection:
        writer = DocumentWriter(connection, tenant_db.tenant_id, by_steps)
        await writer.replace(document, metadata, prepared)
    rows = await stored_rows(tenant_db, at_once)
    assert rows == await stored_rows(tenant_db, by_steps)
    assert [len(found) for found in rows.values()] == [1, 3, 3, 3]
    counts = """SELECT document_count, chunk_count, term_count, data_version
        FROM vectorforge.collections WHERE id = %s"""
    first, second = [await tenant_db.fetch_one(counts, (id_,)) for id_ in (at_once, by_steps)]
    assert first is not None
    assert first == second
    assert (first["document_count"], first["chunk_count"], first["data_version"]) == (1, 3, 1)


# A new document is one round trip
async def test_new_document_takes_one_round_trip(
    tenant_db: TenantDatabase, pin_detector: PinDetector
) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    pin_detector.take()
    before = pin_detector.messages["Sync"], pin_detector.messages["Query"]
    stored = await PgVectorStore(tenant_db).replace_document(collection_id, *drafts(40))
    assert (stored.version, stored.chunks_added) == (1, 40)
    assert (pin_detector.messages["Sync"], pin_detector.messages["Query"]) == (before[0] + 1, before[1])
    assert pin_detector.take() == []


# Special cases are left to the step-by-step writer, which reports them
class TestFallbackToWriter:
    async def test_existing_document_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        assert await store(tenant_db, collection_id, *drafts())
        before = await stored_rows(tenant_db, collection_id)
        assert not await store(tenant_db, collection_id, *drafts(seed=2))
        assert await stored_rows(tenant_db, collection_id) == before
        stored = await PgVectorStore(tenant_db).replace_document(collection_id, *drafts(2, seed=2))
        assert (stored.version, stored.chunks_added, stored.chunks_removed) == (2, 2, 3)

    async def test_other_dimension_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 5, COSINE)
        assert not await store(tenant_db, collection_id, *drafts())
        with pytest.raises(DimensionMismatchError):
            await PgVectorStore(tenant_db).replace_document(collection_id, *drafts())

    async def test_profile_collection_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE, by_profile=True)
        assert not await store(tenant_db, collection_id, *drafts())
        with pytest.raises(InvalidInputError):
            await PgVectorStore(tenant_db).replace_document(collection_id, *drafts())

    async def test_collection_of_other_tenant_is_left_to_the_writer(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        collection_id = await insert_collection(other_tenant_db, 4, COSINE)
        assert not await store(tenant_db, collection_id, *drafts())
        with pytest.raises(NotFoundError):
            await PgVectorStore(tenant_db).replace_document(collection_id, *drafts())
        assert (await stored_rows(other_tenant_db, collection_id))["documents"] == []

    async def test_vectors_of_other_space_are_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        document, chunks = drafts()
        for space, is_stored in (("cosine_4_alt", False), ("cosine_4", True)):
            of_space = [replace(chunk, vectors={space: chunk.vector or []}) for chunk in chunks]
            assert await store(tenant_db, collection_id, document, of_space) is is_stored, space
        wrong = [replace(chunk, vectors={"cosine_4_alt": chunk.vector or []}) for chunk in chunks]
        with pytest.raises(EmbeddingModelChangedError):
            await PgVectorStore(tenant_db).replace_document(
                collection_id, replace(document, source="other.md"), wrong
            )

    async def test_open_model_switch_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        await tenant_db.execute(
            "UPDATE vectorforge.collections SET other_space = 'cosine_4_alt' WHERE id = %s", (collection_id,)
        )
        assert not await store(tenant_db, collection_id, *drafts())

    async def test_half_precision_partition_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        await tenant_db.execute(
            """UPDATE vectorforge.collections
            SET space = vectorforge.ensure_embedding_space('cosine', 4, 'half') WHERE id = %s""",
            (collection_id,),
        )
        document, chunks = drafts()
        assert not await store(tenant_db, collection_id, document, chunks)
        large = [replace(chunk, vector=[1e6, 0, 0, 0]) for chunk in chunks]
        with pytest.raises(InvalidInputError):
            await PgVectorStore(tenant_db).replace_document(collection_id, document, large)

    @pytest.mark.parametrize("count", [0, VECTOR_BATCH + 1])
    async def test_zero_or_too_many_chunks_are_left_to_the_writer(
        self, tenant_db: TenantDatabase, count: int
    ) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        assert not await store(tenant_db, collection_id, *drafts(count))
        stored = await PgVectorStore(tenant_db).replace_document(collection_id, *drafts(count))
        assert (stored.version, stored.chunks_added) == (1, count)

    async def test_chunk_without_vector_is_left_to_the_writer(self, tenant_db: TenantDatabase) -> None:
        collection_id = await insert_collection(tenant_db, 4, COSINE)
        document, chunks = drafts()
        chunks[1] = replace(chunks[1], vector=None)
        assert not await store(tenant_db, collection_id, document, chunks)
        with pytest.raises(ConflictError):
            await PgVectorStore(tenant_db).replace_document(collection_id, document, chunks)


# Faults 36: writers of one new document, of whom one is first
async def test_first_of_concurrent_writers_stores_the_document(tenant_db: TenantDatabase) -> None:
    collection_id = await insert_collection(tenant_db, 4, COSINE)
    firsts = await asyncio.gather(
        *(store(tenant_db, collection_id, *drafts(seed=seed)) for seed in range(20))
    )
    assert firsts.count(True) == 1
    [count] = await tenant_db.fetch_all("SELECT count(*) AS chunks FROM vectorforge.chunks")
    assert count["chunks"] == 3


# RFC 9562: version 7, variant 10, ordered by creation across milliseconds
def test_new_ids_are_ordered_by_time() -> None:
    ids = [new_id() for _ in range(2000)]
    assert {(made.version, made.variant) for made in ids} == {(7, "specified in RFC 4122")}
    assert len(set(ids)) == len(ids)
    times = [made.int >> 80 for made in ids]
    assert times == sorted(times)
