"""Each database role has its own rights only, and a role that bypasses row-level security is rejected."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.tenancy.conftest import TABLES, fill
from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import (
    QueryLog,
    QueryLogRepository,
    QueryLogWriter,
    WrittenLogs,
)
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError, UnsafeRoleError
from vectorforge.local.postgres import EmbeddedPostgres

PINS = pytest.mark.pins(PinRule.SETTING)
SIMPLE_ROLE = "CREATE ROLE {} LOGIN; GRANT vectorforge_app TO {}"


class TestRoles:
    async def refused(self, conninfo: str) -> str:
        with pytest.raises(UnsafeRoleError, match="vectorforge_app") as caught:
            await Database(conninfo, timeout_s=5).open()
        return caught.value.message

    async def test_superuser_is_rejected(self, postgres_server: EmbeddedPostgres) -> None:
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
    async def test_role_that_bypasses_security_is_rejected(
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

    async def test_superuser_acting_as_app_is_rejected(self, postgres_server: EmbeddedPostgres) -> None:
        conninfo = make_conninfo(postgres_server.migrator_url, options="-c role=vectorforge_app")
        assert "superuser" in await self.refused(conninfo)

    async def test_log_writer_inserts_and_cannot_read(
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
    async def test_log_writer_beyond_its_rights_is_denied(
        self, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], statement: str
    ) -> None:
        async with Database(postgres_server.log_writer_url, pool_size=1) as database:
            with pytest.raises(DatabaseError):
                await database.for_tenant(make_tenant()).execute(statement)

    async def test_app_writing_logs_of_other_tenant_is_denied(
        self, direct_database: Database, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        writer = QueryLogWriter(direct_database)
        with pytest.raises(DatabaseError):
            await writer.write([(other_tenant_db.tenant_id, QueryLog(uuid4(), uuid4(), "q", [], "a", 1.0))])
        assert await QueryLogRepository(other_tenant_db).list() == []

    async def test_log_writer_with_finished_record_changes_nothing(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
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

    async def test_eraser_deletes_rows_of_one_tenant_only(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        erased, retained = (direct_database.for_tenant(make_tenant()) for _ in range(2))
        for db in (erased, retained):
            await fill(db)
        eraser_url = make_conninfo(postgres_server.app_url, user="vectorforge_eraser")
        async with Database(eraser_url, pool_size=1) as database:
            eraser = database.for_tenant(erased.tenant_id)
            for table in TABLES:
                await eraser.execute(f"DELETE FROM vectorforge.{table}")
        for table in TABLES:
            assert await erased.fetch_all(f"SELECT FROM vectorforge.{table}") == []
            assert len(await retained.fetch_all(f"SELECT FROM vectorforge.{table}")) == 1
