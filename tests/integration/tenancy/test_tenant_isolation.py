"""No tenant reads or writes another tenant's rows."""

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.integration.tenancy.conftest import TABLES, fill
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import JobError, NewJobItem, StoredItem
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, NotFoundError
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestOtherTenant:
    async def test_repositories_of_other_tenant_return_nothing(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        collection, document_id, chunk_id, job, log = await fill(tenant_db)
        await fill(other_tenant_db)
        stranger = other_tenant_db
        collections, documents = CollectionRepository(stranger), DocumentRepository(stranger)
        jobs, logs = JobRepository(stranger), QueryLogRepository(stranger)
        assert await collections.find_by_id(collection.id) is None
        assert collection.id not in [c.id for c in await collections.list()]
        own = await collections.find_by_name("same name")
        assert own is not None
        assert own.id != collection.id
        assert not await collections.delete(collection.id)
        assert await documents.find_by_id(document_id) is None
        assert await documents.find_by_source(collection.id, "s") is None
        assert await documents.list(collection.id) == ([], 0)
        assert await documents.text(document_id) is None
        assert await documents.chunks(document_id) == []
        assert await documents.chunk(chunk_id) is None
        assert await documents.current_hashes(collection.id, "s") is None
        assert not await PgVectorStore(stranger).delete_document(document_id)
        assert await jobs.find_by_id(job.id) is None
        assert await jobs.items(job.id) == []
        assert await jobs.list(collection.id) == []
        assert await jobs.next_items(job.id) == []
        assert await jobs.items_succeeded([StoredItem(job.id, 0)]) == 0
        assert not await jobs.item_failed(job.id, 0, JobError("x", "y"))
        assert not await jobs.heartbeat(job.id)
        assert await jobs.finish(job.id) == []
        with pytest.raises(NotFoundError):
            await jobs.create(collection.id, [NewJobItem("s", None, b"")])
        assert await logs.find_by_id(log.id) is None
        assert await logs.list(collection.id) == []
        assert (await JobRepository(tenant_db).items(job.id))[0].status == "queued"
        assert await DocumentRepository(tenant_db).text(document_id) == "secret"

    @pytest.mark.parametrize("table", TABLES)
    async def test_query_without_predicate_returns_own_rows_only(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase, table: str
    ) -> None:
        for db in (tenant_db, other_tenant_db):
            await fill(db)
            rows = await db.fetch_all(f"SELECT DISTINCT tenant_id FROM vectorforge.{table}")
            assert [row["tenant_id"] for row in rows] == [db.tenant_id]

    @pytest.mark.parametrize("table", TABLES)
    async def test_update_of_tenant_id_is_denied(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase, table: str
    ) -> None:
        await fill(tenant_db)
        with pytest.raises(DatabaseError):
            await tenant_db.execute(
                f"UPDATE vectorforge.{table} SET tenant_id = %s", (other_tenant_db.tenant_id,)
            )

    async def test_document_in_collection_of_other_tenant_is_denied(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        collection, *_ = await fill(tenant_db)
        with pytest.raises(DatabaseError):
            await other_tenant_db.execute(
                "INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, media_type, text,"
                " size_chars, content_hash) VALUES (%s, %s, %s, 'x', 't', '', 0, sha256(''))",
                (other_tenant_db.tenant_id, uuid4(), collection.id),
            )


async def test_search_settings_on_fresh_connection_end_with_transaction(each_app_url: str) -> None:
    settings = (
        "SELECT current_setting('hnsw.ef_search', true) AS e,"
        " current_setting('hnsw.iterative_scan', true) AS i"
    )
    async with Database(each_app_url, pool_size=1) as database:
        tenant = database.for_tenant("a")
        async with tenant.transaction() as connection:
            await connection.execute("SELECT vectorforge.enter_search(%s, %s)", ("a", 123))
            assert await (await connection.execute(settings)).fetchone() == {"e": "123", "i": "strict_order"}
        assert await database.fetch_untenanted(settings) == {"e": "40", "i": "off"}


async def test_concurrent_clients_of_two_tenants_read_own_rows_only(
    database: Database, make_tenant: Callable[[], str]
) -> None:
    tenants = [database.for_tenant(make_tenant()) for _ in range(2)]
    for tenant in tenants:
        await fill(tenant)

    async def ask(number: int) -> None:
        tenant = tenants[number % 2]
        rows = await tenant.fetch_all("SELECT tenant_id FROM vectorforge.documents")
        assert rows == [{"tenant_id": tenant.tenant_id}]

    for start in range(0, 400, 40):
        await asyncio.gather(*(ask(number) for number in range(start, start + 40)))
