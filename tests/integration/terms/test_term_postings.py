"""Postings: visible to their tenant only, written by triggers only, and grouped by document."""

import pytest

from tests.integration.terms.conftest import COSINE, Check, Store
from tests.support.rag.collections import insert_collection
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, RefusedRowError


class TestIsolation:
    @pytest.fixture
    async def strangers(self, store: Store, other_tenant_db: TenantDatabase) -> TenantDatabase:
        await store.put(["cats", "dogs"])
        other = Store(other_tenant_db, await insert_collection(other_tenant_db, 2, COSINE))
        await other.put(["secret"])
        return other_tenant_db

    async def test_tenant_sees_own_terms_only(self, store: Store, strangers: TenantDatabase) -> None:
        own = {
            row["term_scope"]
            for row in await store.db.fetch_all("SELECT term_scope FROM vectorforge.collections")
        }
        rows = await store.db.fetch_all("SELECT DISTINCT scope FROM vectorforge.packed_postings")
        assert {row["scope"] for row in rows} == own
        rows = await store.db.fetch_all("SELECT DISTINCT tenant_id FROM vectorforge.chunk_terms")
        assert [row["tenant_id"] for row in rows] == [store.db.tenant_id]

    async def test_query_without_tenant_sees_no_terms(
        self, database: Database, store: Store, strangers: TenantDatabase
    ) -> None:
        for table in ("packed_postings", "grouped_postings", "chunk_terms"):
            row = await database.fetch_untenanted(f"SELECT count(*) AS n FROM vectorforge.{table}")
            assert row == {"n": 0}

    # conditions that would disclose a row of another tenant by the error that it raises
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
    async def test_error_oracle_on_foreign_terms_reveals_nothing(
        self, store: Store, strangers: TenantDatabase, condition: str
    ) -> None:
        statement = f"SELECT count(*) AS n FROM vectorforge.{condition}"
        assert await store.db.fetch_one(statement) == {"n": 0}
        with pytest.raises(RefusedRowError):  # its own row with the word: a division by zero
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
            "INSERT INTO vectorforge.pending_changes (tenant_id) VALUES ('tenant')",
            "SELECT vectorforge.settle_changes()",
            "UPDATE vectorforge.chunk_terms SET length = 1",
            "SELECT vectorforge.add_terms('x', gen_random_uuid(), '{}')",
            "UPDATE vectorforge.collections SET term_scope = 1",
        ],
    )
    async def test_direct_writes_to_terms_are_denied(
        self, store: Store, strangers: TenantDatabase, statement: str
    ) -> None:
        with pytest.raises(DatabaseError):
            await store.db.execute(statement)


# Terms that chunks of a document share are one row, which is deleted with the last of them.
class TestGroupedPostings:
    async def rows(self, store: Store) -> dict[str, list[int]]:
        """Return the numbers of postings in the rows of terms that two or more chunks had when indexed."""
        found = await store.db.fetch_all(
            """SELECT w.word, cardinality(p.postings) AS chunks FROM vectorforge.grouped_postings AS p
            JOIN unnest(ARRAY['cat', 'dog', 'bird']) AS w (word) ON p.term = vectorforge.term_hash(w.word)
            ORDER BY 1, 2"""
        )
        rows: dict[str, list[int]] = {}
        for row in found:
            rows.setdefault(row["word"], []).append(row["chunks"])
        return rows

    async def test_chunks_deleted_one_by_one_shrink_their_row(self, store: Store, check: Check) -> None:
        await store.put(["cats one", "cats two dogs", "cats three dogs", "birds"], title=None)
        assert await self.rows(store) == {"cat": [3], "dog": [2]}
        for gone, left in ((0, {"cat": [2], "dog": [2]}), (1, {"cat": [1], "dog": [1]}), (2, {}), (3, {})):
            async with store.db.transaction() as connection:
                await connection.execute("DELETE FROM vectorforge.chunks WHERE ordinal = %s", (gone,))
                await connection.execute("UPDATE vectorforge.documents SET chunk_count = chunk_count - 1")
            await check(store.db)
            assert await self.rows(store) == left, gone

    async def test_terms_of_two_documents_use_two_rows(self, store: Store, check: Check) -> None:
        for source in ("a.md", "b.md"):
            await store.put(["cats", "cats again"], source, title=None)
        assert await self.rows(store) == {"cat": [2, 2]}
        await store.db.execute("DELETE FROM vectorforge.documents WHERE source = 'a.md'")
        await check(store.db)
        assert await self.rows(store) == {"cat": [2]}

    async def test_chunk_added_later_uses_its_own_rows(self, store: Store, check: Check) -> None:
        await store.put(["cats", "cats again"], title=None)
        await store.put(["cats", "cats again", "and more cats"], title=None)
        assert await self.rows(store) == {"cat": [2]}
        assert await check(store.db) > 0
        await store.put(["and more cats"], title=None)
        assert await self.rows(store) == {}
        assert await check(store.db) > 0
