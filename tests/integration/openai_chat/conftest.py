"""A server with guides, and an openai client of it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    finished_job,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import LLMSettings, QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
}
MODEL = "vectorforge/handbook"
ASKED: Any = [{"role": "user", "content": "How long must the dough rise?"}]


@dataclass(frozen=True, slots=True)
class Served:
    """A server with guides of one tenant, its vendor, and the tenant's client."""

    api: LiveApi
    vendor: FakeOpenAI
    tenant: str
    client: AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_server(postgres_server: EmbeddedPostgres) -> AsyncIterator[Served]:
    tenant = f"tenant-{uuid.uuid4().hex[:12]}"
    async with FakeOpenAI() as vendor:
        provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
        query = QuerySettings(degraded_answers=False)
        unbroken = LLMSettings(llm_circuit_failures=0)  # earlier tests' failures must not suspend calls
        config = settings_for(postgres_server.app_url, [tenant], query=query, llm=unbroken)
        async with live_api(config, provider) as api, api.client(tenant) as native:
            await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
            web = {
                "source": "https://example.org/bike",
                "text": "Oil the chain.",
                "metadata": {"kind": "bike"},
            }
            posted = await native.post("/v1/collections", json={"name": "web"})
            path = f"/v1/collections/{posted.json()['id']}/documents"
            job = await native.post(path, json={"documents": [{**web, "title": "On [bikes]"}]})
            await finished_job(native, job.json()["id"])
            async with api.openai(tenant) as client:
                yield Served(api, vendor, tenant, client)


@pytest_asyncio.fixture(loop_scope="module")
async def server(module_server: Served) -> Served:
    """Return the server, without a request, a script or a cached answer of an earlier test."""
    module_server.vendor.reset()
    await module_server.api.outdate_answers(module_server.tenant)
    return module_server


@pytest.fixture
def api(server: Served) -> LiveApi:
    return server.api


@pytest.fixture
def vendor(server: Served) -> FakeOpenAI:
    return server.vendor


@pytest.fixture
def tenant(server: Served) -> str:
    return server.tenant


@pytest.fixture
def client(server: Served) -> AsyncOpenAI:
    return server.client


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
