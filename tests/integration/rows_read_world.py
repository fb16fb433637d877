"""Requests and maintenance statements whose reads ``test_rows_read`` counts, on a tenant that grows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeAlias
from uuid import UUID

import httpx2
from psycopg.conninfo import make_conninfo

from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.postgres.grown_tenant import row_id
from tests.support.postgres.rows_read import CountedDatabase
from tests.support.rag.query_logs import make_log
from vectorforge.config import LimitSettings
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.feedback_repo import FeedbackRepository
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.original_repo import tenant_with_removals
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.term_reading import TermReader
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.ingestion.embedding_backfill import EmbeddingBackfill

TENANT, OTHER = "big", "another"


@dataclass
class World:
    """A server over a database with a tenant that grows."""

    client: httpx2.AsyncClient
    database: CountedDatabase
    db: TenantDatabase
    log_writer: QueryLogWriter
    big: str
    """Collection that grows."""
    small: str
    """Collection with one document."""
    numbers: "count[int]"
    """Numbers of rows and queries, each used once."""
    requested: set[tuple[str, str]]
    """Methods and paths of the requests so far."""

    def id(self, kind: str) -> UUID:
        """Return the id of a row that no request has used."""
        return row_id(kind, next(self.numbers), TENANT)

    async def ok(self, method: str, path: str, **options: Any) -> Any:
        """Send a request; return the body of its successful response, of JSON the value."""
        response = await self.client.request(method, path, **options)
        assert response.is_success, response.text
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.json() if is_json and response.content else response.content

    def query(self, text: str = "") -> dict[str, Any]:
        """Return the body of a query to the small collection."""
        return {"query": text or f"why {next(self.numbers)}?", "collection": self.small}


Case: TypeAlias = Callable[[World], Awaitable[object]]


async def replaced(world: World) -> None:
    number = next(world.numbers)
    job = await add_documents(world.client, world.big, **{f"file-{number}": f"new {number}"})
    assert job["status"] == "succeeded", job


async def turn(world: World) -> None:
    conversation = await world.ok("POST", "/v1/conversations", json={})
    for _ in range(2):
        body = {**world.query(), "conversation_id": conversation["id"]}
        await world.ok("POST", "/v1/rag/query", json=body)


async def attached(world: World) -> None:
    name = f"upload-{next(world.numbers)}.md"
    files = {"file": (name, b"Words.", "text/markdown")}
    file = await world.ok("POST", "/v1/files", data={"purpose": "assistants"}, files=files)
    store = f"/v1/vector_stores/vs_{UUID(world.big).hex}/files"
    await world.ok("POST", store, json={"file_id": file["id"]})
    for _ in range(400):
        state = await world.ok("GET", f"{store}/{file['id']}")
        if state["status"] != "in_progress":
            break
        await asyncio.sleep(0.05)
    assert state["status"] == "completed", state


async def key_used(world: World) -> None:
    key = (await world.ok("POST", "/v1/keys", json={"name": "a"}))["key"]
    for _ in range(2):  # the second time from the cache
        await world.ok("GET", f"/v1/collections/{world.small}", headers={"Authorization": f"Bearer {key}"})


def conversations_of(world: World) -> ConversationRepository:
    return ConversationRepository(world.db, max_conversations=100_000, max_messages=100)


def get(path: str) -> Case:
    async def case(world: World) -> None:
        day = (datetime.now(UTC) - timedelta(days=1)).isoformat().replace("+00:00", "Z")
        await world.ok("GET", path.format(big=world.big, store=f"vs_{UUID(world.big).hex}", day=day))

    return case


def of_row(method: str, path: str, kind: str, **options: Any) -> Case:
    async def case(world: World) -> None:
        await world.ok(method, path.format(world.id(kind)), **options)

    return case


CASES: dict[str, Case] = {
    "query": lambda w: w.ok("POST", "/v1/rag/query", json=w.query()),
    "cached answer": lambda w: w.ok("POST", "/v1/rag/query", json=w.query("again?")),
    "query with a key": lambda w: w.ok(
        "POST", "/v1/rag/query", json=w.query(), headers={"Idempotency-Key": f"k-{next(w.numbers)}"}
    ),
    "streamed query": lambda w: ask_streaming(w.client, "/v1/rag/query", {**w.query(), "resumable": True}),
    "filtered search": lambda w: w.ok("POST", "/v1/search", json={**w.query(), "filters": {"kind": "one"}}),
    "search": lambda w: w.ok("POST", "/v1/search", json=w.query()),
    "conversation": turn,
    "document replaced": replaced,
    "document": of_row("GET", "/v1/documents/{}", "document"),
    "document text": of_row("GET", "/v1/documents/{}/text", "document"),
    "document chunks": of_row("GET", "/v1/documents/{}/chunks", "document"),
    "document original": lambda w: w.client.get(f"/v1/documents/{w.id('document')}/original"),
    "chunk": of_row("GET", "/v1/chunks/{}", "chunk"),
    "documents": get("/v1/collections/{big}/documents?limit=5"),
    "collections": get("/v1/collections"),
    "jobs": get("/v1/jobs?limit=5"),
    "jobs of a source": get("/v1/jobs?limit=5&source=file-7"),
    "job": of_row("GET", "/v1/jobs/{}", "job"),
    "query logs": get("/v1/queries?limit=5"),
    "query logs of a collection": get("/v1/queries?limit=5&collection_id={big}"),
    "query log": of_row("GET", "/v1/queries/{}", "query"),
    "stored stream": lambda w: w.client.get(f"/v1/queries/{w.id('stream')}/events"),
    "feedback": of_row("POST", "/v1/queries/{}/feedback", "query", json={"rating": "up", "comment": "x"}),
    "feedback read": of_row("GET", "/v1/queries/{}/feedback", "query"),
    "conversations": get("/v1/conversations?limit=5"),
    "conversation read": of_row("GET", "/v1/conversations/{}", "conversation"),
    "conversation deleted": of_row("DELETE", "/v1/conversations/{}", "conversation"),
    "keys": get("/v1/keys?limit=5"),
    "key": key_used,
    "statistics of a day": get("/v1/stats?since={day}"),
    "usage of a day": get("/v1/stats/usage?since={day}"),
    "cache": get("/v1/cache"),
    "erasures": get("/v1/erasures"),
    "file attached": attached,
    "files": get("/v1/files?limit=5"),
    "files of a purpose": get("/v1/files?purpose=user_data&limit=5"),
    "files of a store": get("/v1/vector_stores/{store}/files?limit=5"),
    "store": get("/v1/vector_stores/{store}"),
    "stores": get("/v1/vector_stores?limit=5"),
    "metadata of a file's records": lambda w: DocumentRepository(w.db).metadata_of_parent(
        UUID(w.big), "table-7", "a"
    ),
    "rated page": lambda w: FeedbackRepository(w.db).rated(limit=5),
    "log writer": lambda w: w.log_writer.write([(TENANT, make_log())]),
    "old logs": lambda w: JobDispatcher(w.database).delete_old_logs(30),
    "old texts": lambda w: JobDispatcher(w.database).erase_old_log_texts(20),
    "expired caches": lambda w: JobDispatcher(w.database).delete_expired_caches(5),
    "expired streams": lambda w: JobDispatcher(w.database).delete_expired_streams(),
    "expired files": lambda w: JobDispatcher(w.database).delete_expired_files(),
    "next documents of a job": lambda w: JobRepository(w.db).next_items(row_id("long", 0, TENANT)),
    "session": lambda w: conversations_of(w).start_session("someone"),
    "conversations of a credential": lambda w: conversations_of(w).list(limit=5, credential="rare"),
    "claim": lambda w: JobDispatcher(w.database).claim(),
    "originals to remove": lambda w: tenant_with_removals(w.database),
    "words to index": lambda w: TermReader(w.database).step(),
    "embedding switch waits": lambda w: EmbeddingBackfill(w.database, EmbeddingProviderRegistry()).waits(),
    "others wait": lambda w: JobDispatcher(w.database).others_wait(OTHER),
}


@asynccontextmanager
async def world_of(owner_url: str) -> AsyncIterator[World]:
    """Serve an empty database, with the tenant's two collections and another tenant's."""
    app_url, writer_url = (
        make_conninfo(owner_url, user=f"vectorforge_{role}") for role in ("app", "log_writer")
    )
    requested: set[tuple[str, str]] = set()

    async def note(request: httpx2.Request) -> None:
        requested.add((request.method, request.url.path))

    limits = LimitSettings(limit_requests_per_minute=1_000_000, limit_tokens_per_day=10**12)
    settings = settings_for(app_url, [TENANT, OTHER], limits=limits, pool_size=10)
    async with (
        CountedDatabase(writer_url, pool_size=1) as writer,
        live_api(settings, database_type=CountedDatabase) as api,
        api.client(TENANT, event_hooks={"request": [note]}) as client,
        api.client(OTHER) as other,
    ):
        big, small = await new_collection(client, "big"), await new_collection(client, "small")
        await add_documents(client, small, one="Words about why and again.")
        await new_collection(other, "big")
        database = api.application.shared.database
        assert isinstance(database, CountedDatabase)
        db = database.for_tenant(TENANT)
        yield World(client, database, db, QueryLogWriter(writer), big, small, count(1), requested)
