"""The project's own documentation as a collection, embedded with the local model."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.http.live_api import settings_for
from tests.support.rag.ingested import ingest_part
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.local.laptop import sample_documents
from vectorforge.types import Collection

NOT_INGESTED = re.compile(
    r"/docs/(README|decisions/.*|results/(?!reliability)[^/]*|design/streaming-on-lambda"
    r"|operate/(costs|local-aws|runbook|scaling))\.md$"
)
"""Half of the text, which no query needs: embedding it would take longer than the rest."""

AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class Documentation:
    """A database with the documentation in one collection of one tenant."""

    database_url: str
    """Connection string of the app role."""
    tenant: str
    collection: Collection


async def ingest(database_url: str, tenant: str) -> Collection:
    """Ingest the documentation into a new collection."""
    async with Application.build(settings_for(database_url)) as application:
        services = application.for_tenant(tenant)
        collection = await services.create_collection("documentation")
        places = asyncio.Semaphore(AT_A_TIME)

        async def add(source: str, file: Path) -> None:
            async with places:
                await ingest_file(services, collection, source, file)

        async with asyncio.TaskGroup() as group:
            for source, file in sample_documents():
                if NOT_INGESTED.search(source) is None:
                    group.create_task(add(source, file))
        return collection


async def ingest_file(services: TenantServices, collection: Collection, source: str, file: Path) -> None:
    """Ingest one page."""
    text = await asyncio.to_thread(file.read_bytes)
    for part in await services.ingestion.split(text, source, "text/markdown"):
        result = await ingest_part(services.ingestion, collection, part)
        assert result.status is DocumentStatus.SUCCEEDED, result.error
