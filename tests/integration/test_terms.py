"""The words of passages in PostgreSQL: whatever is written, they are those of the passages that are there."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.term_check import check_terms
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, RefusedRowError
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
    """Compares postings and counts with the passages of a tenant; how many postings it has."""
    return partial(check_terms, postgres_server.migrator_url)


def document(
    texts: Sequence[str], source: str = "guide.md", **options: Any
) -> tuple[DocumentDraft, list[ChunkDraft]]:
    chunks = chunk_drafts(texts, [[1.0, 0.0]] * len(texts))
    return document_draft(chunks, source=source, **options), chunks


class Store:
    """Writes to one collection of a tenant."""

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


class TestEveryWayOfWriting:
    async def test_new_and_replaced_documents(self, store: Store, check: Check) -> None:
        await store.put(["The cats sleep", "", "the of and", "dogs and dogs and a dog"])
        first = await check(store.db)
        await store.put(["The cats sleep", "birds"])
        assert 0 < await check(store.db) < first
        await store.put(["birds", "The cats sleep", "fish"])
        await store.put(["a horse"], "other.md", title=None)
        await check(store.db)
        before = await check(store.db)
        await store.put([])
        assert 0 < await check(store.db) < before

    async def test_a_replacement_is_one_change(self, store: Store) -> None:
        await store.put(["cats"])
        before = await store.data_version()
        await store.put(["dogs", "birds"])
        assert await store.data_version() == before + 1

    async def test_nothing_changes_without_a_change(self, store: Store, check: Check) -> None:
        await store.put(["cats"])
        before = await store.data_version()
        await store.put(["cats"])
        assert await store.data_version() == before
        await check(store.db)

    async def test_headings(self, store: Store, check: Check) -> None:
        draft, chunks = document(["cats", "dogs"])
        await store.vectors.replace_document(store.id, draft, chunks)
        renamed = [replace(chunk, heading="Horses > Running" if chunk.index else None) for chunk in chunks]
        stored = await store.vectors.replace_document(
            store.id, replace(draft, content_hash=bytes(32)), renamed
        )
        assert stored.chunks_kept == 2
        await check(store.db)

    async def test_the_title(self, store: Store, check: Check) -> None:
        await store.put(["cats", "dogs"], title="Birds")
        await store.put(["cats", "horses"], title="Invoices of birds")
        await check(store.db)
        await store.put(["cats", "horses"], title=None)
        await check(store.db)
        await store.db.execute("UPDATE vectorforge.documents SET title = 'by hand'")
        await check(store.db)

    async def test_long_passages(self, store: Store, check: Check) -> None:
        generator = random.Random(3)
        await store.put([" ".join(generator.choices(WORDS, k=200)), "word " * 40_000, "x" * 3_000])
        await check(store.db)

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM vectorforge.documents",
            "DELETE FROM vectorforge.collections",
            "UPDATE vectorforge.chunks SET text = 'birds of prey', heading = NULL WHERE ordinal = 1",
            "UPDATE vectorforge.chunks SET ordinal = ordinal + 10",
        ],
    )
    async def test_by_hand(self, store: Store, check: Check, statement: str) -> None:
        await store.put(["cats", "dogs"])
        await store.put(["cats", "horses"], "other.md")
        await store.db.execute(statement)
        await check(store.db)

    async def test_single_chunks_by_hand(self, store: Store, check: Check) -> None:
        await store.put(["cats", "dogs"])
        async with store.db.transaction() as connection:
            await connection.execute("DELETE FROM vectorforge.chunks WHERE ordinal = 0")
            await connection.execute("UPDATE vectorforge.documents SET chunk_count = 1")
        assert await check(store.db) > 0
        async with store.db.transaction() as connection:
            await connection.execute("UPDATE vectorforge.chunks SET to_version = 2")
            await connection.execute("UPDATE vectorforge.documents SET chunk_count = 0, version = 2")
        assert await check(store.db) == 0
        async with store.db.transaction() as connection:
            await connection.execute("UPDATE vectorforge.chunks SET to_version = NULL")
            await connection.execute("UPDATE vectorforge.documents SET chunk_count = 1, version = 3")
        assert await check(store.db) > 0

    async def test_what_is_deleted(self, store: Store, check: Check) -> None:
        gone = await store.put(["cats"], "a.md")
        for source in ("b.md", "c.md"):
            draft, chunks = document(["dogs", source], source)
            await store.vectors.replace_document(store.id, replace(draft, parent_source="all.zip"), chunks)
        assert await store.vectors.delete_document(gone)
        await check(store.db)
        assert await store.vectors.delete_left_out(store.id, "all.zip", ["c.md"]) == 1
        assert await check(store.db) > 0
        assert await CollectionRepository(store.db).delete(store.id)
        assert await check(store.db) == 0

    async def test_profiles(self, tenant_db: TenantDatabase, check: Check) -> None:
        collection_id = await insert_collection(tenant_db, 2, COSINE, by_profile=True)
        vectors = PgVectorStore(tenant_db)
        for profile in (1, 2):
            documents = [document(["cats", f"dogs 7{profile}"], f"{profile}/{name}") for name in "ab"]
            await vectors.replace_profile(collection_id, profile, documents)
        full = await check(tenant_db)
        assert await vectors.delete_profile_chunks(collection_id, 1) == 4
        assert await check(tenant_db) == full // 2

    async def test_the_eraser(
        self, postgres_server: EmbeddedPostgres, store: Store, other_tenant_db: TenantDatabase, check: Check
    ) -> None:
        other = Store(other_tenant_db, await insert_collection(other_tenant_db, 2, COSINE))
        for written in (store, other):
            await written.put(["cats and dogs", "birds"])
        kept = await check(other.db)
        conninfo = make_conninfo(postgres_server.app_url, user="vectorforge_eraser")
        async with Database(conninfo, pool_size=1) as database:
            await database.for_tenant(store.db.tenant_id).execute("DELETE FROM vectorforge.collections")
        assert await check(store.db) == 0
        assert await check(other.db) == kept

    async def test_many_random_changes(self, store: Store, check: Check) -> None:
        generator = random.Random(7)
        for _ in range(60):
            source = f"{generator.randrange(6)}.md"
            texts = [" ".join(generator.choices(WORDS, k=generator.randrange(4))) for _ in range(3)]
            await store.put(texts[: generator.randrange(4)], source, title=generator.choice(WORDS))
            if generator.random() < 0.1:
                await store.db.execute("DELETE FROM vectorforge.documents WHERE source = %s", (source,))
        assert await check(store.db) > 0


# C21: writers wait for each other, and never form a ring
class TestWritersSideBySide:
    async def test_counts_are_exact(self, store: Store, check: Check) -> None:
        async def write(seed: int) -> None:
            generator = random.Random(seed)
            for _ in range(25):
                source = f"{generator.randrange(4)}.md"
                if generator.random() < 0.2:
                    await store.db.execute("DELETE FROM vectorforge.documents WHERE source = %s", (source,))
                    continue
                texts = [" ".join(generator.choices(WORDS, k=3)) for _ in range(generator.randrange(1, 6))]
                await store.put(texts, source, title=generator.choice(WORDS))

        await asyncio.gather(*(write(seed) for seed in range(4)))
        assert await check(store.db) > 0


class TestTheWall:
    @pytest.fixture
    async def strangers(self, store: Store, other_tenant_db: TenantDatabase) -> TenantDatabase:
        await store.put(["cats", "dogs"])
        other = Store(other_tenant_db, await insert_collection(other_tenant_db, 2, COSINE))
        await other.put(["secret"])
        return other_tenant_db

    async def test_only_ones_own_words_are_seen(self, store: Store, strangers: TenantDatabase) -> None:
        own = {
            row["term_scope"]
            for row in await store.db.fetch_all("SELECT term_scope FROM vectorforge.collections")
        }
        rows = await store.db.fetch_all("SELECT DISTINCT scope FROM vectorforge.packed_postings")
        assert {row["scope"] for row in rows} == own
        rows = await store.db.fetch_all("SELECT DISTINCT tenant_id FROM vectorforge.chunk_terms")
        assert [row["tenant_id"] for row in rows] == [store.db.tenant_id]

    async def test_nobody_is_nobody(
        self, database: Database, store: Store, strangers: TenantDatabase
    ) -> None:
        for table in ("postings", "packed_postings", "grouped_postings", "chunk_terms"):
            row = await database.fetch_untenanted(f"SELECT count(*) AS n FROM vectorforge.{table}")
            assert row == {"n": 0}

    # what a condition could tell by an error that only a stranger's row raises
    @pytest.mark.parametrize(
        "condition",
        [
            "packed_postings WHERE 1 / (term::bigint - vectorforge.term_hash('secret')) < -9",
            """packed_postings WHERE scope IN (SELECT n FROM generate_series(1, 9999) AS n)
                AND 1 / (term::bigint - vectorforge.term_hash('secret')) < -9""",
            """chunk_terms WHERE EXISTS (
                SELECT FROM unnest(terms) AS t WHERE 1 / (t::bigint - vectorforge.term_hash('secret')) < -9
            )""",
        ],
    )
    async def test_hostile_questions(self, store: Store, strangers: TenantDatabase, condition: str) -> None:
        statement = f"SELECT count(*) AS n FROM vectorforge.{condition}"
        assert await store.db.fetch_one(statement) == {"n": 0}
        with pytest.raises(RefusedRowError):  # the row that holds the word: a division by zero
            await strangers.fetch_one(statement)

    @pytest.mark.parametrize(
        "statement",
        [
            "INSERT INTO vectorforge.packed_postings SELECT scope, 1, 1 FROM vectorforge.packed_postings",
            "UPDATE vectorforge.packed_postings SET posting = 1",
            "DELETE FROM vectorforge.packed_postings",
            "UPDATE vectorforge.grouped_postings SET postings = '{}'",
            "DELETE FROM vectorforge.grouped_postings",
            "DELETE FROM vectorforge.chunk_terms",
            "UPDATE vectorforge.chunk_terms SET length = 1",
            "SELECT vectorforge.add_terms('x', '{}')",
            "UPDATE vectorforge.collections SET term_scope = 1",
        ],
    )
    async def test_only_triggers_write(self, store: Store, strangers: TenantDatabase, statement: str) -> None:
        with pytest.raises(DatabaseError):
            await store.db.execute(statement)


# Issue 7, point 4: words that passages of a document share are one row, and it ends with the last of them
class TestSharedWords:
    async def rows(self, store: Store) -> dict[str, list[int]]:
        """Words of two or more passages when they were read: how many postings each of their rows has."""
        found = await store.db.fetch_all(
            """SELECT w.word, cardinality(p.postings) AS passages FROM vectorforge.grouped_postings AS p
            JOIN unnest(ARRAY['cat', 'dog', 'bird']) AS w (word) ON p.term = vectorforge.term_hash(w.word)
            ORDER BY 1, 2"""
        )
        rows: dict[str, list[int]] = {}
        for row in found:
            rows.setdefault(row["word"], []).append(row["passages"])
        return rows

    async def test_passages_that_go_one_by_one(self, store: Store, check: Check) -> None:
        await store.put(["cats one", "cats two dogs", "cats three dogs", "birds"], title=None)
        assert await self.rows(store) == {"cat": [3], "dog": [2]}
        for gone, left in ((0, {"cat": [2], "dog": [2]}), (1, {"cat": [1], "dog": [1]}), (2, {}), (3, {})):
            async with store.db.transaction() as connection:
                await connection.execute("DELETE FROM vectorforge.chunks WHERE ordinal = %s", (gone,))
                await connection.execute("UPDATE vectorforge.documents SET chunk_count = chunk_count - 1")
            await check(store.db)
            assert await self.rows(store) == left, gone

    async def test_those_of_two_documents_are_two_rows(self, store: Store, check: Check) -> None:
        for source in ("a.md", "b.md"):
            await store.put(["cats", "cats again"], source, title=None)
        assert await self.rows(store) == {"cat": [2, 2]}
        await store.db.execute("DELETE FROM vectorforge.documents WHERE source = 'a.md'")
        await check(store.db)
        assert await self.rows(store) == {"cat": [2]}

    async def test_a_passage_that_comes_later_has_rows_of_its_own(self, store: Store, check: Check) -> None:
        await store.put(["cats", "cats again"], title=None)
        await store.put(["cats", "cats again", "and more cats"], title=None)
        assert await self.rows(store) == {"cat": [2]}
        assert await check(store.db) > 0
        await store.put(["and more cats"], title=None)
        assert await self.rows(store) == {}
        assert await check(store.db) > 0
