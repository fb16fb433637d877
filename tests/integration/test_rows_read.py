"""Requests read as many rows of a tenant with much data as of one with little.

Row-level security makes this hard to see: a condition with a function that is not leakproof cannot be an
index condition, and reads all rows of the tenant (https://www.postgresql.org/docs/18/rules-privileges.html).
"""

import asyncio
import json
import re
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.main import get_command

from tests.integration.rows_read_routes import ROUTE_CASES
from tests.integration.rows_read_world import CASES as OTHER_CASES
from tests.integration.rows_read_world import World, world_of
from tests.support.http.live_api import add_documents
from tests.support.postgres.databases import own_database
from tests.support.postgres.grown_tenant import grow
from tests.support.postgres.rows_read import rows_read
from vectorforge.cli.app import command_line
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.local.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
CASES = {**OTHER_CASES, **ROUTE_CASES}
FEW, MANY = 100, 1_000
LARGE_TABLES = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
"""Plans that are right for small tables only; without them these have the plans of large ones."""
SLACK = 100
"""Rows more that a request may read of ten times as many: pages of an index, rows of the other requests."""


GROWING = {
    "cache": "all of it is counted",
    "cache cleared": "all of it is deleted",
    "store": "its failed files are counted; they are deleted with their jobs",
    "stores": "likewise",
    **dict.fromkeys(
        ("document erased", "collection erased", "profile erased", "store deleted", "file of a store erased"),
        "every logged query is examined for erased chunks, and cached answers of the collection are deleted",
    ),
}
"""Requests that read in proportion to the tenant's rows, with reasons."""
UNMEASURED = {
    ("POST", "/v1/collections/{collection_id}/uploads"): "signs an address of S3; reads the collection only",
    ("DELETE", "/v1/tenant"): "deletes every row of the tenant",
    ("GET", "/metrics"): "figures of this process; reads no table",
}
"""Routes without a case, with reasons."""
UNCALLED = {
    **dict.fromkeys(
        ("vector_index_name", "term_hash", "without_stop_words", "aim_index_scan"),
        "reads no table of a tenant",
    ),
    "enter_reader": "of read replicas; enters the tenant as enter_tenant() does",
    "enter_search": "likewise, with the version of one collection",
    "ensure_alternate_space": "makes a table",
    "note_erased_objects": "one erasure; files in S3",
    "lexemes": "reads no table; it is part of the plans of its callers",
    "read_terms": "at most 500 chunks, then those behind them",
}
"""Functions that the app, the log writer and the eraser may call, without a case, with reasons."""
_CALLABLE = """
SELECT p.proname FROM pg_proc AS p LEFT JOIN pg_stat_user_functions AS s ON s.funcid = p.oid
WHERE p.pronamespace = 'vectorforge'::regnamespace AND coalesce(s.calls, 0) = 0 AND EXISTS (
    SELECT FROM unnest(ARRAY['vectorforge_app', 'vectorforge_log_writer', 'vectorforge_eraser']) AS role
    WHERE has_function_privilege(role, p.oid, 'EXECUTE')
)
"""


COMMANDS = {
    "ask": "query",
    "search": "search",
    "mcp": "tool ask",
    "ingest": "document replaced",
    "replay": "replay",
    "stats": "statistics of a day",
    "eval export": "rated page",
    "collections list": "collections",
    "collections create": "collection",
    "collections set": "collection",
    "collections show": "collection",
    "collections delete": "collection erased",
    **dict.fromkeys(
        (f"collections reembed {step}" for step in ("status", "switch", "rollback", "finish", "cancel")),
        "embedding switch",
    ),
    "documents list": "documents",
    "documents delete": "document erased",
    "erase document": "document erased",
    "erase profile": "profile erased",
    "erase collection": "collection erased",
    "erase list": "erasures",
    "keys create": "key rotated",
    "keys list": "keys",
    "keys rotate": "key rotated",
    "keys revoke": "key rotated",
    "limits show": "query",
    "logs replay": "log writer",
    "logs text": "query log",
}
"""The case that makes the statements of a command of the command line."""
UNMEASURED_COMMANDS = {
    "up": "a server, whose requests are the cases",
    "eval": "queries, as the cases",
    "doctor": "examines the whole database",
    "completion": "no statement",
    "migrate": "changes the whole database",
    "collections reembed start": "embeds every chunk of the collection",
    "collections reembed wait": "likewise",
    "erase tenant": "deletes every row of the tenant",
    "erase verify": "no statement",
    "index list": "adds up the sizes of all collections",
    "index build": "reads every vector of the index",
    "limits set": "one row",
    **dict.fromkeys((f"providers {name}" for name in ("list", "models", "check")), "no statement"),
}
"""Commands without a case, with reasons."""


async def reads(world: World, owner_url: str) -> dict[str, Counter[str]]:
    """Return the rows that each request reads, by table and index."""
    found: dict[str, Counter[str]] = {}
    for name, case in CASES.items():
        before = rows_read(owner_url)
        await case(world)
        found[name] = rows_read(owner_url)
        found[name].subtract(before)
    return found


def execute(owner_url: str, statement: str) -> None:
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(statement.encode())


def enlarge(owner_url: str, first: int, last: int) -> None:
    """Give both tenants more rows."""
    for tenant, collection_id in big_collections(owner_url):
        grow(owner_url, tenant, collection_id, first, last)


def big_collections(owner_url: str) -> list[tuple[str, UUID]]:
    """Return the tenants, each with the id of its large collection."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        found = "SELECT tenant_id, id FROM vectorforge.collections WHERE name = 'big'"
        return connection.execute(found).fetchall()


def commands_of(group: Any, prefix: str = "") -> set[str]:
    """Return the commands of a group and its groups, each with the names of its groups."""
    return {
        name
        for word, command in group.commands.items()
        for name in (
            commands_of(command, f"{prefix}{word} ") if hasattr(command, "commands") else {prefix + word}
        )
    }


def test_commands_are_cases_or_named() -> None:
    assert commands_of(get_command(command_line())) == COMMANDS.keys() | UNMEASURED_COMMANDS.keys()
    assert set(COMMANDS.values()) <= CASES.keys()


def unmeasured_routes(requested: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the routes of the OpenAPI document that no request has called."""
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    called = set()
    for method, template in routes:
        pattern = re.compile(re.sub(r"\{model\}", ".+", re.sub(r"\{(?!model)[^}]+\}", "[^/]+", template)))
        if any(given == method and pattern.fullmatch(path) for given, path in requested):
            called.add((method, template))
    return routes - called


def uncalled_functions(owner_url: str) -> set[str]:
    """Return the functions of the schema for applications that no statement has called."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        return {name for (name,) in connection.execute(_CALLABLE)}


@pytest.mark.slow
async def test_rows_read_by_requests_are_independent_of_the_tenants_rows(
    postgres_server: EmbeddedPostgres,
) -> None:
    with own_database(postgres_server.migrator_url) as owner_url:
        name = conninfo_to_dict(owner_url)["dbname"]
        for setting in (*(f"{plan} = off" for plan in LARGE_TABLES), "track_functions = 'all'"):
            execute(owner_url, f"ALTER DATABASE {name} SET {setting}")
        async with world_of(owner_url) as world:
            enlarge(owner_url, 1, FEW)
            await JobDispatcher(world.database).analyze_changed_tables(10)
            world.numbers = count(30)
            few = await reads(world, owner_url)
            enlarge(owner_url, FEW + 1, MANY)
            await JobDispatcher(world.database).analyze_changed_tables(10)
            world.numbers = count(FEW + 30)
            many = await reads(world, owner_url)
            unmeasured, uncalled = unmeasured_routes(world.requested), uncalled_functions(owner_url)
    growth = {name: +(many[name] - few[name]) for name in CASES}
    growing = {name: rows.most_common(4) for name, rows in growth.items() if rows.total() > SLACK}
    unexpected = {name: rows for name, rows in growing.items() if name not in GROWING}
    assert unexpected == {}
    assert growing.keys() == GROWING.keys(), "no longer growing: remove it from GROWING"
    of_stores = growth["stores"] | growth["store"]
    assert not any(rows > SLACK for index, rows in of_stores.items() if index.startswith("documents"))
    assert unmeasured == UNMEASURED.keys()
    assert uncalled == UNCALLED.keys()


async def test_log_writer_reads_few_tombstones_with_plans_of_small_tables(
    postgres_server: EmbeddedPostgres,
) -> None:
    with own_database(postgres_server.migrator_url) as owner_url:
        async with world_of(owner_url) as world:
            enlarge(owner_url, 1, MANY)
            await JobDispatcher(world.database).analyze_changed_tables(10)
            before = rows_read(owner_url)
            await CASES["log writer"](world)
            read = rows_read(owner_url)
    read.subtract(before)
    assert read.total() < SLACK, read.most_common(4)


LOADED = {"documents", "chunks", "embeddings", "chunk_terms"}
"""Tables of a bulk load."""


async def test_tables_have_statistics_after_a_bulk_load(postgres_server: EmbeddedPostgres) -> None:
    with own_database(postgres_server.migrator_url) as owner_url:
        async with world_of(owner_url) as world:
            disable_autovacuum(owner_url)  # it would leave nothing to analyze
            texts = {f"bulk-{number}": f"word{number}" for number in range(MANY)}
            assert (await add_documents(world.client, world.big, **texts))["status"] == "succeeded"
            async with asyncio.timeout(30):
                while not set(analyzed(owner_url)) >= LOADED:  # noqa: ASYNC110 - another connection
                    await asyncio.sleep(0.1)


_TABLES = """
SELECT oid::regclass::text FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'vectorforge'::regnamespace
"""


def disable_autovacuum(owner_url: str) -> None:
    with psycopg.connect(owner_url, autocommit=True) as connection:
        for (name,) in connection.execute(_TABLES).fetchall():
            connection.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)".encode())


def analyzed(owner_url: str) -> list[str]:
    """Return the tables that were analyzed, other than by autovacuum."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        tables = "SELECT relname FROM pg_stat_user_tables WHERE last_analyze IS NOT NULL"
        return [name for (name,) in connection.execute(tables)]
