"""A server between model and embedding providers that fail, and its clients."""

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
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour, Failure
from vectorforge.config import LLMSettings, QuerySettings, RerankSettings
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.telemetry import InMemoryMetrics

RAG = "/v1/rag/query"
QUESTION = {"query": "How long must the dough rise?"}
GUIDES = {
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres.\n",
}
BROKEN: list[Behaviour] = [
    Failure(500),
    Failure(503),
    Failure(529),
    Failure(429),
    Failure(429, retry_after="3600"),
    Reply(texts=(), ending="cut"),
]
"""Failures before the first token; faults 2, 3, 7, 8 and 12."""


@dataclass
class Surroundings:
    """Two vendors and a server that uses the first one."""

    first: FakeOpenAI
    second: FakeAnthropic
    embedder: FakeEmbeddingsServer
    api: LiveApi
    client: httpx2.AsyncClient
    tenant: str

    async def ask(self, **body: Any) -> dict[str, Any]:
        response = await self.client.post(RAG, json={**QUESTION, **body})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def stream(self, **body: Any) -> list[ReceivedEvent]:
        return await ask_streaming(self.client, RAG, {**QUESTION, **body})

    async def row(self, query_id: str) -> dict[str, Any]:
        row: dict[str, Any] = (await self.client.get(f"/v1/queries/{query_id.removeprefix('ragq_')}")).json()
        return row

    def counted(self, step: str) -> float:
        return self.metrics.get("pipeline.query.degraded", {"step": step}).total

    @property
    def metrics(self) -> InMemoryMetrics:
        found = self.api.application.metrics
        assert isinstance(found, InMemoryMetrics)
        return found


Start = Callable[..., Any]


@pytest.fixture
async def vendors() -> AsyncIterator[tuple[FakeOpenAI, FakeAnthropic, FakeEmbeddingsServer]]:
    async with (
        FakeOpenAI() as first,
        FakeAnthropic() as second,
        FakeEmbeddingsServer(dimension=64) as embedder,
    ):
        yield first, second, embedder


@pytest.fixture
async def start(
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    vendors: tuple[FakeOpenAI, FakeAnthropic, FakeEmbeddingsServer],
) -> AsyncIterator[Start]:
    """Start a server, optionally with ``fallbacks``, a reranker and settings of queries."""
    first, second, embedder = vendors
    async with AsyncExitStack() as stack:

        async def make(
            fallbacks: tuple[str, ...] = (), url: str = "", rerank: str | None = None, **query: Any
        ) -> Surroundings:
            tenant = make_tenant()
            config = settings_for(
                url or postgres_server.app_url,
                [tenant],
                llm=LLMSettings(llm_fallbacks=list(fallbacks)),
                query=QuerySettings(**query),
                rerank=RerankSettings(rerank_url=rerank, rerank_format="tei"),
            )
            providers = (
                OpenAIProvider(SecretStr(first.api_key), base_url=first.base_url, retries=0),
                AnthropicProvider(
                    SecretStr(second.api_key), base_url=second.base_url, default_model="claude", retries=0
                ),
            )
            api = await stack.enter_async_context(live_api(config, *providers))
            embeddings = api.application.embedding_registry
            embeddings.register(
                OpenAIEmbeddingProvider(
                    name="http", api_key=None, base_url=embedder.base_url, dimension=64, retries=0
                )
            )
            embeddings.set_default("http")
            client = await stack.enter_async_context(api.client(tenant))
            await add_documents(client, await new_collection(client), **GUIDES)
            return Surroundings(first, second, embedder, api, client, tenant)

        yield make
