"""Deletions by filter and of removed lines of a file: in steps, in one lock order, during writes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.http.live_api import live_api, settings_for
from tests.support.vendors.hashing_embedder import DIMENSION, hashed_vector
from vectorforge.config import QuerySettings
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft
from vectorforge.vectorstore.pgvector import PgVectorStore

OLD = {"kind": "old"}
# Without chunks, which the steps count by their documents' counters.
_INSERT = """
INSERT INTO vectorforge.documents
    (tenant_id, id, collection_id, source, parent_source, media_type, metadata, text, size_chars,
     content_hash, chunk_count)
SELECT %(tenant)s, gen_random_uuid(), %(collection)s, source, 'all.zip', 'text/plain',
       jsonb_build_object('kind', %(kind)s::text), source, 1, sha256(source::bytea), %(chunks)s
FROM unnest(%(sources)s::text[]) AS source
"""


class Shelf:
    """A collection of a tenant, and documents in it."""

    def __init__(self, db: TenantDatabase, collection_id: UUID) -> None:
        self.db = db
        self.id = collection_id
        self.store = PgVectorStore(db)

    @classmethod
    async def of(cls, db: TenantDatabase) -> "Shelf":
        made = await CollectionRepository(db).create(
            "docs",
            embedding_provider="hashing",
            embedding_model="hashing-v1",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        return cls(db, made.id)

    async def add(self, *sources: str, kind: str = "old", chunks: int = 0) -> None:
        values = {"tenant": self.db.tenant_id, "collection": self.id, "kind": kind, "chunks": chunks}
        await self.db.execute(_INSERT, {**values, "sources": list(sources)})

    async def store_text(self, source: str, text: str, kind: str) -> None:
        document = DocumentDraft(
            source, text, "text/plain", text.encode().ljust(32)[:32], metadata={"kind": kind}
        )
        chunk = ChunkDraft(0, text, 0, len(text), 1, text.encode().ljust(32)[:32], vector=hashed_vector(text))
        await self.store.replace_document(self.id, document, [chunk])

    async def sources(self) -> list[str]:
        rows = await self.db.fetch_all(
            'SELECT source FROM vectorforge.documents WHERE tenant_id = %s ORDER BY source COLLATE "C"',
            (self.db.tenant_id,),
        )
        return [row["source"] for row in rows]

    async def delete(self) -> int:
        return await self.store.delete_documents(self.id, OLD)

    @asynccontextmanager
    async def holding(self, source: str) -> AsyncIterator[Callable[[str], Any]]:
        """Start a writer that has locked a document, and can lock others."""
        lock = "SELECT id FROM vectorforge.documents WHERE tenant_id = %s AND source = %s FOR UPDATE"
        async with self.db.transaction() as connection:

            async def hold(source: str) -> None:
                await connection.execute(lock.encode(), (self.db.tenant_id, source))

            await hold(source)
            yield hold


@pytest.fixture
async def shelf(tenant_db: TenantDatabase) -> Shelf:
    return await Shelf.of(tenant_db)


@pytest.fixture
def until_waiting(postgres_server: EmbeddedPostgres) -> Callable[[str], Any]:
    """Wait until a statement with these words waits for a lock."""

    async def wait(words: str) -> None:
        found = "wait_event_type = 'Lock' AND position(%s IN query) > 0"
        waiting = f"SELECT count(*) FROM pg_stat_activity WHERE {found}"
        with psycopg.connect(postgres_server.migrator_url, autocommit=True) as monitor:
            async with asyncio.timeout(30):
                while monitor.execute(waiting, [words]).fetchone() == (0,):  # noqa: ASYNC110 - polls a database
                    await asyncio.sleep(0.02)

    return wait


async def test_deletion_step_is_limited_to_200_documents_or_2000_chunks(shelf: Shelf) -> None:
    await shelf.add(*(f"a{number:03}" for number in range(450)))
    await shelf.add("b1", "b2", "b3", chunks=1_500)
    await shelf.add("c", kind="new")
    # 50 without chunks, and one with; the next one would exceed the limit
    assert [await shelf.delete() for _ in range(6)] == [200, 200, 51, 1, 1, 0]
    assert await shelf.sources() == ["c"]


async def test_deletion_timeout_reports_remaining_and_continues(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    hurried = QuerySettings(query_timeout_s=1e-6)  # ends after the first step, however fast
    async with live_api(settings_for(app_url, [tenant], query=hurried)) as api, api.client(tenant) as client:
        shelf = await Shelf.of(api.application.database.for_tenant(tenant))
        await shelf.add(*(f"{number:03}" for number in range(450)))
        await shelf.add("new", kind="new")
        path = f"/v1/collections/{shelf.id}/documents/delete"
        responses = [(await client.post(path, json={"filters": OLD})).json() for _ in range(4)]
        assert responses == [
            {"matched": 450, "deleted": 200, "remaining": 250, "version": 651},
            {"matched": 250, "deleted": 200, "remaining": 50, "version": 851},
            {"matched": 50, "deleted": 50, "remaining": 0, "version": 901},
            {"matched": 0, "deleted": 0, "remaining": 0, "version": 901},
        ]
        assert await shelf.sources() == ["new"]


async def test_document_changed_during_deletion_is_retained(
    shelf: Shelf, until_waiting: Callable[[str], Any]
) -> None:
    await shelf.add("a", "b", "c")
    async with shelf.db.transaction() as connection:
        await connection.execute(
            b'UPDATE vectorforge.documents SET metadata = \'{"kind": "new"}\''
            b" WHERE tenant_id = %s AND source = 'b'",
            (shelf.db.tenant_id,),
        )
        deletion = asyncio.create_task(shelf.delete())
        await until_waiting("d.chunk_count")
    assert await deletion == 2
    assert await shelf.sources() == ["b"]


async def test_concurrent_deletions_delete_each_document_once(shelf: Shelf) -> None:
    await shelf.add(*(f"{number:03}" for number in range(900)))

    async def delete_all() -> int:
        deleted = 0
        while gone := await shelf.delete():
            deleted += gone
        return deleted

    assert sum(await asyncio.gather(*(delete_all() for _ in range(3)))) == 900
    assert await shelf.sources() == []
    stored = await CollectionRepository(shelf.db).find_by_id(shelf.id)
    assert stored is not None
    assert stored.document_count == 0


async def test_concurrent_writers_and_deletion_leave_no_orphan_chunks(shelf: Shelf) -> None:
    """Each document is its last written version, or deleted together with its chunks."""
    names = [f"{number:02}" for number in range(12)]

    async def write(order: list[str]) -> None:
        for round_number in range(3):
            for name in order:
                await shelf.store_text(name, f"{name} of round {round_number}", "old")
                await shelf.store_text(name, f"{name} kept in round {round_number}", "new")

    async def delete() -> int:
        deleted = 0
        while not writers.done():
            deleted += await shelf.delete()
        return deleted

    writers = asyncio.gather(write(names), write(names[::-1]))
    deleted, _ = await asyncio.gather(delete(), writers)
    await shelf.delete()
    assert deleted > 0
    left = await shelf.db.fetch_all(
        "SELECT d.metadata ->> 'kind' AS kind, d.text, c.text AS passage FROM vectorforge.documents d"
        " LEFT JOIN vectorforge.chunks c ON c.tenant_id = d.tenant_id AND c.document_id = d.id"
        " AND c.to_version IS NULL WHERE d.tenant_id = %s",
        (shelf.db.tenant_id,),
    )
    assert {row["kind"] for row in left} <= {"new"}
    assert all(row["text"] == row["passage"] for row in left)
    orphans = await shelf.db.fetch_one(
        "SELECT count(*) AS n FROM vectorforge.chunks c WHERE tenant_id = %s AND NOT EXISTS"
        " (SELECT FROM vectorforge.documents d WHERE d.tenant_id = c.tenant_id AND d.id = c.document_id)",
        (shelf.db.tenant_id,),
    )
    assert orphans == {"n": 0}


@pytest.mark.parametrize("kind", ["filter", "left out"])
async def test_documents_are_locked_in_source_order(
    shelf: Shelf, until_waiting: Callable[[str], Any], kind: str
) -> None:
    """Their physical order differs; locking in that order would deadlock with this writer."""
    await shelf.add("c")
    await shelf.add("b")
    await shelf.add("a")

    async def delete() -> int:
        if kind == "filter":
            return await shelf.delete()
        return await shelf.store.delete_left_out(shelf.id, "all.zip", ["d"])

    async with shelf.holding("a") as hold:
        deletion = asyncio.create_task(delete())
        await until_waiting("d.chunk_count" if kind == "filter" else "DELETE FROM vectorforge.documents")
        await hold("b")
        await hold("c")
    assert await deletion == 3
    assert await shelf.sources() == []
