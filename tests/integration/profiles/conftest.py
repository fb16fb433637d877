"""Profile rows, and the pipelines that store and search them."""

import pytest

from tests.support.vendors.hashing_embedder import DIMENSION, HashingEmbedder
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore


class Profiles:
    """Both pipelines over a new collection of a tenant."""

    def __init__(self, db: TenantDatabase, collection: Collection) -> None:
        self.db = db
        self.collection = collection
        self.embedder = HashingEmbedder()
        self.store = ProfileVectorStore(self.embedder, store=PgVectorStore(db), collection=collection)
        self.ingestion = RAGIngestionPipeline(self.store, self.embedder)
        self.retrieval = RAGRetrievalPipeline(self.store, self.embedder)

    @classmethod
    async def of(cls, db: TenantDatabase, *, by_profile: bool = True) -> "Profiles":
        return cls(
            db,
            await CollectionRepository(db).create(
                "profiles",
                embedding_provider="hashing",
                embedding_model="hashing",
                dimension=DIMENSION,
                distance_metric=DistanceMetric.COSINE,
                by_profile=by_profile,
            ),
        )

    async def texts(self, profile_id: int, query: str = "anything") -> list[str]:
        return [chunk.text for chunk in await self.retrieval.retrieve(query, profile_id, 100)]


@pytest.fixture
async def profiles(tenant_db: TenantDatabase) -> Profiles:
    return await Profiles.of(tenant_db)
