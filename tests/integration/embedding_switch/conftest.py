"""A collection whose embedding model changes, and several workers for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest

from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.embedding_switch.repo import EmbeddingSwitch, EmbeddingSwitchRepository, SwitchState
from vectorforge.errors import (
    EmbeddingRateLimitError,
)
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import DocumentResult, DocumentStatus
from vectorforge.retriever.dense import DenseRetriever
from vectorforge.types import Collection, DistanceMetric, Vector
from vectorforge.vectorstore.pgvector import PgVectorStore

OLD, NEW = 64, 96
MILL = "a chimney beside the mill by the river"
SETTINGS = IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0)


class FailingEmbedder(HashingEmbedder):
    """Fails while ``fails`` is set."""

    fails = False

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.fails:
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)


@dataclass
class Room:
    """A tenant with a collection embedded by "old", and the next embedder "new"."""

    database: Database
    db: TenantDatabase
    collection: Collection
    old: FailingEmbedder
    new: FailingEmbedder

    def __post_init__(self) -> None:
        self.registry = EmbeddingProviderRegistry()
        for embedder in (self.old, self.new):
            self.registry.register(embedder)
        self.switches = EmbeddingSwitchRepository(self.db)
        self.store = PgVectorStore(self.db)
        self.pipeline = IngestionPipeline(
            self.store,
            DocumentRepository(self.db),
            self.registry,
            SETTINGS,
            models=EmbeddingModelRepository(self.db),
        )
        self.retriever = DenseRetriever(
            self.registry, self.store, CollectionRepository(self.db), preprocess=str
        )

    @property
    def backfill(self) -> EmbeddingBackfill:
        return EmbeddingBackfill(self.database, self.registry, batch=8)

    async def ingest(self, source: str, text: str) -> DocumentResult:
        current = await self.current()
        [result] = await ingest_bytes(self.pipeline, current, text.encode(), source)
        assert result.status is not DocumentStatus.FAILED, result.error
        return result

    async def current(self) -> Collection:
        found = await CollectionRepository(self.db).find_by_id(self.collection.id)
        assert found is not None
        return found

    async def start(self, embedder: HashingEmbedder | None = None) -> EmbeddingSwitch:
        embedder = embedder or self.new
        return await self.switches.start(
            self.collection.id,
            provider=embedder.name,
            model=embedder.default_model,
            dimension=embedder.dimension() or 0,
            query_prefix="",
            document_prefix="",
        )

    async def fill(self) -> None:
        """Work for this collection only: other tests share the database."""
        for _ in range(200):
            found = await self.switches.find(self.collection.id)
            if found is None or (found.state is not SwitchState.REMOVING and found.complete):
                return
            await self.backfill.work_for(self.db.tenant_id, self.collection.id)
        raise AssertionError("the backfill comes to no end")

    async def vectors(self, space: str) -> set[UUID]:
        """Return the chunks that have a vector in a space."""
        rows = await self.db.fetch_all(
            "SELECT chunk_id FROM vectorforge.embeddings WHERE tenant_id = %s AND space = %s",
            (self.db.tenant_id, space),
        )
        return {row["chunk_id"] for row in rows}

    async def passages(self) -> set[UUID]:
        rows = await self.db.fetch_all(
            "SELECT id FROM vectorforge.chunks WHERE tenant_id = %s AND to_version IS NULL",
            (self.db.tenant_id,),
        )
        return {row["id"] for row in rows}

    async def ask(self, text: str = MILL) -> str:
        found = await self.retriever.retrieve(text, self.collection.id, 1, min_score=None)
        return found[0].chunk.text


async def make_room(db: TenantDatabase, database: Database, new_dimension: int = NEW) -> Room:
    old = FailingEmbedder(name="old", dimension=OLD)
    new = FailingEmbedder(name="new", dimension=new_dimension)
    collection = await CollectionRepository(db).create(
        "houses",
        embedding_provider="old",
        embedding_model=old.default_model,
        dimension=OLD,
        distance_metric=DistanceMetric.COSINE,
    )
    return Room(database, db, collection, old, new)


def passage(number: int) -> str:
    return MILL if number == 7 else f"the boiler of house {number}"


@pytest.fixture
async def room(tenant_db: TenantDatabase, database: Database) -> Room:
    room = await make_room(tenant_db, database)
    for number in range(20):
        await room.ingest(f"{number}.txt", passage(number))
    return room
