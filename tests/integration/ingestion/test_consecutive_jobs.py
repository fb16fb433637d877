"""Jobs that wait for each other are carried out in one run, in their order, each with its own result."""

from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.integration.ingestion.conftest import LimitedEmbedder, Room
from tests.integration.repository_rows import make_collection, make_items
from tests.support.postgres.rows_read import CountedDatabase, rows_read
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import IngestionJob, JobError, NewJobItem
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Vector


class CountingEmbedder(HashingEmbedder):
    """Counts the texts of each request."""

    def __init__(self) -> None:
        super().__init__(batch_size=1000)
        self.asked: list[int] = []

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.asked.append(len(texts))
        return await super()._call_api(texts, model)


async def submit(room: Room, **contents: str) -> UUID:
    """Submit a job of documents, given by source with ``_`` for its dot."""
    items = [
        NewJobItem(source.replace("_", "."), None, content.encode()) for source, content in contents.items()
    ]
    return (await room.jobs.create(room.collection.id, items)).id


async def finished(room: Room, *job_ids: UUID) -> list[IngestionJob]:
    await room.worker().run_until_idle()
    jobs = [await room.jobs.find_by_id(job_id) for job_id in job_ids]
    return [job for job in jobs if job is not None]


async def follow(room: Room, *, documents: int = 1_000) -> list[UUID]:
    """Claim the next job, and return those that follow it."""
    claimed = await JobDispatcher(room.database).claim(60)
    assert claimed is not None
    return await room.jobs.claim_following(claimed.job_id, 60, documents=documents, jobs=200)


async def text_of(room: Room, source: str) -> str | None:
    document = await room.documents.find_by_source(room.collection.id, source)
    return None if document is None else await room.documents.text(document.id)


async def test_waiting_jobs_share_a_request_and_a_transaction(job_room: Room) -> None:
    job_room.embedder = embedder = CountingEmbedder()
    ids = [await submit(job_room, **{f"a{n}_txt": f"A {n}.", f"b{n}_txt": f"B {n}."}) for n in range(5)]
    jobs = await finished(job_room, *ids)
    assert [(job.status, job.documents_done, job.chunks_added) for job in jobs] == [("succeeded", 2, 2)] * 5
    assert embedder.asked == [10]
    rows = await job_room.db.fetch_all("SELECT DISTINCT xmin::text FROM vectorforge.documents")
    assert len(rows) == 1


async def test_document_of_two_jobs_has_the_later_version_and_the_first_job_ends_before(
    job_room: Room,
) -> None:
    ids = [
        await submit(job_room, a_txt="Old.", b_txt="Other."),
        await submit(job_room, c_txt="Third.", a_txt="New."),
    ]
    first, second = await finished(job_room, *ids)
    assert (first.status, second.status) == ("succeeded", "succeeded")
    assert await text_of(job_room, "a.txt") == "New."
    document = await job_room.documents.find_by_source(job_room.collection.id, "a.txt")
    assert document is not None
    assert document.version == 2
    assert first.finished_at is not None
    assert document.updated_at is not None
    assert first.finished_at < document.updated_at


async def test_retried_document_is_stored_before_the_version_of_a_younger_job(job_room: Room) -> None:
    job_room.embedder = LimitedEmbedder(refusals=1)
    ids = [await submit(job_room, a_txt="Old."), await submit(job_room, a_txt="New.")]
    first, second = await finished(job_room, *ids)
    assert (first.status, second.status) == ("succeeded", "succeeded")
    assert await text_of(job_room, "a.txt") == "New."
    assert [item.attempts for job_id in ids for item in await job_room.jobs.items(job_id)] == [2, 1]


async def test_failed_document_fails_its_job_alone(job_room: Room) -> None:
    ids = [
        await submit(job_room, a_txt="Text."),
        await submit(job_room, b_txt=" ", c_txt="Text of c."),
        await submit(job_room, d_txt="Text of d."),
    ]
    jobs = await finished(job_room, *ids)
    assert [job.status for job in jobs] == ["succeeded", "partial", "succeeded"]
    assert [(job.documents_done, job.documents_failed) for job in jobs] == [(1, 0), (1, 1), (1, 0)]


async def test_files_of_records_between_other_jobs_have_their_latest_lines(job_room: Room) -> None:
    def line(number: int) -> str:
        return f'{{"id": "{number}", "text": "Record {number}."}}\n'

    ids = [
        await submit(job_room, a_txt="Text."),
        await submit(job_room, f_jsonl=line(1) + line(2)),
        await submit(job_room, f_jsonl=line(2)),
        await submit(job_room, b_txt="Text of b."),
    ]
    jobs = await finished(job_room, *ids)
    assert [job.status for job in jobs] == ["succeeded"] * 4
    stored, _ = await job_room.documents.list(job_room.collection.id)
    assert sorted(document.source for document in stored) == ["a.txt", "b.txt", "f.jsonl#2"]


async def test_jobs_of_killed_worker_are_counted_once(job_room: Room) -> None:
    job_room.embedder = embedder = CountingEmbedder()
    ids = [await submit(job_room, **{f"{name}_txt": f"Text {name}."}) for name in "abc"]
    assert await follow(job_room) == ids[1:]
    assert len(await job_room.jobs.next_items(*ids, limit=9, item_bytes=99, total_bytes=999)) == 3
    await job_room.db.execute(
        "UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now() - interval '1 s'"
    )
    jobs = await finished(job_room, *ids)
    assert [(job.status, job.documents_done) for job in jobs] == [("succeeded", 1)] * 3
    assert embedder.asked == [1, 1, 1]


async def test_released_jobs_return_to_the_queue(job_room: Room) -> None:
    ids = [await submit(job_room, **{f"{name}_txt": "Text."}) for name in "abc"]
    await follow(job_room)
    begun = await job_room.jobs.next_items(*ids, limit=9, item_bytes=99, total_bytes=999)
    assert [item.job_id for item in begun] == ids
    await job_room.jobs.finish(ids[0])
    assert await job_room.jobs.heartbeat(*ids) == {*ids[1:]}
    await job_room.jobs.release(*ids)
    assert await job_room.jobs.heartbeat(*ids) == set()
    assert [item.attempts for job_id in ids[1:] for item in await job_room.jobs.items(job_id)] == [0, 0]
    assert await follow(job_room) == ids[2:]


async def test_jobs_that_wait_for_a_full_disk_have_the_reason_until_they_succeed(
    job_room: Room, fresh_database_url: str, postgres_server: EmbeddedPostgres
) -> None:
    ids = [await submit(job_room, **{f"{name}_txt": "Text."}) for name in "ab"]
    owner = conninfo_to_dict(postgres_server.migrator_url)["user"]
    with psycopg.connect(make_conninfo(fresh_database_url, user=owner), autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON vectorforge.chunks "
            "FOR EACH STATEMENT EXECUTE FUNCTION fill()"
        )
        with pytest.raises(DatabaseUnavailableError):
            await job_room.worker().run_until_idle()
        waiting = [await job_room.jobs.find_by_id(job_id) for job_id in ids]
        reason = JobError("database_unavailable", "The database's disk is full.")
        assert [(job.status, job.error) for job in waiting if job] == [("queued", reason)] * 2
        connection.execute("DROP FUNCTION fill CASCADE")
    assert [(job.status, job.error) for job in await finished(job_room, *ids)] == [("succeeded", None)] * 2


@pytest.mark.parametrize("obstacle", ["one document", "records", "begun before", "size"])
async def test_job_that_must_run_alone_follows_no_other(job_room: Room, obstacle: str) -> None:
    _, second, _ = [await submit(job_room, **{f"{name}_txt": "Text."}) for name in "abc"]
    change = {
        "one document": "UPDATE vectorforge.ingestion_jobs SET source_key = '\\x00' WHERE id = %s",
        "records": "UPDATE vectorforge.ingestion_job_items SET parent_source = 'f' WHERE job_id = %s",
        "begun before": "UPDATE vectorforge.ingestion_jobs SET claims = 1 WHERE id = %s",
        "size": "UPDATE vectorforge.ingestion_jobs SET documents_total = 1000 WHERE id = %s",
    }[obstacle]
    await job_room.db.execute(change, (second,))
    assert await follow(job_room) == []


async def test_items_of_job_that_is_too_large_to_follow_are_not_read(
    make_database: Callable[..., str], make_tenant: Callable[[], str]
) -> None:
    url = make_database()
    async with CountedDatabase(make_conninfo(url, user="vectorforge_app"), pool_size=1) as database:
        db = database.for_tenant(make_tenant())
        collection, jobs = await make_collection(db), JobRepository(db)
        created = [await jobs.create(collection.id, make_items(count)) for count in (2, 1_000)]
        claimed = await JobDispatcher(database).claim(60)
        assert claimed is not None
        before = rows_read(url)
        assert await jobs.claim_following(created[0].id, 60, documents=100, jobs=200) == []
        assert (rows_read(url) - before).total() < 100
