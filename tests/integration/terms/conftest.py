"""A collection of a tenant whose terms are compared with its chunks."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.support.postgres.term_check import check_terms
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft
from vectorforge.vectorstore.pgvector import PgVectorStore

COSINE = DistanceMetric.COSINE
WORDS = [
    *("cat", "dog", "bird", "fish", "horse", "cats", "dogs", "birds", "the", "of", "running", "runs"),
    *("invoice", "invoices"),
]
Check = Callable[[TenantDatabase], Awaitable[int]]


@pytest.fixture
def check(postgres_server: EmbeddedPostgres) -> Check:
    """Compares postings and counts with the chunks of a tenant; returns the number of its postings."""
    return partial(check_terms, postgres_server.migrator_url)


def document(
    texts: Sequence[str], source: str = "guide.md", **options: Any
) -> tuple[DocumentDraft, list[ChunkDraft]]:
    chunks = chunk_drafts(texts, [[1.0, 0.0]] * len(texts))
    return document_draft(chunks, source=source, **options), chunks


class Store:
    """Writer of one collection of a tenant."""

    def __init__(self, db: TenantDatabase, collection_id: UUID) -> None:
        self.db, self.id = db, collection_id
        self.vectors = PgVectorStore(db)

    async def put(self, texts: Sequence[str], source: str = "guide.md", **options: Any) -> UUID:
        stored = await self.vectors.replace_document(self.id, *document(texts, source, **options))
        return stored.document_id

    async def data_version(self) -> int:
        found = await CollectionRepository(self.db).find_by_id(self.id)
        assert found is not None
        return found.data_version


@pytest.fixture
async def store(tenant_db: TenantDatabase) -> Store:
    return Store(tenant_db, await insert_collection(tenant_db, 2, COSINE))
