"""A server with a handbook, and the openai package as its client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import httpx2
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    new_collection,
)
from tests.support.http.shared_server import SharedServer, shared_server
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import QuerySettings
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(postgres_server: EmbeddedPostgres) -> AsyncIterator[SharedServer]:
    strict = QuerySettings(degraded_answers=False)
    async with shared_server(postgres_server.app_url, query=strict) as started:
        yield started


@pytest.fixture
def vendor(server: SharedServer) -> FakeOpenAI:
    server.vendor.reset()
    return server.vendor


@pytest.fixture
def tenant(server: SharedServer) -> str:
    return next(server.tenants)


@pytest_asyncio.fixture(loop_scope="module")
async def api(server: SharedServer, tenant: str, vendor: FakeOpenAI) -> LiveApi:
    """Return the server after ingesting the tenant's handbook."""
    async with server.api.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        await new_collection(native, "empty")
    return server.api


@pytest_asyncio.fixture(loop_scope="module")
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with api.openai(tenant) as opened:
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
