"""HNSW indexes are built for spaces whose largest collection exceeds the exact scan, or on request."""

import asyncio

import psycopg
import pytest

from tests.integration.vector_indexes.conftest import app_url, index_of, make, store, vectors
from vectorforge.cli.doctor.database_checks import storage_checks
from vectorforge.db.connection import Database
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.schema.vector_indexes import IndexState
from vectorforge.errors import (
    NotFoundError,
)
from vectorforge.local.laptop import maintain_indexes
from vectorforge.types import DistanceMetric, VectorIndex


class TestBuildMissing:
    async def test_build_with_small_collections_builds_nothing_until_one_is_large(
        self, owner_url: str
    ) -> None:
        async with Database(app_url(owner_url)) as database:
            for tenant, count in (("a", 30), ("b", 30)):
                db = database.for_tenant(tenant)
                await store(db, (await make(db)).id, vectors(count))
            found = await index_of(owner_url, "cosine_3")
            assert (found.vectors, found.largest, found.state) == (60, 30, IndexState.NONE)
            assert await build_indexes(owner_url, larger_than=30) == []
            db = database.for_tenant("c")
            await store(db, (await make(db)).id, vectors(31))
            [built] = await build_indexes(owner_url, larger_than=30)
        assert (built.space, built.vectors, built.largest, built.state) == (
            "cosine_3",
            91,
            31,
            IndexState.READY,
        )
        assert built.index_bytes > 0
        assert await build_indexes(owner_url, larger_than=0) == []  # the index exists

    async def test_build_with_named_space_builds_it_however_small(self, owner_url: str) -> None:
        [built] = await build_indexes(owner_url, larger_than=10_000, spaces=["cosine_384"])
        assert (built.space, built.state) == ("cosine_384", IndexState.READY)
        assert (await index_of(owner_url, "cosine_1536")).state is IndexState.NONE
        with pytest.raises(NotFoundError, match="cosine_385"):
            await build_indexes(owner_url, larger_than=10_000, spaces=["cosine_385"])

    @pytest.mark.parametrize("metric", DistanceMetric)
    async def test_build_of_each_kind_uses_its_vector_type(
        self, owner_url: str, metric: DistanceMetric
    ) -> None:
        expected = {
            (VectorIndex.FULL, 5): "vector(5)",
            (VectorIndex.FULL, 2001): "halfvec(2001)",
            (VectorIndex.FULL, 4001): None,
            (VectorIndex.HALF, 5): "halfvec(5)",
            (VectorIndex.BINARY, 5): "bit(5)",
            (VectorIndex.BINARY, 4001): "bit(4001)",
        }
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            for (kind, dimension), kind_of_type in expected.items():
                if kind is VectorIndex.BINARY and metric is DistanceMetric.L2:
                    continue
                collection = await make(db, dimension, kind, metric)
                assert collection.vector_index is kind
                await store(db, collection.id, vectors(2, dimension))
                if kind_of_type is None:
                    assert not (await index_of(owner_url, collection.space)).possible
                    continue
                [built] = await build_indexes(owner_url, larger_than=0, spaces=[collection.space])
                assert built.vectors == 2
                with psycopg.connect(owner_url) as connection:
                    [(definition,)] = connection.execute(
                        "SELECT indexdef FROM pg_indexes WHERE indexname = %s",
                        (f"embeddings_{collection.space}_hnsw",),
                    ).fetchall()
                assert f"::{kind_of_type}" in definition.replace("public.", "")
                await store(db, collection.id, vectors(2, dimension), source="after")


async def test_doctor_with_missing_index_warns(owner_url: str) -> None:
    well = await storage_checks(owner_url, larger_than=10)
    assert [(check.name, check.status) for check in well] == [
        ("vector indexes", "ok"), ("dead rows", "ok"), ("statistics", "ok"),
    ]  # fmt: skip
    async with Database(app_url(owner_url)) as database:
        db = database.for_tenant("a")
        await store(db, (await make(db)).id, vectors(11))
    [check, *_] = await storage_checks(owner_url, larger_than=10)
    assert (check.status, check.remedy) == ("warn", "Run `vectorforge index build`.")


async def test_local_index_keeper_with_large_collection_builds_index(owner_url: str) -> None:
    async with Database(app_url(owner_url)) as database:
        db = database.for_tenant("a")
        async with maintain_indexes(owner_url, larger_than=10, every_s=0.05), asyncio.timeout(20):
            await store(db, (await make(db)).id, vectors(11))
            while (await index_of(owner_url, "cosine_3")).state is not IndexState.READY:  # noqa: ASYNC110 - a server's
                await asyncio.sleep(0.05)
