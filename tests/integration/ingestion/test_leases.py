"""Leases that end while their worker lives: it stores nothing more, and the next worker does the work."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.integration.ingestion.conftest import Room
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Vector

LEASE_S = 0.6
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'vectorforge_app' AND wait_event_type = 'Lock'
"""


class GatedEmbedder(HashingEmbedder):
    """Waits for ``opened`` in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.entered.set()
        await self.opened.wait()
        return await super()._call_api(texts, model)


@pytest.fixture
def owner_url(fresh_database_url: str, postgres_server: EmbeddedPostgres) -> str:
    return make_conninfo(
        fresh_database_url, user=conninfo_to_dict(postgres_server.migrator_url)["user"], password=None
    )


@contextmanager
def locked(owner_url: str, table: str) -> Iterator[None]:
    """Hold the rows of a table."""
    with psycopg.connect(owner_url) as session:
        session.execute(f"SELECT FROM vectorforge.{table} FOR UPDATE")
        yield
        session.rollback()


async def until_it_waits_for_a_lock(owner_url: str) -> None:
    with psycopg.connect(owner_url, autocommit=True) as monitor:
        async with asyncio.timeout(30):
            while monitor.execute(_WAITING).fetchone() != (1,):  # noqa: ASYNC110 - polls a database
                await asyncio.sleep(0.02)


async def submit(room: Room, text: str) -> None:
    await room.jobs.create(room.collection.id, [NewJobItem("a.txt", None, text.encode())])


async def expire_leases(room: Room) -> None:
    await room.db.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now() - interval '1 s'")


async def stored_text(room: Room) -> str | None:
    document = await room.documents.find_by_source(room.collection.id, "a.txt")
    return None if document is None else await room.documents.text(document.id)


async def test_job_whose_claim_is_answered_after_its_lease_is_left_to_the_next_worker(
    job_room: Room, owner_url: str
) -> None:
    await submit(job_room, "new")
    claimed = await JobDispatcher(job_room.database).claim(60)
    assert claimed is not None
    await job_room.jobs.next_items(claimed.job_id)
    await expire_leases(job_room)
    with locked(owner_url, "ingestion_job_items"):  # the claim returns the begun item to the queue
        run = asyncio.create_task(job_room.worker(lease_s=LEASE_S).run_next())
        await until_it_waits_for_a_lock(owner_url)
        await asyncio.sleep(LEASE_S)
    assert await run
    [item] = await job_room.jobs.items(claimed.job_id)
    assert (item.status, item.attempts, await stored_text(job_room)) == ("queued", 1, None)

    await job_room.worker().run_until_idle()
    [item] = await job_room.jobs.items(claimed.job_id)
    assert (item.status, item.attempts, await stored_text(job_room)) == ("succeeded", 2, "new")


async def test_worker_that_cannot_renew_its_lease_stores_no_document(job_room: Room, owner_url: str) -> None:
    await submit(job_room, "old")
    await job_room.worker().run_until_idle()
    await submit(job_room, "new")
    job_room.embedder = embedder = GatedEmbedder()
    run = asyncio.create_task(job_room.worker(lease_s=LEASE_S).run_next())
    await embedder.entered.wait()
    with locked(owner_url, "ingestion_jobs"):
        await until_it_waits_for_a_lock(owner_url)
        await asyncio.wait({run}, timeout=3 * LEASE_S)
        embedder.opened.set()
        await run
        assert await stored_text(job_room) == "old"

    await expire_leases(job_room)
    await job_room.worker().run_until_idle()
    assert await stored_text(job_room) == "new"
