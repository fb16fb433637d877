"""Metadata filters apply on every API surface: excluded chunks are in no answer, buffered or streamed."""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.http.mcp_client import mcp_client
from vectorforge.local.postgres import EmbeddedPostgres

QUESTION = "colour of the vault door"
MESSAGES = [{"role": "user", "content": QUESTION}]
PARTS = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}]
OURS = {"filters": {"kind": "open"}}
OPENAIS = {"filters": {"type": "eq", "key": "kind", "value": "open"}}
PROFILE = 4711
MODEL = "vectorforge/default"


@dataclass(frozen=True)
class Surface:
    """A way to query."""

    path: str
    body: Mapping[str, Any]
    filters: Mapping[str, Any]
    """Additional fields of the body."""


def file_search(**more: Any) -> dict[str, Any]:
    """Return the tools of a request to ``/v1/responses``."""
    return {"tools": [{"type": "file_search", "vector_store_ids": ["default"], **more}]}


RESULTS = {"input": QUESTION, "include": ["file_search_call.results"]}
SURFACES = {
    "search": Surface("/v1/search", {"query": QUESTION}, OURS),
    "rag": Surface("/v1/rag/query", {"query": QUESTION}, OURS),
    "collection": Surface("/v1/collections/{collection_id}/query", {"query": QUESTION}, OURS),
    "docrag": Surface("/v1/docrag/query", {"query": QUESTION}, OURS),
    "profile search": Surface("/v1/profiles/{profile_id}/search", {"query": QUESTION}, OURS),
    "profile": Surface("/v1/profiles/{profile_id}/query", {"query": QUESTION}, OURS),
    "chat completions": Surface(
        "/v1/chat/completions", {"model": MODEL, "messages": MESSAGES, "append_sources": True}, OURS
    ),
    "responses": Surface("/v1/responses", {"model": MODEL, **RESULTS}, OURS),
    "responses, by the tool": Surface(
        "/v1/responses", {"model": "vectorforge", **RESULTS, **file_search()}, file_search(**OPENAIS)
    ),
    "vector store": Surface("/v1/vector_stores/{collection_id}/search", {"query": QUESTION}, OPENAIS),
    "AI SDK": Surface("/api/chat", {"id": "1", "messages": PARTS}, OURS),
}

LISTS = ("/v1/collections/{collection_id}/documents", "/v1/vector_stores/{vector_store_id}/files")
DELETION = "/v1/collections/{collection_id}/documents/delete"
OUR_NOTHING: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": {"$in": []}},
    {"kind": "open", "missing": {"$exists": True}},
    {"$and": [{"kind": "open"}, {"$not": {"kind": {"$contains": "pe"}}}]},
    {"$or": [{"kind.of": "open"}, {"kind": {"$gt": "z"}}]},
]
OPENAI_NOTHING: list[dict[str, Any]] = [
    {"type": "eq", "key": "kind", "value": "none"},
    {"type": "in", "key": "kind", "value": []},
    {
        "type": "and",
        "filters": [
            {"type": "gt", "key": "kind", "value": "open"},
            {"type": "lt", "key": "kind", "value": "p"},
        ],
    },
]


@dataclass
class Vault:
    """A server with two documents of the same words, one of which has the canary."""

    api: LiveApi
    client: httpx2.AsyncClient
    tenant: str
    collection_id: str
    canary: str
    open: str
    """A word of the other document."""

    async def ask(self, surface: Surface, **more: Any) -> str:
        path = surface.path.format(collection_id=self.collection_id, profile_id=PROFILE)
        response = await self.client.post(path, json={**surface.body, **more})
        assert response.status_code == 200, response.text
        return f"{response.headers.multi_items()}\n{response.text}"


@pytest.fixture
async def vault(postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]) -> AsyncIterator[Vault]:
    tenant, canary, word = make_tenant(), f"canary{uuid.uuid4().hex}", f"word{uuid.uuid4().hex}"
    config = settings_for(postgres_server.app_url, [tenant])
    async with live_api(config) as api, api.client(tenant) as client:
        texts = {"sealed": f"{QUESTION} {canary}", "open": f"{QUESTION} {word}"}
        collection_id = await new_collection(client)
        await add_documents(client, collection_id, **texts)
        (await client.post(f"/v1/profiles/{PROFILE}", json={"profile_summary": "Ada."})).raise_for_status()
        for kind, text in texts.items():
            body = {"text": text, "source_id": kind, "metadata": {"kind": kind}}
            (await client.post(f"/v1/profiles/{PROFILE}/documents", json=body)).raise_for_status()
        yield Vault(api, client, tenant, collection_id, canary, word)


@pytest.mark.parametrize("name", SURFACES)
async def test_filter_on_api_surface_applies_to_answer_and_stream(vault: Vault, name: str) -> None:
    surface = SURFACES[name]
    schema = (await vault.client.get("/openapi.json")).json()
    streams: list[dict[str, Any]] = [{}]
    if "stream" in properties(schema, body_of(schema, surface.path), nested=False):
        streams.append({"stream": True})
    for more in streams:
        unfiltered = await vault.ask(surface, **more)
        assert vault.canary in unfiltered  # otherwise the next line would prove nothing
        filtered = await vault.ask(surface, **{**surface.filters, **more})
        assert vault.canary not in filtered, more
        assert vault.open in filtered, more


async def test_filters_of_request_and_tool_are_combined(vault: Vault) -> None:
    surface = SURFACES["responses, by the tool"]
    nothing = await vault.ask(surface, **{**surface.filters, "filters": {"kind": "sealed"}})
    assert vault.canary not in nothing
    assert vault.open not in nothing


@pytest.mark.parametrize("name", SURFACES)
async def test_filter_without_matches_returns_nothing_on_api_surface(vault: Vault, name: str) -> None:  # C18
    """The grammar's operators work on every API surface: none of these matches a document."""
    surface = SURFACES[name]
    ours = "filters" in surface.filters and "type" not in surface.filters["filters"]
    unmatched = OUR_NOTHING if ours else OPENAI_NOTHING
    for filters in unmatched:
        more = {"filters": filters} if "filters" in surface.filters else file_search(filters=filters)
        found = await vault.ask(surface, **more)
        assert vault.canary not in found, filters
        assert vault.open not in found, filters


@pytest.mark.parametrize("name", SURFACES)
async def test_invalid_filter_is_rejected_on_api_surface(vault: Vault, name: str) -> None:
    surface = SURFACES[name]
    path = surface.path.format(collection_id=vault.collection_id, profile_id=PROFILE)
    ours = "filters" in surface.filters and "type" not in surface.filters["filters"]
    wrong = {"kind": {"$near": "open"}} if ours else {"type": "near", "key": "kind", "value": "open"}
    more = {"filters": wrong} if "filters" in surface.filters else file_search(filters=wrong)
    response = await vault.client.post(path, json={**surface.body, **more})
    assert response.status_code in (400, 422), response.text  # OpenAI's paths have 400
    assert "$near" in response.text or "filters" in response.text
    assert vault.canary not in response.text


@pytest.mark.parametrize("path", LISTS)
async def test_filter_applies_to_list_routes(vault: Vault, path: str) -> None:
    path = path.format(collection_id=vault.collection_id, vector_store_id=vault.collection_id)

    async def listed(**params: str) -> str:
        response = await vault.client.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.text

    filters = OPENAIS if "vector_stores" in path else OURS
    everything, filtered = await listed(), await listed(filters=json.dumps(filters["filters"]))
    assert "sealed" in everything
    assert "sealed" not in filtered
    assert "open" in filtered


async def test_filter_applies_to_deletion(vault: Vault) -> None:
    path = DELETION.format(collection_id=vault.collection_id)
    response = await vault.client.post(path, json=OURS)
    assert response.json() == {"matched": 1, "deleted": 1, "remaining": 0, "version": 3}
    left = await vault.ask(SURFACES["search"])
    assert vault.canary in left
    assert vault.open not in left


async def test_filter_applies_to_mcp_tools(vault: Vault) -> None:
    async with mcp_client(vault.api.url, vault.tenant) as client:
        tools = (await client.list_tools()).tools
        searching = [tool.name for tool in tools if "query" in tool.input_schema["properties"]]
        filtering = [tool.name for tool in tools if "filters" in tool.input_schema["properties"]]
        assert filtering == [*searching, "list_documents"]
        for name in searching:
            for place in ({}, {"profile_id": PROFILE}):
                arguments = {"query": QUESTION, **place}
                unfiltered = (await client.call_tool(name, arguments)).model_dump(mode="json")
                filtered = (await client.call_tool(name, {**arguments, **OURS})).model_dump(mode="json")
                assert vault.canary in json.dumps(unfiltered), name
                assert vault.canary not in json.dumps(filtered), name
                assert vault.open in json.dumps(filtered), name


async def test_routes_with_filters_have_a_case(vault: Vault) -> None:
    schema = (await vault.client.get("/openapi.json")).json()
    bodies = {path: body_of(schema, path) for path in schema["paths"]}
    filtering = {path for path, body in bodies.items() if "filters" in properties(schema, body, nested=True)}
    known = {surface.path for surface in SURFACES.values()} | {DELETION}
    store = SURFACES["vector store"].path
    assert filtering == known - {store} | {store.replace("collection_id", "vector_store_id")}
    lists = {path for path, found in schema["paths"].items() if "filters" in parameters(found.get("get", {}))}
    assert lists == set(LISTS)


def body_of(schema: Mapping[str, Any], path: str) -> Any:
    """Return the schema of the request body, or {} without one."""
    post = schema["paths"].get(path.replace("stores/{collection_id}", "stores/{vector_store_id}"), {})
    content = post.get("post", {}).get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("schema", {})


def parameters(operation: Mapping[str, Any]) -> set[str]:
    """Return the names of a request's URL parameters."""
    return {parameter["name"] for parameter in operation.get("parameters", ())}


def properties(schema: Mapping[str, Any], body: Any, *, nested: bool) -> set[str]:
    """Return the names of a body's fields, with ``nested`` also of inner ones."""
    found, seen, waiting = set[str](), set[str](), [body]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                waiting.append(schema["components"]["schemas"][name])
            fields = part.get("properties", {})
            found |= set(fields)
            waiting += list(_inside(part, fields)) if nested else []
    return found


def _inside(part: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[Any]:
    yield from fields.values()
    for keyword in ("anyOf", "oneOf", "allOf", "items", "additionalProperties"):
        if keyword in part:
            yield part[keyword]
