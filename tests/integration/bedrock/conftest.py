"""A server with guides, and boto3 clients of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest
from botocore.config import Config
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
KNOWLEDGE_BASE = "KBHANDBOOK"
MODEL_ARN = "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0"
ASKED = "How long must the dough rise?"


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
    with closing(client_of(api, tenant)) as opened:
        yield opened


def client_of(api: LiveApi, tenant: str, **given: Any) -> Any:
    """Return a boto3 client whose access key id is the tenant's API key."""
    options = {"aws_access_key_id": key_of(tenant), "aws_secret_access_key": "unused", **given}
    return boto3.client(
        "bedrock-agent-runtime",
        region_name="us-east-1",
        endpoint_url=f"{api.url}/bedrock",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=20),
        **options,
    )


async def call(operation: Callable[..., Any], **parameters: Any) -> Any:
    """Call an operation of boto3, which blocks, in a thread."""
    return await asyncio.to_thread(operation, **parameters)


def question(text: str = ASKED, *, search: Any = None, **settings: Any) -> dict[str, Any]:
    """Return the parameters of ``retrieve_and_generate``."""
    chosen = {"knowledgeBaseId": KNOWLEDGE_BASE, "modelArn": MODEL_ARN, **settings}
    if search is not None:
        chosen["retrievalConfiguration"] = {"vectorSearchConfiguration": search}
    configuration = {"type": "KNOWLEDGE_BASE", "knowledgeBaseConfiguration": chosen}
    return {"input": {"text": text}, "retrieveAndGenerateConfiguration": configuration}


async def add_document(api: LiveApi, tenant: str, collection: str, **document: Any) -> None:
    """Ingest one document into a collection, which is created unless it exists."""
    async with api.client(tenant) as native:
        await native.post("/v1/collections", json={"name": collection})
        path = f"/v1/collections/{collection}/documents"
        posted = await native.post(path, json={"documents": [document]})
        job = await finished_job(native, posted.json()["id"])
        assert job["status"] == "succeeded", job
