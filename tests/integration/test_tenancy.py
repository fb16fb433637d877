"""Nobody reaches another tenant's rows, and nothing that would bypass the wall is accepted."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.job_repo import JobRepository, NewJobItem
from vectorforge.db.repositories.query_log_repo import (
    QueryLog,
    QueryLogRepository,
    QueryLogWriter,
    WrittenLogs,
)
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, InvalidInputError, NotFoundError, UnsafeRoleError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

TABLES = (
    *("collections", "documents", "chunks", "embeddings"),
    *("ingestion_jobs", "ingestion_job_items", "query_logs"),
)

PINS = pytest.mark.pins(PinRule.SETTING)

SIMPLE_ROLE = "CREATE ROLE {} LOGIN; GRANT vectorforge_app TO {}"

# Tables (partitions too) of the schema that row-level security does not wall in completely.
UNWALLED = """
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


async def fill(db: TenantDatabase) -> tuple[Collection, Any, Any, Any, Any]:
    """One row in every table: collection, ids of document and chunk, job, log."""
    options: dict[str, Any] = {"embedding_provider": "local", "embedding_model": "m", "dimension": 3}
    collection = await CollectionRepository(db).create(
        "same name", distance_metric=DistanceMetric.COSINE, **options
    )
    document_id, chunk_id = uuid4(), uuid4()
    scope = (db.tenant_id, collection.id, document_id)
    async with db.transaction() as connection:
        await connection.execute(
            "INSERT INTO vectorforge.documents (tenant_id, collection_id, id, source, media_type, text,"
            " size_chars, content_hash) VALUES (%s, %s, %s, 's', 't', 'secret', 6, sha256(''))",
            scope,
        )
        await connection.execute(
            "INSERT INTO vectorforge.chunks (tenant_id, collection_id, document_id, id, ordinal, text,"
            " start_offset, end_offset, token_count, content_hash, from_version)"
            " VALUES (%s, %s, %s, %s, 0, 'secret', 0, 6, 1, sha256(''), 1)",
            (*scope, chunk_id),
        )
        await connection.execute(
            "INSERT INTO vectorforge.embeddings (tenant_id, collection_id, document_id, chunk_id, space,"
            " embedding) VALUES (%s, %s, %s, %s, 'cosine_3', '[1,2,3]')",
            (*scope, chunk_id),
        )
    job = await JobRepository(db).create(collection.id, [NewJobItem("s", None, b"secret")])
    log = QueryLog(uuid4(), collection.id, "secret?", [chunk_id], "secret", 1.0)
    await QueryLogRepository(db).create(log)
    return collection, document_id, chunk_id, job, log


@pytest.fixture
def superuser(postgres_server: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection


class TestTheWall:
    def test_every_table_has_row_level_security(self, superuser: psycopg.Connection[Any]) -> None:
        assert superuser.execute(UNWALLED).fetchall() == []

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE vectorforge.bare (tenant_id text NOT NULL)",
            "ALTER TABLE vectorforge.documents NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY tenant ON vectorforge.chunks",
            "ALTER TABLE vectorforge.embeddings_cosine_384 DISABLE ROW LEVEL SECURITY",
        ],
    )
    def test_the_check_sees_a_hole(self, make_database: Callable[..., str], statement: str) -> None:
        with psycopg.connect(make_database(), autocommit=True) as connection:
            connection.execute(statement)
            assert len(connection.execute(UNWALLED).fetchall()) == 1

    def test_only_what_a_role_needs_is_granted(self, superuser: psycopg.Connection[Any]) -> None:
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
        # nobody can log in as these: the dispatcher deletes what is old, the keeper writes for the log writer
        hidden = ("PUBLIC", "vectorforge_dispatcher", "vectorforge_log_keeper")
        assert {row for row in rows if row[0] in hidden} == {
            ("vectorforge_dispatcher", "answer_streams", "DELETE"),
            ("vectorforge_dispatcher", "cached_answers", "DELETE"),
            ("vectorforge_dispatcher", "cached_embeddings", "DELETE"),
            ("vectorforge_dispatcher", "ingestion_jobs", "DELETE"),
            ("vectorforge_dispatcher", "query_logs", "DELETE"),
            ("vectorforge_dispatcher", "tombstones", "DELETE"),
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
    async def test_what_the_app_may_not(self, tenant_db: TenantDatabase, statement: str) -> None:
        with pytest.raises(DatabaseError):
            await tenant_db.execute(statement)


class TestTwoTenants:
    async def test_neither_sees_the_other(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        collection, document_id, chunk_id, job, log = await fill(tenant_db)
        await fill(other_tenant_db)
        stranger = other_tenant_db
        collections, documents = CollectionRepository(stranger), DocumentRepository(stranger)
        jobs, logs = JobRepository(stranger), QueryLogRepository(stranger)
        assert await collections.find_by_id(collection.id) is None
        assert collection.id not in [c.id for c in await collections.list()]
        own = await collections.find_by_name("same name")
        assert own is not None
        assert own.id != collection.id
        assert not await collections.delete(collection.id)
        assert await documents.find_by_id(document_id) is None
        assert await documents.find_by_source(collection.id, "s") is None
        assert await documents.list(collection.id) == ([], 0)
        assert await documents.text(document_id) is None
        assert await documents.chunks(document_id) == []
        assert await documents.chunk(chunk_id) is None
        assert await documents.current_hashes(collection.id, "s") is None
        assert not await PgVectorStore(stranger).delete_document(document_id)
        assert await jobs.find_by_id(job.id) is None
        assert await jobs.items(job.id) == []
        assert await jobs.list(collection.id) == []
        assert await jobs.next_item(job.id) is None
        assert not await jobs.item_succeeded(job.id, 0)
        assert not await jobs.item_failed(job.id, 0, code="x", message="y")
        assert not await jobs.heartbeat(job.id)
        assert await jobs.finish(job.id) is None
        with pytest.raises(NotFoundError):
            await jobs.create(collection.id, [NewJobItem("s", None, b"")])
        assert await logs.find_by_id(log.id) is None
        assert await logs.list(collection.id) == []
        assert (await JobRepository(tenant_db).items(job.id))[0].status == "queued"
        assert await DocumentRepository(tenant_db).text(document_id) == "secret"

    @pytest.mark.parametrize("table", TABLES)
    async def test_the_predicate_may_be_forgotten(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase, table: str
    ) -> None:
        for db in (tenant_db, other_tenant_db):
            await fill(db)
            rows = await db.fetch_all(f"SELECT DISTINCT tenant_id FROM vectorforge.{table}")
            assert [row["tenant_id"] for row in rows] == [db.tenant_id]

    @pytest.mark.parametrize("table", TABLES)
    async def test_a_row_cannot_be_given_to_another_tenant(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase, table: str
    ) -> None:
        await fill(tenant_db)
        with pytest.raises(DatabaseError):
            await tenant_db.execute(
                f"UPDATE vectorforge.{table} SET tenant_id = %s", (other_tenant_db.tenant_id,)
            )

    async def test_a_document_cannot_join_another_tenants_collection(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        collection, *_ = await fill(tenant_db)
        with pytest.raises(DatabaseError):
            await other_tenant_db.execute(
                "INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, media_type, text,"
                " size_chars, content_hash) VALUES (%s, %s, %s, 'x', 't', '', 0, sha256(''))",
                (other_tenant_db.tenant_id, uuid4(), collection.id),
            )


class TestNoTenant:
    @pytest.mark.parametrize("table", TABLES)
    async def test_without_a_tenant_there_are_no_rows(
        self, database: Database, tenant_db: TenantDatabase, table: str
    ) -> None:
        await fill(tenant_db)
        row = await database.fetch_untenanted(f"SELECT count(*) AS n FROM vectorforge.{table}")
        assert row == {"n": 0}

    async def test_without_a_tenant_nothing_is_written(self, database: Database) -> None:
        with pytest.raises(DatabaseError):
            await database.fetch_untenanted(
                "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome,"
                " latency_ms) VALUES ('', gen_random_uuid(), gen_random_uuid(), '', 'x', 0)"
            )

    @pytest.mark.parametrize("tenant", ["", "x" * 129, "é" * 65, "nul\0", "half\ud800"])
    def test_tenants_that_are_none(self, tenant: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            Database("").for_tenant(tenant)
        assert caught.value.field == "tenant_id"

    @pytest.mark.parametrize("tenant", ["", None])
    async def test_the_database_refuses_them_too(self, database: Database, tenant: str | None) -> None:
        with pytest.raises(DatabaseError):
            await database.fetch_untenanted("SELECT vectorforge.enter_tenant(%s)", (tenant,))

    async def test_the_tenant_ends_with_its_transaction(self, direct_database: Database) -> None:
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


class TestRoles:
    async def refused(self, conninfo: str) -> str:
        with pytest.raises(UnsafeRoleError, match="vectorforge_app") as caught:
            await Database(conninfo, timeout_s=5).open()
        return caught.value.message

    async def test_a_superuser_is_refused(self, postgres_server: EmbeddedPostgres) -> None:
        assert "superuser" in await self.refused(postgres_server.migrator_url)

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            ("CREATE ROLE {} LOGIN BYPASSRLS; GRANT vectorforge_app TO {}", "BYPASSRLS"),
            ("CREATE ROLE {} LOGIN; GRANT vectorforge_app, vectorforge_migrator TO {}", "owner"),
            (f"{SIMPLE_ROLE}; GRANT vectorforge_migrator TO {{}} WITH INHERIT FALSE, SET TRUE", "owner"),
            ("CREATE ROLE {} LOGIN; GRANT vectorforge_app, postgres TO {}", "superuser"),
        ],
    )
    async def test_a_role_that_bypasses_is_refused(
        self,
        postgres_server: EmbeddedPostgres,
        superuser: psycopg.Connection[Any],
        make: str,
        reason: str,
    ) -> None:
        role = f"test_{uuid.uuid4().hex[:12]}"
        superuser.execute(make.replace("{}", role).encode())
        try:
            assert reason in await self.refused(make_conninfo(postgres_server.app_url, user=role))
        finally:
            superuser.execute(f"DROP ROLE {role}".encode())

    async def test_a_superuser_that_acts_as_the_app_is_refused(
        self, postgres_server: EmbeddedPostgres
    ) -> None:
        conninfo = make_conninfo(postgres_server.migrator_url, options="-c role=vectorforge_app")
        assert "superuser" in await self.refused(conninfo)

    async def test_the_log_writer_writes_and_reads_nothing(
        self, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
    ) -> None:
        log = QueryLog(uuid4(), uuid4(), "q", [], "a", 1.0)
        tenant = make_tenant()
        async with Database(postgres_server.log_writer_url, pool_size=1) as database:
            repo = QueryLogRepository(database.for_tenant(tenant))
            await repo.start(log)  # inserts only, as its function does
            await repo.start(log)  # delivered twice
            with pytest.raises(DatabaseError):
                await repo.list()
        async with Database(postgres_server.app_url, pool_size=1) as database:
            assert len(await QueryLogRepository(database.for_tenant(tenant)).list()) == 1

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT id FROM vectorforge.query_logs",
            "INSERT INTO vectorforge.query_logs SELECT * FROM vectorforge.query_logs",
            "UPDATE vectorforge.query_logs SET query_text = ''",
            "DELETE FROM vectorforge.query_logs",
            "TRUNCATE vectorforge.query_logs",
            "SELECT id FROM vectorforge.documents",
            "INSERT INTO vectorforge.collections (tenant_id, id) VALUES ('t', gen_random_uuid())",
            "SELECT vectorforge.claim_ingestion_job('1 minute')",
            "SELECT vectorforge.delete_old_logs('1 day')",
            "SELECT vectorforge.delete_expired_caches('1 day')",
            pytest.param("SET ROLE vectorforge_log_keeper", marks=PINS),
            pytest.param("SET ROLE vectorforge_app", marks=PINS),
        ],
    )
    async def test_what_the_log_writer_may_not(
        self, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], statement: str
    ) -> None:  # C01
        async with Database(postgres_server.log_writer_url, pool_size=1) as database:
            with pytest.raises(DatabaseError):
                await database.for_tenant(make_tenant()).execute(statement)

    async def test_the_app_writes_no_logs_of_other_tenants(
        self, direct_database: Database, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:  # C17
        writer = QueryLogWriter(direct_database)
        with pytest.raises(DatabaseError):
            await writer.write([(other_tenant_db.tenant_id, QueryLog(uuid4(), uuid4(), "q", [], "a", 1.0))])
        assert await QueryLogRepository(other_tenant_db).list() == []

    async def test_the_log_writer_writes_for_every_tenant_and_changes_nothing_that_has_ended(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:  # C01, C17
        tenants = [make_tenant(), make_tenant()]
        log = QueryLog(uuid4(), uuid4(), "q", [], "a", 1.0)
        changed = replace(log, query_text="changed", outcome="error")
        async with Database(postgres_server.log_writer_url, pool_size=1) as database:
            writer = QueryLogWriter(database)
            first = await writer.write([(tenant, replace(log, outcome="started")) for tenant in tenants])
            assert (first.stored, first.already_there) == (2, 0)
            second = await writer.write([(tenants[0], log), (tenants[0], replace(log, outcome="started"))])
            assert (second.stored, second.already_there) == (1, 0)
            third = await writer.write([(tenant, changed) for tenant in tenants])
            assert (third.stored, third.already_there) == (1, 1)
            with pytest.raises(DatabaseError):
                await writer.write([(tenants[0], replace(log, latency_ms=None))])  # type: ignore[arg-type]
            assert await writer.write([]) == WrittenLogs(0, 0)
        found = [await QueryLogRepository(direct_database.for_tenant(tenant)).list() for tenant in tenants]
        assert [[(row.id, row.query_text, row.outcome) for row in rows] for rows in found] == [
            [(log.id, "q", "answered")],
            [(log.id, "changed", "error")],
        ]

    async def test_the_eraser_erases_one_tenant(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        erased, kept = (direct_database.for_tenant(make_tenant()) for _ in range(2))
        for db in (erased, kept):
            await fill(db)
        eraser_url = make_conninfo(postgres_server.app_url, user="vectorforge_eraser")
        async with Database(eraser_url, pool_size=1) as database:
            eraser = database.for_tenant(erased.tenant_id)
            for table in TABLES:
                await eraser.execute(f"DELETE FROM vectorforge.{table}")
        for table in TABLES:
            assert await erased.fetch_all(f"SELECT FROM vectorforge.{table}") == []
            assert len(await kept.fetch_all(f"SELECT FROM vectorforge.{table}")) == 1


# C34
async def test_search_settings_on_a_fresh_connection(app_url: str) -> None:
    settings = (
        "SELECT current_setting('hnsw.ef_search', true) AS e,"
        " current_setting('hnsw.iterative_scan', true) AS i"
    )
    async with Database(app_url, pool_size=1) as database:
        tenant = database.for_tenant("a")
        async with tenant.transaction() as connection:
            await connection.execute("SELECT vectorforge.enter_search(%s, %s)", ("a", 123))
            assert await (await connection.execute(settings)).fetchone() == {"e": "123", "i": "strict_order"}
        assert await database.fetch_untenanted(settings) == {"e": "40", "i": "off"}


async def test_twenty_clients_of_two_tenants_never_mix(
    database: Database, make_tenant: Callable[[], str]
) -> None:
    tenants = [database.for_tenant(make_tenant()) for _ in range(2)]
    for tenant in tenants:
        await fill(tenant)

    async def ask(number: int) -> None:
        tenant = tenants[number % 2]
        rows = await tenant.fetch_all("SELECT tenant_id FROM vectorforge.documents")
        assert rows == [{"tenant_id": tenant.tenant_id}]

    for start in range(0, 400, 40):
        await asyncio.gather(*(ask(number) for number in range(start, start + 40)))
