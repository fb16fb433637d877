"""Every vector store satisfies the same contract."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.contract.suites.search import MakeCollection
from tests.contract.suites.vector_store import SearchesContract, VectorStoreContract
from tests.support.postgres.standby import Replicated
from tests.support.postgres.vector_indexes import index_space
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from tests.support.rag.reference_store import ReferenceVectorStore
from vectorforge.db.connection import Database
from vectorforge.db.reader import ReaderDatabase
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric, NearestChunks
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.pgvector import PgVectorStore


async def _insert_indexed(
    superuser: str, db: TenantDatabase, dimension: int, metric: DistanceMetric, *, by_profile: bool = False
) -> UUID:
    collection_id = await insert_collection(db, dimension, metric, by_profile=by_profile)
    index_space(superuser, f"{metric}_{dimension}")
    return collection_id


# C-003 C15
class TestReferenceVectorStore(VectorStoreContract):
    @pytest.fixture
    def store(self) -> VectorStore:
        return ReferenceVectorStore()

    @pytest.fixture
    def make_collection(self) -> MakeCollection:
        async def make(_dimension: int, _metric: DistanceMetric) -> UUID:
            return uuid4()

        return make

    @pytest.fixture
    def make_profile_collection(self, make_collection: MakeCollection) -> MakeCollection:
        return make_collection


class PgVectorStoreFixtures:
    """The store on ``tenant_db``."""

    @pytest.fixture
    def store(self, tenant_db: TenantDatabase) -> VectorStore:
        return PgVectorStore(tenant_db)

    @pytest.fixture
    def make_collection(self, tenant_db: TenantDatabase) -> MakeCollection:
        return partial(insert_collection, tenant_db)

    @pytest.fixture
    def make_profile_collection(self, tenant_db: TenantDatabase) -> MakeCollection:
        return partial(insert_collection, tenant_db, by_profile=True)


# C-003 C14 C15
class TestPgVectorStore(PgVectorStoreFixtures, VectorStoreContract):
    """The whole contract, directly and through PgBouncer."""

    @pytest.fixture
    def database_url(self, each_app_url: str) -> str:
        return each_app_url


class TestPgVectorStoreThroughIndex(PgVectorStoreFixtures, SearchesContract):
    """The contract of searches with HNSW in every search; writes do not depend on the plan of searches."""

    @pytest.fixture
    def store(self, tenant_db: TenantDatabase) -> VectorStore:
        return PgVectorStore(tenant_db, exact_scan_limit=0)

    @pytest.fixture
    def make_collection(self, tenant_db: TenantDatabase, postgres_server: EmbeddedPostgres) -> MakeCollection:
        return partial(_insert_indexed, postgres_server.migrator_url, tenant_db)

    @pytest.fixture
    def make_profile_collection(
        self, tenant_db: TenantDatabase, postgres_server: EmbeddedPostgres
    ) -> MakeCollection:
        return partial(_insert_indexed, postgres_server.migrator_url, tenant_db, by_profile=True)

    async def test_ties_are_ordered_by_chunk_id(
        self, store: VectorStore, make_collection: MakeCollection
    ) -> None:
        """Any of equally distant chunks may be returned by an index, in order."""
        collection_id = await make_collection(2, DistanceMetric.COSINE)
        chunks = chunk_drafts([f"t{n}" for n in range(30)], [[3, 4]] * 30)
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        for top_k in (7, 30):
            found = await store.search(
                query_vector=[3, 4], top_k=top_k, collection_id=collection_id, metric=DistanceMetric.COSINE
            )
            ids = [result.chunk.id for result in found]
            assert len(ids) == top_k
            assert ids == sorted(set(ids))


class StoreWithStandby(PgVectorStore):
    """Writes to the writer, and searches on its standby alone, once that has replayed everything."""

    def __init__(self, db: TenantDatabase, standby: Database, catch_up: Callable[[], None]) -> None:
        super().__init__(db)
        self._standby = PgVectorStore(ReaderDatabase(standby, db.tenant_id))
        self._catch_up = catch_up

    async def search(self, **arguments: Any) -> NearestChunks:
        await asyncio.to_thread(self._catch_up)
        return await self._standby.search(**arguments)


class TestPgVectorStoreOnStandby(PgVectorStoreFixtures, SearchesContract):
    """The contract of searches, each in a read-only transaction on a physical standby."""

    @pytest.fixture
    async def database(self, replicated: Replicated) -> AsyncIterator[Database]:
        async with Database(replicated.writer.app_url, pool_size=5) as opened:
            yield opened

    @pytest.fixture
    async def store(self, tenant_db: TenantDatabase, replicated: Replicated) -> AsyncIterator[VectorStore]:
        async with Database(replicated.standby.app_url, pool_size=5) as standby:
            yield StoreWithStandby(tenant_db, standby, replicated.catch_up)
