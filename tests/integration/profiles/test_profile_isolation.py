"""Profiles under concurrent access, isolated from each other and from ordinary collections."""

import asyncio
from typing import Any

import pytest

from tests.integration.profiles.conftest import Profiles
from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    ConflictError,
    InvalidInputError,
)
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.vectorstore.pgvector import PgVectorStore


# C19: a reader sees one edition, whole, while it is replaced 50 times
async def test_concurrent_reader_sees_one_whole_edition(profiles: Profiles) -> None:
    def edition(number: int) -> list[dict[str, Any]]:
        stays = [{"id": n, "title": f"Job {n}", "description": f"Always {n}"} for n in range(3)]
        changes = [{"id": n, "title": f"Job {n}", "description": f"Edition {number}"} for n in range(3, 6)]
        comes = [{"id": 100 + number, "title": "New job", "description": f"Edition {number}"}]
        return stays + changes + comes

    await profiles.ingestion.reingest_profile(7, "", edition(0), [])
    done = asyncio.Event()

    async def read(filters: dict[str, Any] | None) -> set[str]:
        seen: set[str] = set()
        while not done.is_set():
            found = await profiles.retrieval.retrieve("edition", 7, 100, filters)
            texts = [chunk.text for chunk in found]
            assert len(texts) == len({chunk.id for chunk in found}) == 7, texts
            editions = {text.rpartition("Edition ")[2] for text in texts if "Edition" in text}
            assert len(editions) == 1, editions
            seen |= editions
        return seen

    readers = [asyncio.create_task(read(filters)) for filters in (None, {"source_type": "experience"})]
    for number in range(1, 26):
        await profiles.ingestion.reingest_profile(7, "", edition(number), [])
    done.set()
    for seen in await asyncio.gather(*readers):
        assert len(seen) > 1


# C19: two writers of a profile that did not exist leave one edition, not a mixture
async def test_concurrent_writers_of_one_profile_are_serialized(profiles: Profiles) -> None:
    for profile_id in range(20):
        editions = [
            [{"id": n, "title": f"{name} {n}"} for n in range(size)] for name, size in (("a", 3), ("b", 2))
        ]
        await asyncio.gather(
            *(profiles.ingestion.reingest_profile(profile_id, "", rows, []) for rows in editions)
        )
        texts = sorted(await profiles.texts(profile_id))
        assert texts in (["# a 0", "# a 1", "# a 2"], ["# b 0", "# b 1"])


# C-019 C17: equal ids of profiles in two tenants, and two profiles of one tenant
async def test_profiles_and_tenants_are_isolated(profiles: Profiles, other_tenant_db: TenantDatabase) -> None:
    others = await Profiles.of(other_tenant_db)
    for owner, profile_id, text in ((profiles, 7, "mine"), (profiles, 8, "neighbour"), (others, 7, "theirs")):
        await owner.ingestion.reingest_profile(profile_id, f"The {text} summary.", [], [])
    assert await profiles.texts(7) == ["The mine summary."]
    assert await profiles.texts(8) == ["The neighbour summary."]
    assert await others.texts(7) == ["The theirs summary."]
    assert await others.texts(8) == []
    stranger = ProfileVectorStore(
        others.embedder, store=PgVectorStore(other_tenant_db), collection=profiles.collection
    )
    assert await RAGRetrievalPipeline(stranger, others.embedder).retrieve("mine", 7) == []
    assert await stranger.stored(7) == {}
    await profiles.ingestion.reingest_profile(7, "", [], [])
    assert (await profiles.texts(7), await profiles.texts(8)) == ([], ["The neighbour summary."])


# C17: such a collection can be neither written nor read without a profile
async def test_profile_collection_rejects_other_documents(profiles: Profiles) -> None:
    await profiles.ingestion.reingest_profile(7, "Mine.", [], [])
    registry = EmbeddingProviderRegistry()
    registry.register(profiles.embedder)
    core = PgVectorStore(profiles.db)
    retriever = DenseRetriever(registry, core, CollectionRepository(profiles.db), preprocess=str.strip)
    for filters in (None, {"profile_id": 7}):
        with pytest.raises(InvalidInputError, match="profile_id is required") as refused:
            await retriever.retrieve("mine", profiles.collection.id, 5, filters)
        assert refused.value.field == "profile_id"
    found = await retriever.retrieve("mine", profiles.collection.id, 5, profile_id=7)
    assert [chunk.chunk.text for chunk in found] == ["Mine."]

    documents = DocumentRepository(profiles.db)
    pipeline = IngestionPipeline(core, documents, registry, IngestionSettings())
    (result,) = await ingest_bytes(pipeline, profiles.collection, b"Nobody's.", "profiles/7/summary/1")
    assert result.status is DocumentStatus.FAILED
    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert await profiles.texts(7) == ["Mine."]


async def test_ordinary_collection_rejects_profiles(tenant_db: TenantDatabase) -> None:
    with pytest.raises(ConflictError, match="not made for profiles"):
        await Profiles.of(tenant_db, by_profile=False)


# C-004 C-006 C-023: the provider must be the collection's
async def test_mismatched_embedding_provider_is_rejected(profiles: Profiles) -> None:
    stranger = HashingEmbedder(name="other")
    with pytest.raises(ConfigurationError, match="'hashing', not by 'other'"):
        ProfileVectorStore(stranger, store=PgVectorStore(profiles.db), collection=profiles.collection)
    with pytest.raises(ConfigurationError):
        RAGIngestionPipeline(profiles.store, stranger)
    with pytest.raises(ConfigurationError):
        RAGRetrievalPipeline(profiles.store, stranger)
