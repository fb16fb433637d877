"""Statements are prepared where a connection is one backend's, and nowhere else: C34, P1."""

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.vector_store_search.conftest import fill
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

_PREPARED = "SELECT name, statement, generic_plans FROM pg_prepared_statements WHERE name LIKE 'vf_%%'"
_MOST = 64


@pytest.fixture
def direct_url(postgres_server: EmbeddedPostgres) -> str:
    """Return a connection string past the pin detector, which stands for RDS Proxy."""
    return make_conninfo(postgres_server.app_url, host=str(postgres_server.data_dir))


@pytest.fixture
async def direct(direct_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[TenantDatabase]:
    """A tenant on one connection to the server itself."""
    async with Database(direct_url, pool_size=1) as database:
        yield database.for_tenant(make_tenant())


async def prepared(db: TenantDatabase) -> set[str]:
    """Return the texts of the connection's prepared statements."""
    return {row["statement"] for row in await db.fetch_all(_PREPARED)}


async def test_statement_on_direct_connection_is_prepared_at_second_execution(direct: TenantDatabase) -> None:
    await direct.fetch_all("SELECT %s::int AS a", (1,))
    assert "SELECT $1::int AS a" not in await prepared(direct)
    for value in (2, 3):
        assert await direct.fetch_all("SELECT %s::int AS a", (value,)) == [{"a": value}]
    assert "SELECT $1::int AS a" in await prepared(direct)


async def test_idle_connection_used_last_is_used_next(
    direct_url: str, make_tenant: Callable[[], str]
) -> None:
    async with Database(direct_url, pool_size=4) as database:
        db = database.for_tenant(make_tenant())
        await asyncio.gather(*(db.fetch_all("SELECT pg_sleep(0.2)") for _ in range(4)))
        used = [await db.fetch_one("SELECT pg_backend_pid() AS pid") for _ in range(8)]
    assert used == used[:1] * 8


async def test_values_of_other_types_are_prepared_separately(direct: TenantDatabase) -> None:
    for value in (1, "two", 3, "four", 2**40, None):
        rows = await direct.fetch_all("SELECT %s AS a", (value,))
        assert [str(row["a"]) for row in rows] == [str(value)]


async def test_statements_through_pooler_are_never_prepared(
    database: Database, make_tenant: Callable[[], str]
) -> None:
    db = database.for_tenant(make_tenant())
    for value in range(5):
        await db.fetch_all("SELECT %s::int AS a", (value,))
    assert await prepared(db) == set()  # the pin detector would report them as well


async def test_failing_statement_is_prepared_once_and_connection_stays(direct: TenantDatabase) -> None:
    for _ in range(6):
        with pytest.raises(DatabaseError):
            await direct.fetch_all("SELECT 1 / %s::int AS a", (0,))
    assert await direct.fetch_all("SELECT 1 / %s::int AS a", (1,)) == [{"a": 1}]
    assert [text for text in await prepared(direct) if "1 / $1" in text] == ["SELECT 1 / $1::int AS a"]
    assert len(await direct.fetch_all(_PREPARED)) <= 4


async def test_statement_that_cannot_be_prepared_reports_its_own_error(direct: TenantDatabase) -> None:
    for _ in range(4):
        with pytest.raises(DatabaseError, match="refused a statement"):
            await direct.fetch_all("SELECT missing_column FROM vectorforge.tenants")
    assert await direct.fetch_all("SELECT 1 AS a") == [{"a": 1}]


async def test_prepared_statements_of_connection_are_bounded(direct: TenantDatabase) -> None:
    for _ in range(3):
        for number in range(_MOST + 20):
            assert await direct.fetch_all(f"SELECT %s::int AS a{number}", (number,)) == [
                {f"a{number}": number}
            ]
    assert len(await prepared(direct)) <= _MOST


async def test_canceled_statement_leaves_connection_usable(direct: TenantDatabase) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await direct.fetch_all("SELECT 1 AS a FROM pg_sleep(%s::float8)", (5.0,))
    assert await direct.fetch_all("SELECT 1 AS a FROM pg_sleep(%s::float8)", (0.0,)) == [{"a": 1}]


async def test_read_after_column_changed_its_type_runs_on_another_connection(
    direct: TenantDatabase, postgres_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE public.changing (a int)")
        try:
            owner.execute("INSERT INTO public.changing VALUES (7)")
            owner.execute("GRANT SELECT ON public.changing TO vectorforge_app")
            for _ in range(3):
                assert await direct.fetch_all("SELECT a FROM public.changing", repeatable=True) == [{"a": 7}]
            owner.execute("ALTER TABLE public.changing ALTER a TYPE text")
            assert await direct.fetch_all("SELECT a FROM public.changing", repeatable=True) == [{"a": "7"}]
        finally:
            owner.execute("DROP TABLE public.changing")


async def test_read_after_backend_lost_its_statements_runs_on_another_connection(
    direct: TenantDatabase,
) -> None:
    for _ in range(3):
        await direct.fetch_all("SELECT 5 AS a", repeatable=True)
    await direct.fetch_all("DEALLOCATE ALL")
    assert await direct.fetch_all("SELECT 5 AS a", repeatable=True) == [{"a": 5}]


@pytest.mark.parametrize("filters", [None, {"kind": "rare"}])
async def test_search_is_planned_once_and_finds_the_same(
    direct: TenantDatabase, database: Database, filters: dict[str, str] | None
) -> None:
    collection_id, vectors = await fill(direct, 4, [{"kind": "rare"}, {"kind": "common"}] * 20)

    async def found(db: TenantDatabase, vector: list[float]) -> list[tuple[str, float]]:
        results = await PgVectorStore(db).search(
            query_vector=vector,
            query_text="3 7 12",
            top_k=7,
            collection_id=collection_id,
            metric=DistanceMetric.COSINE,
            filters=filters,
        )
        return [(result.chunk.text, result.score) for result in results]

    through_pooler = database.for_tenant(direct.tenant_id)
    for vector in vectors[:12]:
        assert await found(direct, vector) == await found(through_pooler, vector)
    searches = [row for row in await direct.fetch_all(_PREPARED) if "facts" in row["statement"]]
    assert [row["generic_plans"] > 0 for row in searches] == [True]
