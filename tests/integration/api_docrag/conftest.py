"""A server for ``/v1/docrag/query``, its model and its documents."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    finished_job,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.llm.providers.openai import OpenAIProvider

DOCRAG = "/v1/docrag/query"
URL = "https://docs.example/bread"
QUESTION = "How long must the dough rise?"
TEXT = "Let the dough rise for two hours. How long must the dough rise? Two hours."
SAID = {
    "answer": 'Two hours,\nsays "Bread" – at 25 °C 😀.',
    "examples": ["rise(hours=2)"],
    "sources": [URL, "https://invented.example/dough"],
    "confidence": "high",
}


@pytest.fixture
async def api(app_url: str, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(app_url, [tenant]), provider) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        await store(opened, await new_collection(opened))
        yield opened


async def store(client: httpx2.AsyncClient, collection_id: str) -> None:
    documents = [
        {"source": URL, "title": "Bread", "text": TEXT},
        {"source": "https://docs.example/bike", "text": "Oil the chain of the bike after riding."},
    ]
    response = await client.post(f"/v1/collections/{collection_id}/documents", json={"documents": documents})
    job = await finished_job(client, response.json()["id"])
    assert job["status"] == "succeeded", job


async def ask(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(DOCRAG, json={"query": QUESTION, "min_score": 0.3, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def as_json(**changes: Any) -> Reply:
    return Reply(texts=tuple(json.dumps(SAID | changes, ensure_ascii=False)))
