"""The previous version serves during and after a migration, on a populated database, without errors.

During a deployment, and after a rollback, code of one version runs on the schema of the next. Here the code
is this version's, and the schema the next one's (``tests/support/postgres/next_version.py``).
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.live_query_function import PASSAGE
from tests.support.postgres.next_version import write_next_version
from tests.support.postgres.term_check import check_terms
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, texts_of
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher, JobRepository
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.schema.migrate import migrate, pending
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import MigrationError
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

ROOT = Path(__file__).parents[2]
TENANTS = ("acme", "beta")
DOCUMENTS_EACH = 60
WRITE_LOGS = """
import json, sys
from functions.log_writer.handler import handler
class Context:
    function_name, memory_limit_in_mb, aws_request_id = "log-writer", 128, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:log-writer"
    def get_remaining_time_in_millis(self): return 30_000
answer = handler(json.load(sys.stdin), Context())
handler.shutdown()
print(json.dumps(answer))
"""
TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'vectorforge'::regnamespace AND relkind = 'r' AND relname <> 'schema_migrations'
ORDER BY 1
"""


class Client:
    """One tenant's client of the code that serves: every round writes, searches, works and logs."""

    def __init__(self, database: Database, db: TenantDatabase, collection_id: UUID) -> None:
        self.db = db
        self._dispatcher = JobDispatcher(database)
        self.collection_id = collection_id
        self.rounds = 0
        self._store = PgVectorStore(db)

    async def write(self, source: str, *texts: str) -> None:
        chunks = chunk_drafts(texts, [[1.0, 0.5]] * len(texts))
        await self._store.replace_document(self.collection_id, document_draft(chunks, source=source), chunks)

    async def search(self, words: str) -> list[str]:
        found = await self._store.search(
            query_vector=None,
            query_text=words,
            top_k=3,
            collection_id=self.collection_id,
            metric=DistanceMetric.COSINE,
        )
        return texts_of(found)

    async def round(self) -> None:
        number = self.rounds
        await self.write("changing.md", f"Edition number{number} of the guide", "Something unchanged")
        assert await self.search(f"number{number}") == [f"Edition number{number} of the guide"]
        jobs = JobRepository(self.db)
        job = await jobs.create(self.collection_id, [NewJobItem("job.md", None, b"text")])
        assert await jobs.finish(job.id) is not None
        await self._dispatcher.others_wait(self.db.tenant_id)
        await QueryLogRepository(self.db).create(QueryLog(uuid4(), self.collection_id, "q", [], "a", 1.0))
        self.rounds += 1

    async def serve(self, end: asyncio.Event) -> None:
        while not end.is_set():
            await self.round()

    async def rounds_after(self, number: int) -> None:
        """Return after that many more rounds."""
        until = self.rounds + number
        while self.rounds < until:  # noqa: ASYNC110 - rounds end in other tasks
            await asyncio.sleep(0.01)


@pytest.fixture
def owner_url(make_database: Callable[..., str]) -> str:
    return make_database()


@pytest.fixture
async def clients(owner_url: str) -> AsyncIterator[list[Client]]:
    """Two tenants with documents, connected before the migration."""
    async with Database(make_conninfo(owner_url, user="vectorforge_app"), pool_size=4) as database:
        made = []
        for tenant in TENANTS:
            db = database.for_tenant(tenant)
            client = Client(database, db, await insert_collection(db, 2, DistanceMetric.COSINE))
            for number in range(DOCUMENTS_EACH):
                await client.write(f"{number}.md", f"Page{number} of {tenant}", f"More of page{number}")
            await client.round()
            made.append(client)
        yield made


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    directory = tmp_path / "migrations"
    write_next_version(directory)
    return directory


def rows_of(owner_url: str) -> dict[str, list[str]]:
    """Return every row of every table, without columns of the next version."""
    with psycopg.connect(owner_url) as connection:
        tables = [name for (name,) in connection.execute(TABLES)]
        return {
            table: [
                row
                for (row,) in connection.execute(
                    f"SELECT (to_jsonb(t) - 'summary' - 'reviewed')::text FROM vectorforge.{table} AS t"
                    " ORDER BY 1".encode()
                )
            ]
            for table in tables
        }


async def test_upgrade_under_load_fails_no_request(
    owner_url: str, clients: list[Client], next_version: Path
) -> None:
    end = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.serve(end))
        await asyncio.gather(*(client.rounds_after(3) for client in clients))
        applied = await migrate(owner_url, directory=next_version)
        await asyncio.gather(*(client.rounds_after(3) for client in clients))
        end.set()
    assert [migration.name[5:] for migration in applied] == ["reviews.sql", "titles_index.sql"]
    for client in clients:
        assert set(await client.search("page7")) == {f"Page7 of {client.db.tenant_id}", "More of page7"}
        await check_terms(owner_url, client.db)
        logged = await QueryLogRepository(client.db).list(limit=1000)
        assert len(logged) == client.rounds


async def test_upgrade_of_populated_database_keeps_every_row(
    owner_url: str, clients: list[Client], next_version: Path
) -> None:
    before = rows_of(owner_url)
    assert len(before["chunks"]) > len(TENANTS) * DOCUMENTS_EACH
    await migrate(owner_url, directory=next_version)
    after = rows_of(owner_url)
    assert after.pop("document_reviews") == []
    assert after == before
    with psycopg.connect(owner_url) as connection:
        valid = connection.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'vectorforge.documents_by_title'::regclass"
        ).fetchall()
    assert valid == [(True,)]


async def test_rollback_to_this_version_serves_new_connections(
    owner_url: str, clients: list[Client], next_version: Path
) -> None:
    await migrate(owner_url, directory=next_version)
    assert await migrate(owner_url, accept_newer=True) == []
    with pytest.raises(MigrationError, match=r"reviews\.sql, which this version does not include"):
        await migrate(owner_url)
    async with Database(make_conninfo(owner_url, user="vectorforge_app"), pool_size=1) as database:
        assert (await database.health()).healthy
        again = Client(database, database.for_tenant("acme"), clients[0].collection_id)
        await again.round()
    assert await pending(owner_url, directory=next_version) == []


@pytest.fixture
async def embeddings() -> AsyncIterator[FakeEmbeddingsServer]:
    async with FakeEmbeddingsServer(dimension=64, api_key="sk-embedder") as server:
        yield server


@pytest.fixture
async def environment(
    owner_url: str, embeddings: FakeEmbeddingsServer, next_version: Path, tmp_path: Path
) -> dict[str, str]:
    """Environment of a process of this version; its database has the next version's schema."""
    await migrate(owner_url, directory=next_version)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT}",
        "VECTORFORGE_DATABASE_URL": make_conninfo(owner_url, user="vectorforge_app"),
        "VECTORFORGE_LOG_WRITER_DATABASE_URL": make_conninfo(owner_url, user="vectorforge_log_writer"),
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": embeddings.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "fake-embeddings",
        "VECTORFORGE_EMBEDDING_DIMENSION": "64",
        "VECTORFORGE_EMBEDDING_API_KEY": "sk-embedder",
    }


async def run(environment: dict[str, str], *words: str, given: str = "") -> Any:
    """Run Python in that environment and return its output (with -c the last line of it) as JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env=environment,
        cwd=environment["HOME"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given.encode())
    assert process.returncode == 0, err.decode()
    return json.loads(out.decode().strip().splitlines()[-1] if words[0] == "-c" else out)


async def test_cli_on_next_schema_ingests_answers_and_logs(
    environment: dict[str, str], owner_url: str, tmp_path: Path
) -> None:
    (tmp_path / "refunds.md").write_text(PASSAGE)
    cli = ("-m", "vectorforge.cli")
    for _ in range(2):  # the second time unchanged
        assert (await run(environment, *cli, "ingest", "refunds.md", "--json"))["failed"] == 0
    answer = await run(environment, *cli, "ask", "How long does a refund take?", "--json")
    assert "five days" in answer["answer"]
    with psycopg.connect(owner_url) as connection:
        logged = connection.execute("SELECT query_text, outcome, reviewed FROM vectorforge.query_logs")
        assert logged.fetchall() == [("How long does a refund take?", "answered", False)]


async def test_log_writer_on_next_schema_stores_records_with_defaults(
    environment: dict[str, str], owner_url: str
) -> None:
    event = (ROOT / "events" / "log_writer_sqs_batch.json").read_text()
    assert await run(environment, "-c", WRITE_LOGS, given=event) == {"batchItemFailures": []}
    with psycopg.connect(owner_url) as connection:
        logged = connection.execute("SELECT reviewed FROM vectorforge.query_logs").fetchall()
    assert logged == [(False,), (False,)]
