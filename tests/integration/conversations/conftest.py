"""A server with guides, and conversations on it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "The kettle boils one litre of water. It takes three minutes.",
    "bread": "The bread rises in a warm place. It takes two hours.",
    "laundry": "The laundry is washed at forty degrees. It takes fifty minutes.",
    "printer": "The printer warms up by itself. It takes half a minute.",
    "sauna": "The sauna is heated with wood. It takes a quarter of an hour.",
}
RAG = "/v1/rag/query"


def provider(openai: FakeOpenAI) -> OpenAIProvider:
    return OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    query = QuerySettings(max_conversations=3, max_conversation_messages=40, degraded_answers=False)
    async with live_api(
        settings_for(postgres_server.app_url, [tenant], query=query), provider(openai)
    ) as running:
        async with running.client(tenant) as client:
            await add_documents(client, await new_collection(client), **GUIDES)
        yield running


async def begin(client: Any, **body: Any) -> str:
    response = await client.post("/v1/conversations", json=body)
    assert response.status_code == 201, response.text
    assert response.headers["Location"] == f"/v1/conversations/{response.json()['id']}"
    return str(response.json()["id"])


async def ask(client: Any, query: str, conversation_id: str | None, **body: Any) -> dict[str, Any]:
    response = await client.post(RAG, json={"query": query, "conversation_id": conversation_id, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def sent(openai: FakeOpenAI, number: int = -1) -> list[tuple[str, str]]:
    """Return roles and contents that the vendor received after the system message."""
    return [(m["role"], m["content"]) for m in openai.requests[number].body["messages"][1:]]
