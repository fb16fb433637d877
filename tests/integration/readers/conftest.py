"""Applications whose searches a physical standby answers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias
from uuid import UUID

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import build_application
from tests.support.postgres.standby import Replicated, Standby
from tests.support.rag.drafts import chunk_drafts, document_draft
from tests.support.vendors.hashing_embedder import hashed_vector
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.retriever.base import RetrievedChunks
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.types import SearchMode

OpenApplication: TypeAlias = Callable[..., Awaitable[Application]]


def searches(application: Application, outcome: str) -> float:
    """Return the number of searches of replicas with this outcome."""
    metrics = application.metrics
    assert isinstance(metrics, InMemoryMetrics)
    return metrics.get("database.reader.searches", {"outcome": outcome}).total


async def write(services: TenantServices, collection_id: UUID, number: int) -> int:
    """Store the document of a number; return the collection's version."""
    chunks = chunk_drafts([f"word{number}"], [hashed_vector(f"word{number}")])
    draft = document_draft(chunks, source=f"{number}.md")
    await services.vector_store.replace_document(collection_id, draft, chunks)
    version = await services.collections.version(collection_id)
    assert version is not None
    return version


async def find(
    services: TenantServices, collection_id: UUID, number: int, min_version: int | None = None
) -> RetrievedChunks:
    return await services.retriever.retrieve(
        f"word{number}", collection_id, 1, search_mode=SearchMode.LEXICAL, min_version=min_version
    )


async def new_collection(application: Application, tenant: str) -> UUID:
    return (await application.for_tenant(tenant).create_collection("c")).id


@pytest.fixture
async def open_application(replicated: Replicated) -> AsyncIterator[OpenApplication]:
    """Open applications, by default with the standby as their reader, which is open."""
    async with AsyncExitStack() as stack:

        async def open_one(*, reader: str | None = replicated.standby.host, **settings: Any) -> Application:
            url = SecretStr(replicated.writer.app_url)
            database = DatabaseSettings(database_url=url, database_reader_host=reader, **settings)
            application = build_application(
                VectorForgeConfig(database=database), ScriptedLLM(["word1 [Source 1]"])
            )
            await stack.enter_async_context(application)
            if reader == replicated.standby.host:
                replicated.catch_up()
                assert application.shared.reader is not None
                application.shared.reader.pause_s = 0.1
                await application.shared.reader.open()
            return application

        yield open_one


@pytest.fixture
def lagging(replicated: Replicated) -> Iterator[Standby]:
    """Let the standby replay each commit 15 ms later: the second attempt of a search suffices."""
    replicated.standby.delay(15)
    yield replicated.standby
    replicated.standby.delay(0)
