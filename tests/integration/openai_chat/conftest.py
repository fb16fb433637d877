"""A server with guides, and an openai client of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    finished_job,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
}
MODEL = "vectorforge/handbook"
ASKED: Any = [{"role": "user", "content": "How long must the dough rise?"}]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, vendor: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    query = QuerySettings(degraded_answers=False)
    config = settings_for(postgres_server.app_url, [tenant], query=query)
    async with live_api(config, provider) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        web = {"source": "https://example.org/bike", "text": "Oil the chain.", "metadata": {"kind": "bike"}}
        posted = await native.post("/v1/collections", json={"name": "web"})
        path = f"/v1/collections/{posted.json()['id']}/documents"
        job = await native.post(path, json={"documents": [{**web, "title": "On [bikes]"}]})
        await finished_job(native, job.json()["id"])
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as opened:
        yield opened


def content_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def streamed(client: AsyncOpenAI, **options: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True, **options)
    return [chunk async for chunk in stream]


async def logged(native: httpx2.AsyncClient, query_id: str) -> dict[str, Any]:
    while True:  # until the server has noticed the disconnect
        row: dict[str, Any] = (await native.get(f"/v1/queries/{query_id}")).json()
        if row.get("outcome", "started") != "started":
            return row
        await asyncio.sleep(0.02)
