"""A tenant with documents, queries, a conversation and a stream, and their eraser."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.erasure.eraser import Eraser
from vectorforge.erasure.repo import (
    Erasure,
    ErasureDatabase,
    ErasureRepository,
    LogPolicy,
    Subject,
)
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
CANARY = "quokkasaurus"
BREAD = f"# Bread\n\nLet the {CANARY} dough rise for two hours before baking it at 230 degrees.\n"
BIKE = "# Bike\n\nOil the chain every three hundred kilometres.\n"


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenants: tuple[str, str]) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(postgres_server.app_url, tenants)) as started:
        yield started


@pytest.fixture
async def client(api: LiveApi, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenants[0]) as opened:
        yield opened


@pytest.fixture
async def log_writer(postgres_server: EmbeddedPostgres) -> AsyncIterator[QueryLogWriter]:
    async with Database(postgres_server.log_writer_url, pool_size=1) as database:
        yield QueryLogWriter(database)


async def fill(client: httpx2.AsyncClient) -> tuple[str, str, str]:
    """Add documents, queries, a conversation and a stream; return collection, document, conversation."""
    collection = await new_collection(client)
    job = await add_documents(client, collection, bread=BREAD, bike=BIKE)
    conversation = (await client.post("/v1/conversations", json={"title": f"About {CANARY}"})).json()["id"]
    question = {"query": f"How long must the {CANARY} dough rise?"}
    for _ in range(2):  # the second one comes from the cache
        (await client.post(RAG, json=question)).raise_for_status()
    (await client.post(RAG, json={**question, "conversation_id": conversation})).raise_for_status()
    await ask_streaming(client, RAG, {**question, "resumable": True})
    return collection, job["documents"][0]["document_id"], conversation


def eraser_for(database: Database, tenant: str, **options: Any) -> Eraser:
    return Eraser(ErasureRepository(ErasureDatabase(database, tenant)), **options)


async def erase(
    database: Database, tenant: str, subject: Subject, logs: LogPolicy = "text", **options: Any
) -> Erasure:
    eraser = eraser_for(database, tenant, **options)
    return await eraser.run(await eraser.begin(subject, logs=logs, requested_by="test"))


async def stages(eraser: Eraser, erasure_id: UUID, until: str) -> None:
    """Execute steps until that stage comes next."""
    while (await eraser.erasures.step(erasure_id, 1)).stage != until:
        pass


@pytest.fixture
def superuser(postgres_server: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection


def rows_with(superuser: psycopg.Connection[Any], tenant: str, text: str) -> dict[str, int]:
    """Count the rows of a tenant that contain a text, by table; tables without one are omitted."""
    tables = superuser.execute(
        "SELECT name FROM vectorforge.tables_to_erase() WHERE of_tenant UNION SELECT 'erasures'"
    ).fetchall()
    found = {}
    for (table,) in tables:
        counted = superuser.execute(
            f"SELECT count(*) FROM vectorforge.{table} AS t WHERE tenant_id = %s"
            " AND (t::text ILIKE %s OR t::text LIKE %s)".encode(),
            (tenant, f"%{text}%", f"%{text.encode().hex()}%"),
        ).fetchone()
        if counted and counted[0]:
            found[table] = counted[0]
    return found


def digest_of_ids(ids: Sequence[object]) -> str:
    """Return the XOR of the SHA-256 of ids, in hex, as certificates have it for deleted rows."""
    digest = 0
    for row_id in ids:
        digest ^= int.from_bytes(hashlib.sha256(str(row_id).encode()).digest())
    return f"{digest:064x}"
