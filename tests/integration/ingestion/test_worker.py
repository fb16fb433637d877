"""Ingestion jobs on a real PostgreSQL: counted once, resumed, and reported when they fail."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.ingestion.conftest import (
    ENCRYPTED_PDF,
    SETTINGS,
    LimitedEmbedder,
    Room,
    make_room,
    paragraph,
    text_of,
)
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.job_types import IngestionJob, NewJobItem
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentPart
from vectorforge.ingestion.worker import MAX_CLAIMS, IngestionWorker
from vectorforge.vectorstore.pgvector import PgVectorStore


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds in the database."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the database has no events
            await asyncio.sleep(0.02)


async def ended(room: Room, job: IngestionJob) -> IngestionJob:
    """Wait for the end of a job."""

    async def has_ended() -> bool:
        current = await room.jobs.find_by_id(job.id)
        return current is not None and current.finished_at is not None

    await until(has_ended)
    finished = await room.jobs.find_by_id(job.id)
    assert finished is not None
    return finished


class TestWorker:
    # C22
    async def test_unexpected_error_delays_worker_without_leaking_details(
        self, job_room: Room, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(IngestionPipeline):
            async def split(self, content: bytes, source: str, media_type: str | None) -> list[DocumentPart]:
                raise RuntimeError("postgresql://admin:hunter2@10.0.0.1/prod")

        def make_pipeline(_: str) -> IngestionPipeline:
            store, documents = PgVectorStore(job_room.db), job_room.documents
            return Broken(store, documents, EmbeddingProviderRegistry(), SETTINGS)

        await job_room.jobs.create(
            job_room.collection.id,
            [NewJobItem(source="a.html", title=None, media_type="text/html", metadata={}, content=b"text")],
        )
        async with IngestionWorker(job_room.database, make_pipeline), asyncio.timeout(10):
            while not caplog.records:  # noqa: ASYNC110 - a log announces nothing
                await asyncio.sleep(0.01)
        assert "Ingestion pauses for 1 s after an unexpected error: builtins.RuntimeError" in caplog.text
        assert "hunter2" not in caplog.text

    async def test_job_reports_status_of_each_document(self, job_room: Room) -> None:
        lines = '{"id": "x", "text": "first"}\nbroken\n{"id": "y", "text": "second"}'
        job = await job_room.jobs.create(
            job_room.collection.id,
            [
                NewJobItem("a.md", None, b"# A\n\ntext", "Title", {"k": 1}),
                NewJobItem("secret.pdf", None, ENCRYPTED_PDF.read_bytes()),
                NewJobItem("corpus.jsonl", None, lines.encode(), None, {"set": "c"}),
            ],
        )
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        items = await job_room.jobs.items(job.id)
        assert [(item.source, item.status, item.error.code if item.error else None) for item in items] == [
            ("a.md", "succeeded", None),
            ("secret.pdf", "failed", "document_encrypted"),
            ("corpus.jsonl#x", "succeeded", None),
            ("corpus.jsonl#2", "failed", "document_unreadable"),
            ("corpus.jsonl#y", "succeeded", None),
        ]
        assert (job.status, job.documents_total, job.documents_done, job.documents_failed) == (
            "partial",
            5,
            3,
            2,
        )
        assert job.chunks_added == 3
        documents, _ = await job_room.documents.list(job_room.collection.id)
        assert {document.source: dict(document.metadata) for document in documents} == {
            "a.md": {"k": 1},
            "corpus.jsonl#x": {"id": "x", "set": "c"},
            "corpus.jsonl#y": {"id": "y", "set": "c"},
        }

    async def test_repeated_job_leaves_documents_unchanged(self, job_room: Room) -> None:
        items = [NewJobItem("a.txt", None, text_of().encode())]
        await job_room.jobs.create(job_room.collection.id, items)
        await job_room.worker().run_until_idle()
        job_room.embedder.texts.clear()
        job = await job_room.jobs.create(job_room.collection.id, items)
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        assert (job.status, job.chunks_added, job.chunks_kept) == ("succeeded", 0, 6)
        assert [item.status for item in await job_room.jobs.items(job.id)] == ["unchanged"]
        assert job_room.embedder.texts == []

    async def test_worker_starts_on_wake_and_stops_between_documents(self, job_room: Room) -> None:
        job_room.embedder = HashingEmbedder(delay_s=0.3)
        worker = job_room.worker(poll_s=3600)
        worker.start()
        await asyncio.sleep(0.05)
        items = [NewJobItem(f"{n}.html", None, paragraph(n).encode()) for n in range(5)]
        job = await job_room.jobs.create(job_room.collection.id, items)
        worker.wake()

        async def one_is_stored() -> bool:
            return (await job_room.documents.list(job_room.collection.id))[1] > 0

        await until(one_is_stored)
        await worker.stop()
        current = await job_room.jobs.find_by_id(job.id)
        assert current is not None
        assert current.status == "queued"
        assert 1 <= current.documents_done < 5
        statuses = [item.status for item in await job_room.jobs.items(job.id)]
        assert set(statuses) == {"succeeded", "queued"}
        async with worker:
            assert (await ended(job_room, job)).documents_done == 5

    async def test_slow_document_is_requeued_on_stop(self, job_room: Room) -> None:
        job_room.embedder = HashingEmbedder(delay_s=60)
        job = await job_room.jobs.create(
            job_room.collection.id, [NewJobItem("a.txt", None, text_of().encode())]
        )
        worker = job_room.worker()
        worker.start()

        async def is_embedding() -> bool:
            return (await job_room.jobs.items(job.id))[0].stage == "embed"

        await until(is_embedding)
        current = await job_room.jobs.find_by_id(job.id)
        assert current is not None
        assert (current.status, current.stage) == ("running", "embed")
        await worker.stop(grace_s=0.05)
        [item] = await job_room.jobs.items(job.id)
        assert (item.status, item.attempts) == ("queued", 0)
        job_room.embedder = HashingEmbedder()
        await job_room.worker().run_until_idle()
        assert (await ended(job_room, job)).status == "succeeded"

    async def test_short_provider_outage_is_retried(self, job_room: Room) -> None:
        job_room.embedder = LimitedEmbedder(refusals=1)
        job = await job_room.jobs.create(
            job_room.collection.id, [NewJobItem("a.txt", None, text_of().encode())]
        )
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        assert job.status == "succeeded"
        [item] = await job_room.jobs.items(job.id)
        assert (item.attempts, item.error) == (2, None)

    # faults.md row 37
    async def test_document_that_crashes_the_worker_is_failed_after_retries(self, job_room: Room) -> None:
        job = await job_room.jobs.create(
            job_room.collection.id,
            [NewJobItem("poison.txt", None, b"text"), NewJobItem("good.txt", None, b"text")],
        )
        for _ in range(3):  # the state after a killed worker: a begun item and a lease that expires
            claimed = await JobDispatcher(job_room.database).claim(0.05)
            assert claimed is not None
            [item] = await job_room.jobs.next_items(job.id)
            assert item.source == "poison.txt"
            await asyncio.sleep(0.1)
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        poison, good = await job_room.jobs.items(job.id)
        assert (poison.status, good.status, job.status) == ("failed", "succeeded", "partial")
        assert poison.error is not None
        assert poison.error.code == "document_crashes"

    async def test_failed_pipeline_construction_fails_the_job(self, job_room: Room) -> None:
        failures = [ConfigurationError("chunk_overlap_chars is too large."), RuntimeError("canary")]
        errors = []
        for failure in failures:

            def broken(_: str, failure: Exception = failure) -> IngestionPipeline:
                raise failure

            job = await job_room.jobs.create(job_room.collection.id, [NewJobItem("a.txt", None, b"text")])
            await IngestionWorker(job_room.database, broken).run_until_idle()
            job = await ended(job_room, job)
            assert (job.status, job.documents_failed) == ("failed", 1)
            assert job.error is not None
            errors.append(job.error)
        assert [error.code for error in errors] == ["configuration_error", "internal_error"]
        assert "canary" not in errors[1].message

    async def test_job_that_crashes_every_worker_is_failed(self, job_room: Room) -> None:
        job = await job_room.jobs.create(job_room.collection.id, [NewJobItem("a.txt", None, b"text")])
        for claims in range(1, MAX_CLAIMS + 1):  # killed before the first document each time
            claimed = await JobDispatcher(job_room.database).claim(0.02)
            assert claimed is not None
            assert claimed.claims == claims
            await asyncio.sleep(0.05)
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        assert job.error is not None
        assert (job.status, job.error.code) == ("failed", "job_crashes")

    async def test_long_queue_of_one_tenant_does_not_starve_another(self, job_room: Room) -> None:
        """One worker, one job at a time: the other tenant's document does not wait for all jobs."""
        job_room.embedder = HashingEmbedder(delay_s=0.05)
        other = await make_room(job_room.database, "other", job_room.embedder)
        items = [NewJobItem(f"{n}.html", None, paragraph(n).encode()) for n in range(30)]
        slow = await job_room.jobs.create(job_room.collection.id, items)
        rooms = {"tenant": job_room, "other": other}
        worker = IngestionWorker(
            job_room.database, lambda tenant: rooms[tenant].pipeline, concurrent_jobs=1, turn_s=0.0
        )
        async with worker:

            async def has_begun() -> bool:
                current = await job_room.jobs.find_by_id(slow.id)
                return current is not None and current.documents_done > 0

            await until(has_begun)
            quick = await other.jobs.create(other.collection.id, [NewJobItem("a.txt", None, b"text")])
            worker.wake()
            assert (await ended(other, quick)).status == "succeeded"
            current = await job_room.jobs.find_by_id(slow.id)
            assert current is not None
            assert current.documents_done < 30
            done = await ended(job_room, slow)
        assert (done.status, done.documents_done) == ("succeeded", 30)
        assert {item.attempts for item in await job_room.jobs.items(slow.id)} == {1}

    async def test_slow_file_does_not_block_other_tenant(self, job_room: Room) -> None:
        other = await make_room(job_room.database, "other", HashingEmbedder())
        job_room.embedder = HashingEmbedder(delay_s=3600)
        rooms = {"tenant": job_room, "other": other}
        await job_room.jobs.create(job_room.collection.id, [NewJobItem("slow.txt", None, b"text")])
        worker = IngestionWorker(job_room.database, lambda tenant: rooms[tenant].pipeline)
        worker.start()
        quick = await other.jobs.create(other.collection.id, [NewJobItem("a.txt", None, b"text")])
        worker.wake()
        assert (await ended(other, quick)).status == "succeeded"
        await worker.stop(grace_s=0.05)

    async def test_old_queries_and_jobs_are_deleted(self, job_room: Room) -> None:
        insert = (
            "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
            " latency_ms, created_at) VALUES (%s, gen_random_uuid(), gen_random_uuid(), %s, 'answered', 1,"
            " now() - make_interval(days => %s))"
        )
        for query, days in (("old", 8), ("new", 6)):
            await job_room.db.execute(insert, (job_room.db.tenant_id, query, days))
        jobs = []
        for ended_ago in (8, 6, None):
            items = [NewJobItem("a.txt", None, b"text")]
            jobs.append((await job_room.jobs.create(job_room.collection.id, items)).id)
            if ended_ago is not None:
                await job_room.jobs.finish(jobs[-1])
                await job_room.db.execute(
                    "UPDATE vectorforge.ingestion_jobs SET finished_at = now() - make_interval(days => %s),"
                    " created_at = now() - make_interval(days => %s) WHERE tenant_id = %s AND id = %s",
                    (ended_ago, ended_ago, job_room.db.tenant_id, jobs[-1]),
                )
        await job_room.worker().run_until_idle()
        assert len(await job_room.jobs.list()) == 3
        await job_room.worker(kept_log_days=7).run_until_idle()
        assert {job.id for job in await job_room.jobs.list()} == set(jobs[1:])
        assert await job_room.jobs.items(jobs[0]) == []
        retained = await job_room.db.fetch_all("SELECT query_text FROM vectorforge.query_logs")
        assert [row["query_text"] for row in retained] == ["new"]

    async def test_collection_deleted_during_job_ends_the_job(self, job_room: Room) -> None:
        job_room.embedder = HashingEmbedder(delay_s=1.0)
        job = await job_room.jobs.create(
            job_room.collection.id, [NewJobItem(f"{n}.txt", None, b"text") for n in range(3)]
        )
        run = asyncio.create_task(job_room.worker().run_until_idle())
        await asyncio.sleep(0.3)
        assert await CollectionRepository(job_room.db).delete(job_room.collection.id)
        async with asyncio.timeout(20):
            await run
        assert await job_room.jobs.find_by_id(job.id) is None
