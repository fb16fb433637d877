"""Statements on a tenant whose rows are newer than the planner's statistics, as after a bulk load.

The planner expects one row of it then, and any index that begins with the tenant seems as good as another.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from psycopg.conninfo import conninfo_to_dict

from tests.integration.rows_read_world import OTHER, TENANT, World, world_of
from tests.integration.test_rows_read import (
    CASES,
    LARGE_TABLES,
    MANY,
    SLACK,
    big_collections,
    disable_autovacuum,
    execute,
)
from tests.support.postgres.databases import own_database
from tests.support.postgres.grown_tenant import grow
from tests.support.postgres.rows_read import rows_read
from vectorforge.local.postgres import EmbeddedPostgres


@asynccontextmanager
async def unknown_tenant(owner_url: str, plans: Sequence[str] = ()) -> AsyncIterator[World]:
    """Serve a tenant with many rows; the statistics know those of another one only."""
    for plan in plans:
        execute(owner_url, f"ALTER DATABASE {conninfo_to_dict(owner_url)['dbname']} SET {plan} = off")
    async with world_of(owner_url) as world:
        disable_autovacuum(owner_url)
        collections = dict(big_collections(owner_url))
        grow(owner_url, OTHER, collections[OTHER], 1, MANY)
        execute(owner_url, "ANALYZE")
        grow(owner_url, TENANT, collections[TENANT], 1, MANY)
        yield world


async def reads(world: World, owner_url: str, case: str) -> Counter[str]:
    """Return the rows that a request reads, by table and index."""
    before = rows_read(owner_url)
    await CASES[case](world)
    read = rows_read(owner_url)
    read.subtract(before)
    return read


async def test_cache_lookup_reads_few_rows(postgres_server: EmbeddedPostgres) -> None:
    with own_database(postgres_server.migrator_url) as owner_url:
        async with unknown_tenant(owner_url, LARGE_TABLES) as world:
            read = await reads(world, owner_url, "query")
    assert sum(rows for index, rows in read.items() if index.startswith("cached_")) < SLACK, read


async def test_erasure_reads_each_row_a_few_times(postgres_server: EmbeddedPostgres) -> None:
    with own_database(postgres_server.migrator_url) as owner_url:
        async with unknown_tenant(owner_url) as world:
            read = await reads(world, owner_url, "document erased")
    assert read.total() < 50 * MANY, read.most_common(4)
