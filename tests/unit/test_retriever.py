"""DenseRetriever over the exact in-memory store."""

import asyncio
import hashlib
import logging
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from tests.support.rag.query_parts import OneCollection
from tests.support.rag.reference_store import ReferenceVectorStore
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, DimensionMismatchError, InvalidInputError, NotFoundError
from vectorforge.retriever.base import BaseRetriever, QueryLookup, QueryPreprocessor, RetrievalRequest
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.types import ChunkDraft, Collection, DistanceMetric, DocumentDraft

COLLECTION = Collection(
    id=uuid4(),
    name="animals",
    embedding_provider="hashing",
    embedding_model="hashing-64",
    dimension=64,
    distance_metric=DistanceMetric.COSINE,
)
TEXTS = ["cats and dogs", "cats and mice and cheese", "trains, planes"]
TAGS = {"retriever_type": "dense"}


class Setup:
    """A retriever over three documents, with access to its parts."""

    def __init__(self, collection: Collection = COLLECTION) -> None:
        self.embedder = HashingEmbedder()
        self.registry = EmbeddingProviderRegistry()
        self.registry.register(self.embedder)
        self.store = ReferenceVectorStore()
        self.metrics = InMemoryMetrics()
        self.retriever = DenseRetriever(
            self.registry,
            self.store,
            OneCollection(collection),
            preprocess=QueryPreprocessor(max_query_length=50).preprocess,
            metrics=self.metrics,
            max_top_k=20,
        )

    async def fill(self) -> "Setup":
        for text in TEXTS:
            digest = hashlib.sha256(text.encode()).digest()
            (vector,) = await self.embedder.embed_documents([text])
            draft = ChunkDraft(
                0, text, 0, len(text), 3, digest, metadata={"length": len(text)}, vector=vector
            )
            document = DocumentDraft(f"{text[:4]}-{len(text)}.txt", text, "text/plain", digest)
            await self.store.replace_document(COLLECTION.id, document, [draft])
        self.embedder.texts.clear()
        return self


async def test_chunks_are_returned_best_first() -> None:
    setup = await Setup().fill()
    assert isinstance(setup.retriever, BaseRetriever)
    found = await setup.retriever.retrieve("cats and dogs", COLLECTION.id, top_k=2)
    assert [r.chunk.text for r in found] == ["cats and dogs", "cats and mice and cheese"]
    assert found[0].score == pytest.approx(1.0)
    assert (found[0].chunk.index, found[0].document_source) == (0, "cats-13.txt")
    assert isinstance(found[0].chunk.id, UUID)


async def test_query_is_preprocessed_and_embedded_once() -> None:  # C39
    setup = await Setup().fill()
    await setup.retriever.retrieve("  cats   and  dogs ", COLLECTION.id)
    assert setup.embedder.texts == ["cats and dogs"]


@pytest.mark.parametrize("query", ["", "  "])
async def test_empty_query_is_rejected(query: str) -> None:
    with pytest.raises(ValueError, match=r"^Query cannot be empty$"):
        await Setup().retriever.retrieve(query, COLLECTION.id)


async def test_long_query_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    setup = await Setup().fill()
    await setup.retriever.retrieve("x" * 60, COLLECTION.id)
    assert setup.embedder.texts == ["x" * 50]
    assert "Query truncated from 60 to 50 chars" in caplog.messages


async def test_unknown_collection_raises_not_found() -> None:
    unknown = uuid4()
    with pytest.raises(NotFoundError, match=f"^Collection {unknown} not found$"):
        await Setup().retriever.retrieve("q", unknown)


async def test_min_score_is_inclusive() -> None:
    setup = await Setup().fill()
    everything = await setup.retriever.retrieve("cats", COLLECTION.id, min_score=None)
    assert len(everything) == 3
    threshold = everything[1].score
    found = await setup.retriever.retrieve("cats", COLLECTION.id, min_score=threshold)
    assert [r.score for r in found] == [everything[0].score, threshold]


async def test_filters_are_passed_to_store() -> None:
    setup = await Setup().fill()
    found = await setup.retriever.retrieve("cats", COLLECTION.id, filters={"length": len(TEXTS[2])})
    assert [r.chunk.text for r in found] == [TEXTS[2]]


async def test_search_result_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    setup = await Setup().fill()
    await setup.retriever.retrieve("cats", COLLECTION.id, top_k=2)
    assert "Retrieved 2 chunks for query (top_k=2, metric=cosine)" in caplog.messages


async def test_collection_selects_provider_and_metric_in_both_spellings() -> (
    None
):  # C28
    config = COLLECTION.embedding_config
    assert config["default_provider"] == config["embedding_provider"] == "hashing"
    assert config["metric"] == config["distance_metric"] == "cosine"
    l2 = replace(COLLECTION, distance_metric=DistanceMetric.L2)
    setup = await Setup(l2).fill()
    found = await setup.retriever.retrieve("cats and dogs", l2.id, top_k=1)
    assert found[0].score == pytest.approx(1.0)
    assert found[0].distance == pytest.approx(0.0, abs=1e-3)


async def test_query_prefix_is_prepended_before_embedding() -> None:  # C14
    setup = await Setup(replace(COLLECTION, query_prefix="search_query: ")).fill()
    await setup.retriever.retrieve("cats", COLLECTION.id)
    assert setup.embedder.texts == ["search_query: cats"]


async def test_vector_dimension_mismatch_raises_conflict() -> None:  # C14
    setup = Setup(replace(COLLECTION, dimension=32))
    with pytest.raises(DimensionMismatchError, match=r"64 dimensions.*32"):
        await setup.retriever.retrieve("cats", COLLECTION.id)


async def test_unknown_embedding_provider_is_rejected() -> None:
    with pytest.raises(InvalidInputError) as caught:
        await Setup().retriever.retrieve("cats", COLLECTION.id, embedding_provider="nope")
    assert caught.value.field == "embedding_provider"
    with pytest.raises(ConfigurationError):
        await Setup(replace(COLLECTION, embedding_provider="gone")).retriever.retrieve("cats", COLLECTION.id)


@pytest.mark.parametrize("top_k", [0, -1, 21])
async def test_top_k_out_of_bounds_is_rejected(top_k: int) -> None:  # C03
    with pytest.raises(InvalidInputError, match="between 1 and 20"):
        await Setup().retriever.retrieve("cats", COLLECTION.id, top_k=top_k)


async def test_retriever_search_aliases_return_same_chunks() -> None:  # C28
    setup = await Setup().fill()
    by_name = await setup.retriever.search("cats", COLLECTION.id, 2)
    with_scores = await setup.retriever.retrieve_with_scores("cats", COLLECTION.id, 2)
    assert [r.chunk.id for r in by_name] == [r.chunk.id for r in with_scores]


async def test_searches_are_measured_once() -> None:  # C26
    setup = await Setup().fill()
    await setup.retriever.retrieve("cats", COLLECTION.id, top_k=2)
    await setup.retriever.retrieve("cats", COLLECTION.id, filters={"length": -1})
    with pytest.raises(NotFoundError):
        await setup.retriever.retrieve("cats", uuid4())
    metrics = setup.metrics
    assert metrics.get("retriever.search.calls", TAGS).total == 3
    assert metrics.get("retriever.search.duration_ms", TAGS).count == 3
    assert list(metrics.get("retriever.results_returned", TAGS).values) == [2, 0]
    assert metrics.get("retriever.empty_results", TAGS).total == 1
    assert metrics.get("retriever.search.errors", {**TAGS, "error_type": "NotFoundError"}).total == 1


async def test_retriever_without_optional_arguments_searches() -> None:
    setup = await Setup().fill()
    retriever = DenseRetriever(setup.registry, setup.store, OneCollection(COLLECTION))
    found = await retriever.retrieve("  cats  and   dogs ", COLLECTION.id)
    assert found[0].chunk.text == "cats and dogs"
    with pytest.raises(InvalidInputError, match="empty"):
        await retriever.retrieve("  ", COLLECTION.id)


@pytest.mark.parametrize("is_looked_up", [True, False])
async def test_search_after_a_task_embeds_meanwhile(is_looked_up: bool) -> None:  # one connection at a time
    setup, released = await Setup().fill(), asyncio.Event()

    lookup = QueryLookup(COLLECTION) if is_looked_up else None
    after = asyncio.create_task(_wait_for(released))
    request = RetrievalRequest("cats", COLLECTION.id, lookup=lookup, after=after)
    found = asyncio.create_task(setup.retriever.find(request))
    await asyncio.sleep(0.05)
    assert bool(setup.embedder.texts) == is_looked_up  # else the collection is read from the database first
    assert not found.done()
    released.set()
    assert len(await found) == 3


async def test_canceled_search_leaves_the_task_before_it_alone() -> None:
    setup, released = await Setup().fill(), asyncio.Event()
    after = asyncio.create_task(_wait_for(released))
    request = RetrievalRequest("cats", COLLECTION.id, lookup=QueryLookup(COLLECTION), after=after)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await setup.retriever.find(request)
    released.set()
    await after


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
