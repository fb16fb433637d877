"""Index builds run while others read and write; an interrupted build is replaced."""

import asyncio
import uuid
from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.vector_indexes.conftest import COSINE, app_url, begun, index_of, make, store, vectors
from tests.support.postgres.pin_detector import PinDetector
from vectorforge.db.connection import Database
from vectorforge.db.schema.index_building import BuildProgress, BuildResources, build_bytes, build_indexes
from vectorforge.db.schema.vector_indexes import IndexState
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import (
    ConflictError,
    DatabaseError,
    DeadlineExceededError,
)
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestBuilds:
    async def test_build_under_load_blocks_no_writer_or_reader(self, owner_url: str) -> None:
        phases: list[BuildProgress] = []
        progress = asyncio.Event()

        def note(seen: BuildProgress) -> None:
            phases.append(seen)
            progress.set()

        async with Database(app_url(owner_url)) as database:
            db = database.for_tenant("a")
            collection = await make(db)
            await store(db, collection.id, vectors(20))
            with psycopg.connect(owner_url) as writer:  # an open transaction of a writer
                writer.execute("LOCK TABLE vectorforge.embeddings_cosine_3 IN ROW EXCLUSIVE MODE")
                building = asyncio.create_task(build_indexes(owner_url, larger_than=10, on_progress=note))
                await begun(building, progress)
                assert not building.done()  # it waits for that transaction, and blocks no other
                await store(db, collection.id, vectors(5), source="meanwhile")
                found = await PgVectorStore(db).search(
                    query_vector=[1, 0.5, 0.5], top_k=30, collection_id=collection.id, metric=COSINE
                )
                assert len(found) == 25
                [own] = (await index_of(owner_url, "cosine_3", larger_than=10)).own
                assert own.state is IndexState.INVALID
                writer.commit()
            [built] = await building
        [own] = built.own
        assert (own.state, own.vectors) == (IndexState.READY, 25)
        assert {seen.space for seen in phases} == {"cosine_3"}
        assert [seen for seen in phases if not (seen.phase and 0 <= seen.fraction <= 1)] == []

    async def test_second_build_while_one_runs_raises_conflict(self, owner_url: str) -> None:
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

    async def test_build_past_its_timeout_leaves_no_index(self, owner_url: str) -> None:
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

    async def test_build_after_killed_build_replaces_invalid_index(self, owner_url: str) -> None:
        with psycopg.connect(owner_url) as writer:
            writer.execute("LOCK TABLE vectorforge.embeddings_cosine_384 IN ROW EXCLUSIVE MODE")
            building = asyncio.create_task(build_indexes(owner_url, larger_than=0, spaces=["cosine_384"]))
            async with asyncio.timeout(20):  # its first transaction commits the index, not valid yet
                while (await index_of(owner_url, "cosine_384")).state is IndexState.NONE:  # noqa: ASYNC110 - polls a database
                    await asyncio.sleep(0.02)
            with psycopg.connect(owner_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
            with pytest.raises(DatabaseError):
                await building
        assert (await index_of(owner_url, "cosine_384")).state is IndexState.INVALID
        assert await build_indexes(owner_url, larger_than=0) == []  # the collection is small
        [built] = await build_indexes(owner_url, larger_than=0, spaces=["cosine_384"])
        assert built.state is IndexState.READY

    def test_build_memory_grows_with_vectors(self) -> None:
        assert build_bytes(0, 1536) == 64 * 2**20
        assert build_bytes(500_000, 1536) == 500_000 * 2536 * 5 // 4


class TestRoles:
    async def test_app_role_reading_space_sizes_is_denied(self, tenant_db: TenantDatabase) -> None:
        for statement in (
            "SELECT * FROM vectorforge.embedding_space_sizes()",
            "SELECT * FROM vectorforge.large_collections(0)",
            "SELECT vectorforge.vector_index_statement('cosine_384', false)",
        ):
            with pytest.raises(DatabaseError) as caught:
                await tenant_db.fetch_all(statement)
            assert isinstance(caught.value.__cause__, psycopg.errors.InsufficientPrivilege)

    # tests/integration/test_migrations.py has the same role.
    async def test_build_by_role_like_rds_master_succeeds(
        self, make_database: Callable[..., str], pin_detector: PinDetector
    ) -> None:
        conninfo = make_database()
        role = f"master_{uuid.uuid4().hex[:8]}"
        pin_detector.unjudged.add(role)  # it connects to the instance, past RDS Proxy
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
