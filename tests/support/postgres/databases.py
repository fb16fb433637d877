"""Databases used by a single test or module."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vectorforge.db.schema.migrate import MIGRATIONS, migrate

TEMPLATE = "vectorforge_template"
"""A migrated database of the session's server, without rows."""
_STRATEGY = "STRATEGY FILE_COPY"
"""Takes half the CPU time of writing each block to the WAL, where nothing waits for a disk (fsync off)."""


def create_database(migrator_url: str, *, empty: bool = False, template: str = TEMPLATE) -> str:
    """Create a migrated database, or an ``empty`` one without a schema, and return the migrator's URL.

    Another ``template`` is a database of the same server without connections, which is copied with its rows.
    """
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(make_conninfo(migrator_url, dbname="postgres"), autocommit=True) as connection:
        source = "template1" if empty else template
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {source} {_STRATEGY}".encode())
    return make_conninfo(migrator_url, dbname=name)


def drop_database(url: str) -> None:
    """Drop a database, and end every connection to it."""
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def migrate_before(url: str, file: Path, folder: Path) -> None:
    """Apply the migrations before a file, which are copied to an empty folder."""
    for earlier in MIGRATIONS.glob("*.sql"):
        if earlier.name < file.name:
            shutil.copy(earlier, folder / earlier.name)
    await migrate(url, directory=folder)


@contextmanager
def own_database(migrator_url: str, *, template: str = TEMPLATE) -> Iterator[str]:
    """Create a migrated database, yield the migrator's URL, and drop it at the end of the block."""
    url = create_database(migrator_url, template=template)
    try:
        yield url
    finally:
        drop_database(url)
