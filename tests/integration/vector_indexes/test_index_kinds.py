"""Every kind of HNSW index has its own space and type, and finds the nearest vectors."""

import random
from functools import partial

import psycopg
import pytest

from tests.integration.index_scans import index_scans
from tests.integration.vector_indexes.conftest import COSINE, app_url, make, own_index, store, vectors
from tests.support.rag.drafts import expected_distance, random_vector
from vectorforge.db.connection import Database
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import (
    InvalidInputError,
)
from vectorforge.types import DistanceMetric, VectorIndex
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestSpaces:
    async def test_collection_of_each_kind_uses_its_own_partition(self, tenant_db: TenantDatabase) -> None:
        made = {kind: await make(tenant_db, 4, kind) for kind in VectorIndex}
        assert {kind: collection.space for kind, collection in made.items()} == {
            VectorIndex.FULL: "cosine_4",
            VectorIndex.HALF: "cosine_4_half",
            VectorIndex.BINARY: "cosine_4_binary",
        }
        for collection in made.values():
            await store(tenant_db, collection.id, vectors(2, 4))
        rows = await tenant_db.fetch_all(
            "SELECT space, count(*) AS n FROM vectorforge.embeddings GROUP BY 1 ORDER BY 1"
        )
        assert [(row["space"], row["n"]) for row in rows] == [
            ("cosine_4", 2), ("cosine_4_binary", 2), ("cosine_4_half", 2),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("kind", "metric", "dimension"),
        [(VectorIndex.HALF, COSINE, 4001), (VectorIndex.BINARY, DistanceMetric.L2, 8)],
    )
    async def test_kind_with_unsupported_metric_or_dimension_is_rejected(
        self, tenant_db: TenantDatabase, kind: VectorIndex, metric: DistanceMetric, dimension: int
    ) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make(tenant_db, dimension, kind, metric)
        assert caught.value.field == "vector_index"

    async def test_vector_beyond_half_precision_is_rejected_by_half_index_only(
        self, tenant_db: TenantDatabase
    ) -> None:
        half, full = await make(tenant_db, 2, VectorIndex.HALF), await make(tenant_db, 2)
        await store(tenant_db, full.id, [[65_505.0, 1.0]])
        with pytest.raises(InvalidInputError, match="65504"):
            await store(tenant_db, half.id, [[65_505.0, 1.0]])
        await store(tenant_db, half.id, [[65_504.0, 1.0]])


class TestSearch:
    # The index finds candidates, the full vectors rank them.
    @pytest.mark.parametrize("dimension", [16, 2100])
    @pytest.mark.parametrize("metric", [COSINE, DistanceMetric.INNER_PRODUCT])
    @pytest.mark.parametrize("kind", VectorIndex)
    async def test_search_with_each_kind_returns_exact_top_k(
        self, owner_url: str, kind: VectorIndex, metric: DistanceMetric, dimension: int
    ) -> None:
        generator = random.Random(5)
        stored = [random_vector(generator, dimension) for _ in range(120)]
        query = random_vector(generator, dimension)
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} SET enable_sort = off".encode())
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db, dimension, kind, metric)
            await store(db, collection.id, stored)
            searched = partial(
                PgVectorStore(db, exact_scan_limit=0).search,
                query_vector=query,
                top_k=10,
                collection_id=collection.id,
                metric=metric,
                space=collection.space,
            )
            exact = await searched()
            assert exact.scan is not None
            assert exact.scan.reason == "unindexed"
            await build_indexes(owner_url, larger_than=100)
            found = await searched()
        assert found.scan is not None
        assert found.scan.method == "index"
        by_distance = sorted(range(120), key=lambda n: expected_distance(metric, stored[n], query))
        assert [result.chunk.index for result in exact] == by_distance[:10]
        assert [(r.chunk.index, r.distance) for r in found] == [(r.chunk.index, r.distance) for r in exact]
        assert index_scans(owner_url, own_index(owner_url, collection)) == 1
