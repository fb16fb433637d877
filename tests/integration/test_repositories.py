"""The repositories, directly and through PgBouncer."""

import asyncio
import uuid
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from vectorforge.db.connection import Database, TenantDatabase
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import CitedChunk, DocumentRepository
from vectorforge.db.repositories.job_progress import MAX_ATTEMPTS
from vectorforge.db.repositories.job_repo import (
    IngestionJob,
    JobDispatcher,
    JobError,
    JobRepository,
    NewJobItem,
)
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.errors import ConflictError, InvalidInputError, NotFoundError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.vector_indexes import index_space
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


async def make_collection(db: TenantDatabase, name: str = "notes", **options: Any) -> Collection:
    options = {
        "embedding_provider": "local",
        "embedding_model": "m",
        "dimension": 3,
        "distance_metric": DistanceMetric.COSINE,
        **options,
    }
    return await CollectionRepository(db).create(name, **options)


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


def make_items(count: int = 2) -> list[NewJobItem]:
    return [NewJobItem(f"{n}.txt", "text/plain", b"\x00\xff%d" % n, None, {"n": n}) for n in range(count)]


async def count(db: TenantDatabase, table: str) -> int:
    row = await db.fetch_one(f"SELECT count(*) AS n FROM vectorforge.{table}")
    assert row is not None
    return int(row["n"])


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
        assert "The answer was not kept" in caplog.text

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


class TestJobs:
    async def start(self, database: Database, db: TenantDatabase, items: int = 2) -> IngestionJob:
        """A job claimed by a worker. Other tests' jobs may be claimed first; they are finished."""
        collection = await make_collection(db, f"c-{uuid4().hex}")
        job = await JobRepository(db).create(collection.id, make_items(items))
        while (claimed := await JobDispatcher(database).claim()) is None or claimed[:2] != (
            db.tenant_id,
            job.id,
        ):
            assert claimed is not None
            await JobRepository(database.for_tenant(claimed[0])).finish(claimed[1])
        return job

    async def test_from_queue_to_end(self, database: Database, tenant_db: TenantDatabase) -> None:
        repo = JobRepository(tenant_db)
        job = await self.start(database, tenant_db)
        assert (job.status, job.documents_total, job.started_at) == ("queued", 2, None)
        first = await repo.next_item(job.id)
        assert first is not None
        assert (first.ordinal, first.content, first.metadata) == (0, b"\x00\xff0", {"n": 0})
        await repo.set_stage(job.id, "embed")
        await repo.set_stage(job.id, "store", ordinal=0)
        assert [item.stage for item in await repo.items(job.id)] == ["store", None]
        assert await repo.item_succeeded(job.id, 0, document_id=uuid4(), chunks_added=3, chunks_kept=1)
        assert not await repo.item_succeeded(job.id, 0, chunks_added=3)  # reported twice, counted once
        second = await repo.next_item(job.id)
        assert second is not None
        warnings = ["w" * 1000] * 100
        assert await repo.item_failed(
            job.id, 1, code="extraction_failed", message="Encrypted.", warnings=warnings
        )
        assert (await repo.items(job.id))[1].warnings == ["w" * 300] * 10
        assert await repo.next_item(job.id) is None
        finished = await repo.finish(job.id)
        assert finished is not None
        assert (finished.status, finished.documents_done, finished.documents_failed) == ("partial", 1, 1)
        assert (finished.chunks_added, finished.chunks_kept, finished.stage) == (3, 1, None)
        assert finished.finished_at is not None
        assert await repo.find_by_id(job.id) == finished
        assert await repo.list() == [finished]
        assert await repo.list(uuid4()) == []
        assert [item.status for item in await repo.items(job.id)] == ["succeeded", "failed"]
        assert (await repo.items(job.id))[1].error == JobError("extraction_failed", "Encrypted.")
        assert await repo.finish(job.id) is None
        contents = await tenant_db.fetch_all(
            "SELECT FROM vectorforge.ingestion_job_items WHERE content IS NOT NULL"
        )
        assert contents == []

    async def test_a_killed_worker_is_replaced(self, database: Database, tenant_db: TenantDatabase) -> None:
        repo, dispatcher = JobRepository(tenant_db), JobDispatcher(database)
        job = await self.start(database, tenant_db)
        assert await repo.next_item(job.id)
        assert await dispatcher.claim() is None  # somebody works on it
        assert await repo.heartbeat(job.id, 0.05)
        await asyncio.sleep(0.1)
        assert await dispatcher.claim() == (tenant_db.tenant_id, job.id, 2)
        again = await repo.next_item(job.id)
        assert again is not None
        assert (again.ordinal, again.attempts, again.content) == (0, 2, b"\x00\xff0")
        await repo.finish(job.id)

    async def test_an_item_that_kills_its_worker_is_given_up(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo, dispatcher = JobRepository(tenant_db), JobDispatcher(database)
        job = await self.start(database, tenant_db, items=1)
        begun = 0
        while await repo.next_item(job.id):
            begun += 1
            await repo.heartbeat(job.id, 0.001)
            await asyncio.sleep(0.01)
            assert await dispatcher.claim() == (tenant_db.tenant_id, job.id, begun + 1)
        assert begun == MAX_ATTEMPTS == 3
        (item,) = await repo.items(job.id)
        assert item.error is not None
        assert (item.status, item.error.code) == ("failed", "document_crashes")
        finished = await repo.finish(job.id)
        assert finished is not None
        assert (finished.status, finished.documents_failed) == ("failed", 1)

    async def test_retrying_releasing_and_failing_early(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo = JobRepository(tenant_db)
        job = await self.start(database, tenant_db, items=3)
        assert await repo.next_item(job.id)
        assert await repo.item_failed(job.id, 0, code="embedding_timeout", message="Late.", retry=True)
        again = await repo.next_item(job.id)
        assert again is not None
        assert (again.ordinal, again.attempts) == (0, 2)
        assert again.content is not None
        await repo.release(job.id)
        assert not await repo.heartbeat(job.id)
        released = await repo.find_by_id(job.id)
        assert released is not None
        assert released.status == "queued"
        assert [item.attempts for item in await repo.items(job.id)] == [1, 0, 0]
        finished = await repo.finish(job.id, error=JobError("configuration_error", "No provider."))
        assert finished is not None
        assert finished.error == JobError("configuration_error", "No provider.")
        assert (finished.status, finished.documents_failed) == ("failed", 3)

    async def test_every_worker_gets_another_job(self, database: Database, tenant_db: TenantDatabase) -> None:
        repo = JobRepository(tenant_db)
        collections = [await make_collection(tenant_db, f"c{number}") for number in range(8)]
        made = {(await repo.create(collection.id, make_items(1))).id for collection in collections}
        claims = await asyncio.gather(*(JobDispatcher(database).claim() for _ in range(12)))
        claimed = [claim[1] for claim in claims if claim and claim[0] == tenant_db.tenant_id]
        assert len(claimed) == len(set(claimed))
        assert set(claimed) <= made
        for job_id in made:
            await repo.finish(job_id)

    async def test_one_tenants_queue_does_not_starve_another(
        self, database: Database, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        busy = await make_collection(tenant_db)
        for _ in range(4):
            await JobRepository(tenant_db).create(busy.id, make_items(1))
        late = await JobRepository(other_tenant_db).create(
            (await make_collection(other_tenant_db)).id, make_items(1)
        )
        first, second = [await JobDispatcher(database).claim() for _ in range(2)]
        assert first is not None
        assert first[0] == tenant_db.tenant_id
        assert second == (other_tenant_db.tenant_id, late.id, 1)
        for db in (tenant_db, other_tenant_db):
            for job in await JobRepository(db).list():
                await JobRepository(db).finish(job.id)

    # C19: of two versions of a document, the one sent later stays
    async def test_jobs_of_one_collection_take_turns(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo, dispatcher = JobRepository(tenant_db), JobDispatcher(database)
        collection = await make_collection(tenant_db)
        first = await repo.create(collection.id, make_items(1))
        second = await repo.create(collection.id, make_items(1))
        assert await dispatcher.claim() == (tenant_db.tenant_id, first.id, 1)
        assert await dispatcher.claim() is None
        await repo.release(first.id)
        assert await dispatcher.claim() == (tenant_db.tenant_id, first.id, 1)
        await repo.finish(first.id)
        assert await dispatcher.claim() == (tenant_db.tenant_id, second.id, 1)
        await repo.finish(second.id)

    async def test_whoever_had_no_turn_comes_first(
        self, database: Database, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        dispatcher, repo = JobDispatcher(database), JobRepository(tenant_db)
        first = await repo.create((await make_collection(tenant_db)).id, make_items(2))
        assert await dispatcher.claim() == (tenant_db.tenant_id, first.id, 1)
        assert not await dispatcher.others_wait(tenant_db.tenant_id)
        other_repo = JobRepository(other_tenant_db)
        other = await other_repo.create((await make_collection(other_tenant_db)).id, make_items(1))
        assert await dispatcher.others_wait(tenant_db.tenant_id)
        assert not await dispatcher.others_wait(other_tenant_db.tenant_id)
        await repo.release(first.id)
        assert await dispatcher.claim() == (other_tenant_db.tenant_id, other.id, 1)
        await other_repo.release(other.id)
        assert await dispatcher.claim() == (tenant_db.tenant_id, first.id, 1)
        await repo.finish(first.id)
        await other_repo.finish(other.id)

    async def test_limits(self, tenant_db: TenantDatabase) -> None:
        repo = JobRepository(tenant_db)
        with pytest.raises(NotFoundError):
            await repo.create(uuid4(), make_items())
        with pytest.raises(InvalidInputError):
            await repo.create(uuid4(), [])
        assert await repo.find_by_id(uuid4()) is None
