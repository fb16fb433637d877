"""The runbook's commands for lost rows, run between two databases by an owner like RDS's master user."""

import asyncio
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.postgres.databases import own_database
from tests.support.postgres.pin_detector import PinDetector
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, texts_of
from vectorforge.db.connection import Database
from vectorforge.local.cluster import binaries
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

RUNBOOK = Path(__file__).parents[2] / "docs" / "operate" / "runbook.md"
TENANTS = ("acme", "beta")
COUNTS = "SELECT tenant_id, document_count, chunk_count, term_count, text_bytes FROM vectorforge.collections"

UNPROTECTED = """
SELECT relname FROM pg_class
WHERE relnamespace = 'vectorforge'::regnamespace AND relkind IN ('r', 'p') AND NOT relforcerowsecurity
"""


def commands() -> str:
    """Return the commands of "Lost rows": those for the copy, then those for the serving instance."""
    chapter = RUNBOOK.read_text().partition("**Lost rows.**")[2].partition("Delete the restored instance")[0]
    blocks = re.findall(r"(?:^    .*\n)+", chapter, re.MULTILINE)
    copied, loaded = (re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks)
    return f'as-owner() {{ "$@"; }}; set -e\n{copied}export PGDATABASE=$SERVING\n{loaded}'


@pytest.fixture
def owner(make_database: Callable[..., str], pin_detector: PinDetector) -> Iterator[Mapping[str, str]]:
    """Return libpq's variables of a role that owns the schema and is no superuser."""
    url, role = make_database(), f"owner_{uuid.uuid4().hex[:8]}"
    place = conninfo_to_dict(url)
    pin_detector.unjudged.add(role)  # operators connect to the instance, past RDS Proxy
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as connection:
        roles = "vectorforge_migrator, vectorforge_dispatcher, vectorforge_log_keeper"
        connection.execute(f"CREATE ROLE {role} LOGIN IN ROLE {roles}".encode())
        yield {
            "PATH": f"{binaries(18)}{os.pathsep}{os.environ['PATH']}",
            "PGHOST": str(place["host"]),
            "PGPORT": str(place["port"]),
            "PGUSER": role,
            "SERVING": str(place["dbname"]),
        }
        connection.execute(f"DROP ROLE {role}".encode())


async def found(url: str, tenant: str, collection_id: uuid.UUID, **query: object) -> list[str]:
    async with Database(make_conninfo(url, user="vectorforge_app"), pool_size=1) as database:
        store = PgVectorStore(database.for_tenant(tenant))
        options = {"query_vector": None, "query_text": None, **query}
        return texts_of(
            await store.search(
                top_k=5,
                collection_id=collection_id,
                metric=DistanceMetric.COSINE,
                **options,  # type: ignore[arg-type]
            )
        )


async def test_lost_documents_are_loaded_from_a_restored_copy(
    owner: Mapping[str, str], tmp_path: Path
) -> None:
    place = make_conninfo("", host=owner["PGHOST"], port=owner["PGPORT"], user="postgres")
    url = make_conninfo(place, dbname=owner["SERVING"])
    collections = {}
    async with Database(make_conninfo(url, user="vectorforge_app"), pool_size=1) as database:
        for tenant in TENANTS:
            db = database.for_tenant(tenant)
            collections[tenant] = await insert_collection(db, 2, DistanceMetric.COSINE)
            for name in ("handbook/leave.md", "other.md"):
                chunks = chunk_drafts([f"{tenant} canary of {name}"], [[1.0, 0.5]])
                draft = document_draft(chunks, source=name)
                await PgVectorStore(db).replace_document(collections[tenant], draft, chunks)
    with (
        own_database(url, template=owner["SERVING"]) as copy,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        before = connection.execute(COUNTS).fetchall()
        connection.execute(
            "DELETE FROM vectorforge.documents WHERE tenant_id = 'acme' AND source LIKE 'handbook/%'"
        )
        assert connection.execute(COUNTS).fetchall() != before
        variables = {**owner, "PGDATABASE": str(conninfo_to_dict(copy)["dbname"])}
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", commands()],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr
        assert sorted(connection.execute(COUNTS).fetchall()) == sorted(before)
        assert connection.execute(UNPROTECTED).fetchall() == []
    for tenant in TENANTS:
        expected = [f"{tenant} canary of handbook/leave.md", f"{tenant} canary of other.md"]
        assert sorted(await found(url, tenant, collections[tenant], query_text="canary")) == expected
        assert sorted(await found(url, tenant, collections[tenant], query_vector=[1.0, 0.5])) == expected
