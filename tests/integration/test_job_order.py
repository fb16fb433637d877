"""Concurrent jobs: of one collection, those of different single documents."""

import random
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.types import DistanceMetric


class Jobs:
    """Jobs of some tenants and collections, and a model of their order: tenant, collection, source."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.dispatcher = JobDispatcher(database)
        self.open: dict[UUID, tuple[str, UUID, str | None]] = {}
        """Unfinished jobs in order of creation."""
        self.running: set[UUID] = set()
        self._collections: dict[tuple[str, str], UUID] = {}

    async def make(self, tenant: str, collection: str, source: str | None) -> UUID:
        """Create a job; without a source, one of two documents."""
        collection_id = await self._collection(tenant, collection)
        items = [NewJobItem(name, None, b"text") for name in ([source] if source else ["x", "y"])]
        job = await self.repository(tenant).create(collection_id, items, side_by_side=source is not None)
        self.open[job.id] = (tenant, collection_id, source)
        return job.id

    async def claim(self) -> UUID | None:
        claimed = await self.dispatcher.claim(60)
        if claimed is None:
            return None
        assert self.open[claimed.job_id][0] == claimed.tenant_id
        self.running.add(claimed.job_id)
        return claimed.job_id

    async def end(self, job_id: UUID) -> None:
        tenant, _, _ = self.open.pop(job_id)
        self.running.discard(job_id)
        await self.repository(tenant).finish(job_id)

    async def release(self, job_id: UUID) -> None:
        self.running.discard(job_id)
        await self.repository(self.open[job_id][0]).release(job_id)

    def waits(self, job_id: UUID) -> bool:
        """Return whether an older job of its collection has to end first."""
        tenant, collection, source = self.open[job_id]
        for other, (other_tenant, other_collection, other_source) in self.open.items():
            if other == job_id:
                return False
            if (other_tenant, other_collection) == (tenant, collection) and (
                source is None or other_source is None or source == other_source
            ):
                return True
        raise AssertionError("it is among them")

    def repository(self, tenant: str) -> JobRepository:
        return JobRepository(self.database.for_tenant(tenant))

    async def _collection(self, tenant: str, name: str) -> UUID:
        if (tenant, name) not in self._collections:
            made = await CollectionRepository(self.database.for_tenant(tenant)).create(
                name,
                embedding_provider="fake",
                embedding_model="m",
                dimension=3,
                distance_metric=DistanceMetric.COSINE,
            )
            self._collections[tenant, name] = made.id
        return self._collections[tenant, name]


@pytest.fixture
async def jobs(fresh_database_url: str) -> AsyncIterator[Jobs]:
    async with Database(fresh_database_url, pool_size=2) as database:
        yield Jobs(database)


async def test_jobs_of_different_documents_run_in_parallel(jobs: Jobs) -> None:
    made = [await jobs.make("acme", "docs", f"{n}.txt") for n in range(3)]
    assert [await jobs.claim() for _ in range(4)] == [*made, None]


async def test_jobs_of_the_same_document_take_turns(jobs: Jobs) -> None:
    older, younger = [await jobs.make("acme", "docs", "a.txt") for _ in range(2)]
    other = await jobs.make("acme", "docs", "b.txt")
    assert [await jobs.claim() for _ in range(3)] == [older, other, None]
    assert await jobs.repository("acme").waits_behind_another(younger)
    await jobs.end(older)
    assert not await jobs.repository("acme").waits_behind_another(younger)
    assert await jobs.claim() == younger


async def test_job_of_several_documents_waits_and_blocks(jobs: Jobs) -> None:
    first = await jobs.make("acme", "docs", "a.txt")
    several = await jobs.make("acme", "docs", None)
    last = await jobs.make("acme", "docs", "b.txt")
    elsewhere = await jobs.make("acme", "other", "b.txt")
    assert [await jobs.claim() for _ in range(3)] == [first, elsewhere, None]
    await jobs.end(first)
    assert [await jobs.claim() for _ in range(2)] == [several, None]
    await jobs.end(several)
    assert await jobs.claim() == last


async def test_side_by_side_job_of_two_documents_waits(jobs: Jobs) -> None:
    older = await jobs.make("acme", "docs", "a.txt")
    collection_id = jobs.open[older][1]
    items = [NewJobItem(name, None, b"text") for name in ("b.txt", "c.txt")]
    younger = await jobs.repository("acme").create(collection_id, items, side_by_side=True)
    assert await jobs.repository("acme").waits_behind_another(younger.id)


async def change(jobs: Jobs, chance: random.Random) -> None:
    """Create, end or release a job."""
    step = chance.random()
    if step < 0.5 or not jobs.running:
        source = chance.choice([None, "a", "b", "c", "d"])
        await jobs.make(chance.choice(["acme", "beta"]), chance.choice(["docs", "other"]), source)
        return
    job_id = chance.choice(sorted(jobs.running))
    await (jobs.end(job_id) if step < 0.8 else jobs.release(job_id))


async def claim_all(jobs: Jobs) -> None:
    """Claim all available work, and compare with the model."""
    while await jobs.claim() is not None:
        pass
    assert jobs.running == {job for job in jobs.open if not jobs.waits(job)}
    for job_id, (tenant, _, _) in jobs.open.items():
        assert await jobs.repository(tenant).waits_behind_another(job_id) == jobs.waits(job_id)
    for tenant in ("acme", "beta"):
        assert not await jobs.dispatcher.others_wait(tenant)  # all permitted jobs run


@pytest.mark.parametrize("seed", range(6))
async def test_random_jobs_run_exactly_when_allowed(jobs: Jobs, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        await change(jobs, chance)
        if chance.random() < 0.5:
            await claim_all(jobs)
    while jobs.open:
        await claim_all(jobs)
        assert jobs.running
        for job_id in sorted(jobs.running):
            await jobs.end(job_id)


async def test_waiting_tenant_is_detected_by_claimable_jobs_only(jobs: Jobs) -> None:
    older = await jobs.make("acme", "docs", "a.txt")
    await jobs.make("acme", "docs", "a.txt")
    assert await jobs.dispatcher.others_wait("beta")
    assert not await jobs.dispatcher.others_wait("acme")
    assert await jobs.claim() == older
    assert not await jobs.dispatcher.others_wait("beta")
    await jobs.make("acme", "docs", "b.txt")
    assert await jobs.dispatcher.others_wait("beta")
