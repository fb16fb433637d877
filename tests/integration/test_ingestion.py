"""Documents into a real PostgreSQL: results one by one, nothing embedded twice, replaced in one step."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database, TenantDatabase
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import IngestionJob, JobDispatcher, JobRepository, NewJobItem
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, EmbeddingRateLimitError
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import (
    DocumentPart,
    DocumentResult,
    DocumentStatus,
    ExtractedDocument,
    IngestionStage,
)
from vectorforge.ingestion.worker import MAX_CLAIMS, IngestionWorker
from vectorforge.testing.hashing_embedder import DIMENSION, HashingEmbedder
from vectorforge.types import Collection, DistanceMetric, RetrievedChunk, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

ENCRYPTED_PDF = Path(__file__).parents[1] / "unit" / "documents" / "encrypted.pdf"
SETTINGS = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)


class LimitedEmbedder(HashingEmbedder):
    """A vendor that answers 429 for the first ``refusals`` calls."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.refusals > 0:
            self.refusals -= 1
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)


class OvertakenEmbedder(HashingEmbedder):
    """While it embeds for the first time, something else happens."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super()._call_api(texts, model)


class BrokenEmbedder(HashingEmbedder):
    """Has a bug, and the bug has a secret."""

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        raise RuntimeError("postgresql://admin:hunter2@10.0.0.1/prod")


@dataclass
class Room:
    """One tenant's collection and what ingests into it."""

    db: TenantDatabase
    database: Database
    collection: Collection
    embedder: HashingEmbedder

    @property
    def pipeline(self) -> IngestionPipeline:
        registry = EmbeddingProviderRegistry()
        registry.register(self.embedder)
        return IngestionPipeline(PgVectorStore(self.db), DocumentRepository(self.db), registry, SETTINGS)

    @property
    def documents(self) -> DocumentRepository:
        return DocumentRepository(self.db)

    @property
    def jobs(self) -> JobRepository:
        return JobRepository(self.db)

    def worker(self, **options: Any) -> IngestionWorker:
        return IngestionWorker(self.database, lambda _: self.pipeline, **options)

    async def ingest(self, content: str | bytes, source: str = "a.txt") -> DocumentResult:
        content = content.encode() if isinstance(content, str) else content
        [result] = await self.pipeline.ingest_bytes(self.collection, content, source)
        return result

    async def search(self, text: str, top_k: int = 100) -> Sequence[RetrievedChunk]:
        return await PgVectorStore(self.db).search(
            query_vector=await HashingEmbedder().embed_query(text),
            top_k=top_k,
            collection_id=self.collection.id,
            metric=DistanceMetric.COSINE,
        )


async def make_room(database: Database, tenant: str, embedder: HashingEmbedder) -> Room:
    db = database.for_tenant(tenant)
    collection = await CollectionRepository(db).create(
        "docs",
        embedding_provider="hashing",
        embedding_model="hashing-64",
        dimension=DIMENSION,
        distance_metric=DistanceMetric.COSINE,
    )
    return Room(db, database, collection, embedder)


@pytest.fixture
async def room(direct_database: Database, make_tenant: Callable[[], str]) -> Room:
    return await make_room(direct_database, make_tenant(), HashingEmbedder())


@pytest.fixture
async def own_database(fresh_database_url: str) -> AsyncIterator[Database]:
    """Workers claim jobs of every tenant, so each such test has a database of its own."""
    async with Database(fresh_database_url, pool_size=5) as opened:
        yield opened


@pytest.fixture
async def job_room(own_database: Database) -> Room:
    return await make_room(own_database, "tenant", HashingEmbedder())


def paragraph(number: int, word: str = "old") -> str:
    return f"Paragraph {number:03} says {word} things, and says them in so many words that they fill a chunk."


def text_of(word: str = "old", count: int = 6) -> str:
    return "\n\n".join(paragraph(number, word) for number in range(count))


class TestPipeline:
    async def test_every_chunk_is_a_slice_of_the_stored_text(self, room: Room) -> None:
        result = await room.ingest("# Guide\n\n" + text_of(), "guide.md")
        assert result.status is DocumentStatus.SUCCEEDED
        assert result.document_id is not None
        text = await room.documents.text(result.document_id)
        chunks = await room.documents.chunks(result.document_id)
        assert text is not None
        assert len(chunks) == result.chunks_added > 5
        assert all(text[chunk.start_offset : chunk.end_offset] == chunk.text for chunk in chunks)
        assert {chunk.heading for chunk in chunks} == {"Guide"}
        assert all(chunk.token_count > 0 for chunk in chunks)

    # C33
    async def test_a_failure_leaves_its_siblings_alone(self, room: Room) -> None:
        lines = [json.dumps({"id": n, "text": paragraph(n)}) for n in range(10)]
        lines[3] = "broken"
        results = await room.pipeline.ingest_bytes(
            room.collection, "\n".join(lines).encode(), "f.jsonl", metadata={"lang": "en"}
        )
        assert [result.status.value for result in results].count("succeeded") == 9
        assert results[3].source == "f.jsonl#4"
        assert results[3].error is not None
        assert results[3].error.code == "document_unreadable"
        documents, total = await room.documents.list(room.collection.id)
        assert total == 9
        assert {document.metadata["lang"] for document in documents} == {"en"}

    # C19: what a file no longer holds goes, and a line that stays keeps its document
    @pytest.mark.parametrize("by", ["pipeline", "job"])
    async def test_a_jsonl_file_replaces_the_one_before(self, job_room: Room, by: str) -> None:
        async def ingest(*records: dict[str, Any] | str, source: str = "f.jsonl") -> None:
            lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
            content = "\n".join(lines).encode()
            if by == "pipeline":
                await job_room.pipeline.ingest_bytes(job_room.collection, content, source)
                return
            await job_room.jobs.create(job_room.collection.id, [NewJobItem(source, None, content)])
            await job_room.worker().run_until_idle()

        async def stored() -> dict[str | None, Any]:
            documents, _ = await job_room.documents.list(job_room.collection.id)
            return {await job_room.documents.text(d.id): (d.id, d.version) for d in documents}

        await job_room.ingest("beside", "f.jsonl#beside")
        await ingest({"id": "x", "text": "other file"}, source="g.jsonl")
        await ingest({"id": "a", "text": "A"}, {"text": "B"}, {"text": "C"}, {"text": "C"})
        before = await stored()
        assert set(before) == {"beside", "other file", "A", "B", "C"}
        await ingest("broken", {"text": "C"})
        assert await stored() == before, "a failed line must not delete anything"
        await ingest({"text": "C"}, {"text": "D"})
        after = await stored()
        assert set(after) == {"beside", "other file", "C", "D"}
        documents, total = await job_room.documents.list(job_room.collection.id)
        assert total == 4
        [kept] = [d for d in documents if (d.id, d.version) == after["C"]]
        assert kept.version == 1

    async def test_encrypted_empty_and_oversize_documents_say_what_they_are(self, room: Room) -> None:
        encrypted = await room.ingest(ENCRYPTED_PDF.read_bytes(), "secret.pdf")
        empty = await room.ingest(b"", "empty.txt")
        large = await room.ingest(bytes(SETTINGS.max_document_bytes + 1), "large.txt")
        codes = [result.error.code for result in (encrypted, empty, large) if result.error]
        assert codes == ["document_encrypted", "document_empty", "document_too_large"]
        assert (await room.documents.list(room.collection.id))[1] == 0

    # faults.md row 34
    async def test_nul_in_text_title_and_metadata(self, room: Room) -> None:
        [result] = await room.pipeline.ingest_bytes(
            room.collection, b"a text with\x00 NUL inside", "a.txt", None, "ti\x00tle", {"k\x00": "v\ud800"}
        )
        assert result.status is DocumentStatus.SUCCEEDED
        assert len(result.warnings) == 2
        document = await room.documents.find_by_source(room.collection.id, "a.txt")
        assert document is not None
        assert (document.title, document.metadata) == ("ti\ufffdtle", {"k\ufffd": "v\ufffd"})

    # C19, D-012
    async def test_a_second_run_embeds_and_writes_nothing(self, room: Room) -> None:
        first = await room.ingest(text_of())
        room.embedder.texts.clear()
        second = await room.ingest(text_of())
        assert (second.status, second.document_id) == (DocumentStatus.UNCHANGED, first.document_id)
        assert second.chunks_kept == first.chunks_added
        assert room.embedder.texts == []
        document = await room.documents.find_by_source(room.collection.id, "a.txt")
        assert document is not None
        assert document.version == 1

    async def test_title_and_headings_are_embedded_with_a_passage(self, room: Room) -> None:
        room.collection = replace(room.collection, document_prefix="passage: ")
        text = "# Guide\n\n## Install\n\n" + paragraph(1)[:80]
        await room.pipeline.ingest_bytes(room.collection, text.encode(), "guide.md", None, "Manual")
        assert room.embedder.texts[-1].startswith("passage: Manual\nGuide > Install\n")

    # C19: only the titles have changed, and the words are another passage's now
    async def test_another_title_embeds_and_keeps_nothing(self, room: Room) -> None:
        await room.pipeline.ingest_bytes(room.collection, text_of().encode(), "a.txt", None, "Old")
        room.embedder.texts.clear()
        [result] = await room.pipeline.ingest_bytes(room.collection, text_of().encode(), "a.txt", None, "New")
        assert (result.chunks_added, result.chunks_kept, result.chunks_removed) == (6, 0, 6)
        assert room.embedder.texts == [f"New\n{paragraph(number)}" for number in range(6)]

    # C19
    async def test_one_changed_paragraph_embeds_only_its_chunks(self, room: Room) -> None:
        first = await room.ingest(text_of())
        assert first.document_id is not None
        before = {chunk.text: chunk.id for chunk in await room.documents.chunks(first.document_id)}
        room.embedder.texts.clear()
        changed = text_of().replace(paragraph(2), paragraph(2, "new"))
        second = await room.ingest(changed)
        after = {chunk.text: chunk.id for chunk in await room.documents.chunks(first.document_id)}
        assert room.embedder.texts == [paragraph(2, "new")]
        assert (second.chunks_added, second.chunks_kept, second.chunks_removed) == (1, 5, 1)
        assert all(after[text] == before[text] for text in before.keys() & after.keys())

    # C19, D-015
    async def test_equal_paragraphs_are_kept_one_by_one(self, room: Room) -> None:
        same = paragraph(1)
        await room.ingest("\n\n".join([same] * 2))
        result = await room.ingest("\n\n".join([same] * 4))
        assert (result.chunks_added, result.chunks_kept) == (2, 2)
        result = await room.ingest(same)
        assert (result.chunks_added, result.chunks_kept, result.chunks_removed) == (0, 1, 3)

    # C19
    async def test_the_same_text_of_two_sources_is_stored_for_both(self, room: Room) -> None:
        await room.ingest(text_of(), "a.txt")
        result = await room.ingest(text_of(), "b.txt")
        assert result.status is DocumentStatus.SUCCEEDED
        found = await room.search(paragraph(1), top_k=2)
        assert {chunk.document_source for chunk in found} == {"a.txt", "b.txt"}

    # C19, faults.md row 37
    async def test_a_reader_sees_the_old_or_the_new_version_whole(self, room: Room) -> None:
        await room.ingest(text_of("even"))
        done = asyncio.Event()
        seen: set[str] = set()

        async def read() -> int:
            looks = 0
            while not done.is_set() or looks == 0:
                texts = [found.chunk.text for found in await room.search("paragraph")]
                words = {text.split()[3] for text in texts}
                assert len(texts) == len(set(texts)) == 6
                assert len(words) == 1
                seen.update(words)
                looks += 1
            return looks

        reader = asyncio.create_task(read())
        for number in range(50):
            await room.ingest(text_of("odd" if number % 2 == 0 else "even"))
        done.set()
        assert await reader > 5
        assert seen == {"even", "odd"}

    # faults.md row 36
    async def test_writers_of_one_document_leave_one_version(self, room: Room) -> None:
        versions = [text_of(f"word{number}") for number in range(10)]
        results = await asyncio.gather(*(room.ingest(version) for version in versions))
        assert {result.status for result in results} == {DocumentStatus.SUCCEEDED}
        [document] = (await room.documents.list(room.collection.id))[0]
        chunks = await room.documents.chunks(document.id)
        assert await room.documents.text(document.id) in versions
        assert len({chunk.text.split()[3] for chunk in chunks}) == 1
        assert len(chunks) == 6

    async def test_writers_that_change_the_document_meanwhile_cost_one_more_look(self, room: Room) -> None:
        """Chunks counted on as stored vanish before the write: they are embedded after all."""
        await room.ingest(text_of("one"))

        document = ExtractedDocument("a.txt", text_of("one") + "\n\n" + paragraph(9), media.PLAIN)
        room.embedder = OvertakenEmbedder(lambda: room.ingest("Other text altogether."))
        stored = await room.pipeline.ingest_document(room.collection, document)
        assert (stored.chunks_added, stored.chunks_removed) == (7, 1)

    async def test_pages_of_a_pdf_are_metadata_of_its_chunks(self, room: Room) -> None:
        document = ExtractedDocument(
            "r.pdf", paragraph(1) + "\n\n" + paragraph(2), media.PDF, page_starts=(0, len(paragraph(1)) + 2)
        )
        stored = await room.pipeline.ingest_document(room.collection, document)
        chunks = await room.documents.chunks(stored.document_id)
        assert [chunk.metadata for chunk in chunks] == [{"page": 1}, {"page": 2}]

    async def test_an_outage_of_the_provider_fails_the_document_and_keeps_the_old_one(
        self, room: Room
    ) -> None:
        await room.ingest(text_of("old"))
        broken = Room(room.db, room.database, room.collection, LimitedEmbedder(refusals=1))
        result = await broken.ingest(text_of("new"))
        assert result.error is not None
        assert (result.error.code, result.error.retryable) == ("embedding_rate_limited", True)
        assert {found.chunk.text.split()[3] for found in await room.search("paragraph")} == {"old"}
        assert (await broken.ingest(text_of("new"))).status is DocumentStatus.SUCCEEDED

    # C22
    async def test_a_bug_fails_its_document_and_tells_nothing(
        self, room: Room, caplog: pytest.LogCaptureFixture
    ) -> None:
        room.embedder = BrokenEmbedder()
        result = await room.ingest(text_of())
        assert result.error is not None
        assert result.error.code == "internal_error"
        assert "Ingestion of a document failed unexpectedly: builtins.RuntimeError" in caplog.text
        assert "hunter2" not in caplog.text + result.error.message

    async def test_progress(self, room: Room) -> None:
        stages: list[str] = []
        progress: list[tuple[int, int]] = []

        def on_stage(stage: IngestionStage) -> None:
            stages.append(stage.value)

        await room.pipeline.ingest_bytes(
            room.collection,
            text_of().encode(),
            "a.txt",
            on_stage=on_stage,
            on_progress=lambda done, total: progress.append((done, total)),
        )
        assert stages == ["extract", "chunk", "embed", "store"]
        assert progress == [(6, 6)]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to become true in the database."""
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
    async def test_a_bug_makes_it_wait_and_tells_nothing(
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
            [NewJobItem(source="a.txt", title=None, media_type="text/plain", metadata={}, content=b"text")],
        )
        async with IngestionWorker(job_room.database, make_pipeline), asyncio.timeout(10):
            while not caplog.records:  # noqa: ASYNC110 - a log announces nothing
                await asyncio.sleep(0.01)
        assert "Ingestion waits 1 s after an unexpected error: builtins.RuntimeError" in caplog.text
        assert "hunter2" not in caplog.text

    async def test_a_job_reports_each_document(self, job_room: Room) -> None:
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

    async def test_the_same_job_again_changes_nothing(self, job_room: Room) -> None:
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

    async def test_a_woken_worker_starts_at_once_and_stops_between_documents(self, job_room: Room) -> None:
        job_room.embedder = HashingEmbedder(delay_s=0.3)
        worker = job_room.worker(poll_s=3600)
        worker.start()
        await asyncio.sleep(0.05)
        items = [NewJobItem(f"{n}.txt", None, paragraph(n).encode()) for n in range(5)]
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

    async def test_a_document_that_takes_too_long_is_given_back_at_the_stop(self, job_room: Room) -> None:
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

    async def test_a_short_outage_of_the_provider_is_waited_out(self, job_room: Room) -> None:
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
    async def test_a_document_that_kills_the_server_is_given_up(self, job_room: Room) -> None:
        job = await job_room.jobs.create(
            job_room.collection.id,
            [NewJobItem("poison.txt", None, b"text"), NewJobItem("good.txt", None, b"text")],
        )
        for _ in range(3):  # what a killed worker leaves behind: a begun item and a lease that runs out
            claimed = await JobDispatcher(job_room.database).claim(0.05)
            assert claimed is not None
            item = await job_room.jobs.next_item(job.id)
            assert item is not None
            assert item.source == "poison.txt"
            await asyncio.sleep(0.1)
        await job_room.worker().run_until_idle()
        job = await ended(job_room, job)
        poison, good = await job_room.jobs.items(job.id)
        assert (poison.status, good.status, job.status) == ("failed", "succeeded", "partial")
        assert poison.error is not None
        assert poison.error.code == "document_crashes"

    async def test_a_pipeline_that_cannot_be_made_ends_the_job(self, job_room: Room) -> None:
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

    async def test_a_job_that_stops_every_worker_is_given_up(self, job_room: Room) -> None:
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

    async def test_a_long_queue_of_one_tenant_does_not_starve_another(self, job_room: Room) -> None:
        """One worker, one job at a time: the other tenant's document does not wait for all."""
        job_room.embedder = HashingEmbedder(delay_s=0.05)
        other = await make_room(job_room.database, "other", job_room.embedder)
        items = [NewJobItem(f"{n}.txt", None, paragraph(n).encode()) for n in range(30)]
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

    async def test_one_slow_file_does_not_hold_up_another_tenant(self, job_room: Room) -> None:
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
                    "UPDATE vectorforge.ingestion_jobs SET finished_at = now() - make_interval(days => %s)"
                    " WHERE tenant_id = %s AND id = %s",
                    (ended_ago, job_room.db.tenant_id, jobs[-1]),
                )
        await job_room.worker().run_until_idle()
        assert len(await job_room.jobs.list()) == 3
        await job_room.worker(kept_log_days=7).run_until_idle()
        assert {job.id for job in await job_room.jobs.list()} == set(jobs[1:])
        assert await job_room.jobs.items(jobs[0]) == []
        kept = await job_room.db.fetch_all("SELECT query_text FROM vectorforge.query_logs")
        assert [row["query_text"] for row in kept] == ["new"]

    async def test_a_collection_deleted_meanwhile_ends_its_job(self, job_room: Room) -> None:
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
