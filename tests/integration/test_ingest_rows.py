"""Rows of a real PostgreSQL become documents, as by ``vectorforge ingest --from-postgres``."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from tests.support.http.live_api import build_application
from tests.support.postgres.databases import create_database, drop_database
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.bootstrap import Application
from vectorforge.cli.ingest.rows import RowsSummary, RowsToIngest, ingest_rows
from vectorforge.cli.options import RowOptions
from vectorforge.cli.session import Session
from vectorforge.cli.terminal import Terminal
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.errors import DatabaseUnavailableError, InvalidInputError, VectorForgeError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection, RetrievedChunk

ARTICLES = """
CREATE TABLE articles (
    id int PRIMARY KEY, headline text, body text, footnote text, price numeric, tags text[],
    details jsonb, changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO articles SELECT n, 'Article ' || n, 'The body of article ' || n, NULL, n + 0.5, ARRAY['a', 'b'],
    '{"colour": "red"}', '2026-01-01T00:00:00+01'::timestamptz FROM generate_series(1, 250) AS n;
"""
SECRET = "hunter2-is-secret"


@dataclass
class Shop:
    """A source database, and the session and collection for its rows."""

    dsn: str
    session: Session
    collection: Collection

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    async def ingest(self, **options: Any) -> RowsSummary:
        wanted: dict[str, Any] = {
            "table": None if "query" in options else "articles",
            "text": ["body"],
            "updated": "changed_at",
            "title": "headline",
            "metadata_column": ["price", "tags", "details"],
        }
        dsn = options.pop("dsn", self.dsn)
        labels = options.pop("labels", None)
        rows = RowsToIngest.of_options(dsn, RowOptions(**{**wanted, **options}))
        return await ingest_rows(
            Terminal(json_output=True), self.session, self.collection, rows, labels=labels
        )

    async def search(self, query: str, filters: dict[str, Any] | None = None) -> Sequence[RetrievedChunk]:
        return await self.session.services.retriever.retrieve(query, self.collection.id, 100, filters, None)

    async def sources(self) -> set[str]:
        documents, total = await self.session.services.documents.list(self.collection.id, limit=1000)
        assert total == len(documents)
        return {document.source for document in documents}

    @property
    def embedder(self) -> HashingEmbedder:
        embedder = self.session.application.embedding_registry.get("hashing")
        assert isinstance(embedder, HashingEmbedder)
        return embedder


@pytest.fixture(scope="module")
def source_database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    url = create_database(postgres_server.migrator_url, empty=True)
    yield url
    drop_database(url)


@pytest.fixture
async def shop(
    source_database: str, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Shop]:
    """Fill the source database again, for a tenant without documents."""
    config = VectorForgeConfig(database=DatabaseSettings(database_url=SecretStr(postgres_server.app_url)))
    application: Application = build_application(config)
    async with application:
        services = application.for_tenant(make_tenant())
        collection = await services.create_collection("articles")
        shop = Shop(source_database, Session(application, services), collection)
        shop.sql(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {ARTICLES}")
        yield shop


# C-001: columns become text, title and metadata, with types that filters can compare
async def test_table_rows_become_documents_with_metadata(shop: Shop) -> None:
    summary = await shop.ingest(labels={"shop": "north"})
    assert (summary.row()[1:5], summary.skipped) == ((250, 250, 0, 0), 0)
    (best,) = await shop.search("body", {"price": {"$gte": 17, "$lt": 18}, "tags": "a", "shop": "north"})
    assert (best.document_source, best.document_title) == ("articles#17", "Article 17")
    assert best.chunk.text == "The body of article 17"
    assert best.chunk.metadata["price"] == 17.5
    assert best.chunk.metadata["details"] == {"colour": "red"}
    services = shop.session.services
    document = await services.documents.find_by_id(best.chunk.document_id)
    cited = await services.documents.chunk(best.chunk.id)
    file = await services.files.find(best.chunk.document_id)
    for shown in (best.chunk, cited.chunk if cited else None, document, file):
        assert shown is not None
        assert shown.metadata.keys() - {"language"} == {"price", "tags", "details", "shop"}


# Short rows share requests to the model
async def test_table_rows_share_embedding_requests(shop: Shop) -> None:
    await shop.ingest()
    assert sum(shop.embedder.requests) == 250
    assert len(shop.embedder.requests) <= 10


# Incremental: only new and changed rows are read and embedded, regardless of their times
async def test_reingest_embeds_changed_rows_only(shop: Shop) -> None:
    await shop.ingest()
    shop.embedder.texts.clear()
    again = await shop.ingest()
    assert (again.skipped, again.row()[1]) == (250, 0)
    assert shop.embedder.texts == []

    shop.sql("UPDATE articles SET body = 'New words', changed_at = now() WHERE id = 3")
    # committed late: its time is older than others already read
    shop.sql("UPDATE articles SET body = 'Late words', changed_at = '2020-01-01' WHERE id = 4")
    shop.sql("INSERT INTO articles (id, body, changed_at) VALUES (900, 'Old but new', '2019-01-01')")
    shop.sql("UPDATE articles SET body = 'Nobody told' WHERE id = 5")
    changed = await shop.ingest()
    assert (changed.skipped, changed.row()[1:5]) == (248, (3, 3, 0, 0))
    assert sorted(shop.embedder.texts) == ["Article 3\nNew words", "Article 4\nLate words", "Old but new"]

    everything = await shop.ingest(everything=True)
    assert everything.row()[1:5] == (251, 1, 250, 0)
    assert shop.embedder.texts[-1] == "Article 5\nNobody told"


# Other columns, other labels: affected documents are rebuilt
async def test_changed_mapping_reingests_all_rows(shop: Shop) -> None:
    shop.sql("DELETE FROM articles WHERE id > 30")
    await shop.ingest()
    assert (await shop.ingest(metadata_column=["price"])).row()[2] == 30
    assert (await shop.ingest(metadata_column=["price"])).skipped == 30
    assert (await shop.ingest(metadata_column=["price"], labels={"shop": "north"})).skipped == 0


async def test_rows_without_timestamp_are_compared_by_text(shop: Shop) -> None:
    await shop.ingest(updated=None)
    shop.embedder.texts.clear()
    shop.sql("UPDATE articles SET body = 'New words' WHERE id = 3")
    summary = await shop.ingest(updated=None)
    assert summary.row()[1:5] == (250, 1, 249, 0)
    assert shop.embedder.texts == ["Article 3\nNew words"]


# Deletions only on request, and only of these rows
async def test_deleted_rows_are_removed_only_with_delete_option(shop: Shop) -> None:
    shop.sql("DELETE FROM articles WHERE id > 4")
    await shop.ingest()
    await shop.ingest(source_name="others", query="SELECT * FROM articles WHERE id = 1", table=None)
    shop.sql("DELETE FROM articles WHERE id = 1")
    shop.sql("UPDATE articles SET body = ' ', changed_at = now() WHERE id = 2")
    summary = await shop.ingest()
    assert (summary.deleted, summary.without_text) == (0, 1)
    assert len(await shop.sources()) == 5
    assert (await shop.ingest(delete=True)).deleted == 2
    assert await shop.sources() == {"articles#3", "articles#4", "others#1"}


async def test_arbitrary_select_query_is_ingested(shop: Shop) -> None:
    query = """
        SELECT id AS "the key", body || ' {braces}' AS body, footnote, headline LIKE 'Article 1%' AS first
        FROM articles WHERE id % 2 = 1 AND id < 6; -- odd ones
    """.replace("; -- odd ones", " -- odd ones")
    summary = await shop.ingest(
        query=query,
        key="the key",
        text=["body", "footnote"],
        title=None,
        updated=None,
        metadata_column=["first"],
    )
    assert summary.row()[1:5] == (3, 3, 0, 0)
    found = await shop.search("braces", {"first": True})
    assert [chunk.chunk.text for chunk in found] == ["The body of article 1 {braces}"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": ["bodi"]}, "'bodi' does not exist; columns: id, headline, body"),
        ({"key": "tags"}, "is not unique"),
        ({"key": "footnote"}, "no value in its key column 'footnote'"),
        ({"text": []}, "At least one column"),
        ({"table": "a.b.c"}, "table or schema.table"),
        ({"table": 'articles"; DROP TABLE articles; --'}, "UndefinedTable"),
        ({"table": "articels"}, 'relation "articels" does not exist (UndefinedTable, SQLSTATE 42P01)'),
        ({"query": "SELECT * FROM articles", "table": "articles"}, "either --query or --table"),
        ({"query": "SELEC 1"}, "SyntaxError, SQLSTATE 42601"),
        ({"query": "DELETE FROM articles RETURNING *"}, "SQLSTATE 42601"),
        (
            {"query": "SELECT 1/0 AS id, 'x' AS body", "updated": None, "title": None, "metadata_column": []},
            "22012",
        ),
        ({"query": "SELECT id, id, body FROM articles"}, "'id' is ambiguous"),
        ({"metadata_column": ["_row_version"]}, "reserved for VectorForge"),
        ({"dsn": "env:NOT_SET_ANYWHERE"}, "no variable 'NOT_SET_ANYWHERE'"),
    ],
)
async def test_invalid_ingest_options_are_rejected_without_writes(
    shop: Shop, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(VectorForgeError) as refused:
        await shop.ingest(**options)
    assert words in refused.value.message
    assert await shop.sources() == set()
    shop.sql("SELECT FROM articles LIMIT 1")


# The source is read only, also by a query that calls a function
async def test_source_database_is_read_only(shop: Shop) -> None:
    shop.sql("CREATE FUNCTION sneaky() RETURNS int LANGUAGE sql AS 'DELETE FROM articles; SELECT 1'")
    with pytest.raises(VectorForgeError):
        await shop.ingest(
            query="SELECT sneaky() AS id, 'x' AS body", updated=None, title=None, metadata_column=[]
        )
    assert (await shop.ingest()).row()[1] == 250


# The connection string and its password are in no error, nor in what caused it
@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
        f"host=127.0.0.1 port=1 password={SECRET}",
        f"host=127.0.0.1 password={SECRET} {SECRET}",
        f"postgresql://me:{SECRET}@127.0.0.1:port/shop",
        f"postgresql://me:{SECRET}@does-not-exist.invalid/shop",
    ],
)
async def test_dsn_is_absent_from_errors(shop: Shop, dsn: str) -> None:
    with pytest.raises(VectorForgeError) as failed:
        await shop.ingest(dsn=dsn)
    error: BaseException | None = failed.value
    while error is not None:
        assert SECRET not in str(error)
        assert error.__cause__ is None
        error = error.__context__ if not error.__suppress_context__ else None
    assert SECRET not in repr(
        RowsToIngest.of_options(dsn, RowOptions(from_postgres=dsn, query="SELECT 1", text=["x"]))
    )


async def test_lost_source_connection_raises_unavailable(shop: Shop) -> None:
    shop.sql(
        "CREATE FUNCTION die() RETURNS int LANGUAGE sql AS "
        "$$SELECT pg_terminate_backend(pg_backend_pid())::int$$"
    )
    with pytest.raises(DatabaseUnavailableError, match="source database was lost"):
        await shop.ingest(
            query="SELECT die() AS id, 'x' AS body", updated=None, title=None, metadata_column=[]
        )


# A row too large fails alone, with its source; the others are stored
async def test_failing_row_is_reported_and_others_ingested(shop: Shop) -> None:
    shop.sql("DELETE FROM articles WHERE id > 3")
    shop.sql("UPDATE articles SET details = jsonb_build_object('x', repeat('y', 70000)) WHERE id = 2")
    summary = await shop.ingest()
    assert (summary.row()[2], summary.failed) == (2, 1)
    assert [failure.source for failure in summary.failures] == ["articles#2"]
    with pytest.raises(InvalidInputError):
        await shop.ingest(source_name=" ")
    with pytest.raises(InvalidInputError, match="--source-name must not contain line breaks"):
        await shop.ingest(source_name="two\nlines")


# The command itself: JSON for programs, exit codes, no secret in its output even with --debug
def test_ingest_command_reads_dsn_from_environment(
    shop: Shop, private_dir: Callable[[str], Path], fresh_database_url: str
) -> None:
    shop.sql("DELETE FROM articles WHERE id > 3")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    environment = {
        **inherited,
        "VECTORFORGE_DATABASE_URL": fresh_database_url,
        "SHOP_DSN": make_conninfo(shop.dsn, password=SECRET),
        "WRONG_DSN": f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
    }

    def run(dsn: str, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [
                Path(sys.executable).with_name("vectorforge"), "ingest", "--from-postgres", dsn,
                "--table", "articles", "--text", "body", "--updated", "changed_at", *arguments,
            ],
            env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    first = json.loads(run("env:SHOP_DSN", "--json", "--debug"))
    assert (first["succeeded"], first["skipped"], first["failures"]) == (3, 0, [])
    assert run("env:SHOP_DSN").splitlines()[1].split("\t")[1:3] == ["0", "0"]
    assert "source database cannot be reached" in run("env:WRONG_DSN", "--debug", code=3)
    assert "cannot be combined with files" in run("env:SHOP_DSN", "README.md", code=2)
