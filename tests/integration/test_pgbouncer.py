"""No session state is left for the next client of a pooled server connection."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from vectorforge.db.connection import Database
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.pgbouncer

_TENANT = "SELECT current_setting('vectorforge.tenant', true) AS tenant, pg_backend_pid() AS backend"


# C34
async def test_tenant_setting_never_leaks_through_transaction_pooler(
    pgbouncer: Any, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    backends: set[int] = set()
    url = pgbouncer.route(postgres_server.app_url)
    assert conninfo_to_dict(url)["port"] == "6432"
    async with Database(url, pool_size=20) as database:
        tenants = [database.for_tenant(make_tenant()) for _ in range(20)]

        async def one(number: int) -> None:
            tenant = random.choice(tenants)
            if number % 3 == 0:  # outside any tenant, on any free backend
                async with database.connection() as connection:
                    row = await (await connection.execute(_TENANT)).fetchone()
                assert row is not None
                assert not row["tenant"]
            elif number % 3 == 1:
                row = await tenant.fetch_one(_TENANT)
                assert row is not None
                assert row["tenant"] == tenant.tenant_id
            else:
                async with tenant.transaction() as connection:
                    await connection.execute("SELECT pg_sleep(0.001)")
                    row = await (await connection.execute(_TENANT)).fetchone()
                assert row is not None
                assert row["tenant"] == tenant.tenant_id
            backends.add(row["backend"])

        for start in range(0, 3000, 100):
            await asyncio.gather(*(one(number) for number in range(start, start + 100)))
    assert 1 <= len(backends) <= 5  # 20 clients shared them
