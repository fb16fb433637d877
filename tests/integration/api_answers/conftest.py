"""A server with guides and a model, and its clients."""

from collections.abc import AsyncIterator
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
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres and after riding in the rain.\n",
}


@pytest.fixture
async def api(app_url: str, tenant: str) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(app_url, [tenant])) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        yield opened


@pytest.fixture
async def model_api(
    postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI
) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(postgres_server.app_url, [tenant]), provider) as running:
        yield running


@pytest.fixture
async def model_client(model_api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with model_api.client(tenant) as opened:
        await add_documents(opened, await new_collection(opened), **GUIDES)
        yield opened


async def ask(client: httpx2.AsyncClient, path: str = RAG, **body: Any) -> dict[str, Any]:
    response = await client.post(path, json={"query": "How long must the dough rise?", **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def texts(events: list[ReceivedEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "token")
