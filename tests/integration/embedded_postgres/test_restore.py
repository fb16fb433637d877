"""Dumps restored into another server, and data folders restored from a copy."""

import shutil
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.support.postgres.embedded import run
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.migrate import migrate, pending
from vectorforge.errors import DatabaseUnavailableError, MigrationError
from vectorforge.local.cluster import binaries
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric


def dump_of(server: EmbeddedPostgres, file: Path) -> Path:
    subprocess.run([binaries(18) / "pg_dump", "-Fc", "-f", file, "--dbname", server.migrator_url], check=True)
    return file


def restore(dump: Path, server: EmbeddedPostgres, name: str) -> str:
    """Restore a dump into a new database, and return the migrator's URL."""
    url = make_conninfo(server.migrator_url, dbname=name)
    run(server, f"CREATE DATABASE {name}")
    subprocess.run([binaries(18) / "pg_restore", "--dbname", url, dump], capture_output=True, check=False)
    return url


async def test_dump_restored_without_roles_is_reported_with_the_remedy(place: Path) -> None:
    first, second = EmbeddedPostgres(place / "a"), EmbeddedPostgres(place / "b")
    first.start()
    await migrate(first.migrator_url)
    options = {"embedding_provider": "local", "embedding_model": "m", "dimension": 3}
    async with Database(first.app_url, pool_size=1) as database:
        await CollectionRepository(database.for_tenant("acme")).create(
            "handbook",
            distance_metric=DistanceMetric.COSINE,
            **options,  # type: ignore[arg-type]
        )
    second.start()
    dump = dump_of(first, place / "dump")
    url = restore(dump, second, "restored")
    for check in (migrate, pending):
        with pytest.raises(MigrationError, match=r"without the roles vectorforge_app, .* empty database"):
            await check(url)
    await migrate(second.migrator_url)  # the remedy
    url = restore(dump, second, "again")
    assert await migrate(url) == []
    async with Database(make_conninfo(url, user="vectorforge_app"), pool_size=1) as database:
        for tenant, names in (("acme", ["handbook"]), ("beta", [])):
            found = await CollectionRepository(database.for_tenant(tenant)).list()
            assert [collection.name for collection in found] == names


def test_damaged_files_are_reported_at_once_and_leave_no_server(place: Path) -> None:
    server = EmbeddedPostgres(place / "data")
    server.start()
    server.stop()
    shutil.rmtree(server.data_dir / "base" / "5")
    with pytest.raises(
        DatabaseUnavailableError, match=r'"postgres" does not exist.*restore .* from a copy.*server\.log'
    ):
        server.start()
    assert server.running_pid() is None
