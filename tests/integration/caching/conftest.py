"""Servers over one database that cache answers and vectors."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.event_stream import ReceivedEvent
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import CacheSettings, LLMSettings
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"


QUESTION = {"query": "How long must the dough rise?"}


LONG = "Let the dough rise for two hours before baking it."


GUIDES = {
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres.\n",
}


@dataclass
class Process:
    """One server over the shared database, with its own memory."""

    api: LiveApi
    openai: FakeOpenAI
    embedder: FakeEmbeddingsServer

    def client(self, tenant: str) -> httpx2.AsyncClient:
        return self.api.client(tenant)

    def counted(self, name: str, **tags: str) -> float:
        return float(self.api.application.metrics.get(name, tags).total)  # type: ignore[attr-defined]


Start = Callable[..., Any]


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def start(postgres_server: EmbeddedPostgres, tenants: tuple[str, str]) -> AsyncIterator[Start]:
    """Start a server: another process of the same deployment, except for the given cache settings."""
    async with AsyncExitStack() as stack:
        openai = await stack.enter_async_context(FakeOpenAI())
        openai.unscripted = Reply(texts=(LONG,))
        embedder = await stack.enter_async_context(FakeEmbeddingsServer(dimension=64))

        async def make(**cache: Any) -> Process:
            config = settings_for(
                postgres_server.app_url,
                tenants,
                llm=LLMSettings(openai_api_key=SecretStr("sk-canary")),
                cache=CacheSettings(**cache),
            )
            provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
            api = await stack.enter_async_context(live_api(config, provider))
            embeddings = api.application.embedding_registry
            embeddings.register(
                OpenAIEmbeddingProvider(
                    name="http", api_key=None, base_url=embedder.base_url, dimension=64, retries=0
                )
            )
            embeddings.set_default("http")
            return Process(api, openai, embedder)

        yield make


@pytest.fixture
async def process(start: Start) -> Process:
    started: Process = await start()
    return started


@pytest.fixture
async def client(process: Process, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with process.client(tenants[0]) as opened:
        await add_documents(opened, await new_collection(opened), **GUIDES)
        yield opened


async def ask(
    client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **body: Any
) -> dict[str, Any]:
    response = await client.post(RAG, json={**QUESTION, **body}, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def row_of(client: httpx2.AsyncClient, answer: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = (await client.get(f"/v1/queries/{answer['id'].removeprefix('ragq_')}")).json()
    return row


def named(events: list[ReceivedEvent], name: str) -> list[Any]:
    return [event.data for event in events if event.name == name]
