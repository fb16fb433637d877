"""The repositories, directly and through PgBouncer."""

import asyncio
import uuid
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from tests.integration.repository_rows import count, make_collection, make_items
from tests.support.postgres.vector_indexes import index_space
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import CitedChunk, DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, InvalidInputError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

_DOCUMENT = """
INSERT INTO vectorforge.documents
    (tenant_id, id, collection_id, source, title, media_type, text, size_chars, content_hash, metadata,
     chunk_count)
VALUES (%s, %s, %s, %s, 'A title', 'text/plain', %s, %s, sha256('x'), %s, 1)
"""


_CHUNK = """
INSERT INTO vectorforge.chunks
    (tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count,
     content_hash, from_version, to_version)
VALUES (%s, %s, %s, %s, %s, 'text', 0, 4, 1, sha256(%s), 1, %s)
"""


_EMBEDDING = """
INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
VALUES (%s, %s, %s, %s, %s, %s::vector)
"""


async def add_document(
    db: TenantDatabase, collection: Collection, source: str = "a.txt"
) -> tuple[UUID, UUID]:
    """A document with one current chunk with a vector, and one retired chunk."""
    document_id, chunk_id = uuid4(), uuid4()
    scope = (collection.id, document_id)
    async with db.transaction() as connection:
        await connection.execute(
            _DOCUMENT,
            (db.tenant_id, document_id, collection.id, source, "text", 4, Jsonb({"lang": "de"})),
        )
        await connection.execute(_CHUNK, (db.tenant_id, chunk_id, *scope, 0, b"1", None))
        await connection.execute(_CHUNK, (db.tenant_id, uuid4(), *scope, 0, b"2", 2))
        space = f"{collection.distance_metric}_{collection.dimension}"
        vector = str([1.0] * collection.dimension)
        await connection.execute(_EMBEDDING, (db.tenant_id, space, *scope, chunk_id, vector))
    return document_id, chunk_id


def make_log(collection_id: UUID, **options: Any) -> QueryLog:
    values = {
        "id": uuid4(),
        "collection_id": collection_id,
        "query_text": "why?",
        "retrieved_chunk_ids": [uuid4(), uuid4()],
        "generated_response": "because",
        "latency_ms": 12.5,
        **options,
    }
    return QueryLog(**values)


class TestCollections:
    async def test_what_was_created_is_found(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        created = await make_collection(
            tenant_db, query_prefix="q: ", document_prefix="d: ", description="All notes"
        )
        assert created.created_at is not None
        assert created.data_version == 0
        assert await repo.find_by_id(created.id) == created
        assert await repo.find_by_name("notes") == created
        assert await repo.list() == [created]
        assert await repo.find_by_id(uuid4()) is None
        assert await repo.find_by_name("other") is None

    async def test_a_second_one_of_the_same_name_is_refused(self, tenant_db: TenantDatabase) -> None:
        await make_collection(tenant_db)
        with pytest.raises(ConflictError, match="notes"):
            await make_collection(tenant_db)

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"name": ""}, "name"),
            ({"name": " \n"}, "name"),
            ({"name": "x" * 201}, "name"),
            ({"dimension": 0}, "dimension"),
            ({"dimension": 16_001}, "dimension"),
        ],
    )
    async def test_limits(self, tenant_db: TenantDatabase, options: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make_collection(tenant_db, **options)
        assert caught.value.field == field

    async def test_a_name_postgresql_cannot_hold(self, tenant_db: TenantDatabase) -> None:
        for name in ("nul \0", "half \ud800"):
            with pytest.raises(InvalidInputError):
                await make_collection(tenant_db, name)

    # C14
    @pytest.mark.parametrize("metric", DistanceMetric)
    @pytest.mark.parametrize("dimension", [1, 768, 1900, 1901, 2000, 2001, 4000, 4001, 16_000])
    async def test_every_dimension_has_its_space(
        self,
        direct_database: Database,
        postgres_server: EmbeddedPostgres,
        make_tenant: Any,
        metric: DistanceMetric,
        dimension: int,
    ) -> None:
        db = direct_database.for_tenant(make_tenant())
        collection = await make_collection(db, dimension=dimension, distance_metric=metric)
        await add_document(db, collection)
        index_space(postgres_server.migrator_url, collection.space)
        indexes = await db.fetch_all(
            "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef LIKE '%%hnsw%%'",
            (f"embeddings_{metric}_{dimension}",),
        )
        expected = "vector" if dimension <= 2000 else "halfvec" if dimension <= 4000 else None
        assert len(indexes) == (expected is not None)
        if expected:
            assert f"::{expected}({dimension})" in indexes[0]["indexdef"].replace("public.", "")

    # C14
    async def test_two_dimensions_in_one_database(self, tenant_db: TenantDatabase) -> None:
        for name, dimension in (("small", 768), ("large", 1536)):
            await add_document(tenant_db, await make_collection(tenant_db, name, dimension=dimension))
        rows = await tenant_db.fetch_all(
            "SELECT space, vector_dims(embedding) AS n FROM vectorforge.embeddings ORDER BY n"
        )
        assert [(row["space"], row["n"]) for row in rows] == [("cosine_768", 768), ("cosine_1536", 1536)]

    async def test_many_make_the_same_new_space_at_once(self, database: Database, make_tenant: Any) -> None:
        dimension = 100 + uuid.uuid4().int % 1800
        made = await asyncio.gather(
            *(make_collection(database.for_tenant(make_tenant()), dimension=dimension) for _ in range(10))
        )
        assert len({collection.id for collection in made}) == 10

    async def test_counts_follow_the_documents(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        collection = await make_collection(tenant_db)
        first, _ = await add_document(tenant_db, collection, "a")
        await add_document(tenant_db, collection, "b")
        found = await repo.find_by_id(collection.id)
        assert found is not None
        assert (found.document_count, found.chunk_count, found.data_version) == (2, 2, 2)
        await tenant_db.execute("UPDATE vectorforge.documents SET chunk_count = 5 WHERE id = %s", (first,))
        await PgVectorStore(tenant_db).delete_document(first)
        (found,) = await repo.list()
        assert (found.document_count, found.chunk_count, found.data_version) == (1, 1, 4)

    async def test_deleting_removes_everything_but_the_logs(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        collection = await make_collection(tenant_db)
        for number in range(3):
            await add_document(tenant_db, collection, str(number))
        await JobRepository(tenant_db).create(collection.id, make_items())
        await QueryLogRepository(tenant_db).create(make_log(collection.id))
        assert await repo.delete(collection.id)
        assert not await repo.delete(collection.id)
        tables = ("collections", "documents", "chunks", "embeddings", "ingestion_jobs", "ingestion_job_items")
        assert [await count(tenant_db, table) for table in tables] == [0] * 6
        assert await count(tenant_db, "query_logs") == 1

    async def test_a_large_collection_is_deleted_in_batches(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        await tenant_db.execute(
            "INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, media_type, text,"
            " size_chars, content_hash) SELECT %s, gen_random_uuid(), %s, n::text, 't', '', 0, sha256('')"
            " FROM generate_series(1, 450) n",
            (tenant_db.tenant_id, collection.id),
        )
        assert await CollectionRepository(tenant_db).delete(collection.id)
        assert await count(tenant_db, "documents") == 0


class TestDocuments:
    async def test_reading(self, tenant_db: TenantDatabase) -> None:
        repo = DocumentRepository(tenant_db)
        collection = await make_collection(tenant_db)
        document_id, chunk_id = await add_document(tenant_db, collection)
        document = await repo.find_by_id(document_id)
        assert document is not None
        assert (document.source, document.title, document.metadata) == ("a.txt", "A title", {"lang": "de"})
        assert await repo.find_by_source(collection.id, "a.txt") == document
        assert await repo.find_by_source(collection.id, "b.txt") is None
        assert await repo.text(document_id) == "text"
        assert await repo.list(collection.id) == ([document], 1)
        (chunk,) = await repo.chunks(document_id)
        assert (chunk.id, chunk.index, chunk.document_id) == (chunk_id, 0, document_id)
        assert await repo.chunk(chunk_id) == CitedChunk(chunk, retired=False, document_version=1)
        current = await repo.current_hashes(collection.id, "a.txt")
        assert current is not None
        assert (current.document_id, current.version, len(current.chunk_hashes)) == (document_id, 1, 1)
        assert await repo.current_hashes(collection.id, "b.txt") is None

    async def test_a_retired_chunk_can_still_be_read(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        await add_document(tenant_db, collection)
        retired = await tenant_db.fetch_one("SELECT id FROM vectorforge.chunks WHERE to_version IS NOT NULL")
        assert retired is not None
        assert await DocumentRepository(tenant_db).chunk(retired["id"]) is not None

    async def test_pages(self, tenant_db: TenantDatabase) -> None:
        repo = DocumentRepository(tenant_db)
        collection = await make_collection(tenant_db)
        for number in range(5):
            await add_document(tenant_db, collection, str(number))
        first, total = await repo.list(collection.id, limit=3)
        second, _ = await repo.list(collection.id, limit=3, offset=3)
        assert [document.source for document in first + second] == ["4", "3", "2", "1", "0"]
        assert total == 5
        for limit, offset in ((0, 0), (1001, 0), (1, -1)):
            with pytest.raises(InvalidInputError):
                await repo.list(collection.id, limit=limit, offset=offset)

    async def test_a_source_of_2000_wide_characters(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        source = "".join(chr(0x10000 + n % 1000) for n in range(2000))
        await add_document(tenant_db, collection, source)
        assert await DocumentRepository(tenant_db).find_by_source(collection.id, source) is not None

    async def test_deleting(self, tenant_db: TenantDatabase) -> None:
        store = PgVectorStore(tenant_db)
        document_id, _ = await add_document(tenant_db, await make_collection(tenant_db))
        assert await store.delete_document(document_id)
        assert not await store.delete_document(document_id)
        assert [await count(tenant_db, t) for t in ("documents", "chunks", "embeddings")] == [0, 0, 0]

    async def test_two_current_chunks_at_one_place_are_refused(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        document_id, _ = await add_document(tenant_db, collection)
        values = (tenant_db.tenant_id, uuid4(), collection.id, document_id, 0, b"3", None)
        with pytest.raises(Exception, match="a constraint forbids it"):
            await tenant_db.execute(_CHUNK, values)


class TestQueryLogs:
    # A-114 A-115 A-116
    async def test_what_was_logged_is_found(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        log = make_log(
            uuid4(), outcome="error", error_code="llm_error", error_stage="generate", prompt_tokens=7
        )
        await repo.create(log)
        found = await repo.find_by_id(log.id)
        assert found is not None
        assert found.created_at is not None
        assert found.retrieved_chunk_ids == log.retrieved_chunk_ids
        assert (found.outcome, found.error_stage, found.prompt_tokens) == ("error", "generate", 7)
        assert await repo.find_by_id(uuid4()) is None

    async def test_a_log_delivered_twice_is_stored_once(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        log = make_log(uuid4())
        for _ in range(2):
            await repo.create(log)
        assert len(await repo.list()) == 1

    @pytest.mark.parametrize("beside", ["SELECT 1 / 0", "SELECT pg_sleep(30)"])
    async def test_a_log_is_stored_alone_when_what_goes_with_it_cannot_be(
        self, tenant_db: TenantDatabase, beside: str, caplog: pytest.LogCaptureFixture
    ) -> None:  # C01
        repo = QueryLogRepository(tenant_db)
        log = make_log(uuid4())
        await repo.create_with(log, [(beside, ())], timeout_s=0.3)
        assert [row.id for row in await repo.list()] == [log.id]
        assert "The answer was not cached" in caplog.text

    async def test_no_text_is_too_strange_to_be_logged(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        await repo.create(make_log(uuid4(), query_text="a\0b", generated_response="half \ud800 pair 🙂"))
        (found,) = await repo.list()
        assert found.query_text == "a\ufffdb"
        assert found.generated_response.endswith("pair 🙂")

    async def test_listing(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        first, second = uuid4(), uuid4()
        for collection_id, outcome in ((first, "answered"), (first, "error"), (second, "answered")):
            await repo.create(make_log(collection_id, outcome=outcome))
        assert [log.outcome for log in await repo.list(first)] == ["error", "answered"]
        assert len(await repo.list(outcome="answered")) == 2
        assert len(await repo.list(first, outcome="error")) == 1
        assert len(await repo.list(limit=1, offset=1)) == 1
