"""A load on PostgreSQL through PgBouncer, and what it took of both."""

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
"""More than any load here needs, so that their number is what it needs."""


@contextmanager
def pooled(server: EmbeddedPostgres) -> Iterator[PgBouncer]:
    """PgBouncer before a server, in a folder that is deleted at the end."""
    socket = Path(str(conninfo_to_dict(server.app_url)["host"]), ".s.PGSQL.5432")
    with tempfile.TemporaryDirectory(prefix="vf-pgb-") as folder:
        Path(folder).chmod(0o755)  # as root, it runs as another account that has to pass through
        with PgBouncer(Path(folder), socket, pool_size=_MOST_SERVER_CONNECTIONS) as bouncer:
            yield bouncer


@dataclass(frozen=True, slots=True)
class Load:
    """What came of running something over and over."""

    per_second: float
    p50_ms: float
    p95_ms: float
    database_cpu_ms: float
    """Each; all processes of the server."""
    held_ms: float
    """Each; a server connection was in a transaction for it."""
    connections_mean: float
    """Server connections in a transaction, as PgBouncer counted them every 10 ms."""
    connections_most: int

    @property
    def connections_by_littles_law(self) -> float:
        """Arrivals a second times the seconds each holds a connection.

        https://doi.org/10.1287/opre.9.3.383
        """
        return self.per_second * self.held_ms / 1000


class Meter:
    """Measures loads on one database.

    Args:
        server: Its CPU time is read.
        bouncer: Before it.
        database: Name of the database, for PgBouncer's counts.
    """

    def __init__(self, server: EmbeddedPostgres, bouncer: PgBouncer, database: str) -> None:
        self._server = server
        self._database = database
        url = bouncer.route(server.app_url)
        self._console_url = make_conninfo(url, user=ADMINISTRATOR, dbname="pgbouncer")

    async def run(self, work: Callable[[int], Awaitable[object]], *, clients: int, seconds: float) -> Load:
        """Let so many clients each do one piece of ``work`` after the other, for so long.

        Args:
            work: Gets the number of the piece.
            clients: At once.
            seconds: No piece is begun after them.
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
        """The connections in use, filled at the end.

        In a process of its own: one that asks only when its clients are not busy would count too many.
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
        """Seconds that transactions through PgBouncer have taken so far."""
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
