"""Measure the database's CPU per search, at several sizes and loads, and the disk space per chunk.

uv run --group dev python tests/benchmarks/database_capacity.py
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable

from figures.capacity import measure_query_log, measure_searches
from figures.database import private_server
from figures.measuring import Table, progress
from figures.report import machine, print_report

from vectorforge.local.postgres import EmbeddedPostgres

_EXPLANATION = """
parts:
  searches   searches a second, latency, CPU of the database and server connections in use, for each
             dimension, size and number of clients; bytes a chunk in each table and index
  query-log  rows a second and CPU of the database, one batch after the other

Everything goes through PgBouncer in transaction mode, as through RDS Proxy, to an embedded PostgreSQL with
its own default settings in a temporary folder, which is deleted at the end. Clients and server share this
machine, so searches a second are this machine's; CPU a search, connections held and bytes are what to
calculate with. 100,000 chunks of 1,536 dimensions take 4 GB of disk and half an hour on two cores.

examples:
  uv run --group dev python tests/benchmarks/database_capacity.py > figures.md
  uv run --group dev python tests/benchmarks/database_capacity.py --dimensions 384 --sizes 1000 10000 --json
"""


def _parts(server: EmbeddedPostgres, options: argparse.Namespace) -> dict[str, Callable[[], list[Table]]]:
    return {
        "searches": lambda: asyncio.run(
            measure_searches(
                server,
                dimensions=options.dimensions,
                sizes=options.sizes,
                clients=options.clients,
                seconds=options.seconds,
            )
        ),
        "query-log": lambda: asyncio.run(measure_query_log(server, seconds=options.seconds)),
    }


def main() -> None:
    """Measure with the options of the command line, and print the result."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("searches", "query-log")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help="these parts")
    parser.add_argument(
        "--dimensions", nargs="+", type=int, metavar="N", default=(384, 1536), help="default 384 1536"
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=int,
        metavar="N",
        default=(1_000, 10_000, 100_000),
        help="default 1000 10000 100000",
    )
    parser.add_argument(
        "--clients", nargs="+", type=int, metavar="N", default=(1, 4, 16), help="at once; default 1 4 16"
    )
    parser.add_argument("--seconds", type=float, default=20, help="of each load (default 20)")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("CPU of processes is read from /proc, which only Linux has.")
    where, tables = machine(), []
    with private_server() as server:
        for name, measure in _parts(server, options).items():
            if name in options.only:
                progress.print(f"[bold]{name}[/bold]")
                tables += measure()
    print_report(f"{where} before, {os.getloadavg()[0]:.1f} after", tables, as_json=options.json)


if __name__ == "__main__":
    main()
