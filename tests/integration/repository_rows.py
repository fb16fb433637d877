"""Rows for tests of repositories."""

from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Collection, DistanceMetric


async def make_collection(db: TenantDatabase, name: str = "notes", **options: Any) -> Collection:
    options = {
        "embedding_provider": "local",
        "embedding_model": "m",
        "dimension": 3,
        "distance_metric": DistanceMetric.COSINE,
        **options,
    }
    return await CollectionRepository(db).create(name, **options)


def make_items(count: int = 2) -> list[NewJobItem]:
    return [NewJobItem(f"{n}.txt", "text/plain", b"\x00\xff%d" % n, None, {"n": n}) for n in range(count)]


async def count(db: TenantDatabase, table: str) -> int:
    row = await db.fetch_one(f"SELECT count(*) AS n FROM vectorforge.{table}")
    assert row is not None
    return int(row["n"])


def make_log(collection_id: UUID, **options: Any) -> QueryLog:
    values = {
        "id": uuid4(),
        "collection_id": collection_id,
        "query_text": "why?",
        "retrieved_chunk_ids": [uuid4(), uuid4()],
        "generated_response": "because",
        "latency_ms": 12.5,
        **options,
    }
    return QueryLog(**values)


_DOCUMENT = """
INSERT INTO vectorforge.documents
    (tenant_id, id, collection_id, source, title, media_type, text, size_chars, content_hash, metadata,
     chunk_count)
VALUES (%s, %s, %s, %s, 'A title', 'text/plain', %s, %s, sha256('x'), %s, 1)
"""
INSERT_CHUNK = """
INSERT INTO vectorforge.chunks
    (tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count,
     content_hash, from_version, to_version)
VALUES (%s, %s, %s, %s, %s, 'text', 0, 4, 1, sha256(%s), 1, %s)
"""
_EMBEDDING = """
INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
VALUES (%s, %s, %s, %s, %s, %s::vector)
"""


async def add_document(
    db: TenantDatabase, collection: Collection, source: str = "a.txt"
) -> tuple[UUID, UUID]:
    """Insert a document with one current chunk with a vector, and one retired chunk."""
    document_id, chunk_id = uuid4(), uuid4()
    scope = (collection.id, document_id)
    async with db.transaction() as connection:
        await connection.execute(
            _DOCUMENT,
            (db.tenant_id, document_id, collection.id, source, "text", 4, Jsonb({"lang": "de"})),
        )
        await connection.execute(INSERT_CHUNK, (db.tenant_id, chunk_id, *scope, 0, b"1", None))
        await connection.execute(INSERT_CHUNK, (db.tenant_id, uuid4(), *scope, 0, b"2", 2))
        space = f"{collection.distance_metric}_{collection.dimension}"
        vector = str([1.0] * collection.dimension)
        await connection.execute(_EMBEDDING, (db.tenant_id, space, *scope, chunk_id, vector))
    return document_id, chunk_id
