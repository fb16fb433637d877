"""Collections in PostgreSQL, directly and through PgBouncer."""

import asyncio
import uuid
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.repository_rows import add_document, count, make_collection, make_items, make_log
from tests.support.postgres.vector_indexes import index_space
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import (
    JobRepository,
)
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, InvalidInputError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestCollections:
    async def test_created_collection_is_found(self, tenant_db: TenantDatabase) -> None:
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

    async def test_collection_with_taken_name_is_rejected(self, tenant_db: TenantDatabase) -> None:
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
    async def test_collection_beyond_limits_is_rejected(
        self, tenant_db: TenantDatabase, options: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make_collection(tenant_db, **options)
        assert caught.value.field == field

    async def test_collection_with_unstorable_name_is_rejected(self, tenant_db: TenantDatabase) -> None:
        for name in ("nul \0", "half \ud800"):
            with pytest.raises(InvalidInputError):
                await make_collection(tenant_db, name)

    @pytest.mark.parametrize("name", ["two\nlines", "bell\x07", "line\u2028end", "txt\u202eexe", "a\u2066b"])
    async def test_collection_with_control_character_in_name_is_rejected(
        self, tenant_db: TenantDatabase, name: str
    ) -> None:
        collection = await make_collection(tenant_db, "mi\u200cخواهم \u200fא\u200d")
        for change in (
            make_collection(tenant_db, name),
            CollectionRepository(tenant_db).update(collection.id, name=name),
        ):
            with pytest.raises(InvalidInputError, match="name must not contain line breaks") as caught:
                await change
            assert caught.value.field == "name"

    @pytest.mark.parametrize("metric", DistanceMetric)
    @pytest.mark.parametrize("dimension", [1, 768, 1900, 1901, 2000, 2001, 4000, 4001, 16_000])
    async def test_collection_of_each_dimension_gets_its_space(
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

    async def test_two_dimensions_use_two_partitions(self, tenant_db: TenantDatabase) -> None:
        for name, dimension in (("small", 768), ("large", 1536)):
            await add_document(tenant_db, await make_collection(tenant_db, name, dimension=dimension))
        rows = await tenant_db.fetch_all(
            "SELECT space, vector_dims(embedding) AS n FROM vectorforge.embeddings ORDER BY n"
        )
        assert [(row["space"], row["n"]) for row in rows] == [("cosine_768", 768), ("cosine_1536", 1536)]

    async def test_concurrent_collections_of_new_space_all_succeed(
        self, database: Database, make_tenant: Any
    ) -> None:
        dimension = 100 + uuid.uuid4().int % 1800
        made = await asyncio.gather(
            *(make_collection(database.for_tenant(make_tenant()), dimension=dimension) for _ in range(10))
        )
        assert len({collection.id for collection in made}) == 10

    async def test_counts_follow_document_changes(self, tenant_db: TenantDatabase) -> None:
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

    async def test_deleted_collection_leaves_only_query_logs(self, tenant_db: TenantDatabase) -> None:
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

    async def test_large_collection_is_deleted_in_batches(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        await tenant_db.execute(
            "INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, media_type, text,"
            " size_chars, content_hash) SELECT %s, gen_random_uuid(), %s, n::text, 't', '', 0, sha256('')"
            " FROM generate_series(1, 450) n",
            (tenant_db.tenant_id, collection.id),
        )
        assert await CollectionRepository(tenant_db).delete(collection.id)
        assert await count(tenant_db, "documents") == 0
