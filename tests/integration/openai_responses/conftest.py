"""A server with a handbook, and the openai package as its client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import httpx2
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import SecretStr, TypeAdapter

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
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


ASKED = "How long must the dough rise?"


FRESH = {"Cache-Control": "no-cache"}


Events: TypeAlias = list[Any]


EVENT = TypeAdapter[Any](ResponseStreamEvent)


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, vendor: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    config = settings_for(postgres_server.app_url, [tenant], query=QuerySettings(degraded_answers=False))
    async with live_api(config, provider) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        await new_collection(native, "empty")
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as opened:
        yield opened


def valid(response: Response) -> Response:
    """Return the response, validated against the package's types, which the package itself does not do."""
    Response.model_validate(response.to_dict())
    return response


async def events_of(client: AsyncOpenAI, asked: Any = ASKED, **options: Any) -> Events:
    """Return all events of a stream after checking their types and order."""
    stream = await client.responses.create(model=MODEL, input=asked, stream=True, **options)
    events = [event async for event in stream]
    for event in events:
        EVENT.validate_python(event.to_dict())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def annotations_of(response: Response) -> list[dict[str, Any]]:
    message: Any = response.output[-1]
    return [annotation.to_dict() for annotation in message.content[0].annotations]


def cited(response: Response) -> list[tuple[str, str]]:
    """Return (label, file) of each annotation."""
    text = response.output_text
    return [(text[a["index"] : a["end_index"]], a["filename"]) for a in annotations_of(response)]


def search_of(vector_store: str, **options: Any) -> Any:
    return [{"type": "file_search", "vector_store_ids": [vector_store], **options}]


async def logged(native: httpx2.AsyncClient, query_id: str) -> dict[str, Any]:
    while True:  # until the server has noticed the disconnect
        row: dict[str, Any] = (await native.get(f"/v1/queries/{query_id}")).json()
        if row.get("outcome", "started") != "started":
            return row
        await asyncio.sleep(0.02)
