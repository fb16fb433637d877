"""Collections with vectors, and databases with vector indexes, to search in."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.postgres.vector_indexes import index_new_spaces
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric, RetrievedChunk
from vectorforge.vectorstore.pgvector import PgVectorStore

COSINE = DistanceMetric.COSINE


async def fill(
    db: TenantDatabase,
    dimension: int,
    metadata: list[dict[str, Any]],
    *,
    metric: DistanceMetric = COSINE,
    seed: int = 1,
) -> tuple[UUID, list[list[float]]]:
    """Create a document with a random vector for each metadata; the chunks' texts are their positions."""
    generator = random.Random(seed)
    collection_id = await insert_collection(db, dimension, metric)
    vectors = [random_vector(generator, dimension) for _ in metadata]
    chunks = chunk_drafts([str(position) for position in range(len(metadata))], vectors, metadata)
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks), chunks)
    return collection_id, vectors


def texts(found: Sequence[RetrievedChunk]) -> list[str]:
    return [result.chunk.text for result in found]


def app_url_with(settings: list[LiteralString], admin_url: str) -> str:
    """Set these settings on a database, and return the app's URL. RDS Proxy rejects them in a URL."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        for setting in settings:
            connection.execute(sql.SQL("ALTER DATABASE {} SET {}").format(name, sql.SQL(setting)))
    return make_conninfo(admin_url, user="vectorforge_app")


@pytest.fixture
async def indexed_database(make_database: Callable[..., str]) -> AsyncIterator[Database]:
    """Create a database whose planner uses an ordered index wherever one fits, although tables are small."""
    index_new_spaces(superuser := make_database())
    url = app_url_with(["enable_sort = off"], superuser)
    async with Database(url, pool_size=5, timeout_s=10) as opened:
        yield opened
