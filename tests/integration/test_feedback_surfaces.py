"""Every API surface returns the id by which its answer can be rated."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import add_documents, ask_streaming, live_api, new_collection, settings_for
from tests.support.http.mcp_client import mcp_client

QUESTION = "How hot is green tea?"
MESSAGES = [{"role": "user", "content": QUESTION}]
PARTS = [{"role": "user", "parts": [{"type": "text", "text": QUESTION}]}]


async def post(client: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def id_of(surface: str, client: httpx2.AsyncClient, collection: str) -> str:
    """Query over a surface, and return the id that its answer has."""
    match surface:
        case "collection":
            return str((await post(client, f"/v1/collections/{collection}/query", query=QUESTION))["id"])
        case "rag":
            return str((await post(client, "/v1/rag/query", query=QUESTION))["id"]).removeprefix("ragq_")
        case "docrag":
            return str((await post(client, "/v1/docrag/query", query=QUESTION))["id"])
        case "stream":
            events = await ask_streaming(client, "/v1/rag/query", {"query": QUESTION})
            return str(events[0].data["request_id"])
        case "chat":
            chat = await post(client, "/v1/chat/completions", model="vectorforge", messages=MESSAGES)
            assert chat["id"] == f"chatcmpl-{chat['vectorforge']['query_id']}"
            return str(chat["vectorforge"]["query_id"])
        case "responses":
            made = await post(client, "/v1/responses", model="vectorforge", input=QUESTION)
            return str(made["vectorforge"]["query_id"])
        case _:
            response = await client.post("/api/chat", json={"messages": PARTS})
            start = json.loads(response.text.splitlines()[0].removeprefix("data:"))
            assert start["messageMetadata"]["requestId"] == start["messageId"]
            return str(start["messageId"])


@pytest.mark.parametrize(
    "surface", ["collection", "rag", "docrag", "stream", "chat", "responses", "ai_sdk", "mcp"]
)
async def test_answer_of_each_surface_is_rated_by_its_id(
    app_url: str, make_tenant: Callable[[], str], surface: str
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, tea="Green tea is brewed at eighty degrees.")
        if surface == "mcp":
            async with mcp_client(api.url, tenant) as mcp:
                result = await mcp.call_tool("ask", {"query": QUESTION})
                query_id = result.structured_content["query_id"]
        else:
            query_id = await id_of(surface, client, collection)
        assert (await post(client, f"/v1/queries/{query_id}/feedback", rating="up"))["query_id"] == query_id
