"""Contract of every vector store's ``search``."""

import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import pytest

from tests.support.rag.drafts import (
    chunk_drafts,
    document_draft,
    expected_distance,
    expected_score,
    random_vector,
    texts_of,
)
from vectorforge.errors import DimensionMismatchError, FilterError, InvalidInputError
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.base import VectorStore

COSINE = DistanceMetric.COSINE

MakeCollection: TypeAlias = Callable[[int, DistanceMetric], Awaitable[UUID]]
"""``await make_collection(dimension, metric)`` creates an empty collection and returns its id."""


class SearchContract:
    """Search: order, number, scores, filters, rejections."""

    # A-017 A-022 C16
    @pytest.mark.parametrize("metric", list(DistanceMetric))
    async def test_search_scores_match_distances_per_metric(
        self, store: VectorStore, make_collection: MakeCollection, metric: DistanceMetric
    ) -> None:
        generator = random.Random(11)
        vectors = [random_vector(generator, 16) for _ in range(40)]
        query = random_vector(generator, 16)
        collection_id = await make_collection(16, metric)
        chunks = chunk_drafts([f"text {number}" for number in range(40)], vectors)
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        found = await store.search(query_vector=query, top_k=7, collection_id=collection_id, metric=metric)
        distances = {
            f"text {n}": expected_distance(metric, vector, query) for n, vector in enumerate(vectors)
        }
        assert texts_of(found) == sorted(distances, key=distances.__getitem__)[:7]
        for result in found:
            distance = distances[result.chunk.text]
            assert result.distance == pytest.approx(distance, rel=1e-5, abs=1e-5)
            assert result.score == pytest.approx(expected_score(metric, distance), rel=1e-5, abs=1e-5)

    #
    async def test_search_result_holds_all_chunk_fields(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(
            ["one two", "three"], [[1, 0], [0, 1]], [{"page": 1}, {"page": 2, "lang": "en"}]
        )
        draft = document_draft(chunks, metadata={"lang": "de", "tags": ["a", 1, None, {"b": True}]})
        stored = await store.replace_document(collection_id, draft, chunks)
        found = await store.search(query_vector=[0, 2], top_k=1, collection_id=collection_id, metric=COSINE)
        (result,) = found
        assert (result.document_source, result.document_title) == ("guide.md", "Guide")
        assert result.score == pytest.approx(1)
        chunk = result.chunk
        assert isinstance(chunk.id, UUID)
        assert (chunk.document_id, chunk.index, chunk.text) == (stored.document_id, 1, "three")
        assert draft.text[chunk.start_offset : chunk.end_offset] == "three"
        assert (chunk.token_count, chunk.heading) == (1, "Heading 1")
        assert chunk.metadata == {"page": 2, "lang": "en", "tags": ["a", 1, None, {"b": True}]}

    async def test_search_returns_at_most_top_k(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts([f"t{n}" for n in range(5)], [[1, n] for n in range(5)])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        for top_k, expected in ((1, 1), (4, 4), (5, 5), (50, 5)):
            found = await store.search(
                query_vector=[1, 0], top_k=top_k, collection_id=collection_id, metric=COSINE
            )
            assert texts_of(found) == [f"t{n}" for n in range(expected)]
            assert (found.matched, found.matched_is_at_least) == (5, False)

    async def test_ties_are_ordered_by_chunk_id(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts([f"t{n}" for n in range(30)], [[3, 4]] * 30)
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        everything = await store.search(
            query_vector=[3, 4], top_k=30, collection_id=collection_id, metric=COSINE
        )
        ids = [result.chunk.id for result in everything]
        assert ids == sorted(ids)
        some = await store.search(query_vector=[3, 4], top_k=7, collection_id=collection_id, metric=COSINE)
        assert [result.chunk.id for result in some] == ids[:7]

    # B-024 B-025 C18; a filter that matches nothing returns nothing
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"category": "technology"}, ["a", "b"]),
            ({"author": "John Doe", "year": "2024"}, ["c"]),
            ({"author": "John Doe", "year": 2024}, ["a"]),
            ({"year": {"$gte": 2024}}, ["a"]),
            ({"tags": {"$in": ["ml", "db"]}}, ["b", "c"]),
            ({"$or": [{"tags": "db"}, {"year": 2024}]}, ["a", "c"]),
            ({"year": {"$exists": False}}, ["b"]),
            ({"place.city": {"$ne": "Graz"}}, ["b", "c"]),
            ({"category": "cooking"}, []),
            ({"lang": "en"}, ["a", "b", "c"]),  # the document's own
        ],
    )
    async def test_search_with_filters_returns_matching_chunks_only(
        self,
        store: VectorStore,
        make_collection: MakeCollection,
        filters: dict[str, Any],
        expected: list[str],
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        metadata: list[dict[str, Any]] = [
            {"category": "technology", "author": "John Doe", "year": 2024, "place": {"city": "Graz"}},
            {"category": "technology", "tags": ["ml"]},
            {"author": "John Doe", "year": "2024", "tags": ["x", "db"], "place": "Graz"},
        ]
        chunks = chunk_drafts(["a", "b", "c"], [[1, 0], [2, 1], [1, 2]], metadata)
        await store.replace_document(collection_id, document_draft(chunks, metadata={"lang": "en"}), chunks)
        found = await store.search(
            query_vector=[1, 0], top_k=10, collection_id=collection_id, metric=COSINE, filters=filters
        )
        assert texts_of(found) == expected
        assert (found.matched, found.matched_is_at_least) == (len(expected), False)
        nearest = await store.search(
            query_vector=[1, 0], top_k=1, collection_id=collection_id, metric=COSINE, filters=filters
        )
        counted = nearest.matched or 0
        assert counted <= len(expected)
        assert nearest.matched_is_at_least or counted == len(expected)  # an index does not return all of them

    # C18: the same filters select documents, by their own metadata
    async def test_delete_by_filter_removes_matching_documents_only(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        searched, other = await make_collection(2, COSINE), await make_collection(2, COSINE)
        for collection_id in (searched, other):
            for number in range(5):
                chunks = chunk_drafts([f"t{number}"], [[1, number]], [{"of": "passage"}])
                document = document_draft(chunks, source=f"{number}.md", metadata={"n": number})
                await store.replace_document(collection_id, document, chunks)
        for unmatched in ("n", 9), ("of", "passage"), ("n", "1"):
            assert await store.count_documents(searched, dict([unmatched])) == 0
            assert await store.delete_documents(searched, dict([unmatched])) == 0
        filters = {"$or": [{"n": {"$lt": 2}}, {"n": {"$in": [4]}}]}
        assert await store.count_documents(searched, filters) == 3
        assert await store.delete_documents(searched, filters) == 3
        assert await store.delete_documents(searched, filters) == 0
        for collection_id, expected in ((searched, ["t2", "t3"]), (other, [f"t{n}" for n in range(5)])):
            found = await store.search(
                query_vector=[1, 0], top_k=10, collection_id=collection_id, metric=COSINE
            )
            assert texts_of(found) == expected

    async def test_delete_without_condition_is_rejected(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        unusable: list[dict[str, Any]] = [{}, {"n": {"$near": 1}}, {"$or": []}]
        for refused in unusable:
            with pytest.raises(FilterError):
                await store.delete_documents(collection_id, refused)
            with pytest.raises(FilterError):
                await store.count_documents(collection_id, refused)

    # C14
    async def test_collections_of_different_dimensions_and_metrics_are_separate(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        generator = random.Random(5)
        spaces = [(8, COSINE), (768, DistanceMetric.L2), (1536, DistanceMetric.INNER_PRODUCT)]
        collections: list[tuple[UUID, int, DistanceMetric, list[list[float]]]] = []
        for dimension, metric in spaces:
            collection_id = await make_collection(dimension, metric)
            vectors = [random_vector(generator, dimension) for _ in range(5)]
            chunks = chunk_drafts([f"{dimension} {n}" for n in range(5)], vectors)
            await store.replace_document(collection_id, document_draft(chunks), chunks)
            collections.append((collection_id, dimension, metric, vectors))
        for collection_id, dimension, metric, vectors in collections:
            query = random_vector(generator, dimension)
            found = await store.search(
                query_vector=query, top_k=10, collection_id=collection_id, metric=metric
            )
            order = sorted(range(5), key=lambda n: expected_distance(metric, vectors[n], query))
            assert texts_of(found) == [f"{dimension} {n}" for n in order]

    async def test_search_in_empty_or_unknown_collection_returns_nothing(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        for wanted in (collection_id, uuid4()):
            assert await store.search(query_vector=[1, 0], top_k=3, collection_id=wanted, metric=COSINE) == []

    # C14
    async def test_query_vector_of_wrong_dimension_is_rejected(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        chunks = chunk_drafts(["a"], [[1, 0]])
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        with pytest.raises(DimensionMismatchError) as refused:
            await store.search(query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=COSINE)
        assert (refused.value.expected, refused.value.actual) == (2, 3)

    @pytest.mark.parametrize(
        "vector",
        [[0, 0], [1, math.nan], [math.inf, 1], [-math.inf, math.inf], [1e39, 1], [1e-30, 0], [1e25, 1], []],
    )
    async def test_invalid_vectors_are_rejected_by_field(
        self, store: VectorStore, make_collection: MakeCollection, vector: list[float]
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        with pytest.raises(InvalidInputError) as refused:
            await store.search(query_vector=vector, top_k=3, collection_id=collection_id, metric=COSINE)
        assert refused.value.field == "query_vector"
        chunks = chunk_drafts(["a", "b"], [[1, 0], vector])
        with pytest.raises(InvalidInputError) as refused:
            await store.replace_document(collection_id, document_draft(chunks), chunks)
        assert refused.value.field == "chunks[1].vector"

    async def test_invalid_search_arguments_are_rejected(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        collection_id = await make_collection(2, COSINE)
        for top_k in (0, -1, 1001):
            with pytest.raises(InvalidInputError, match="top_k"):
                await store.search(
                    query_vector=[1, 0], top_k=top_k, collection_id=collection_id, metric=COSINE
                )
        with pytest.raises(FilterError, match=r"year\.\$near"):
            await store.search(
                query_vector=[1, 0],
                top_k=1,
                collection_id=collection_id,
                metric=COSINE,
                filters={"year": {"$near": 1}},
            )
