"""Contract of every vector store's ``replace_document`` and ``delete_document``."""

import math
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.contract.suites.search import COSINE, MakeCollection
from tests.support.rag.drafts import chunk_drafts, document_draft, texts_of
from vectorforge.errors import ConflictError, DimensionMismatchError, InvalidInputError
from vectorforge.types import ChunkDraft, DocumentDraft, RetrievedChunk
from vectorforge.vectorstore.base import VectorStore


class ReplaceContract:
    """replace_document and delete_document."""

    async def _all(self, store: VectorStore, collection_id: UUID) -> dict[str, RetrievedChunk]:
        found = await store.search(query_vector=[1, 0], top_k=100, collection_id=collection_id, metric=COSINE)
        return {result.chunk.text: result for result in found}

    async def test_replace_with_equal_content_is_unchanged(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a", "b"], [[1, 0], [0, 1]])
        draft = document_draft(chunks)
        first = await store.replace_document(collection_id, draft, chunks)
        assert (first.version, first.chunks_added, first.chunks_kept, first.chunks_removed) == (1, 2, 0, 0)
        assert not first.unchanged
        before = await self._all(store, collection_id)
        second = await store.replace_document(collection_id, draft, chunk_drafts(["a", "b"], [None, None]))
        assert second.unchanged
        assert (second.document_id, second.version) == (first.document_id, 1)
        assert (second.chunks_added, second.chunks_kept, second.chunks_removed) == (0, 2, 0)
        assert await self._all(store, collection_id) == before

    # C19
    async def test_delete_left_out_removes_missing_records_only(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id, other_id = await make_collection(2, COSINE), await make_collection(2, COSINE)
        for collection, source, parent in (
            (collection_id, "f#1", "f"),
            (collection_id, "f#2", "f"),
            (collection_id, "f#3", None),
            (collection_id, "g#2", "g"),
            (other_id, "f#2", "f"),
        ):
            chunks = chunk_drafts([source], [[1, 0]])
            draft = replace(document_draft(chunks, source=source), parent_source=parent)
            await store.replace_document(collection, draft, chunks)
        assert await store.delete_left_out(collection_id, "f", ["f#1", "f#9"]) == 1
        assert set(await self._all(store, collection_id)) == {"f#1", "f#3", "g#2"}
        assert set(await self._all(store, other_id)) == {"f#2"}
        assert await store.delete_left_out(collection_id, "f", ["f#1"]) == 0
        assert await store.delete_left_out(uuid4(), "f", []) == 0

    # C19
    async def test_unchanged_chunks_preserve_id_and_embedding(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a", "b", "c"], [[1, 0], [1, 1], [0, 1]])
        first = await store.replace_document(collection_id, document_draft(chunks), chunks)
        before = await self._all(store, collection_id)
        chunks = chunk_drafts(
            ["new", "c", "a"], [[1, 2], None, None], [{"v": 2}, {"v": 2}, {"v": 2, "seen": True}]
        )
        draft = document_draft(chunks, title="Guide, second edition", metadata={"edition": 2})
        second = await store.replace_document(collection_id, draft, chunks)
        assert (second.document_id, second.version) == (first.document_id, 2)
        assert (second.chunks_added, second.chunks_kept, second.chunks_removed) == (1, 2, 1)
        after = await self._all(store, collection_id)
        assert set(after) == {"new", "c", "a"}
        for text in ("a", "c"):
            assert after[text].chunk.id == before[text].chunk.id
            assert after[text].distance == before[text].distance
        retained = after["a"]
        assert (retained.chunk.index, retained.chunk.heading) == (2, "Heading 2")
        assert draft.text[retained.chunk.start_offset : retained.chunk.end_offset] == "a"
        assert retained.chunk.metadata == {"v": 2, "seen": True, "edition": 2}
        assert {result.document_title for result in after.values()} == {"Guide, second edition"}

    async def test_equal_texts_preserve_ids_in_order(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)

        async def ids_in_order() -> list[UUID]:
            found = await store.search(
                query_vector=[1, 0], top_k=100, collection_id=collection_id, metric=COSINE
            )
            return [r.chunk.id for r in sorted(found, key=lambda r: r.chunk.index) if r.chunk.text == "same"]

        chunks = chunk_drafts(["same", "same", "x"], [[1, 0], [1, 0], [0, 1]])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        before = await ids_in_order()
        chunks = chunk_drafts(["x", "same", "same", "same"], [None, None, None, [1, 0]])
        stored = await store.replace_document(collection_id, document_draft(chunks), chunks)
        assert (stored.chunks_added, stored.chunks_kept, stored.chunks_removed) == (1, 3, 0)
        after = await ids_in_order()
        assert len(after) == 3
        assert after[:2] == before
        chunks = chunk_drafts(["same"], [None])
        stored = await store.replace_document(collection_id, document_draft(chunks), chunks)
        assert (stored.chunks_added, stored.chunks_kept, stored.chunks_removed) == (0, 1, 3)
        assert await ids_in_order() == before[:1]

    async def test_document_can_be_emptied_and_refilled(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a", "b"], [[1, 0], [0, 1]])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        emptied = await store.replace_document(collection_id, document_draft([]), [])
        assert (emptied.version, emptied.chunks_added, emptied.chunks_kept) == (2, 0, 0)
        assert emptied.chunks_removed == 2
        assert await self._all(store, collection_id) == {}
        refilled = await store.replace_document(collection_id, document_draft(chunks), chunks)
        assert (refilled.version, refilled.chunks_added) == (3, 2)
        assert set(await self._all(store, collection_id)) == {"a", "b"}

    # C19: the same text under two sources is stored twice
    async def test_equal_text_in_two_documents_is_stored_twice(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["same"], [[1, 0]])
        for source in ("one", "two"):
            stored = await store.replace_document(
                collection_id, document_draft(chunks, source=source, metadata={"from": source}), chunks
            )
            assert stored.chunks_added == 1
        for source in ("one", "two"):
            (found,) = await store.search(
                query_vector=[1, 0],
                top_k=5,
                collection_id=collection_id,
                metric=COSINE,
                filters={"from": source},
            )
            assert found.document_source == source

    async def test_unknown_chunk_without_vector_raises_conflict(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a"], [[1, 0]])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        before = await self._all(store, collection_id)
        unknown = chunk_drafts(["a", "b"], [None, None])
        for source in ("guide.md", "new.md"):
            with pytest.raises(ConflictError) as refused:
                await store.replace_document(collection_id, document_draft(unknown, source=source), unknown)
            assert not isinstance(refused.value, DimensionMismatchError)
        assert await self._all(store, collection_id) == before

    # C14
    async def test_mismatched_vector_dimension_is_rejected(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a"], [[1, 0]])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        before = await self._all(store, collection_id)
        for vectors in ([[1, 0, 0], [0, 1, 0]], [[1, 0], [0, 1, 0]]):
            wrong = chunk_drafts(["b", "c"], vectors)
            with pytest.raises(DimensionMismatchError) as refused:
                await store.replace_document(collection_id, document_draft(wrong), wrong)
            assert (refused.value.expected, refused.value.actual) == (2, 3)
        assert await self._all(store, collection_id) == before

    @pytest.mark.parametrize(
        ("field", "document", "chunk"),
        [
            ("source", {"source": ""}, {}),
            ("source", {"source": "x" * 2001}, {}),
            ("title", {"title": "a\0"}, {}),
            ("text", {"text": "abc\0"}, {}),
            ("metadata", {"metadata": {"a": ["\0"]}}, {}),
            ("metadata", {"metadata": {"a": math.nan}}, {}),
            ("metadata", {"metadata": {"a": object()}}, {}),
            ("metadata", {"metadata": {"a": "x" * 64_000}}, {}),
            ("content_hash", {"content_hash": b"short"}, {}),
            ("chunks[0].text", {}, {"text": "a\0"}),
            ("chunks[0].text", {}, {"text": "\udc00"}),
            ("chunks[0].heading", {}, {"heading": "\0"}),
            ("chunks[0].metadata", {}, {"metadata": {"\0": 1}}),
            ("chunks[0].start_offset", {}, {"start_offset": -1}),
            ("chunks[0].start_offset", {}, {"end_offset": 99}),
            ("chunks[0].token_count", {}, {"token_count": -1}),
        ],
    )
    async def test_unstorable_value_is_rejected_by_field(
        self,
        store: VectorStore,
        make_collection: MakeCollection,
        field: str,
        document: dict[str, Any],
        chunk: dict[str, Any],
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        base: dict[str, Any] = {
            "source": "s",
            "text": "abc",
            "media_type": "text/plain",
            "content_hash": bytes(32),
        }
        part: dict[str, Any] = {
            "index": 0,
            "text": "abc",
            "start_offset": 0,
            "end_offset": 3,
            "token_count": 1,
        }
        drafts = [ChunkDraft(**{**part, "content_hash": bytes(32), "vector": [1, 0], **chunk})]
        with pytest.raises(InvalidInputError) as refused:
            await store.replace_document(collection_id, DocumentDraft(**{**base, **document}), drafts)
        assert refused.value.field == field
        assert await self._all(store, collection_id) == {}

    async def test_any_storable_text_round_trips(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        texts = ["'; DROP TABLE chunks; --", "{} %s %(a)s \\N \\u0000", "Grüße 你好 🦊 \u202e\ufeff", ""]
        metadata = [{text: [text, {"k": text}]} for text in texts]
        chunks = chunk_drafts(texts, [[1, n] for n in range(4)], metadata)
        await store.replace_document(collection_id, document_draft(chunks, source=texts[2]), chunks)
        found = await self._all(store, collection_id)
        assert set(found) == set(texts)
        for text, values in zip(texts, metadata, strict=True):
            assert found[text].chunk.metadata == values
        hits = await store.search(
            query_vector=[1, 0],
            top_k=9,
            collection_id=collection_id,
            metric=COSINE,
            filters={texts[0]: texts[0]},
        )
        assert texts_of(hits) == texts[:1]

    async def test_delete_document_removes_it_only(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a"], [[1, 0]])
        stored = await store.replace_document(collection_id, document_draft(chunks), chunks)
        other = await store.replace_document(collection_id, document_draft(chunks, source="b"), chunks)
        assert await store.delete_document(stored.document_id) is True
        assert await store.delete_document(stored.document_id) is False
        assert await store.delete_document(uuid4()) is False
        (left,) = (await self._all(store, collection_id)).values()
        assert left.chunk.document_id == other.document_id
        again = await store.upsert_chunks(collection_id, document_draft(chunks), chunks)
        assert (again.version, again.chunks_added, again.unchanged) == (1, 1, False)
