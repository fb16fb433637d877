"""The documentation, embedded once for all files of this folder."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.quality.documentation import Documentation, ingest
from tests.support.postgres.databases import own_database
from vectorforge.local.postgres import EmbeddedPostgres

TENANT = "tenant-documentation"


@pytest.fixture(scope="session")
def embedded_documentation(postgres_server: EmbeddedPostgres) -> Iterator[Documentation]:
    """Embed the documentation; ``documentation`` copies it."""
    with own_database(postgres_server.migrator_url) as url:
        app_url = make_conninfo(url, user="vectorforge_app")
        yield Documentation(app_url, TENANT, asyncio.run(ingest(app_url, TENANT)))


@pytest.fixture(scope="module")
def documentation(
    postgres_server: EmbeddedPostgres, embedded_documentation: Documentation
) -> Iterator[Documentation]:
    """Copy the database with the documentation for one file, which may add to it."""
    original = str(conninfo_to_dict(embedded_documentation.database_url)["dbname"])
    with own_database(postgres_server.migrator_url, template=original) as url:
        app_url = make_conninfo(url, user="vectorforge_app")
        yield replace(embedded_documentation, database_url=app_url)
