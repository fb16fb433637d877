"""Ingestion into a real PostgreSQL: separate results, no repeated embedding, atomic replacement."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.ingestion.conftest import (
    ENCRYPTED_PDF,
    SETTINGS,
    LimitedEmbedder,
    Room,
    paragraph,
    text_of,
)
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import DocumentStatus, ExtractedDocument, IngestionStage, TextSpan
from vectorforge.types import Vector


class OvertakenEmbedder(HashingEmbedder):
    """Runs a concurrent action during its first call."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super()._call_api(texts, model)


class BrokenEmbedder(HashingEmbedder):
    """Has a bug whose exception contains a secret."""

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        raise RuntimeError("postgresql://admin:hunter2@10.0.0.1/prod")


class TestPipeline:
    async def test_chunks_are_slices_of_the_stored_text(self, room: Room) -> None:
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
    async def test_failed_record_leaves_other_records_ingested(self, room: Room) -> None:
        lines = [json.dumps({"id": n, "text": paragraph(n)}) for n in range(10)]
        lines[3] = "broken"
        results = await ingest_bytes(
            room.pipeline, room.collection, "\n".join(lines).encode(), "f.jsonl", metadata={"lang": "en"}
        )
        assert [result.status.value for result in results].count("succeeded") == 9
        assert results[3].source == "f.jsonl#4"
        assert results[3].error is not None
        assert results[3].error.code == "document_unreadable"
        documents, total = await room.documents.list(room.collection.id)
        assert total == 9
        assert {document.metadata["lang"] for document in documents} == {"en"}

    # C19: removed lines are deleted, and unchanged lines retain their document
    @pytest.mark.parametrize("by", ["pipeline", "job"])
    async def test_jsonl_file_replaces_its_previous_version(self, job_room: Room, by: str) -> None:
        async def ingest(*records: dict[str, Any] | str, source: str = "f.jsonl") -> None:
            lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
            content = "\n".join(lines).encode()
            if by == "pipeline":
                await ingest_bytes(job_room.pipeline, job_room.collection, content, source)
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
        [unchanged] = [d for d in documents if (d.id, d.version) == after["C"]]
        assert unchanged.version == 1

    async def test_encrypted_empty_and_oversize_documents_return_specific_errors(self, room: Room) -> None:
        encrypted = await room.ingest(ENCRYPTED_PDF.read_bytes(), "secret.pdf")
        empty = await room.ingest(b"", "empty.txt")
        large = await room.ingest(bytes(SETTINGS.max_document_bytes + 1), "large.txt")
        codes = [result.error.code for result in (encrypted, empty, large) if result.error]
        assert codes == ["document_encrypted", "document_empty", "document_too_large"]
        assert (await room.documents.list(room.collection.id))[1] == 0

    # faults.md row 34
    async def test_nul_in_text_title_and_metadata_is_replaced_with_warning(self, room: Room) -> None:
        [result] = await ingest_bytes(
            room.pipeline,
            room.collection,
            b"a text with\x00 NUL inside",
            "a.txt",
            None,
            "ti\x00tle",
            {"k\x00": "v\ud800"},
        )
        assert result.status is DocumentStatus.SUCCEEDED
        assert len(result.warnings) == 2
        document = await room.documents.find_by_source(room.collection.id, "a.txt")
        assert document is not None
        assert (document.title, document.metadata) == ("ti\ufffdtle", {"k\ufffd": "v\ufffd"})

    # C19, D-012
    async def test_unchanged_document_embeds_and_writes_nothing(self, room: Room) -> None:
        first = await room.ingest(text_of())
        room.embedder.texts.clear()
        second = await room.ingest(text_of())
        assert (second.status, second.document_id) == (DocumentStatus.UNCHANGED, first.document_id)
        assert second.chunks_kept == first.chunks_added
        assert room.embedder.texts == []
        document = await room.documents.find_by_source(room.collection.id, "a.txt")
        assert document is not None
        assert document.version == 1

    async def test_title_and_headings_are_embedded_with_the_chunk(self, room: Room) -> None:
        room.collection = replace(room.collection, document_prefix="passage: ")
        text = "# Guide\n\n## Install\n\n" + paragraph(1)[:80]
        await ingest_bytes(room.pipeline, room.collection, text.encode(), "guide.md", None, "Manual")
        assert room.embedder.texts[-1].startswith("passage: Manual\nGuide > Install\n")

    # C19: only the titles have changed, and the words belong to another chunk now
    async def test_changed_title_reembeds_all_chunks(self, room: Room) -> None:
        await ingest_bytes(room.pipeline, room.collection, text_of().encode(), "a.txt", None, "Old")
        room.embedder.texts.clear()
        [result] = await ingest_bytes(
            room.pipeline, room.collection, text_of().encode(), "a.txt", None, "New"
        )
        assert (result.chunks_added, result.chunks_kept, result.chunks_removed) == (6, 0, 6)
        assert room.embedder.texts == [f"New\n{paragraph(number)}" for number in range(6)]

    # C19
    async def test_changed_paragraph_embeds_only_its_chunks(self, room: Room) -> None:
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
    async def test_equal_paragraphs_are_retained_by_count(self, room: Room) -> None:
        same = paragraph(1)
        await room.ingest("\n\n".join([same] * 2))
        result = await room.ingest("\n\n".join([same] * 4))
        assert (result.chunks_added, result.chunks_kept) == (2, 2)
        result = await room.ingest(same)
        assert (result.chunks_added, result.chunks_kept, result.chunks_removed) == (0, 1, 3)

    # C19
    async def test_same_text_of_two_sources_is_stored_for_both(self, room: Room) -> None:
        await room.ingest(text_of(), "a.txt")
        result = await room.ingest(text_of(), "b.txt")
        assert result.status is DocumentStatus.SUCCEEDED
        found = await room.search(paragraph(1), top_k=2)
        assert {chunk.document_source for chunk in found} == {"a.txt", "b.txt"}

    # C19, faults.md row 37
    async def test_concurrent_reader_sees_one_whole_version(self, room: Room) -> None:
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
    async def test_concurrent_writers_of_one_document_leave_one_version(self, room: Room) -> None:
        versions = [text_of(f"word{number}") for number in range(10)]
        results = await asyncio.gather(*(room.ingest(version) for version in versions))
        assert {result.status for result in results} == {DocumentStatus.SUCCEEDED}
        [document] = (await room.documents.list(room.collection.id))[0]
        chunks = await room.documents.chunks(document.id)
        assert await room.documents.text(document.id) in versions
        assert len({chunk.text.split()[3] for chunk in chunks}) == 1
        assert len(chunks) == 6

    async def test_document_changed_during_embedding_is_compared_again(self, room: Room) -> None:
        """Chunks that were found stored vanish before the write: they are embedded after all."""
        await room.ingest(text_of("one"))

        document = ExtractedDocument("a.txt", text_of("one") + "\n\n" + paragraph(9), media.PLAIN)
        room.embedder = OvertakenEmbedder(lambda: room.ingest("Other text altogether."))
        stored = await room.pipeline.write_document(room.collection, document)
        assert (stored.chunks_added, stored.chunks_removed) == (7, 1)

    async def test_pdf_pages_are_stored_as_chunk_metadata(self, room: Room) -> None:
        first, second = paragraph(1), paragraph(2)
        spans = (
            TextSpan(0, len(first), location={"page": 1, "rect": [0.1, 0.2, 0.9, 0.3]}),
            TextSpan(len(first) + 2, len(first) + 2 + len(second), location={"page": 2}),
        )
        document = ExtractedDocument("r.pdf", f"{first}\n\n{second}", media.PDF, spans=spans)
        stored = await room.pipeline.write_document(room.collection, document)
        chunks = await room.documents.chunks(stored.document_id)
        assert [chunk.metadata for chunk in chunks] == [{"page": 1}, {"page": 2}]
        expected = [[{"page": 1, "rects": [[0.1, 0.2, 0.9, 0.3]]}], [{"page": 2}]]
        assert [chunk.locations for chunk in chunks] == expected
        found = {result.chunk.id: result.chunk.locations for result in await room.search("paragraph")}
        assert [found[chunk.id] for chunk in chunks] == expected

    async def test_provider_outage_fails_document_and_retains_old_version(self, room: Room) -> None:
        await room.ingest(text_of("old"))
        broken = Room(room.db, room.database, room.collection, LimitedEmbedder(refusals=1))
        result = await broken.ingest(text_of("new"))
        assert result.error is not None
        assert (result.error.code, result.error.retryable) == ("embedding_rate_limited", True)
        assert {found.chunk.text.split()[3] for found in await room.search("paragraph")} == {"old"}
        assert (await broken.ingest(text_of("new"))).status is DocumentStatus.SUCCEEDED

    # C22
    async def test_unexpected_error_fails_document_without_leaking_details(
        self, room: Room, caplog: pytest.LogCaptureFixture
    ) -> None:
        room.embedder = BrokenEmbedder()
        result = await room.ingest(text_of())
        assert result.error is not None
        assert result.error.code == "internal_error"
        assert "Ingestion of a document failed unexpectedly: builtins.RuntimeError" in caplog.text
        assert "hunter2" not in caplog.text + result.error.message

    async def test_ingestion_reports_stages_and_progress(self, room: Room) -> None:
        stages: list[str] = []
        progress: list[tuple[int, int]] = []

        def on_stage(stage: IngestionStage) -> None:
            stages.append(stage.value)

        await ingest_bytes(
            room.pipeline,
            room.collection,
            text_of().encode(),
            "a.txt",
            on_stage=on_stage,
            on_progress=lambda done, total: progress.append((done, total)),
        )
        assert stages == ["extract", "chunk", "embed", "store"]
        assert progress == [(6, 6)]
