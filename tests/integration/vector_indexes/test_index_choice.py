"""HNSW indexes are built for spaces whose largest collection exceeds the exact scan, or on request."""

import asyncio
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.integration.index_scans import index_scans
from tests.integration.vector_indexes.conftest import (
    COSINE,
    app_url,
    index_of,
    make,
    own_index,
    store,
    vectors,
)
from vectorforge.cli.doctor.database_checks import storage_checks
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.schema.vector_indexes import MOST_OWN, IndexState
from vectorforge.errors import (
    NotFoundError,
)
from vectorforge.local.laptop import maintain_indexes
from vectorforge.types import DistanceMetric, Scan, VectorIndex
from vectorforge.vectorstore.pgvector import PgVectorStore


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
        assert (built.space, built.vectors, built.largest) == ("cosine_3", 91, 31)
        large, *others = sorted(built.own, key=lambda own: -own.vectors)
        assert (large.vectors, large.state, large.is_large) == (31, IndexState.READY, True)
        assert {(own.vectors, own.state, own.is_large) for own in others} == {(30, IndexState.NONE, False)}
        assert built.index_bytes == large.index_bytes > 0
        assert await build_indexes(owner_url, larger_than=30) == []  # the index exists

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
            while not await indexed_collections(owner_url, larger_than=10):  # noqa: ASYNC110 - a server's
                await asyncio.sleep(0.05)


async def indexed_collections(owner_url: str, *, larger_than: int) -> set[UUID]:
    space = await index_of(owner_url, "cosine_3", larger_than=larger_than)
    return {own.collection_id for own in space.own if own.state is IndexState.READY}


class TestOwnIndexes:
    async def test_large_collections_have_indexes_of_their_own_and_lose_the_shared_one(
        self, owner_url: str
    ) -> None:
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} SET enable_sort = off".encode())
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            large = [await make(db) for _ in range(2)]
            for collection in large:
                await store(db, collection.id, vectors(31))
            await build_indexes(owner_url, larger_than=30, spaces=["cosine_3"])
            assert (await index_of(owner_url, "cosine_3")).state is IndexState.READY
            await build_indexes(owner_url, larger_than=30)
            assert await indexed_collections(owner_url, larger_than=30) == {its.id for its in large}
            assert (await index_of(owner_url, "cosine_3")).state is IndexState.NONE
            for collection in large:
                found = await PgVectorStore(db, exact_scan_limit=30).search(
                    query_vector=[31.0, 0.5, 0.5], top_k=3, collection_id=collection.id, metric=COSINE
                )
                assert [chunk.chunk.text for chunk in found] == ["s 30", "s 29", "s 28"]
                assert found.scan == Scan.for_reason("many")
        for collection in large:
            assert index_scans(owner_url, own_index(owner_url, collection)) == 1

    async def test_index_is_kept_above_half_the_limit_and_dropped_below(self, owner_url: str) -> None:
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db)
            for source, count in (("a", 16), ("b", 15)):
                await store(db, collection.id, vectors(count), source=source)
            await build_indexes(owner_url, larger_than=30)
            await store(db, collection.id, vectors(1), source="b")
            await build_indexes(owner_url, larger_than=30)
            assert await indexed_collections(owner_url, larger_than=30) == {collection.id}  # 17 chunks
            await store(db, collection.id, vectors(14), source="a")
            await build_indexes(owner_url, larger_than=30)
            assert await indexed_collections(owner_url, larger_than=30) == set()
            assert (await index_of(owner_url, "cosine_3", larger_than=30)).index_bytes == 0

    async def test_too_many_large_collections_share_an_index_until_half_are_left(
        self, owner_url: str
    ) -> None:
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collections = [await make(db) for _ in range(MOST_OWN + 1)]
            for collection in collections[1:]:
                await store(db, collection.id, vectors(3))
            await build_indexes(owner_url, larger_than=2)
            assert len(await indexed_collections(owner_url, larger_than=2)) == MOST_OWN
            await store(db, collections[0].id, vectors(3))
            await build_indexes(owner_url, larger_than=2)
            assert await indexed_collections(owner_url, larger_than=2) == set()
            assert (await index_of(owner_url, "cosine_3")).state is IndexState.READY
            for collection in collections[: MOST_OWN // 2]:
                await CollectionRepository(db).delete(collection.id)
            await build_indexes(owner_url, larger_than=2)
            assert (await index_of(owner_url, "cosine_3")).state is IndexState.READY  # 9 are left
            await CollectionRepository(db).delete(collections[-1].id)
            await build_indexes(owner_url, larger_than=2)
            assert len(await indexed_collections(owner_url, larger_than=2)) == MOST_OWN // 2
            assert (await index_of(owner_url, "cosine_3")).state is IndexState.NONE

    async def test_index_of_deleted_collection_is_dropped(self, owner_url: str) -> None:
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db)
            await store(db, collection.id, vectors(3))
            await build_indexes(owner_url, larger_than=2)
            await CollectionRepository(db).delete(collection.id)
            await build_indexes(owner_url, larger_than=2)
            assert (await index_of(owner_url, "cosine_3", larger_than=2)).own == ()

    async def test_second_space_of_a_switch_has_the_index_of_the_collection(self, owner_url: str) -> None:
        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db)
            await store(db, collection.id, vectors(3))
            await build_indexes(owner_url, larger_than=2)
        with psycopg.connect(owner_url) as connection:
            connection.execute("SELECT vectorforge.ensure_alternate_space('cosine_3')")
        (own,) = (await index_of(owner_url, "cosine_3_alt", larger_than=2)).own
        assert (own.collection_id, own.state) == (collection.id, IndexState.READY)

    async def test_longest_name_of_an_index_is_not_cut(self, owner_url: str) -> None:
        with psycopg.connect(owner_url) as connection:
            [(name,)] = connection.execute(
                "SELECT vectorforge.vector_index_name('inner_product_16000_alt_binary', %s)", (uuid4(),)
            ).fetchall()
        assert len(name) == 63  # https://www.postgresql.org/docs/current/limits.html
