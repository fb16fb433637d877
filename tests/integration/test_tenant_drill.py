"""A canary in one tenant's data, and another tenant with the same names that uses every route and tool.

``test_api_tenants`` tries another tenant's ids, and mostly gets 404. Here Bob has collections, documents,
profiles and conversations of his own, so that every route does its work, over the same words.
"""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult

from tests.integration.tenant_routes import (
    CASES,
    HAS_NO_PLACE_NOW,
    PUBLIC,
    REJECTED,
    SECRET,
    deleted_when,
    fill_in,
    furnish,
)
from tests.support.aws.fake_aws import aws_environment
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.http.mcp_client import mcp_client
from vectorforge.config import AwsSettings
from vectorforge.local.postgres import EmbeddedPostgres

TOOLS: Mapping[str, Mapping[str, Any]] = {
    "semantic_search": {"query": SECRET, "top_k": 20},
    "semantic_search_with_context": {"query": SECRET, "top_k": 20},
    "ask": {"query": SECRET, "top_k": 20},
}
"""MCP tools that search, with arguments that find the caller's canary."""
DOCUMENT_TOOLS: Mapping[str, Mapping[str, str]] = {
    "list_collections": {},
    "list_documents": {"collection": "collection_id"},
    "read_document": {"document": "document_id"},
    "find_in_document": {"document": "document_id"},
}
"""The other MCP tools, with the kinds of ids that they take."""

NAMING: Mapping[str, str] = {
    "collection": "collection_id",
    "collection_id": "collection_id",
    "conversation_id": "conversation_id",
    "conversation": "conversation_id",
    "previous_response_id": "query_id",
    "file_id": "file_id",
    "query_id": "query_id",
}
"""Fields of bodies with an id -> the kind of a tenant's id."""

Route = tuple[str, str]
PAGE_IMAGE: Route = ("GET", "/v1/documents/{document_id}/pages/{page}.png")  # the documents here are text
OTHER_STATUS: Mapping[Route, int] = {
    **dict.fromkeys(HAS_NO_PLACE_NOW, 409),
    ("GET", "/metrics"): 404,
    **REJECTED,
    PAGE_IMAGE: 404,
}
"""Statuses of routes that may fail even with a tenant's own ids."""


@dataclass
class Tenant:
    """A tenant with one of everything."""

    client: httpx2.AsyncClient
    name: str
    ids: dict[str, str]

    def fill(self, value: Any) -> Any:
        """Return a path or a body with the tenant's ids."""
        if isinstance(value, str):
            return fill_in(value, self.ids)
        return {key: self.fill(v) if isinstance(v, str) else v for key, v in value.items()}

    async def request(self, route: Route, body: Mapping[str, Any] | None, **more: Any) -> httpx2.Response:
        """Use a route with the tenant's own ids, and read the response to its end."""
        method, path = route
        sent: dict[str, Any] = {"json": {**self.fill(body), **more}} if body is not None else {}
        query = CASES[route].query if route in CASES else ""
        return await self.client.request(method, self.fill(path + query), **sent)


@dataclass
class Drill:
    """Alice, whose data contain the canary, and Bob."""

    api: LiveApi
    alice: Tenant
    bob: Tenant
    canary: str
    schema: Mapping[str, Any]

    def fields(self, route: Route) -> set[str]:
        """Return the top-level fields of a route's body."""
        operation = self.schema["paths"].get(route[1], {}).get(route[0].lower(), {})
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        return set(self.schema["components"]["schemas"].get(name, {}).get("properties", {}))

    def check(self, response: httpx2.Response, what: object) -> None:
        """Check that no data of Alice is in the body, buffered or streamed, or in a header."""
        text = f"{response.headers.multi_items()}\n{response.text}"
        assert self.canary not in text, what
        sent = f"{response.request.url}{response.request.content!r}"
        hers = {id_ for name, id_ in self.alice.ids.items() if name != "profile_id" and id_ not in sent}
        assert not {id_ for id_ in hers if id_ in text}, what


@pytest.fixture
async def drill(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Drill]:
    for variable, value in aws_environment("http://127.0.0.1:1").items():  # uploads are only signed here
        monkeypatch.setenv(variable, value)
    names = make_tenant(), make_tenant()
    canary = f"canary{uuid.uuid4().hex}"
    config = settings_for(postgres_server.app_url, names, aws=AwsSettings(uploads_bucket="uploads"))
    async with live_api(config) as api, api.client(names[0]) as hers, api.client(names[1]) as his:
        ids = {**await furnish(hers, f"{SECRET} {canary}"), "tenant": names[0]}
        await add_documents(hers, ids["collection_id"], **{canary: f"# {canary}\n\n{SECRET}"})
        await add_documents(hers, await new_collection(hers, canary), **{canary: SECRET})
        alice = Tenant(hers, names[0], ids)
        bob = Tenant(his, names[1], {**await furnish(his, f"{SECRET} harmless"), "tenant": names[1]})
        schema = (await his.get("/openapi.json")).json()
        yield Drill(api, alice, bob, canary, schema)


async def test_routes_show_no_canary_of_other_tenant(drill: Drill) -> None:  # C17, C42, security 4
    """No response to Bob has it; responses to Alice have, so the same walk would show it."""
    for route in PUBLIC:
        drill.check(await drill.bob.request(route, None), route)
    for route in sorted(CASES, key=deleted_when):
        body = CASES[route].body
        streams: list[dict[str, Any]] = [{}, {"stream": True}] if "stream" in drill.fields(route) else [{}]
        for more in streams:
            response = await drill.bob.request(route, body, **more)
            status = response.status_code
            assert status < 300 or status == OTHER_STATUS.get(route), (route, status)
            drill.check(response, (route, more))
    shown = set[Route]()
    for route in sorted(CASES, key=deleted_when):
        if route[0] != "DELETE":
            response = await drill.alice.request(route, CASES[route].body)
            shown |= {route} if drill.canary in response.text else set()
    query_routes = {route for route in CASES if {"query", "messages", "input"} & drill.fields(route)}
    assert query_routes - shown <= {("POST", "/v1/embeddings")}
    assert len(shown) > len(query_routes) + 10


async def test_resource_of_other_tenant_in_body_is_not_found(drill: Drill) -> None:  # C17, C42
    """Bob names Alice's collection, conversation, response or file in each body that has such a field."""
    tried = set[str]()
    for route, case in CASES.items():
        for field in sorted(set(NAMING) & drill.fields(route)):
            for named in {drill.alice.ids[NAMING[field]], drill.canary}:
                for more in ({}, {"stream": True}) if "stream" in drill.fields(route) else ({},):
                    response = await drill.bob.request(route, case.body, **{field: named}, **more)
                    assert 400 <= response.status_code < 500, (route, field, response.text)
                    text = response.text.replace(named, "")
                    assert drill.canary not in text, (route, field)
                    assert SECRET not in text, (route, field)
                    tried.add(field)
    assert tried >= {"collection", "conversation_id", "file_id"}


async def test_mcp_tools_have_a_case(drill: Drill) -> None:
    async with mcp_client(drill.api.url, drill.bob.name) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*TOOLS, *DOCUMENT_TOOLS]


async def called(drill: Drill, tenant: Tenant, tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the result of a tool for a tenant, as JSON."""
    async with mcp_client(drill.api.url, tenant.name) as client:
        result = await client.call_tool(tool, {**arguments})
        assert isinstance(result, CallToolResult)
        return json.dumps(result.model_dump(mode="json"))


@pytest.mark.parametrize("tool", DOCUMENT_TOOLS)
async def test_document_tools_show_nothing_of_other_tenant(drill: Drill, tool: str) -> None:  # C17, C42
    more = {"text": SECRET[:5]} if tool == "find_in_document" else {}

    def of(tenant: Tenant) -> dict[str, Any]:
        return more | {name: tenant.ids[kind] for name, kind in DOCUMENT_TOOLS[tool].items()}

    assert drill.alice.ids["collection_id"] in await called(drill, drill.alice, "list_collections", {})
    own = await called(drill, drill.alice, tool, of(drill.alice))
    assert '"isError": false' in own.replace("is_error", "isError")
    for arguments in (of(drill.bob), of(drill.alice)):
        answer = await called(drill, drill.bob, tool, arguments)
        for given in of(drill.alice).values():
            answer = answer.replace(given, "")
        assert drill.canary not in answer, arguments
        assert not [its for name, its in drill.alice.ids.items() if name != "profile_id" and its in answer]


@pytest.mark.parametrize("tool", TOOLS)
async def test_tools_show_no_canary_of_other_tenant(drill: Drill, tool: str) -> None:  # C17, C42
    async def answered(tenant: Tenant, **more: Any) -> str:
        return await called(drill, tenant, tool, {**TOOLS[tool], **more})

    everywhere: list[dict[str, Any]] = [
        {},
        {"profile_id": int(drill.bob.ids["profile_id"])},
        {"filters": {"kind": drill.canary}},
    ]
    for more in everywhere:
        answer = await answered(drill.bob, **more)
        assert drill.canary not in answer.replace(str(more.get("filters")), ""), more
        assert not [id_ for n, id_ in drill.alice.ids.items() if n != "profile_id" and id_ in answer]
        assert drill.canary in await answered(drill.alice, **more), more
    for collection in (drill.alice.ids["collection_id"], drill.canary):
        answer = (await answered(drill.bob, collection=collection)).replace(collection, "")
        assert drill.canary not in answer
        assert SECRET not in answer
        assert drill.canary in await answered(drill.alice, collection=collection)
