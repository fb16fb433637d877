"""A load on PostgreSQL through PgBouncer, and its cost in both."""

import asyncio
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
from figures.measuring import percentile, postgres_cpu_s
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from tests.support.postgres.pgbouncer import ADMINISTRATOR, PgBouncer
from vectorforge.local.postgres import EmbeddedPostgres

_COUNTED_EVERY_S = 0.01
_MOST_SERVER_CONNECTIONS = 60
"""Pool size: more than any load here needs, so that the number in use is the need."""


@contextmanager
def pooled(server: EmbeddedPostgres) -> Iterator[PgBouncer]:
    """Start PgBouncer in front of a server, in a temporary folder."""
    socket = Path(str(conninfo_to_dict(server.app_url)["host"]), ".s.PGSQL.5432")
    with tempfile.TemporaryDirectory(prefix="vf-pgb-") as folder:
        Path(folder).chmod(0o755)  # as root, it runs as another account that has to traverse it
        with PgBouncer(Path(folder), socket, pool_size=_MOST_SERVER_CONNECTIONS) as bouncer:
            yield bouncer


@dataclass(frozen=True, slots=True)
class Load:
    """Result of a repeated operation."""

    per_second: float
    p50_ms: float
    p95_ms: float
    database_cpu_ms: float
    """CPU milliseconds per operation of all processes of the server."""
    held_ms: float
    """Milliseconds per operation for which a server connection was in a transaction."""
    connections_mean: float
    """Server connections in a transaction, as PgBouncer counted them every 10 ms."""
    connections_most: int

    @property
    def connections_by_littles_law(self) -> float:
        """Return arrivals per second times the seconds for which each holds a connection.

        https://doi.org/10.1287/opre.9.3.383
        """
        return self.per_second * self.held_ms / 1000


class Meter:
    """Measures loads on one database.

    Args:
        server: Server whose CPU time is measured.
        bouncer: PgBouncer in front of it.
        database: Name of the database, for PgBouncer's counts.
    """

    def __init__(self, server: EmbeddedPostgres, bouncer: PgBouncer, database: str) -> None:
        self._server = server
        self._database = database
        url = bouncer.route(server.app_url)
        self._console_url = make_conninfo(url, user=ADMINISTRATOR, dbname="pgbouncer")

    async def run(self, work: Callable[[int], Awaitable[object]], *, clients: int, seconds: float) -> Load:
        """Let clients repeat ``work`` for some seconds.

        Args:
            work: Operation; receives its number.
            clients: Number of concurrent clients.
            seconds: No operation starts after them.
        """
        times: list[float] = []
        numbers = itertools.count()
        with self._counting() as counted:
            held, cpu, began = self._held_s(), postgres_cpu_s(self._server.pid), time.perf_counter()

            async def client() -> None:
                while time.perf_counter() < began + seconds:
                    started = time.perf_counter()
                    await work(next(numbers))
                    times.append((time.perf_counter() - started) * 1000)

            await asyncio.gather(*(client() for _ in range(clients)))
            wall = time.perf_counter() - began
            cpu, held = postgres_cpu_s(self._server.pid) - cpu, self._held_s() - held
        return Load(
            per_second=len(times) / wall,
            p50_ms=percentile(times, 50),
            p95_ms=percentile(times, 95),
            database_cpu_ms=cpu * 1000 / len(times),
            held_ms=held * 1000 / len(times),
            connections_mean=sum(counted) / len(counted),
            connections_most=max(counted),
        )

    @contextmanager
    def _counting(self) -> Iterator[list[int]]:
        """Count the connections in use; the list is filled at the end of the block.

        Runs in a separate process: counting only while its clients are idle would be biased.
        """
        counted: list[int] = []
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_count, args=(self._console_url, self._database, theirs))
        process.start()
        ours.recv()
        yield counted
        ours.send("over")
        counted += ours.recv()
        process.join()

    def _held_s(self) -> float:
        """Return the seconds of all transactions through PgBouncer so far."""
        with _console(self._console_url) as console:
            rows = console.execute("SHOW STATS_TOTALS").fetchall()
        return sum(float(row["xact_time"]) for row in rows if row["database"] == self._database) / 1e6


def _console(url: str) -> "psycopg.Connection[dict[str, Any]]":
    return psycopg.connect(url, autocommit=True, prepare_threshold=None, row_factory=dict_row)


def _count(console_url: str, database: str, pipe: "Connection[Any, Any]") -> None:
    counted = []
    with _console(console_url) as console:
        pipe.send("counting")
        while not pipe.poll(_COUNTED_EVERY_S):
            pools = console.execute("SHOW POOLS").fetchall()
            counted.append(sum(pool["sv_active"] for pool in pools if pool["database"] == database))
    pipe.send(counted)
