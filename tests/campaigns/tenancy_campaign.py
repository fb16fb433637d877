"""Interleave transactions of many tenants over few PgBouncer connections, and count foreign rows.

python -m tests.campaigns tenancy
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from rich.console import Console

from tests.campaigns.fault_campaign import machine, progress_of, short_folder
from tests.campaigns.faults.report import write_section
from tests.support.postgres.pgbouncer import PgBouncer
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.migrate import migrate
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import DatabaseError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric

# Without the predicate that every statement of the product has, to test row-level security alone.
_OWNERS = "SELECT tenant_id AS owner, pg_backend_pid() AS backend FROM vectorforge.collections"
_ABORTED = f"{_OWNERS}, (SELECT 1 / (random() * 0)::int) AS fails"
_LANES = 40


class Interleaving:
    """Transactions of several kinds, in an order set by the seed.

    Args:
        database: The app role's database, through PgBouncer.
        tenants: Tenants with one collection each.
        rng: Selects the next tenant and transaction.
    """

    def __init__(self, database: Database, tenants: list[TenantDatabase], rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        """Transactions by kind, and "foreign" and "missing" rows, which must both be 0."""
        self.backends: set[int] = set()
        self._database = database
        self._tenants = tenants
        self._rng = rng

    async def run(self, transactions: int, on_done: Callable[[], None] = lambda: None) -> None:
        """Run transactions, ``_LANES`` concurrently."""
        numbers = iter(range(transactions))
        kinds = (self._pipelined, self._pipelined, self._in_steps, self._aborted, self._without_tenant)

        async def lane() -> None:
            for _ in numbers:
                kind = self._rng.choice(kinds)
                self.counts[kind.__name__.strip("_").replace("_", " ")] += 1
                await kind(self._rng.choice(self._tenants))
                on_done()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_LANES):
                tasks.create_task(lane())

    async def _pipelined(self, tenant: TenantDatabase) -> None:
        self._judge(await tenant.fetch_all(_OWNERS), tenant.tenant_id)

    async def _in_steps(self, tenant: TenantDatabase) -> None:
        async with tenant.transaction() as connection:
            for _ in range(2):
                self._judge(await (await connection.execute(_OWNERS)).fetchall(), tenant.tenant_id)

    async def _aborted(self, tenant: TenantDatabase) -> None:
        try:
            await tenant.fetch_all(_ABORTED)
        except DatabaseError:
            return
        raise AssertionError("a division by zero succeeded")

    async def _without_tenant(self, _: TenantDatabase) -> None:
        async with self._database.connection() as connection:
            rows = await (await connection.execute(_OWNERS.encode())).fetchall()
        self.counts["foreign"] += len(rows)

    def _judge(self, rows: list[dict[str, object]], tenant: str) -> None:
        self.counts["foreign"] += sum(row["owner"] != tenant for row in rows)
        self.counts["missing"] += not any(row["owner"] == tenant for row in rows)
        self.backends |= {int(str(row["backend"])) for row in rows}


async def interleave(
    url: str, *, transactions: int, tenants: int, seed: int = 1, on_done: Callable[[], None] = lambda: None
) -> Interleaving:
    """Create the tenants, and run their transactions.

    Args:
        url: URL of the app's role, through PgBouncer.
        transactions: Total number of transactions.
        tenants: Number of tenants.
        seed: Seed of the order.
        on_done: Called after each transaction.
    """
    run = uuid.uuid4().hex[:8]
    async with Database(url, pool_size=_LANES) as database:
        made = [database.for_tenant(f"interleaved-{run}-{number}") for number in range(tenants)]
        for tenant in made:
            await CollectionRepository(tenant).create(
                "own",
                embedding_provider="local",
                embedding_model="none",
                dimension=8,
                distance_metric=DistanceMetric.COSINE,
            )
        interleaving = Interleaving(database, made, random.Random(seed))
        await interleaving.run(transactions, on_done)
    return interleaving


async def _run(options: argparse.Namespace, folder: Path) -> tuple[Interleaving, float]:
    postgres = EmbeddedPostgres(folder / "postgres", settings={"max_connections": "100"})
    await asyncio.to_thread(postgres.start)
    try:
        await migrate(postgres.migrator_url)
        socket = Path(str(conninfo_to_dict(postgres.app_url)["host"]), ".s.PGSQL.5432")
        (folder / "bouncer").mkdir()
        with (
            PgBouncer(folder / "bouncer", socket, pool_size=5) as bouncer,
            progress_of(Console()) as progress,
        ):
            task = progress.add_task("transactions", total=options.transactions)
            started = time.monotonic()
            found = await interleave(
                bouncer.route(postgres.app_url),
                transactions=options.transactions,
                tenants=options.tenants,
                seed=options.seed,
                on_done=lambda: progress.advance(task),
            )
            return found, time.monotonic() - started
    finally:
        await asyncio.to_thread(postgres.stop, force=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and write the report."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="tenancy"',
        description=(__doc__ or "").splitlines()[0],
        epilog="exit code: 0 no row of another tenant was seen and none of its own was missing, 1 else",
    )
    parser.add_argument("--transactions", type=int, default=100_000, help="altogether (default 100,000)")
    parser.add_argument("--tenants", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (default 1)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    options = parser.parse_args(arguments)
    if options.transactions < 1 or options.tenants < 2:
        parser.error("--transactions must be at least 1, --tenants at least 2.")
    with short_folder() as folder:
        found, seconds = asyncio.run(_run(options, folder))
    kinds = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(found.counts.items()) if kind[0] not in "fm"
    )
    text = (
        f"{machine()}: {options.transactions:,} transactions of {options.tenants} tenants ({kinds}) over "
        f"{len(found.backends)} server connections of PgBouncer in {seconds:.0f} s: "
        f"{found.counts['foreign']} foreign rows, {found.counts['missing']} missing own rows."
    )
    print(text)
    if not options.no_page:
        write_section("tenancy", text)
    sys.exit(1 if found.counts["foreign"] or found.counts["missing"] else 0)


if __name__ == "__main__":
    main()
