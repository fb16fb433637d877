"""Contract of every vector store for profiles: isolation, and atomic changes."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tests.contract.suites.search import COSINE, MakeCollection
from tests.support.rag.drafts import chunk_drafts, document_draft, texts_of
from vectorforge.errors import ConflictError, InvalidInputError
from vectorforge.types import ChunkDraft, DocumentDraft, Vector
from vectorforge.vectorstore.base import VectorStore

Drafts = tuple[DocumentDraft, list[ChunkDraft]]


def profile_draft(
    source: str,
    texts: Sequence[str],
    *,
    vectors: Sequence[Vector | None] | None = None,
    parent: str | None = "rows",
) -> Drafts:
    """Return a document with one chunk for each text and arbitrary vectors."""
    chunks = chunk_drafts(texts, vectors or [[1, number] for number in range(len(texts))])
    return replace(document_draft(chunks, source=source), parent_source=parent), chunks


class ProfileContract:
    """replace_profile, profile_documents, delete_profile_chunks, and search within a profile."""

    async def _texts(self, store: VectorStore, collection_id: UUID, profile_id: int) -> set[str]:
        found = await store.search(
            query_vector=[1, 0], top_k=100, collection_id=collection_id, metric=COSINE, profile_id=profile_id
        )
        texts = texts_of(found)
        assert len(set(texts)) == len(texts)
        return set(texts)

    # C-003 C-019 C17; an empty profile finds nothing, even if others have the best chunks
    async def test_search_returns_chunks_of_its_profile_only(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        for profile_id, texts in ((1, ["one a", "one b"]), (2, ["two a"]), (2**63 - 1, ["last"])):
            await store.replace_profile(
                collection_id, profile_id, [profile_draft(f"p{profile_id}/cv/1", texts)]
            )
        assert await self._texts(store, collection_id, 1) == {"one a", "one b"}
        assert await self._texts(store, collection_id, 2) == {"two a"}
        assert await self._texts(store, collection_id, 2**63 - 1) == {"last"}
        assert await self._texts(store, collection_id, 3) == set()

    # C17; a filter restricts a profile and cannot extend it
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"kind": "cv"}, ["mine"]),
            ({"$or": [{"kind": "cv"}, {"profile_id": 2}, {"kind": {"$exists": False}}]}, ["mine"]),
            ({"profile_id": 2}, []),
            ({"$not": {"profile_id": 1}}, []),
        ],
    )
    async def test_filter_matches_within_profile_only(
        self,
        store: VectorStore,
        make_profile_collection: MakeCollection,
        filters: dict[str, object],
        expected: list[str],
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        for profile_id, text in ((1, "mine"), (2, "theirs")):
            chunks = chunk_drafts([text], [[1, 0]], [{"profile_id": profile_id, "kind": "cv"}])
            draft = document_draft(chunks, source=f"p{profile_id}")
            await store.replace_profile(collection_id, profile_id, [(draft, chunks)])
        found = await store.search(
            query_vector=[1, 0],
            top_k=10,
            collection_id=collection_id,
            metric=COSINE,
            filters=filters,
            profile_id=1,
        )
        assert texts_of(found) == expected

    # C17 C18; a deletion is limited to the profile, and cannot cover all profiles
    async def test_delete_by_filter_affects_one_profile_only(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        for profile_id in (1, 2):
            draft, chunks = profile_draft(f"p{profile_id}", [f"of {profile_id}"])
            draft = replace(draft, metadata={"kind": "cv"})
            await store.replace_profile(collection_id, profile_id, [(draft, chunks)])
        filters = {"kind": "cv"}
        assert await store.count_documents(collection_id, filters, profile_id=1) == 1
        assert await store.delete_documents(collection_id, filters, profile_id=1) == 1
        assert await store.delete_documents(collection_id, filters, profile_id=3) == 0
        assert await self._texts(store, collection_id, 1) == set()
        assert await self._texts(store, collection_id, 2) == {"of 2"}
        with pytest.raises(InvalidInputError, match="profile_id"):
            await store.delete_documents(collection_id, filters, profile_id=-1)

    # C-010 C-020 C19; omitted documents are deleted only for the given parents
    async def test_profile_documents_are_replaced_together(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        cv = profile_draft("p1/cv", ["the cv"], parent="documents")
        first = [profile_draft("p1/a", ["a1", "a2"]), profile_draft("p1/b", ["b1"]), cv]
        await store.replace_profile(collection_id, 1, first)
        await store.replace_profile(collection_id, 2, [profile_draft("p2/b", ["other"])])
        retained = profile_draft("p1/a", ["a1", "a3"], vectors=[None, [1, 1]])
        done = await store.replace_profile(
            collection_id, 1, [profile_draft("p1/c", ["c1"]), retained], removing=["rows"]
        )
        assert [(d.chunks_added, d.chunks_kept, d.chunks_removed) for d in done.stored] == [
            (1, 0, 0),
            (1, 1, 1),
        ]
        assert (done.documents_removed, done.chunks_removed) == (1, 1)
        assert await self._texts(store, collection_id, 1) == {"a1", "a3", "c1", "the cv"}
        assert await self._texts(store, collection_id, 2) == {"other"}
        stored = await store.profile_documents(collection_id, 1)
        assert set(stored) == {"p1/a", "p1/c", "p1/cv"}
        assert stored["p1/cv"].chunk_hashes == {chunk.content_hash for chunk in cv[1]}

    async def test_invalid_document_rolls_back_whole_replacement(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        await store.replace_profile(collection_id, 1, [profile_draft("p1/a", ["a1"])])
        bad = [profile_draft("p1/b", ["b1"]), profile_draft("p1/c", ["c1"], vectors=[None])]
        with pytest.raises(ConflictError):
            await store.replace_profile(collection_id, 1, bad, removing=["rows"])
        assert await self._texts(store, collection_id, 1) == {"a1"}

    # C17
    async def test_source_of_another_profile_raises_conflict(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        await store.replace_profile(collection_id, 1, [profile_draft("same", ["of one"])])
        with pytest.raises(ConflictError, match="another profile"):
            await store.replace_profile(collection_id, 2, [profile_draft("same", ["of two"])])
        assert await self._texts(store, collection_id, 1) == {"of one"}
        assert await self._texts(store, collection_id, 2) == set()

    # C-003
    async def test_delete_profile_removes_its_chunks_only(
        self, store: VectorStore, make_profile_collection: MakeCollection
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        await store.replace_profile(
            collection_id, 1, [profile_draft("p1/a", ["a", "b"]), profile_draft("p1/b", ["c"], parent=None)]
        )
        await store.replace_profile(collection_id, 2, [profile_draft("p2/a", ["other"])])
        assert await store.delete_profile_chunks(collection_id, 1) == 3
        assert await store.delete_profile_chunks(collection_id, 1) == 0
        assert await self._texts(store, collection_id, 1) == set()
        assert await store.profile_documents(collection_id, 1) == {}
        assert await self._texts(store, collection_id, 2) == {"other"}

    @pytest.mark.parametrize("profile_id", [-1, 2**63, True])
    async def test_invalid_profile_arguments_are_rejected(
        self, store: VectorStore, make_profile_collection: MakeCollection, profile_id: int
    ) -> None:
        collection_id = await make_profile_collection(2, COSINE)
        with pytest.raises(InvalidInputError, match="profile_id"):
            await store.replace_profile(collection_id, profile_id, [profile_draft("a", ["a"])])
        with pytest.raises(InvalidInputError, match="profile_id"):
            await self._texts(store, collection_id, profile_id)
        with pytest.raises(InvalidInputError, match="same source"):
            await store.replace_profile(
                collection_id, 1, [profile_draft("a", ["a"]), profile_draft("a", ["b"])]
            )
