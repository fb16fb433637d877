"""One PostgreSQL for all contestants, which persists between runs with their data."""

import asyncio
import fcntl
import hashlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import connect
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from peers.job import Place
from vectorforge.db.schema import migrate as migrations
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import EXACT_SCAN_LIMIT

SERVICE_DATABASE = "service"
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "2GB",
    "effective_cache_size": "8GB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "4GB",
    "random_page_cost": "1.1",
}
"""Settings of a database server with 8 GB, the same for every contestant."""
_ACCESS = """\
local all all trust
host all postgres 127.0.0.1/32 reject
host peers,service all 127.0.0.1/32 trust
"""
"""pg_hba.conf: TCP, which some drivers require, with the security that a benchmark's data needs."""


class BenchmarkBusyError(Exception):
    """Another run uses the same folder."""


@dataclass(frozen=True)
class BenchmarkDatabase:
    """The running server."""

    server: EmbeddedPostgres
    host: str
    loaded: "Loaded"

    @property
    def app_url(self) -> str:
        """Connection string of this service's app role, over TCP like the others'."""
        return f"postgresql://vectorforge_app@{self.host}:5432/{SERVICE_DATABASE}"

    @property
    def owner_url(self) -> str:
        """Superuser's connection string (libpq's form) to this service's database, over the Unix socket."""
        return make_conninfo(self.server.migrator_url, dbname=SERVICE_DATABASE)

    def migrated(self, name: str, stored: Sequence[str]) -> tuple[str, str]:
        """Return a database of this version of the service; one of another version is recreated, empty.

        Args:
            name: Name of the database.
            stored: Record of its contents, which is cleared when it is recreated.

        Returns:
            URLs of the app role and of the owner, over the Unix socket.
        """
        schema, key = _schema(), f"schema of {name}"
        owner_url = make_conninfo(self.server.migrator_url, dbname=name)
        if not self.loaded.has(key, schema):
            root = make_conninfo(self.server.migrator_url, dbname="postgres")
            with connect(root, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
                connection.execute(f"CREATE DATABASE {name}".encode())
            self.loaded.forget(*stored)
            with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
                thread.submit(asyncio.run, migrate(owner_url)).result()
            self.loaded.put(key, schema)
        return make_conninfo(self.server.app_url, dbname=name), owner_url

    def place(self, model_url: str, suffix: str) -> Place:
        """Return the contestants' configuration."""
        return Place(database_host=self.host, model_url=model_url, suffix=suffix)

    def drop_vector_indexes(self) -> None:
        """Leave the service's vectors without HNSW indexes, as new tables are; ``settle`` builds them."""
        hnsw = """
        SELECT indexname FROM pg_indexes WHERE schemaname = 'vectorforge' AND indexdef LIKE '%USING hnsw%'
        """
        with connect(self.owner_url, autocommit=True) as connection:
            for (name,) in connection.execute(hnsw).fetchall():
                connection.execute(SQL("DROP INDEX vectorforge.{}").format(Identifier(name)))

    def settle(self) -> None:
        """Build the service's indexes where it would, and do what autovacuum does a minute after a load."""
        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            thread.submit(asyncio.run, build_indexes(self.owner_url, larger_than=EXACT_SCAN_LIMIT)).result()
        for name in ("peers", SERVICE_DATABASE):
            url = make_conninfo(self.server.migrator_url, dbname=name)
            with connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")

    def set_search_mode(self, collection: str, mode: str) -> None:
        """Set the search mode of this service's collection; ``mode`` as in ``SearchMode``."""
        with connect(self.owner_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE vectorforge.collections SET search_mode = %s WHERE name = %s", (mode, collection)
            )

    def forget_answers(self) -> None:
        """Empty this service's caches, so that no run benefits from the previous one."""
        with connect(self.owner_url, autocommit=True) as connection:
            connection.execute(
                "TRUNCATE vectorforge.cached_answers, vectorforge.cached_embeddings, vectorforge.query_logs "
                "CASCADE"
            )


@contextmanager
def benchmark_database(folder: Path) -> Iterator[BenchmarkDatabase]:
    """Run the server over ``folder/postgres`` with databases ``peers`` and ``service``."""
    host = _free_host()
    server = EmbeddedPostgres(
        folder / "postgres", settings={**SETTINGS, "listen_addresses": host, "max_wal_senders": "0"}
    )
    with (folder / "benchmark.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise BenchmarkBusyError(
                f"Another benchmark is using {folder}; wait for it, or choose another --folder."
            ) from exc
        server.stop(force=True)  # left by a killed run: it may listen elsewhere
        server.start()
        try:
            _prepare(server)
            yield BenchmarkDatabase(server, host, Loaded(folder))
        finally:
            server.stop(force=True)


def _prepare(server: EmbeddedPostgres) -> None:
    (server.data_dir / "pg_hba.conf").write_text(_ACCESS)
    root = make_conninfo(server.migrator_url, dbname="postgres")
    with connect(root, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        roles = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'peer'").fetchone()
        if roles is None:
            connection.execute("CREATE ROLE peer LOGIN")
            connection.execute("CREATE DATABASE peers OWNER peer")
    with connect(make_conninfo(server.migrator_url, dbname="peers"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("ALTER SCHEMA public OWNER TO peer")


def _schema() -> dict[str, str]:
    digest = hashlib.sha256()
    files = sorted(Path(migrations.__file__).parents[1].joinpath("migrations").rglob("*.sql"))
    assert files
    for path in files:
        digest.update(path.read_bytes())
    return {"migrations": digest.hexdigest()}


def _free_host() -> str:
    """Return a loopback address on which 5432, the embedded server's port, is free."""
    for last in range(77, 250):
        host = f"127.0.0.{last}"
        try:
            with socket.create_server((host, 5432)):
                return host
        except OSError:
            continue
    raise RuntimeError("Port 5432 is taken on every loopback address from 127.0.0.77 on.")


class Loaded:
    """Record of the contestants' stored data, so that it is not stored again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "loaded.json"
        self._facts: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def has(self, name: str, facts: Mapping[str, Any]) -> bool:
        """Return whether data with these facts is stored."""
        return self._facts.get(name) == facts

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts of stored data, or None."""
        found: dict[str, Any] | None = self._facts.get(name)
        return found

    def forget(self, *names: str) -> None:
        """Remove records."""
        for name in names:
            self._facts.pop(name, None)
        self._write()

    def put(self, name: str, facts: Mapping[str, Any]) -> None:
        """Record stored data."""
        self._facts[name] = dict(facts)
        self._write()

    def _write(self) -> None:
        self._path.write_text(json.dumps(self._facts, indent=1))
