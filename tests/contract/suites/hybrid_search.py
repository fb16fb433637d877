"""Contract of every vector store's lexical and hybrid search."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.contract.suites.search import MakeCollection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector, texts_of
from tests.support.rag.reference_store import ReferenceVectorStore
from vectorforge.errors import InvalidInputError
from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.base import NearestChunks, VectorStore
from vectorforge.vectorstore.search.search import LEG_DEPTH

COSINE = DistanceMetric.COSINE
# Words that are unchanged by stemming and in no list of stop words.
WORDS = ("quartz", "basalt", "granit", "feldspar", "gneiss", "obsidian", "pumic", "marbl", "topaz", "jasper")
QUESTIONS = ("quartz", "basalt quartz", "topaz and jasper, gneiss?", "granit granit marbl", "nothing of it")


def passages(generator: random.Random, count: int) -> list[str]:
    """Return distinct texts of 1 to 12 of the words; the first words are common, the last ones rare."""
    weights = [2.0**-rank for rank in range(len(WORDS))]
    return [
        " ".join([*generator.choices(WORDS, weights, k=generator.randint(1, 12)), f"n{number}"])
        for number in range(count)
    ]


class HybridContract:
    """Hybrid search: the same result as the oracle's, for every metric, weight and filter."""

    @staticmethod
    async def _filled(
        store: VectorStore, collection_id: UUID, texts: Sequence[str], *, dimension: int = 8
    ) -> ReferenceVectorStore:
        """Fill the store, and an oracle with the same document."""
        generator = random.Random(3)
        vectors = [random_vector(generator, dimension) for _ in texts]
        metadata = [{"third": number % 3 == 0, "number": number} for number in range(len(texts))]
        chunks = chunk_drafts(texts, vectors, metadata)
        oracle = ReferenceVectorStore()
        for each in (store, oracle):
            await each.replace_document(collection_id, document_draft(chunks), chunks)
        return oracle

    # hybrid: fused score, ranked by relevance; lexical: BM25
    @pytest.mark.parametrize("metric", list(DistanceMetric))
    @pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.LEXICAL])
    async def test_hybrid_search_matches_reference_store(
        self, store: VectorStore, make_collection: MakeCollection, metric: DistanceMetric, mode: SearchMode
    ) -> None:
        generator = random.Random(17)
        collection_id = await make_collection(8, metric)
        # Fewer than LEG_DEPTH: which of equally good chunks are the last of a leg is not defined.
        oracle = await self._filled(store, collection_id, passages(generator, LEG_DEPTH - 1))
        for question in QUESTIONS:
            for filters in (None, {"third": True}, {"number": {"$lt": 2}}, {"number": -1}):
                options: dict[str, Any] = {
                    "query_vector": random_vector(generator, 8) if mode is SearchMode.HYBRID else None,
                    "query_text": question,
                    "context_text": generator.choice([None, *QUESTIONS]),
                    "top_k": generator.choice([1, 7, 60]),
                    "collection_id": collection_id,
                    "metric": metric,
                    "filters": filters,
                    "dense_weight": generator.choice([0.0, 0.3, 0.5, 1.0]),
                }
                same(await store.search(**options), await oracle.search(**options))

    async def test_hybrid_search_finds_lexical_match_far_from_vector(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        texts = [f"basalt n{number}" for number in range(150)] + ["the obsidian one"]
        vectors = [[1.0, number / 1000] for number in range(150)] + [[0.0, 1.0]]
        chunks = chunk_drafts(texts, vectors)
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        dense = await store.search(query_vector=[1, 0], top_k=150, collection_id=collection_id, metric=COSINE)
        assert "the obsidian one" not in texts_of(dense)
        assert {(found.relevance, found.lexical_score) for found in dense} == {(None, None)}
        hybrid = await store.search(
            query_vector=[1, 0],
            query_text="obsidian",
            top_k=5,
            collection_id=collection_id,
            metric=COSINE,
            dense_weight=0.3,
        )
        (first, second, *_) = hybrid
        assert first.chunk.text == "the obsidian one"
        assert first.score == pytest.approx(0, abs=1e-6)  # its own cosine, although found by words only
        assert (second.chunk.text, second.lexical_score) == ("basalt n0", 0)
        assert first.relevance is not None
        assert second.relevance is not None
        assert first.relevance - second.relevance == pytest.approx(
            0.8 * (0.7 * 2 / 3 - 0.3)
        )  # of one document
        assert len(hybrid) == 5

    async def test_lexical_search_scores_between_0_and_1(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(8, COSINE)
        await self._filled(store, collection_id, ["quartz quartz", "quartz basalt topaz", "gneiss"])
        found = await store.search(
            query_vector=None, query_text="Quartz!", top_k=9, collection_id=collection_id, metric=COSINE
        )
        assert texts_of(found) == ["quartz quartz", "quartz basalt topaz"]
        assert found.matched == 3
        assert [result.score for result in found] == [result.relevance for result in found]
        assert found[0].score == 1.0
        assert 0 < found[1].score < 1
        assert found.scan is not None
        assert (found.scan.method, found.scan.reason) == ("exact", "words")

    async def test_words_of_context_count_for_less_than_those_of_the_query(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(8, COSINE)
        await self._filled(store, collection_id, ["basalt topaz", "quartz topaz", "gneiss", "quartz basalt"])
        options: dict[str, Any] = {"query_vector": None, "top_k": 9, "metric": COSINE}
        found = await store.search(
            **options, collection_id=collection_id, query_text="quartz", context_text="basalt quartz"
        )
        assert texts_of(found) == ["quartz basalt", "quartz topaz", "basalt topaz"]
        assert [result.score for result in found] == pytest.approx([1.0, 1 / 1.3, 0.3 / 1.3])

    @pytest.mark.parametrize("question", ["", "the of and", "unheard", "?!", "a" * 5_000])
    async def test_words_without_match_leave_dense_results(
        self, store: VectorStore, make_collection: MakeCollection, question: str
    ) -> None:
        collection_id = await make_collection(8, COSINE)
        await self._filled(store, collection_id, ["quartz", "basalt", "topaz"])
        options: dict[str, Any] = {"top_k": 2, "collection_id": collection_id, "metric": COSINE}
        assert await store.search(query_vector=None, query_text=question, **options) == []
        vector = [1.0] * 8
        hybrid = await store.search(query_vector=vector, query_text=question, **options)
        dense = await store.search(query_vector=vector, **options)
        assert texts_of(hybrid) == texts_of(dense)
        assert all(found.relevance is not None and 0 < found.relevance <= 0.5 for found in hybrid)

    async def test_replaced_chunk_words_are_removed(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        for texts in (["quartz", "basalt"], ["topaz", "basalt"]):
            chunks = chunk_drafts(texts, [[1, 0], [0, 1]])
            await store.replace_document(collection_id, document_draft(chunks), chunks)
        options: dict[str, Any] = {"top_k": 5, "collection_id": collection_id, "metric": COSINE}
        assert await store.search(query_vector=None, query_text="quartz", **options) == []
        found = await store.search(query_vector=None, query_text="topaz basalt", **options)
        assert sorted(texts_of(found)) == ["basalt", "topaz"]
        await store.delete_document(found[0].chunk.document_id)
        assert await store.search(query_vector=None, query_text="topaz basalt", **options) == []

    async def test_context_is_searched_and_kept_with_its_chunk_and_not_returned(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        options: dict[str, Any] = {"top_k": 9, "collection_id": collection_id, "metric": COSINE}
        plain = chunk_drafts(["basalt", "topaz"], [[1, 0], [0, 1]])
        chunks = [replace(plain[0], index_context="quartz"), plain[1]]
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        for title in ("Guide, second edition", "Guide"):
            found = await store.search(query_vector=None, query_text="quartz", **options)
            assert texts_of(found) == ["basalt"]
            assert "quartz" not in repr(found[0])
            kept = [replace(chunk, vector=None) for chunk in plain]  # stored chunks keep their contexts
            await store.replace_document(collection_id, document_draft(kept, title=title), kept)
        changed = [replace(plain[0], content_hash=bytes(32)), replace(plain[1], vector=None)]
        await store.replace_document(collection_id, document_draft(changed, title=None), changed)
        assert await store.search(query_vector=None, query_text="quartz", **options) == []

    async def test_invalid_query_text_and_weight_are_rejected(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        options: dict[str, Any] = {"top_k": 5, "collection_id": collection_id, "metric": COSINE}
        refused: list[tuple[str, dict[str, Any]]] = [
            ("query_vector", {"query_vector": None}),
            ("query_text", {"query_vector": None, "query_text": "a\0b"}),
            ("query_text", {"query_vector": [1, 0], "query_text": "\ud800"}),
            *(
                ("dense_weight", {"query_vector": [1, 0], "query_text": "a", "dense_weight": weight})
                for weight in (-0.1, 1.1, math.nan, math.inf)
            ),
        ]
        for field, arguments in refused:
            with pytest.raises(InvalidInputError) as raised:
                await store.search(**options, **arguments)
            assert raised.value.field == field


def same(found: NearestChunks, expected: NearestChunks) -> None:
    """Check a result against the oracle's: the same scores of the same chunks, except for ties."""
    assert len(found) == len(expected)
    assert [result.relevance for result in found] == [
        pytest.approx(result.relevance, rel=1e-4, abs=1e-5) for result in expected
    ]
    wanted = {result.chunk.text: result for result in expected}
    for result in found:
        if result.chunk.text not in wanted:  # as good as the oracle's last
            assert result.relevance == pytest.approx(expected[-1].relevance, rel=1e-4, abs=1e-5)
            continue
        other = wanted[result.chunk.text]
        assert result.score == pytest.approx(other.score, rel=1e-4, abs=1e-5)
        assert result.distance == pytest.approx(other.distance, rel=1e-4, abs=1e-5)
        assert result.lexical_score == pytest.approx(other.lexical_score, rel=1e-4)
    assert found.matched_is_at_least or found.matched == expected.matched
