"""The whole API on a real socket over a real database, with an embedder that needs no model."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import SecretStr

from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.http.live_server import serve
from tests.support.http.tls import NO_AUTHORITIES
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.vendors.resilience import CircuitBreakers

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True, slots=True)
class LiveApi:
    """A running server."""

    url: str
    application: Application

    def client(self, tenant: str | None, **options: Any) -> httpx2.AsyncClient:
        """A client with this tenant's key; None has no key. To be used as a context manager."""
        headers = {} if tenant is None else {"Authorization": f"Bearer {key_of(tenant)}"}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=30, verify=NO_AUTHORITIES, **options
        )

    def openai(self, tenant: str) -> "AsyncOpenAI":
        """A client of the ``openai`` package with this tenant's key."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        http = DefaultAsyncHttpxClient(verify=NO_AUTHORITIES)
        key = key_of(tenant)
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, http_client=http)

    async def outdate_answers(self, tenant: str) -> None:
        """Let no later query find a cached answer of now, for tests that share a server and its documents."""
        db = self.application.database.for_tenant(tenant)
        raised = "UPDATE vectorforge.collections SET data_version = data_version + 1 WHERE tenant_id = %s"
        await db.execute(raised, (tenant,))


def key_of(tenant: str) -> str:
    """The API key of a tenant in these tests."""
    return f"key-of-{tenant}"


def settings_for(
    database_url: str,
    tenants: Sequence[str] = (),
    *,
    pool_size: int = 5,
    server: dict[str, Any] | None = None,
    **sections: Any,
) -> VectorForgeConfig:
    """Settings with these tenants' keys.

    Args:
        database_url: Connection string of the app role.
        tenants: Tenants that have a key.
        pool_size: Connections; twenty times as many requests may wait for one.
        server: Other settings of the server.
        **sections: Other sections.
    """
    keys = {hashlib.sha256(key_of(tenant).encode()).hexdigest(): tenant for tenant in tenants}
    return VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(database_url), database_pool_size=pool_size),
        server=ServerSettings(api_keys=keys, **(server or {})),
        **sections,
    )


def build_application(
    config: VectorForgeConfig, *providers: BaseLLMProvider, database_type: type[Database] = Database
) -> Application:
    """Build an application with lexical vectors; the first provider is the default, else extractive."""
    embedder = HashingEmbedder()
    embedding_registry = EmbeddingProviderRegistry()
    embedding_registry.register(embedder)
    failures, open_s = config.llm.llm_circuit_failures, config.llm.llm_circuit_open_s
    llm_registry = LLMProviderRegistry(breakers=CircuitBreakers(failures=failures, open_s=open_s))
    for provider in providers or (ExtractiveProvider(embed=embedder.embed_documents),):
        llm_registry.register(provider)
    llm_registry.set_fallbacks(config.llm.llm_fallbacks)
    assert config.database.database_url is not None
    database = database_type(
        config.database.database_url.get_secret_value(), pool_size=config.database.database_pool_size
    )
    return Application(
        config, database=database, embedding_registry=embedding_registry, llm_registry=llm_registry
    )


@asynccontextmanager
async def live_api(
    config: VectorForgeConfig, *providers: BaseLLMProvider, database_type: type[Database] = Database
) -> AsyncIterator[LiveApi]:
    """Serve the API with these settings and language models until the end of the block."""
    application = build_application(config, *providers, database_type=database_type)
    async with serve(create_app(application)) as url:
        yield LiveApi(url, application)


async def add_documents(client: httpx2.AsyncClient, collection_id: str, **texts: str) -> dict[str, Any]:
    """Ingest texts as ``<name>.md`` with metadata ``{"kind": name}``; returns the finished job."""
    documents = [
        {"source": f"{name}.md", "text": text, "media_type": "text/markdown", "metadata": {"kind": name}}
        for name, text in texts.items()
    ]
    response = await client.post(f"/v1/collections/{collection_id}/documents", json={"documents": documents})
    response.raise_for_status()
    return await finished_job(client, response.json()["id"])


async def finished_job(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    """Wait until the job is finished, and return it."""
    async with asyncio.timeout(30):
        while True:
            await asyncio.sleep(0.1)  # each request takes CPU time from the job
            job: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}")).json()
            if job["status"] not in ("queued", "running"):
                return job


async def new_collection(client: httpx2.AsyncClient, name: str = "default") -> str:
    """Make a collection; returns its id."""
    response = await client.post("/v1/collections", json={"name": name})
    response.raise_for_status()
    return str(response.json()["id"])


async def ask_streaming(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> list[ReceivedEvent]:
    """Query with streaming; return all events after checking their order."""
    async with client.stream("POST", path, json={**body, "stream": True}) as response:
        response.raise_for_status()
        events = [event async for event in read_events(response.aiter_lines())]
    check_order(events)
    return events
