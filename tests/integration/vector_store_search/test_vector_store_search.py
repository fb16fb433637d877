"""Search in PostgreSQL with vector indexes: exact or approximate scans, and isolation of tenants."""

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.integration.vector_store_search.conftest import COSINE, app_url_with, fill, texts
from tests.support.postgres.vector_indexes import index_new_spaces
from tests.support.rag.drafts import chunk_drafts, document_draft, expected_distance, random_vector
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore


def nearest(vectors: list[list[float]], query: list[float], metric: DistanceMetric = COSINE) -> list[str]:
    order = sorted(range(len(vectors)), key=lambda n: expected_distance(metric, vectors[n], query))
    return [str(position) for position in order]


@pytest.fixture
async def impatient_database(make_database: Callable[..., str]) -> AsyncIterator[Database]:
    """Create the same database, with index scans that stop after few candidates (20,000 by default)."""
    index_new_spaces(superuser := make_database())
    url = app_url_with(["enable_sort = off", "hnsw.max_scan_tuples = 1"], superuser)
    async with Database(url, pool_size=5, timeout_s=10) as opened:
        yield opened


# D2
class TestIndexSearch:
    async def test_rare_filter_returns_exact_top_k(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 200 == 0 else "common"} for position in range(3000)]
        collection_id, vectors = await fill(db, 16, metadata)
        rare = [vector for position, vector in enumerate(vectors) if position % 200 == 0]
        store = PgVectorStore(db, exact_scan_limit=5, ef_search=10)
        generator = random.Random(3)
        for top_k in (1, 10, 15, 20):
            for _ in range(10):
                query = random_vector(generator, 16)
                found = await store.search(
                    query_vector=query,
                    top_k=top_k,
                    collection_id=collection_id,
                    metric=COSINE,
                    filters={"kind": "rare"},
                )
                assert len(found) == min(top_k, 15)
                assert {result.chunk.metadata["kind"] for result in found} == {"rare"}
                distances = [result.distance for result in found]
                assert distances == sorted(distances)
                if top_k >= 15:
                    assert texts(found) == [str(200 * int(n)) for n in nearest(rare, query)]

    # faults.md 29: other tenants' vectors fill the index
    async def test_small_tenant_among_large_ones_receives_all_its_chunks(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        large, small = (indexed_database.for_tenant(make_tenant()) for _ in range(2))
        await fill(large, 17, [{}] * 3000, seed=5)
        collection_id, vectors = await fill(small, 17, [{}] * 12, seed=6)
        query = random_vector(random.Random(7), 17)
        for limit in (0, 10_000):
            store = PgVectorStore(small, exact_scan_limit=limit, ef_search=10)
            found = await store.search(
                query_vector=query, top_k=12, collection_id=collection_id, metric=COSINE
            )
            assert texts(found) == nearest(vectors, query)

    async def test_aborted_index_scan_falls_back_to_exact_scan(
        self, impatient_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = impatient_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 200 == 0 else "common"} for position in range(3000)]
        collection_id, vectors = await fill(db, 18, metadata)
        rare = vectors[::200]
        query = random_vector(random.Random(3), 18)
        found = await PgVectorStore(db, exact_scan_limit=5, ef_search=10).search(
            query_vector=query, top_k=10, collection_id=collection_id, metric=COSINE, filters={"kind": "rare"}
        )
        assert texts(found) == [str(200 * int(n)) for n in nearest(rare, query)[:10]]

    async def test_match_count_is_exact_or_lower_bound(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 10 == 0 else "common"} for position in range(300)]
        collection_id, vectors = await fill(db, 8, metadata)
        store = PgVectorStore(db, exact_scan_limit=100, ef_search=200)

        async def count(top_k: int = 5, **filters: Any) -> tuple[int | None, bool]:
            found = await store.search(
                query_vector=vectors[0],
                top_k=top_k,
                collection_id=collection_id,
                metric=COSINE,
                filters=filters,
            )
            assert len(found) == min(top_k, found.matched or 0)
            return found.matched, found.matched_is_at_least

        assert await count(kind="rare") == (30, False)
        assert await count(kind="none") == (0, False)
        assert await count() == (300, False)  # the collection's own count
        assert await count(kind="common") == (100, True)  # the limit of counting
        assert await count(280, kind="common") == (270, False)  # too few: all compared

    # C14: HNSW on vector(3072) is impossible; half precision finds, full precision ranks
    @pytest.mark.parametrize("metric", list(DistanceMetric))
    async def test_vectors_above_2000_dimensions_use_half_precision_index(
        self, indexed_database: Database, make_tenant: Callable[[], str], metric: DistanceMetric
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        collection_id, vectors = await fill(db, 3072, [{}] * 60, metric=metric)
        query = random_vector(random.Random(7), 3072)
        found = await PgVectorStore(db, exact_scan_limit=0).search(
            query_vector=query, top_k=10, collection_id=collection_id, metric=metric
        )
        assert texts(found) == nearest(vectors, query, metric)[:10]
        for result in found:
            exact = expected_distance(metric, vectors[int(result.chunk.text)], query)
            assert result.distance == pytest.approx(exact, rel=1e-5, abs=1e-5)

    async def test_vectors_above_4000_dimensions_use_exact_scan(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        collection_id, vectors = await fill(db, 4001, [{}] * 8)
        found = await PgVectorStore(db, exact_scan_limit=0).search(
            query_vector=vectors[3], top_k=3, collection_id=collection_id, metric=COSINE
        )
        assert texts(found) == nearest(vectors, vectors[3])[:3]


async def test_search_with_other_metric_raises_conflict(tenant_db: TenantDatabase) -> None:
    collection_id, _ = await fill(tenant_db, 3, [{}] * 3)
    with pytest.raises(ConflictError, match="cosine"):
        await PgVectorStore(tenant_db).search(
            query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=DistanceMetric.L2
        )


# D11: the same ids requested by another tenant
async def test_collection_of_other_tenant_is_neither_readable_nor_writable(
    tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
) -> None:
    collection_id, _ = await fill(tenant_db, 3, [{"kind": "secret"}] * 3)
    mine, other = PgVectorStore(tenant_db), PgVectorStore(other_tenant_db)
    for limit in (0, 10_000):
        intruder = PgVectorStore(other_tenant_db, exact_scan_limit=limit)
        for filters in (None, {"kind": "secret"}, {"kind": {"$ne": 1}}):
            assert (
                await intruder.search(
                    query_vector=[1, 0, 0],
                    top_k=3,
                    collection_id=collection_id,
                    metric=COSINE,
                    filters=filters,
                )
                == []
            )
    found = await mine.search(query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=COSINE)
    assert len(found) == 3
    assert await other.delete_document(found[0].chunk.document_id) is False
    chunks = chunk_drafts(["x"], [[1, 0, 0]])
    with pytest.raises(NotFoundError):
        await other.replace_document(collection_id, document_draft(chunks), chunks)
    assert (
        await mine.search(query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=COSINE)
        == found
    )
