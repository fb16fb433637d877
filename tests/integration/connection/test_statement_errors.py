"""Errors of statements: their texts, and the state after a failed transaction."""

import contextlib
from typing import Any

import psycopg
import pytest

from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.errors import DatabaseError, DatabaseUnavailableError, InvalidInputError, RefusedRowError


@pytest.fixture
def database_url(each_app_url: str) -> str:
    return each_app_url


class TestStatementErrors:
    async def test_error_text_omits_data(self, database: Database) -> None:
        tenant = database.for_tenant("a")
        with pytest.raises(DatabaseError) as caught:
            await tenant.fetch_one("SELECT 'canary'::text / 2 FROM canary")
        assert "canary" not in str(caught.value)
        assert isinstance(caught.value.__cause__, psycopg.Error)

    @pytest.mark.parametrize("value", ["nul \0", "half \ud800"])
    async def test_unstorable_text_raises_invalid_input(self, database: Database, value: str) -> None:
        with pytest.raises(InvalidInputError):
            await database.for_tenant("a").fetch_one("SELECT %s::text", (value,))

    async def test_failed_transaction_leaves_no_rows(self, tenant_db: Any) -> None:
        insert = (
            "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
            " latency_ms) VALUES (%s, gen_random_uuid(), gen_random_uuid(), 'q', 'answered', 1)"
        )
        with contextlib.suppress(RuntimeError):
            async with tenant_db.transaction() as connection:
                await connection.execute(insert, (tenant_db.tenant_id,))
                raise RuntimeError
        assert await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs") == []
        assert await tenant_db.execute(insert, (tenant_db.tenant_id,)) == 1

    async def test_batch_with_failing_statement_leaves_no_rows(self, tenant_db: Any) -> None:
        insert = (
            "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
            " latency_ms) VALUES (%s, gen_random_uuid(), gen_random_uuid(), 'q', 'answered', %s)"
        )
        good, bad = (insert, (tenant_db.tenant_id, 1)), (insert, (tenant_db.tenant_id, None))
        for calls in ([good, bad], [bad, good]):
            with pytest.raises(RefusedRowError):
                await tenant_db.run(calls)
            assert await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs") == []
        assert [count for _, count in await tenant_db.run([good, good])] == [1, 1]
        assert len(await tenant_db.fetch_all("SELECT id FROM vectorforge.query_logs")) == 2

    # A deferred constraint fails at the commit.
    @pytest.mark.pins(PinRule.TEMPORARY)
    async def test_failing_commit_raises_refused_row(self, direct_database: Database) -> None:
        tenant = direct_database.for_tenant("a")
        calls: list[tuple[str, tuple[int, ...]]] = [
            ("CREATE TEMP TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP", ()),
            ("INSERT INTO late VALUES (%s)", (1,)),
            ("INSERT INTO late VALUES (%s)", (1,)),
        ]
        with pytest.raises(RefusedRowError):
            await tenant.run(calls)
        assert await tenant.fetch_one("SELECT 1 AS n") == {"n": 1}

    @pytest.mark.pins(PinRule.OPAQUE)
    async def test_full_disk_raises_unavailable_with_its_reason(self, database: Database) -> None:
        full = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
        with pytest.raises(DatabaseUnavailableError, match="disk is full"):
            await database.for_tenant("a").execute(full)

    async def test_unopened_database_raises_unavailable(self) -> None:
        database = Database("dbname=vectorforge")
        with pytest.raises(DatabaseUnavailableError):
            await database.for_tenant("a").fetch_one("SELECT 1")
        assert not (await database.health()).healthy
        await database.close()
