"""HNSW indexes are built where they pay, beside readers and writers, and what is half-built is replaced."""

import asyncio
import random
import shutil
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.index_scans import index_scans
from tests.support.postgres.pin_detector import PinDetector
from tests.support.rag.drafts import chunk_drafts, document_draft, expected_distance, random_vector
from vectorforge.cli.doctor.database_checks import storage_checks
from vectorforge.db.connection import Database, TenantDatabase
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import BuildProgress, BuildResources, build_bytes, build_indexes
from vectorforge.db.schema.migrate import MIGRATIONS, migrate, read_migrations
from vectorforge.db.schema.vector_indexes import IndexState, SpaceIndex, list_indexes
from vectorforge.errors import (
    ConflictError,
    DatabaseError,
    DeadlineExceededError,
    InvalidInputError,
    NotFoundError,
)
from vectorforge.local.laptop import maintain_indexes
from vectorforge.types import Collection, DistanceMetric, VectorIndex
from vectorforge.vectorstore.pgvector import PgVectorStore

COSINE = DistanceMetric.COSINE


@pytest.fixture
def owner_url(make_database: Callable[..., str]) -> str:
    """A migrated database of the test's own; connection string of its superuser."""
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


async def index_of(owner_url: str, space: str) -> SpaceIndex:
    return next(index for index in await list_indexes(owner_url) if index.space == space)


async def begun(building: "asyncio.Task[Any]", progress: "asyncio.Event") -> None:
    """Wait until a build has reported progress, or has ended."""
    waiting = asyncio.create_task(progress.wait())
    await asyncio.wait([waiting, building], return_when=asyncio.FIRST_COMPLETED, timeout=20)
    waiting.cancel()


class TestWhereOnePays:
    async def test_only_a_large_collection_counts(self, owner_url: str) -> None:
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
        assert await build_indexes(owner_url, larger_than=0) == []  # it has one

    async def test_what_is_named_is_built(self, owner_url: str) -> None:
        [built] = await build_indexes(owner_url, larger_than=10_000, spaces=["cosine_384"])
        assert (built.space, built.state) == ("cosine_384", IndexState.READY)
        assert (await index_of(owner_url, "cosine_1536")).state is IndexState.NONE
        with pytest.raises(NotFoundError, match="cosine_385"):
            await build_indexes(owner_url, larger_than=10_000, spaces=["cosine_385"])

    # C14
    @pytest.mark.parametrize("metric", DistanceMetric)
    async def test_every_kind_is_made_of_its_type(self, owner_url: str, metric: DistanceMetric) -> None:
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


class TestCollections:
    async def test_a_kind_is_a_partition_of_its_own(self, tenant_db: TenantDatabase) -> None:
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
    async def test_what_does_not_go_together(
        self, tenant_db: TenantDatabase, kind: VectorIndex, metric: DistanceMetric, dimension: int
    ) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make(tenant_db, dimension, kind, metric)
        assert caught.value.field == "vector_index"

    async def test_a_number_beyond_half_precision(self, tenant_db: TenantDatabase) -> None:
        half, full = await make(tenant_db, 2, VectorIndex.HALF), await make(tenant_db, 2)
        await store(tenant_db, full.id, [[65_505.0, 1.0]])
        with pytest.raises(InvalidInputError, match="65504"):
            await store(tenant_db, half.id, [[65_505.0, 1.0]])
        await store(tenant_db, half.id, [[65_504.0, 1.0]])


class TestSearching:
    # C14: the index finds, the full vectors rank
    @pytest.mark.parametrize("dimension", [16, 2100])
    @pytest.mark.parametrize("metric", [COSINE, DistanceMetric.INNER_PRODUCT])
    @pytest.mark.parametrize("kind", VectorIndex)
    async def test_every_kind_finds_the_nearest(
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
        assert index_scans(owner_url, f"embeddings_{collection.space}_hnsw") == 1


class TestBuilding:
    async def test_writers_and_readers_go_on_meanwhile(self, owner_url: str) -> None:
        phases: list[BuildProgress] = []
        progress = asyncio.Event()

        def note(seen: BuildProgress) -> None:
            phases.append(seen)
            progress.set()

        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db)
            await store(db, collection.id, vectors(20))
            with psycopg.connect(owner_url) as writer:  # a writer's transaction that is open
                writer.execute("LOCK TABLE vectorforge.embeddings_cosine_3 IN ROW EXCLUSIVE MODE")
                building = asyncio.create_task(build_indexes(owner_url, larger_than=10, on_progress=note))
                await begun(building, progress)
                assert not building.done()  # it waits for that transaction, and nobody waits for it
                await store(db, collection.id, vectors(5), source="meanwhile")
                found = await PgVectorStore(db).search(
                    query_vector=[1, 0.5, 0.5], top_k=30, collection_id=collection.id, metric=COSINE
                )
                assert len(found) == 25
                assert (await index_of(owner_url, "cosine_3")).state is IndexState.INVALID
                writer.commit()
            [built] = await building
        assert (built.state, built.vectors) == (IndexState.READY, 25)
        assert {seen.space for seen in phases} == {"cosine_3"}
        assert [seen for seen in phases if not (seen.phase and 0 <= seen.fraction <= 1)] == []

    async def test_one_at_a_time(self, owner_url: str) -> None:
        with psycopg.connect(owner_url) as writer:
            writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
            progress = asyncio.Event()
            first = asyncio.create_task(
                build_indexes(
                    owner_url, larger_than=0, spaces=["cosine_384"], on_progress=lambda _: progress.set()
                )
            )
            await begun(first, progress)
            with pytest.raises(ConflictError, match="Another process"):
                await build_indexes(owner_url, larger_than=0)
            writer.commit()
        assert [index.space for index in await first] == ["cosine_384"]

    async def test_a_build_that_takes_too_long_leaves_nothing(self, owner_url: str) -> None:
        with psycopg.connect(owner_url) as writer:
            writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
            building = asyncio.create_task(
                build_indexes(
                    owner_url,
                    larger_than=0,
                    spaces=["cosine_384"],
                    resources=BuildResources(timeout_s=0.5),
                )
            )
            await asyncio.sleep(1)
            assert (await index_of(owner_url, "cosine_384")).state is IndexState.INVALID
            writer.commit()  # dropping it waits for the same writers
        with pytest.raises(DeadlineExceededError, match="cosine_384"):
            await building
        assert (await index_of(owner_url, "cosine_384")).state is IndexState.NONE

    async def test_what_a_killed_build_left_is_replaced(self, owner_url: str) -> None:
        with psycopg.connect(owner_url) as writer:
            writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
            progress = asyncio.Event()
            building = asyncio.create_task(
                build_indexes(
                    owner_url, larger_than=0, spaces=["cosine_384"], on_progress=lambda _: progress.set()
                )
            )
            await begun(building, progress)
            with psycopg.connect(owner_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
            with pytest.raises(DatabaseError):
                await building
        assert (await index_of(owner_url, "cosine_384")).state is IndexState.INVALID
        assert await build_indexes(owner_url, larger_than=0) == []  # it does not pay, so it is left alone
        [built] = await build_indexes(owner_url, larger_than=0, spaces=["cosine_384"])
        assert built.state is IndexState.READY

    def test_memory_grows_with_the_vectors(self) -> None:
        index = SpaceIndex("cosine_384", 0, 0, IndexState.NONE, 0, 0, possible=True, vector_bytes=1536)
        assert build_bytes(index) == 64 * 2**20
        large = SpaceIndex("cosine_384", 500_000, 0, IndexState.NONE, 0, 0, possible=True, vector_bytes=1536)
        assert build_bytes(large) == 500_000 * 2536 * 5 // 4


class TestRoles:
    async def test_the_app_learns_nothing_of_other_tenants(self, tenant_db: TenantDatabase) -> None:
        for statement in (
            "SELECT * FROM vectorforge.embedding_space_sizes()",
            "SELECT vectorforge.vector_index_statement('cosine_384', false)",
        ):
            with pytest.raises(DatabaseError) as caught:
                await tenant_db.fetch_all(statement)
            assert isinstance(caught.value.__cause__, psycopg.errors.InsufficientPrivilege)

    # See tests/integration/test_migrations.py for the role.
    async def test_a_role_like_the_master_of_rds(
        self, make_database: Callable[..., str], pin_detector: PinDetector
    ) -> None:
        conninfo = make_database()
        role = f"master_{uuid.uuid4().hex[:8]}"
        pin_detector.unjudged.add(role)  # it goes to the instance, past RDS Proxy
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN CREATEROLE CREATEDB".encode())
            connection.execute(f"GRANT vectorforge_migrator TO {role}".encode())
            try:
                master = make_conninfo(conninfo, user=role)
                [built] = await build_indexes(master, larger_than=0, spaces=["cosine_384"])
                assert built.state is IndexState.READY
            finally:
                connection.execute(f"DROP OWNED BY {role}".encode())
                connection.execute(f"DROP ROLE {role}".encode())


async def test_partitions_in_use_keep_their_index(make_database: Callable[..., str], tmp_path: Path) -> None:
    """The migration drops the indexes of partitions without a row only."""
    conninfo = make_database(empty=True)
    directory = shutil.copytree(MIGRATIONS, tmp_path / "migrations")
    for migration in read_migrations():
        if migration.version >= 15:
            (directory / migration.name).unlink()
    await migrate(conninfo, directory=directory)
    with psycopg.connect(conninfo) as connection:
        ids: dict[str, Any] = {"collection": uuid4(), "document": uuid4(), "chunk": uuid4()}
        connection.execute(
            "INSERT INTO vectorforge.collections (tenant_id, id, name, embedding_provider, embedding_model,"
            " dimension, distance_metric) VALUES ('a', %(collection)s, 'n', 'p', 'm', 384, 'cosine')",
            ids,
        )
        connection.execute(
            "INSERT INTO vectorforge.documents (tenant_id, collection_id, id, source, media_type, text,"
            " size_chars, content_hash)"
            " VALUES ('a', %(collection)s, %(document)s, 's', 't', '', 0, sha256(''))",
            ids,
        )
        connection.execute(
            "INSERT INTO vectorforge.embeddings (tenant_id, collection_id, document_id, chunk_id, space,"
            " embedding) VALUES ('a', %(collection)s, %(document)s, %(chunk)s, 'cosine_384',"
            " array_fill(0.5, ARRAY[384])::vector)",
            ids,
        )
    await migrate(conninfo)
    assert (await index_of(conninfo, "cosine_384")).state is IndexState.READY
    assert (await index_of(conninfo, "cosine_1536")).state is IndexState.NONE


async def test_the_doctor_reads_it_all(owner_url: str) -> None:
    well = await storage_checks(owner_url, larger_than=10)
    assert [(check.name, check.status) for check in well] == [
        ("vector indexes", "ok"), ("dead rows", "ok"), ("statistics", "ok"),
    ]  # fmt: skip
    async with Database(app_url(owner_url)) as database:
        db = database.for_tenant("a")
        await store(db, (await make(db)).id, vectors(11))
    [check, *_] = await storage_checks(owner_url, larger_than=10)
    assert (check.status, check.remedy) == ("warn", "Run `vectorforge index build`.")


async def test_a_laptop_builds_by_itself(owner_url: str) -> None:
    async with Database(app_url(owner_url)) as database:
        db = database.for_tenant("a")
        async with maintain_indexes(owner_url, larger_than=10, every_s=0.05), asyncio.timeout(20):
            await store(db, (await make(db)).id, vectors(11))
            while (await index_of(owner_url, "cosine_3")).state is not IndexState.READY:  # noqa: ASYNC110 - a server's
                await asyncio.sleep(0.05)
