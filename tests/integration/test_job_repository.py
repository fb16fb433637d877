"""Ingestion jobs on a real PostgreSQL: their items, leases and ends."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.integration.repository_rows import make_collection, make_items
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import MAX_ATTEMPTS, IngestionJob, JobError, StoredItem
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError, NotFoundError

_WAITS = "SELECT FROM pg_locks WHERE NOT granted"


@pytest.fixture
def database_url(fresh_database_url: str) -> str:
    """Create a separate database: a claim takes jobs of every tenant."""
    return fresh_database_url


class TestJobs:
    async def start(self, database: Database, db: TenantDatabase, items: int = 2) -> IngestionJob:
        """Create a job and claim it."""
        collection = await make_collection(db, f"c-{uuid4().hex}")
        job = await JobRepository(db).create(collection.id, make_items(items))
        assert await JobDispatcher(database).claim() == (db.tenant_id, job.id, 1)
        return job

    async def test_job_runs_from_queue_to_partial_success(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo = JobRepository(tenant_db)
        job = await self.start(database, tenant_db)
        assert (job.status, job.documents_total, job.started_at) == ("queued", 2, None)
        [first] = await repo.next_items(job.id)
        assert (first.ordinal, first.content, first.metadata) == (0, b"\x00\xff0", {"n": 0})
        await repo.set_stage(job.id, 0, "store")
        assert [item.stage for item in await repo.items(job.id)] == ["store", None]
        stored = StoredItem(job.id, 0, document_id=uuid4(), chunks_added=3, chunks_kept=1)
        assert await repo.items_succeeded([stored, stored]) == 1
        assert await repo.items_succeeded([stored]) == 0  # reported twice, counted once
        [_] = await repo.next_items(job.id)
        warnings = ["w" * 1000] * 100
        error = JobError("extraction_failed", "Encrypted.")
        assert await repo.item_failed(job.id, 1, error, warnings=warnings)
        assert (await repo.items(job.id))[1].warnings == ["w" * 300] * 10
        assert await repo.next_items(job.id) == []
        [finished] = await repo.finish(job.id)
        assert (finished.status, finished.documents_done, finished.documents_failed) == ("partial", 1, 1)
        assert (finished.chunks_added, finished.chunks_kept, finished.stage) == (3, 1, None)
        assert finished.finished_at is not None
        found = await repo.find_by_id(job.id)
        assert found == replace(finished, version=0)  # of its collection, which is empty
        assert await repo.list() == [finished]
        assert await repo.list(uuid4()) == []
        assert [item.status for item in await repo.items(job.id)] == ["succeeded", "failed"]
        assert (await repo.items(job.id))[1].error == JobError("extraction_failed", "Encrypted.")
        assert await repo.finish(job.id) == []
        contents = await tenant_db.fetch_all(
            "SELECT FROM vectorforge.ingestion_job_items WHERE content IS NOT NULL"
        )
        assert contents == []

    async def test_job_of_killed_worker_is_claimed_again(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo, dispatcher = JobRepository(tenant_db), JobDispatcher(database)
        job = await self.start(database, tenant_db)
        assert await repo.next_items(job.id)
        assert await dispatcher.claim() is None  # a worker has it
        assert await repo.heartbeat(job.id, lease_s=0.05)
        await asyncio.sleep(0.1)
        assert await dispatcher.claim() == (tenant_db.tenant_id, job.id, 2)
        [again] = await repo.next_items(job.id)
        assert (again.ordinal, again.attempts, again.content) == (0, 2, b"\x00\xff0")
        await repo.finish(job.id)

    async def test_item_that_crashes_workers_fails_after_attempts(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo, dispatcher = JobRepository(tenant_db), JobDispatcher(database)
        job = await self.start(database, tenant_db, items=1)
        begun = 0
        while await repo.next_items(job.id):
            begun += 1
            await repo.heartbeat(job.id, lease_s=0.001)
            await asyncio.sleep(0.01)
            assert await dispatcher.claim() == (tenant_db.tenant_id, job.id, begun + 1)
        assert begun == MAX_ATTEMPTS == 3
        (item,) = await repo.items(job.id)
        assert item.error is not None
        assert (item.status, item.error.code) == ("failed", "document_crashes")
        [finished] = await repo.finish(job.id)
        assert (finished.status, finished.documents_failed) == ("failed", 1)

    async def test_job_supports_retry_release_and_early_failure(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo = JobRepository(tenant_db)
        job = await self.start(database, tenant_db, items=3)
        assert await repo.next_items(job.id)
        assert await repo.item_failed(job.id, 0, JobError("embedding_timeout", "Late."), retry=True)
        [again] = await repo.next_items(job.id)
        assert (again.ordinal, again.attempts) == (0, 2)
        assert again.content is not None
        await repo.release(job.id)
        assert not await repo.heartbeat(job.id)
        released = await repo.find_by_id(job.id)
        assert released is not None
        assert released.status == "queued"
        assert [item.attempts for item in await repo.items(job.id)] == [1, 0, 0]
        [finished] = await repo.finish(job.id, error=JobError("configuration_error", "No provider."))
        assert finished.error == JobError("configuration_error", "No provider.")
        assert (finished.status, finished.documents_failed) == ("failed", 3)

    async def test_concurrent_claims_return_different_jobs(
        self, database: Database, tenant_db: TenantDatabase
    ) -> None:
        repo = JobRepository(tenant_db)
        collections = [await make_collection(tenant_db, f"c{number}") for number in range(8)]
        made = {(await repo.create(collection.id, make_items(1))).id for collection in collections}
        claims = await asyncio.gather(*(JobDispatcher(database).claim() for _ in range(12)))
        claimed = [claim[1] for claim in claims if claim and claim[0] == tenant_db.tenant_id]
        assert len(claimed) == len(set(claimed))
        assert set(claimed) <= made
        for job_id in made:
            await repo.finish(job_id)

    async def test_long_queue_of_one_tenant_does_not_starve_another(
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

    # Of two versions of a document, the later one must win.
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

    async def test_tenant_without_a_claim_comes_first(
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

    async def test_job_beyond_limits_is_rejected(self, tenant_db: TenantDatabase) -> None:
        repo = JobRepository(tenant_db)
        with pytest.raises(NotFoundError):
            await repo.create(uuid4(), make_items())
        with pytest.raises(InvalidInputError):
            await repo.create(uuid4(), [])
        assert await repo.find_by_id(uuid4()) is None

    async def test_job_of_a_collection_being_deleted_is_not_found(self, tenant_db: TenantDatabase) -> None:
        collection = await make_collection(tenant_db)
        async with tenant_db.transaction() as connection:
            await connection.execute("DELETE FROM vectorforge.collections WHERE id = %s", (collection.id,))
            creation = asyncio.create_task(JobRepository(tenant_db).create(collection.id, make_items()))
            for _ in range(500):
                if creation.done() or await tenant_db.fetch_one(_WAITS) is not None:
                    break
                await asyncio.sleep(0.01)
        with pytest.raises(NotFoundError):
            await creation
