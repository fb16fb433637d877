"""A server with guides, and boto3 clients of it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.knowledge_bases import KNOWLEDGE_BASE, knowledge_base_client
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    finished_job,
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


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
def stranger(make_tenant: Callable[[], str]) -> str:
    """Return another tenant of the server."""
    return make_tenant()


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, tenant: str, stranger: str, vendor: FakeOpenAI
) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    query = QuerySettings(degraded_answers=False, max_conversations=6)
    config = settings_for(postgres_server.app_url, [tenant, stranger], query=query)
    async with live_api(config, provider) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, KNOWLEDGE_BASE), **GUIDES)
        yield running


@pytest.fixture
def client(api: LiveApi, tenant: str) -> Iterator[Any]:
    with closing(knowledge_base_client(api.url, tenant)) as opened:
        yield opened


async def add_document(api: LiveApi, tenant: str, collection: str, **document: Any) -> None:
    """Ingest one document into a collection, which is created unless it exists."""
    async with api.client(tenant) as native:
        await native.post("/v1/collections", json={"name": collection})
        path = f"/v1/collections/{collection}/documents"
        posted = await native.post(path, json={"documents": [document]})
        job = await finished_job(native, posted.json()["id"])
        assert job["status"] == "succeeded", job
