"""The best chunks of a search are ordered by where they have the query's words, too."""

import hashlib
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.support.rag.chunks import make_chunk
from tests.support.rag.query_parts import OneCollection
from tests.support.rag.reference_store import ReferenceVectorStore
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.retriever.choice import nearest_words_first
from vectorforge.retriever.hybrid import HybridRetriever
from vectorforge.types import (
    ChunkDraft,
    Collection,
    DistanceMetric,
    DocumentDraft,
    RetrievedChunk,
    SearchMode,
)

QUERY = "Where is the warranty card of the kettle kept?"
FILLER = " It has a lid, and a handle that stays cool while water boils in three minutes." * 3


def ranked(*texts: str, relevance: float = 0.5, step: float = 0.001) -> list[RetrievedChunk]:
    """Return chunks of falling relevance."""
    return [replace(make_chunk(text), relevance=relevance - place * step) for place, text in enumerate(texts)]


def ordered(query: str, *texts: str) -> list[str]:
    return [found.chunk.text for found in nearest_words_first(query, ranked(*texts))]


@pytest.mark.parametrize(
    ("query", "apart", "together"),
    [
        (QUERY, f"The kettle is new.{FILLER} The warranty card.", f"A warranty card of the kettle.{FILLER}"),
        (QUERY, "Kettle, card, warranty", "Warranty card, kettle"),
        ("insured parcels", f"Parcels.{FILLER} Insurance.", f"Insurance of parcels.{FILLER}"),
        ("valve 42", f"Page 42.{FILLER} Valve 7.", f"Turn valve 42.{FILLER}"),
        (
            "水壶的保修卡",
            "水壶在厨房里。它很新，也很漂亮，大家都喜欢用它烧水喝茶和咖啡。卡",
            "水壶的保修卡在盒子里。",
        ),
        ("ราคาตั๋ว", "ตั้งราว ค่าคา", "ราคาตั๋วรถ"),
    ],
    ids=["window", "order", "forms", "number", "chinese", "thai"],
)
def test_chunk_with_words_together_is_first(query: str, apart: str, together: str) -> None:
    assert ordered(query, apart, together) == [together, apart]
    assert ordered(query, together, apart) == [together, apart]


def test_rare_words_count_more_than_those_of_most_chunks() -> None:
    common, rare = f"The kettle.{FILLER}", f"The warranty.{FILLER}"
    assert ordered("kettle warranty", common, rare, common) == [rare, common, common]


def test_relevance_grows_with_proximity_and_falls_from_chunk_to_chunk() -> None:
    chunks = ranked("A card.", "The warranty card of a kettle.", "Bread.", *["Bread."] * 9)
    found = nearest_words_first("warranty card kettle", chunks)
    relevance = [one.relevance or 0.0 for one in found]
    assert relevance == sorted(relevance, reverse=True)
    assert found[0].chunk == chunks[1].chunk
    assert relevance[0] == pytest.approx(0.499 * 1.4)
    assert found[2:] == chunks[2:]


def test_words_do_not_outweigh_a_much_better_chunk() -> None:
    chunks = ranked("Bread rises in a warm place.", "The warranty card of the kettle.", step=0.3)
    assert [one.chunk for one in nearest_words_first(QUERY, chunks)] == [one.chunk for one in chunks]


def test_chunks_beyond_the_tenth_keep_their_places() -> None:
    chunks = ranked(*["Bread."] * 10, "The warranty card of the kettle.")
    assert nearest_words_first(QUERY, chunks) == chunks


@pytest.mark.parametrize("query", ["", "?!", "is it so", "Bread and butter"])
def test_query_without_a_word_of_the_chunks_changes_nothing(query: str) -> None:
    chunks = ranked("The kettle.", "Water.", "")
    assert nearest_words_first(query, chunks) == chunks


def test_relevance_is_at_most_one() -> None:
    chunks = ranked("The warranty card of the kettle.", "Bread.", "A warranty card.", relevance=1.0)
    assert [one.relevance for one in nearest_words_first("warranty card", chunks)] == [1.0, 1.0, 0.999]


def test_single_chunk_keeps_its_relevance() -> None:
    chunks = ranked("The warranty card of the kettle.")
    assert nearest_words_first(QUERY, chunks) == chunks


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("mode", SearchMode)
async def test_searches_with_words_are_ordered_by_proximity(mode: SearchMode, top_k: int) -> None:
    collection = Collection(
        id=uuid4(),
        name="kitchen",
        embedding_provider="hashing",
        embedding_model="hashing-64",
        dimension=64,
        distance_metric=DistanceMetric.COSINE,
    )
    embedder, store, registry = HashingEmbedder(), ReferenceVectorStore(), EmbeddingProviderRegistry()
    registry.register(embedder)
    apart = f"Card.{FILLER} Warranty."
    together = f"Its warranty card.{FILLER} Keep it."
    for text in (apart, together):
        digest = hashlib.sha256(text.encode()).digest()
        (vector,) = await embedder.embed_documents([text])
        draft = ChunkDraft(0, text, 0, len(text), 3, digest, metadata={}, vector=vector)
        await store.replace_document(collection.id, DocumentDraft(text, text, "text/plain", digest), [draft])
    retriever = HybridRetriever(registry, store, OneCollection(collection))
    found = await retriever.retrieve("warranty card", collection.id, top_k, search_mode=mode)
    order = [apart, together] if mode is SearchMode.DENSE else [together, apart]
    assert [one.chunk.text for one in found] == order[:top_k]
    assert (found[0].relevance is None) == (mode is SearchMode.DENSE)
