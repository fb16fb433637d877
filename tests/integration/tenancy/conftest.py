"""Rows of a tenant in every table, and a superuser to look at them."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, DistanceMetric

TABLES = (
    *("collections", "documents", "chunks", "embeddings"),
    *("ingestion_jobs", "ingestion_job_items", "query_logs"),
)


@pytest.fixture
def database_url(each_app_url: str) -> str:
    return each_app_url


async def fill(db: TenantDatabase) -> tuple[Collection, Any, Any, Any, Any]:
    """Insert one row into every table; return collection, ids of document and chunk, job and log."""
    options: dict[str, Any] = {"embedding_provider": "local", "embedding_model": "m", "dimension": 3}
    collection = await CollectionRepository(db).create(
        "same name", distance_metric=DistanceMetric.COSINE, **options
    )
    document_id, chunk_id = uuid4(), uuid4()
    scope = (db.tenant_id, collection.id, document_id)
    async with db.transaction() as connection:
        await connection.execute(
            "INSERT INTO vectorforge.documents (tenant_id, collection_id, id, source, media_type, text,"
            " size_chars, content_hash) VALUES (%s, %s, %s, 's', 't', 'secret', 6, sha256(''))",
            scope,
        )
        await connection.execute(
            "INSERT INTO vectorforge.chunks (tenant_id, collection_id, document_id, id, ordinal, text,"
            " start_offset, end_offset, token_count, content_hash, from_version)"
            " VALUES (%s, %s, %s, %s, 0, 'secret', 0, 6, 1, sha256(''), 1)",
            (*scope, chunk_id),
        )
        await connection.execute(
            "INSERT INTO vectorforge.embeddings (tenant_id, collection_id, document_id, chunk_id, space,"
            " embedding) VALUES (%s, %s, %s, %s, 'cosine_3', '[1,2,3]')",
            (*scope, chunk_id),
        )
    job = await JobRepository(db).create(collection.id, [NewJobItem("s", None, b"secret")])
    log = QueryLog(uuid4(), collection.id, "secret?", [chunk_id], "secret", 1.0)
    await QueryLogRepository(db).create(log)
    return collection, document_id, chunk_id, job, log


@pytest.fixture
def superuser(postgres_server: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection
