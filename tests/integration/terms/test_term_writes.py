"""Terms match the chunks after every kind of write."""

import asyncio
import random
from dataclasses import replace

import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.terms.conftest import COSINE, WORDS, Check, Store, document
from tests.support.rag.collections import insert_collection
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.vectorstore.pgvector import PgVectorStore


class TestWrites:
    async def test_new_and_replaced_documents_match_their_terms(self, store: Store, check: Check) -> None:
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

    async def test_replacement_increments_data_version_once(self, store: Store) -> None:
        await store.put(["cats"])
        before = await store.data_version()
        await store.put(["dogs", "birds"])
        assert await store.data_version() == before + 1

    async def test_unchanged_document_retains_data_version(self, store: Store, check: Check) -> None:
        await store.put(["cats"])
        before = await store.data_version()
        await store.put(["cats"])
        assert await store.data_version() == before
        await check(store.db)

    async def test_changed_headings_update_terms(self, store: Store, check: Check) -> None:
        draft, chunks = document(["cats", "dogs"])
        await store.vectors.replace_document(store.id, draft, chunks)
        renamed = [replace(chunk, heading="Horses > Running" if chunk.index else None) for chunk in chunks]
        stored = await store.vectors.replace_document(
            store.id, replace(draft, content_hash=bytes(32)), renamed
        )
        assert stored.chunks_kept == 2
        await check(store.db)

    async def test_changed_title_updates_terms(self, store: Store, check: Check) -> None:
        await store.put(["cats", "dogs"], title="Birds")
        await store.put(["cats", "horses"], title="Invoices of birds")
        await check(store.db)
        await store.put(["cats", "horses"], title=None)
        await check(store.db)
        await store.db.execute("UPDATE vectorforge.documents SET title = 'by hand'")
        await check(store.db)

    async def test_long_chunks_match_their_terms(self, store: Store, check: Check) -> None:
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
    async def test_plain_sql_changes_update_terms(self, store: Store, check: Check, statement: str) -> None:
        await store.put(["cats", "dogs"])
        await store.put(["cats", "horses"], "other.md")
        await store.db.execute(statement)
        await check(store.db)

    async def test_single_chunk_changes_update_terms(self, store: Store, check: Check) -> None:
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

    async def test_deletions_remove_terms(self, store: Store, check: Check) -> None:
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

    async def test_profile_writes_and_deletions_update_terms(
        self, tenant_db: TenantDatabase, check: Check
    ) -> None:
        collection_id = await insert_collection(tenant_db, 2, COSINE, by_profile=True)
        vectors = PgVectorStore(tenant_db)
        for profile in (1, 2):
            documents = [document(["cats", f"dogs 7{profile}"], f"{profile}/{name}") for name in "ab"]
            await vectors.replace_profile(collection_id, profile, documents)
        full = await check(tenant_db)
        assert await vectors.delete_profile_chunks(collection_id, 1) == 4
        assert await check(tenant_db) == full // 2

    async def test_eraser_removes_terms_of_one_tenant_only(
        self, postgres_server: EmbeddedPostgres, store: Store, other_tenant_db: TenantDatabase, check: Check
    ) -> None:
        other = Store(other_tenant_db, await insert_collection(other_tenant_db, 2, COSINE))
        for written in (store, other):
            await written.put(["cats and dogs", "birds"])
        postings = await check(other.db)
        conninfo = make_conninfo(postgres_server.app_url, user="vectorforge_eraser")
        async with Database(conninfo, pool_size=1) as database:
            await database.for_tenant(store.db.tenant_id).execute("DELETE FROM vectorforge.collections")
        assert await check(store.db) == 0
        assert await check(other.db) == postings

    async def test_random_changes_match_their_terms(self, store: Store, check: Check) -> None:
        generator = random.Random(7)
        for _ in range(60):
            source = f"{generator.randrange(6)}.md"
            texts = [" ".join(generator.choices(WORDS, k=generator.randrange(4))) for _ in range(3)]
            await store.put(texts[: generator.randrange(4)], source, title=generator.choice(WORDS))
            if generator.random() < 0.1:
                await store.db.execute("DELETE FROM vectorforge.documents WHERE source = %s", (source,))
        assert await check(store.db) > 0


# Writers wait for each other, and do not deadlock.
class TestConcurrentWriters:
    async def test_concurrent_writers_leave_exact_counts(self, store: Store, check: Check) -> None:
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
