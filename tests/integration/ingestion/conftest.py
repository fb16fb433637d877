"""A tenant's collection on a real PostgreSQL, and embedders that fail."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import DIMENSION, HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import EmbeddingRateLimitError
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentResult
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.types import Collection, DistanceMetric, RetrievedChunk, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

ENCRYPTED_PDF = Path(__file__).parents[2] / "unit" / "documents" / "encrypted.pdf"


SETTINGS = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)


class LimitedEmbedder(HashingEmbedder):
    """A vendor that answers 429 for the first ``refusals`` calls."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.refusals > 0:
            self.refusals -= 1
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)


@dataclass
class Room:
    """One tenant's collection and its ingestion."""

    db: TenantDatabase
    database: Database
    collection: Collection
    embedder: HashingEmbedder

    @property
    def pipeline(self) -> IngestionPipeline:
        registry = EmbeddingProviderRegistry()
        registry.register(self.embedder)
        return IngestionPipeline(PgVectorStore(self.db), DocumentRepository(self.db), registry, SETTINGS)

    @property
    def documents(self) -> DocumentRepository:
        return DocumentRepository(self.db)

    @property
    def jobs(self) -> JobRepository:
        return JobRepository(self.db)

    def worker(self, **options: Any) -> IngestionWorker:
        return IngestionWorker(self.database, lambda _: self.pipeline, **options)

    async def ingest(self, content: str | bytes, source: str = "a.txt") -> DocumentResult:
        content = content.encode() if isinstance(content, str) else content
        [result] = await ingest_bytes(self.pipeline, self.collection, content, source)
        return result

    async def search(self, text: str, top_k: int = 100) -> Sequence[RetrievedChunk]:
        return await PgVectorStore(self.db).search(
            query_vector=await HashingEmbedder().embed_query(text),
            top_k=top_k,
            collection_id=self.collection.id,
            metric=DistanceMetric.COSINE,
        )


async def make_room(database: Database, tenant: str, embedder: HashingEmbedder) -> Room:
    db = database.for_tenant(tenant)
    collection = await CollectionRepository(db).create(
        "docs",
        embedding_provider="hashing",
        embedding_model="hashing-64",
        dimension=DIMENSION,
        distance_metric=DistanceMetric.COSINE,
    )
    return Room(db, database, collection, embedder)


@pytest.fixture
async def room(direct_database: Database, make_tenant: Callable[[], str]) -> Room:
    return await make_room(direct_database, make_tenant(), HashingEmbedder())


@pytest.fixture
async def own_database(fresh_database_url: str) -> AsyncIterator[Database]:
    """Create a separate database, since workers claim jobs of every tenant."""
    async with Database(fresh_database_url, pool_size=5) as opened:
        yield opened


@pytest.fixture
async def job_room(own_database: Database) -> Room:
    return await make_room(own_database, "tenant", HashingEmbedder())


def paragraph(number: int, word: str = "old") -> str:
    return f"Paragraph {number:03} says {word} things, and says them in so many words that they fill a chunk."


def text_of(word: str = "old", count: int = 6) -> str:
    return "\n\n".join(paragraph(number, word) for number in range(count))
