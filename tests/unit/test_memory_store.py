"""Profiles in memory: ``ProfileVectorStore`` without a database. C-006."""

import pytest

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.errors import InvalidInputError
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.profile_types import SourceType
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.types import SearchMode

Pipelines = tuple[ProfileVectorStore, RAGIngestionPipeline, RAGRetrievalPipeline]


@pytest.fixture
async def pipelines() -> Pipelines:
    """Profile 1 with rows and a CV, and profile 2."""
    provider = HashingEmbedder()
    store = ProfileVectorStore(provider)
    ingestion, retrieval = RAGIngestionPipeline(store, provider), RAGRetrievalPipeline(store, provider)
    pilot = {"id": 1, "title": "Pilot", "description": "Flies mail planes."}
    await ingestion.reingest_profile(1, "Builds bridges.", [pilot], [])
    await ingestion.ingest_document(1, "Bakes rye bread.", SourceType.CV, metadata={"year": 2024})
    await ingestion.ingest_document(2, "Bakes white bread.", SourceType.CV)
    return store, ingestion, retrieval


async def test_search_in_memory_finds_nearest_chunks_of_profile(pipelines: Pipelines) -> None:
    _, _, retrieval = pipelines
    found = await retrieval.retrieve("Bakes rye bread.", 1, 2)
    assert (found[0].text, found[0].source_type) == ("Bakes rye bread.", SourceType.CV)
    assert found[0].score == pytest.approx(1, abs=1e-5)
    assert len(found) == 2
    assert [chunk.text for chunk in await retrieval.retrieve("rye bread", 2)] == ["Bakes white bread."]


async def test_search_in_memory_with_filter_returns_matching_chunks(pipelines: Pipelines) -> None:
    _, _, retrieval = pipelines
    found = await retrieval.retrieve("bridges", 1, 5, {"year": {"$gte": 2024}})
    assert [chunk.text for chunk in found] == ["Bakes rye bread."]


async def test_search_in_memory_by_words_alone_is_rejected(pipelines: Pipelines) -> None:
    _, _, retrieval = pipelines
    hybrid = await retrieval.retrieve("Builds bridges.", 1, 1, search_mode=SearchMode.HYBRID)
    assert [chunk.text for chunk in hybrid] == ["Builds bridges."]
    with pytest.raises(InvalidInputError, match="by vectors only"):
        await retrieval.retrieve("bridges", 1, search_mode=SearchMode.LEXICAL)


async def test_reingestion_in_memory_replaces_rows_and_keeps_other_documents(pipelines: Pipelines) -> None:
    store, ingestion, retrieval = pipelines
    done = await ingestion.reingest_profile(1, "Builds tunnels.", [], [])
    assert (done.documents_removed, done.chunks_removed) == (1, 2)
    texts = {chunk.text for chunk in await retrieval.retrieve("anything", 1, 10)}
    assert texts == {"Builds tunnels.", "Bakes rye bread."}
    assert await store.delete_profile_chunks(1) == 2
    assert await retrieval.retrieve("anything", 1, 10) == []
    assert len(await retrieval.retrieve("anything", 2, 10)) == 1
