"""Collections with vectors in a separate database, and the indexes of their spaces."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.vector_indexes import SpaceIndex, list_indexes
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import EXACT_SCAN_LIMIT, Collection, DistanceMetric, VectorIndex
from vectorforge.vectorstore.pgvector import PgVectorStore

COSINE = DistanceMetric.COSINE


@pytest.fixture
def owner_url(make_database: Callable[..., str]) -> str:
    """Create a separate migrated database; return its superuser's connection string."""
    return make_database()


def app_url(owner_url: str) -> str:
    return make_conninfo(owner_url, user="vectorforge_app")


async def make(
    db: TenantDatabase,
    dimension: int = 3,
    kind: VectorIndex = VectorIndex.FULL,
    metric: DistanceMetric = COSINE,
) -> Collection:
    return await CollectionRepository(db).create(
        f"collection {uuid4()}",
        embedding_provider="local",
        embedding_model="test",
        dimension=dimension,
        distance_metric=metric,
        vector_index=kind,
    )


async def store(
    db: TenantDatabase, collection_id: UUID, vectors: list[list[float]], source: str = "s"
) -> None:
    chunks = chunk_drafts([f"{source} {n}" for n in range(len(vectors))], vectors)
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks, source=source), chunks)


def vectors(count: int, dimension: int = 3) -> list[list[float]]:
    return [[1.0 + n, *[0.5] * (dimension - 1)] for n in range(count)]


async def index_of(owner_url: str, space: str, *, larger_than: int = EXACT_SCAN_LIMIT) -> SpaceIndex:
    spaces = await list_indexes(owner_url, larger_than=larger_than)
    return next(index for index in spaces if index.space == space)


def own_index(owner_url: str, collection: Collection) -> str:
    """Return the name of the collection's own index."""
    with psycopg.connect(owner_url) as connection:
        row = connection.execute(
            "SELECT vectorforge.vector_index_name(%s, %s)", (collection.space, collection.id)
        ).fetchone()
    assert row is not None
    return str(row[0])


async def begun(building: "asyncio.Task[Any]", progress: "asyncio.Event") -> None:
    """Wait until a build has reported progress or ended."""
    waiting = asyncio.create_task(progress.wait())
    await asyncio.wait([waiting, building], return_when=asyncio.FIRST_COMPLETED, timeout=20)
    waiting.cancel()
