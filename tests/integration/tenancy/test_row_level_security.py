"""Row-level security covers every table, and without a tenant no row is visible."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.integration.tenancy.conftest import TABLES, fill
from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, InvalidInputError

PINS = pytest.mark.pins(PinRule.SETTING)
# Tables and partitions of the schema without complete row-level security.
UNPROTECTED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'vectorforge' AND c.relkind IN ('r', 'p') AND NOT (
    c.relrowsecurity AND c.relforcerowsecurity
    AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polroles = '{0}')  -- everybody's
    AND (c.relname = 'schema_migrations' OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnotnull
            AND a.attname = CASE WHEN c.relname ~ 'postings$' THEN 'scope' ELSE 'tenant_id' END
    ))
)
"""


class TestRowLevelSecurity:
    def test_all_tables_have_forced_row_level_security(self, superuser: psycopg.Connection[Any]) -> None:
        assert superuser.execute(UNPROTECTED).fetchall() == []

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE vectorforge.bare (tenant_id text NOT NULL)",
            "ALTER TABLE vectorforge.documents NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY tenant ON vectorforge.chunks",
            "ALTER TABLE vectorforge.embeddings_cosine_384 DISABLE ROW LEVEL SECURITY",
        ],
    )
    def test_unprotected_table_is_detected_by_the_check(
        self, make_database: Callable[..., str], statement: str
    ) -> None:
        with psycopg.connect(make_database(), autocommit=True) as connection:
            connection.execute(statement)
            assert len(connection.execute(UNPROTECTED).fetchall()) == 1

    def test_roles_have_only_the_grants_they_need(self, superuser: psycopg.Connection[Any]) -> None:
        rows = superuser.execute(
            "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants"
            " WHERE table_schema = 'vectorforge' AND grantee <> 'vectorforge_migrator'"
        ).fetchall()
        assert {privilege for grantee, _, privilege in rows if grantee == "vectorforge_app"} == {
            "SELECT",
            "INSERT",
            "UPDATE",
            "DELETE",
        }
        assert {row[1:] for row in rows if row[0] == "vectorforge_log_writer"} == {
            ("schema_migrations", "SELECT"),
            ("query_logs", "INSERT"),
        }
        assert {privilege for grantee, _, privilege in rows if grantee == "vectorforge_eraser"} == {
            "SELECT",
            "DELETE",
        }
        assert [table for _, table, _ in rows if table.startswith("embeddings_")] == []
        # roles without login: the dispatcher deletes expired rows, the keeper writes for the log writer
        hidden = ("PUBLIC", "vectorforge_dispatcher", "vectorforge_log_keeper")
        assert {row for row in rows if row[0] in hidden} == {
            ("vectorforge_dispatcher", "answer_streams", "DELETE"),
            ("vectorforge_dispatcher", "cached_answers", "DELETE"),
            ("vectorforge_dispatcher", "cached_embeddings", "DELETE"),
            ("vectorforge_dispatcher", "ingestion_jobs", "DELETE"),
            ("vectorforge_dispatcher", "query_logs", "DELETE"),
            ("vectorforge_dispatcher", "tombstones", "DELETE"),
            ("vectorforge_dispatcher", "uploaded_files", "DELETE"),
            ("vectorforge_log_keeper", "query_logs", "INSERT"),
        }
        readable = superuser.execute(
            "SELECT table_name, column_name FROM information_schema.role_column_grants"
            " WHERE grantee = 'vectorforge_log_keeper' AND privilege_type = 'SELECT'"
        ).fetchall()
        assert set(readable) == {("query_logs", column) for column in ("tenant_id", "id", "outcome")}
        keeper = "FROM pg_roles WHERE rolname = 'vectorforge_log_keeper'"
        found = superuser.execute(f"SELECT rolcanlogin, rolsuper, rolbypassrls {keeper}".encode()).fetchone()
        assert found == (False, False, False)
        public = superuser.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'vectorforge'::regnamespace"
            " AND has_function_privilege('public', oid, 'EXECUTE')"
        ).fetchall()
        assert public == []

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE vectorforge.mine (id int)",
            "DROP TABLE vectorforge.query_logs",
            "TRUNCATE vectorforge.documents",
            "ALTER TABLE vectorforge.documents DISABLE ROW LEVEL SECURITY",
            "SELECT * FROM vectorforge.embeddings_cosine_384",
            "UPDATE vectorforge.query_logs SET query_text = ''",
            "INSERT INTO vectorforge.schema_migrations VALUES (99, '', '')",
            pytest.param("SET ROLE vectorforge_migrator", marks=PINS),
            pytest.param("SET ROLE vectorforge_dispatcher", marks=PINS),
            "CREATE TABLE public.mine (id int)",
        ],
    )
    async def test_app_role_beyond_its_rights_is_denied(
        self, tenant_db: TenantDatabase, statement: str
    ) -> None:
        with pytest.raises(DatabaseError):
            await tenant_db.execute(statement)


class TestNoTenant:
    @pytest.mark.parametrize("table", TABLES)
    async def test_query_without_tenant_returns_no_rows(
        self, database: Database, tenant_db: TenantDatabase, table: str
    ) -> None:
        await fill(tenant_db)
        row = await database.fetch_untenanted(f"SELECT count(*) AS n FROM vectorforge.{table}")
        assert row == {"n": 0}

    async def test_insert_without_tenant_is_denied(self, database: Database) -> None:
        with pytest.raises(DatabaseError):
            await database.fetch_untenanted(
                "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
                " latency_ms) VALUES ('', gen_random_uuid(), gen_random_uuid(), '', 'x', 0)"
            )

    @pytest.mark.parametrize("tenant", ["", "x" * 129, "é" * 65, "nul\0", "half\ud800"])
    def test_invalid_tenant_id_is_rejected(self, tenant: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            Database("").for_tenant(tenant)
        assert caught.value.field == "tenant_id"

    @pytest.mark.parametrize("tenant", ["", None])
    async def test_enter_tenant_without_tenant_raises(self, database: Database, tenant: str | None) -> None:
        with pytest.raises(DatabaseError):
            await database.fetch_untenanted("SELECT vectorforge.enter_tenant(%s)", (tenant,))

    async def test_tenant_setting_ends_with_its_transaction(self, direct_database: Database) -> None:
        async with Database(direct_database._conninfo, pool_size=1) as database:
            for _ in range(3):
                tenant = database.for_tenant("a")
                assert await tenant.fetch_one("SELECT current_setting('vectorforge.tenant') AS t") == {
                    "t": "a"
                }
                with pytest.raises(DatabaseError):
                    await tenant.fetch_one("SELECT 1 / 0")
                row = await database.fetch_untenanted(
                    "SELECT current_setting('vectorforge.tenant', true) AS t"
                )
                assert row is not None
                assert not row["t"]
