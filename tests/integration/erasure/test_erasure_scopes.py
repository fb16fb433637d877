"""Erasure covers every table; erasure of collections and profiles; retention of logged texts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
from psycopg.conninfo import make_conninfo

from tests.integration.erasure.conftest import BIKE, CANARY, digest_of_ids, erase, fill, rows_with
from tests.support.http.live_api import (
    add_documents,
    new_collection,
)
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.erasure.repo import (
    Subject,
)
from vectorforge.local.postgres import EmbeddedPostgres

# Tables of the schema that an erasure of a tenant skips.
NOT_ERASED = """
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'vectorforge'::regnamespace AND c.relkind = 'r'
    AND c.relname NOT IN (SELECT name FROM vectorforge.tables_to_erase())
"""
KEPT = {"schema_migrations", "erasures", "closed_tenants", "pending_changes"}
"""Tables without content; two are the erasure's own, and the last one is empty after every commit."""


class TestTables:
    def test_all_tables_are_erased(self, postgres_server: EmbeddedPostgres) -> None:
        with psycopg.connect(postgres_server.migrator_url) as connection:
            assert {name for (name,) in connection.execute(NOT_ERASED.encode())} == KEPT

    def test_table_without_erasure_is_detected_by_the_check(self, make_database: Callable[..., str]) -> None:
        with psycopg.connect(make_database()) as connection:
            connection.execute("CREATE TABLE vectorforge.bare (note text)")
            assert {name for (name,) in connection.execute(NOT_ERASED.encode())} == {*KEPT, "bare"}

    async def test_table_of_later_migration_is_erased(
        self, postgres_server: EmbeddedPostgres, make_database: Callable[..., str]
    ) -> None:
        """Also one whose migration grants no DELETE to the eraser."""
        url = make_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET ROLE vectorforge_migrator")
            connection.execute(
                "CREATE TABLE vectorforge.later (tenant_id text NOT NULL, id uuid PRIMARY KEY,"
                " collection_id uuid,"
                " FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections)"
            )
            connection.execute(
                "ALTER TABLE vectorforge.later ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
            )
            connection.execute(
                "CREATE POLICY tenant ON vectorforge.later"
                " USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''))"
            )
            connection.execute("RESET ROLE")
            ids = {"acme": uuid4(), "other": uuid4()}
            for tenant, row_id in ids.items():
                connection.execute("INSERT INTO vectorforge.later VALUES (%s, %s, NULL)", (tenant, row_id))
            async with Database(make_conninfo(url, user="vectorforge_eraser"), pool_size=1) as database:
                done = await erase(database, "acme", Subject("tenant"))
            assert done.counts == {"later": 1}
            assert connection.execute("SELECT tenant_id FROM vectorforge.later").fetchall() == [("other",)]
            digest = f"{int(done.digests['later'], 2):064x}"
            assert digest == digest_of_ids([ids["acme"]])


async def test_erased_collection_erases_its_queries(
    client: httpx2.AsyncClient, superuser: Any, tenants: tuple[str, str]
) -> None:
    collection, _, _ = await fill(client)
    other = await new_collection(client, "other")
    await add_documents(client, other, bike=BIKE)
    answer = await client.delete(f"/v1/collections/{collection}")
    assert answer.status_code == 200, answer.text
    erased = answer.json()["certificate"]["erased"]
    assert (erased["documents"], erased["collections"], erased["ingestion_jobs"]) == (2, 1, 1)
    assert rows_with(superuser, tenants[0], CANARY) == {}
    assert [one["id"] for one in (await client.get("/v1/collections")).json()["collections"]] == [other]
    assert rows_with(superuser, tenants[0], "Oil the chain") != {}
    words = (
        "SELECT count(*) FROM vectorforge.packed_postings"
        " WHERE scope NOT IN (SELECT term_scope FROM vectorforge.collections)"
    )
    assert superuser.execute(words).fetchone() == (0,)


async def test_erased_profile_erases_its_rows(
    client: httpx2.AsyncClient, superuser: Any, tenants: tuple[str, str]
) -> None:
    for profile in (1, 2):
        row = {"text": f"{CANARY} {profile}", "source_type": "cv", "source_id": "7"}
        (await client.post(f"/v1/profiles/{profile}/documents", json=row)).raise_for_status()
    answer = await client.delete("/v1/profiles/1")
    assert answer.json()["certificate"]["profile_id"] == 1
    assert rows_with(superuser, tenants[0], f"{CANARY} 1") == {}
    assert "chunks" in rows_with(superuser, tenants[0], f"{CANARY} 2")
    assert (await client.delete("/v1/profiles/1")).status_code == 404


async def test_log_texts_past_retention_are_emptied(
    direct_database: Database, make_tenant: Callable[[], str]
) -> None:
    """Retention: 30 days for texts; rows stay for statistics."""
    logs = QueryLogRepository(direct_database.for_tenant(make_tenant()))
    new = QueryLog(uuid4(), uuid4(), "new", [], "new", 1.0, created_at=datetime.now(UTC) - timedelta(days=29))
    old = replace(new, id=uuid4(), query_text="old", created_at=datetime.now(UTC) - timedelta(days=31))
    for log in (new, old):
        await logs.create(log)
    await JobDispatcher(direct_database).erase_old_log_texts(30)
    assert [(log.query_text, log.generated_response) for log in await logs.list()] == [
        ("new", "new"),
        ("", ""),
    ]
