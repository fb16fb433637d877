"""Every route with a request for it, and a tenant whose data another one must not see."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from tests.support.aws.fake_aws import aws_environment
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.api.openapi import create_routes
from vectorforge.config import AwsSettings

SECRET = "alice-only-passage"
DOCUMENTS = {"documents": [{"source": "b.md", "text": "From Bob."}]}
QUESTION = {"query": SECRET}
CHAT = {"id": "1", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": SECRET}]}]}
COMPLETION = {"model": "vectorforge/default", "messages": [{"role": "user", "content": SECRET}]}
PROFILE = "7002600330044"
KNOWLEDGE_BASE = {
    "input": {"text": SECRET},
    "retrieveAndGenerateConfiguration": {
        "type": "KNOWLEDGE_BASE",
        "knowledgeBaseConfiguration": {"knowledgeBaseId": "default", "modelArn": "extractive"},
    },
}


@dataclass(frozen=True)
class Case:
    """Expected response when Bob uses Alice's ids."""

    status: int
    body: dict[str, Any] | None = None
    query: str = ""
    """Parameters of the path."""
    empty: tuple[str, ...] = field(default=())
    """Lists of the response that must be empty."""


# An agent's message, whose tool finds Alice's chunk in her default collection.
TOOL_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "semantic_search", "arguments": QUESTION},
}


# (method, path) -> case. Public routes have no tenant data.
PUBLIC = {(method, path) for method in ("GET", "HEAD") for path in ("/", "/health", "/openapi.json")}


PUBLIC |= {(method, path) for method in ("GET", "HEAD") for path in ("/statistics", "/source", "/docs")}
CASES: dict[tuple[str, str], Case] = {
    ("GET", "/v1/providers"): Case(200),
    ("GET", "/v1/providers/{name}/models"): Case(200),  # the deployment's, not a tenant's
    ("GET", "/v1/erasures"): Case(200, empty=("erasures",)),
    ("GET", "/v1/erasures/{erasure_id}"): Case(404),
    ("DELETE", "/v1/tenant"): Case(422, query="?confirm={tenant}"),  # another collection's name
    ("GET", "/v1/collections"): Case(200, empty=("collections",)),
    ("POST", "/v1/collections"): Case(201, {"name": "default"}),  # Alice's name
    ("GET", "/v1/collections/{collection_id}"): Case(404),
    ("PATCH", "/v1/collections/{collection_id}"): Case(404, {"dense_weight": 0}),
    ("DELETE", "/v1/collections/{collection_id}"): Case(404),
    ("GET", "/v1/collections/{collection_id}/documents"): Case(404),
    ("POST", "/v1/collections/{collection_id}/documents"): Case(404, DOCUMENTS),
    ("POST", "/v1/collections/{collection_id}/documents/delete"): Case(
        404, {"filters": {"kind": "secret"}, "dry_run": True}
    ),
    ("POST", "/v1/collections/{collection_id}/uploads"): Case(404, {"path": "a.txt"}),
    ("POST", "/v1/collections/{collection_id}/query"): Case(404, QUESTION),
    ("POST", "/v1/collections/{collection_id}/embedding-switch"): Case(404, {"dry_run": False}),
    ("GET", "/v1/collections/{collection_id}/embedding-switch"): Case(404),
    ("POST", "/v1/collections/{collection_id}/embedding-switch/switch"): Case(404, {"skip_comparison": True}),
    ("POST", "/v1/collections/{collection_id}/embedding-switch/rollback"): Case(404),
    ("POST", "/v1/collections/{collection_id}/embedding-switch/finish"): Case(404),
    ("POST", "/v1/collections/{collection_id}/embedding-switch/cancel"): Case(404),
    ("GET", "/v1/documents/{document_id}"): Case(404),
    ("DELETE", "/v1/documents/{document_id}"): Case(404),
    ("GET", "/v1/documents/{document_id}/text"): Case(404),
    ("GET", "/v1/documents/{document_id}/original"): Case(404),
    ("GET", "/v1/documents/{document_id}/pages/{page}.png"): Case(404),
    ("GET", "/v1/documents/{document_id}/chunks"): Case(404),
    ("GET", "/v1/chunks/{chunk_id}"): Case(404),
    ("GET", "/v1/jobs"): Case(200, empty=("jobs",)),
    ("GET", "/v1/jobs/{job_id}"): Case(404),
    ("POST", "/v1/search"): Case(404, QUESTION),
    ("POST", "/v1/rag/query"): Case(404, QUESTION),
    ("POST", "/v1/chat/completions"): Case(404, COMPLETION),
    ("GET", "/v1/models"): Case(200, empty=("data",)),
    ("GET", "/v1/models/{model:path}"): Case(404),
    ("POST", "/v1/embeddings"): Case(200, {"model": "hashing", "input": "hello"}),  # without documents
    ("POST", "/api/chat"): Case(404, CHAT),
    ("POST", "/bedrock/knowledgebases/{knowledge_base_id:path}/retrieve"): Case(
        404, {"retrievalQuery": {"text": SECRET}}
    ),
    ("POST", "/bedrock/retrieveAndGenerate"): Case(404, KNOWLEDGE_BASE),
    ("POST", "/bedrock/retrieveAndGenerateStream"): Case(404, KNOWLEDGE_BASE),
    ("GET", "/v1/cache"): Case(200),
    ("DELETE", "/v1/cache"): Case(200),
    ("POST", "/v1/docrag/query"): Case(404, QUESTION),
    ("GET", "/v1/queries"): Case(200, empty=("queries",)),
    ("GET", "/v1/queries/{query_id}"): Case(404),
    ("GET", "/v1/queries/{query_id}/events"): Case(404),
    ("POST", "/v1/queries/{query_id}/stop"): Case(404),
    ("GET", "/v1/queries/{query_id}/feedback"): Case(404),
    ("GET", "/v1/queries/{query_id}/replay"): Case(404),
    ("POST", "/v1/queries/{query_id}/feedback"): Case(404, {"rating": "down"}),
    ("DELETE", "/v1/queries/{query_id}/feedback"): Case(404),
    ("GET", "/v1/conversations"): Case(200, empty=("conversations",)),
    ("POST", "/v1/conversations"): Case(201, {"title": "Bob's"}),
    ("GET", "/v1/conversations/{conversation_id}"): Case(404),
    ("PATCH", "/v1/conversations/{conversation_id}"): Case(404, {"title": "Bob's"}),
    ("DELETE", "/v1/conversations/{conversation_id}"): Case(404),
    ("POST", "/v1/responses"): Case(404, {"model": "vectorforge", "input": SECRET}),
    ("GET", "/v1/responses/{response_id}"): Case(404),
    ("GET", "/v1/responses/{response_id}/input_items"): Case(404),
    ("DELETE", "/v1/responses/{response_id}"): Case(404),
    ("GET", "/v1/vector_stores"): Case(200, empty=("data",)),
    ("POST", "/v1/vector_stores"): Case(200, {"name": "store"}),
    ("GET", "/v1/vector_stores/{vector_store_id}"): Case(404),
    ("DELETE", "/v1/vector_stores/{vector_store_id}"): Case(404),
    ("POST", "/v1/vector_stores/{vector_store_id}/search"): Case(404, QUESTION),
    ("GET", "/v1/vector_stores/{vector_store_id}/files"): Case(404),
    ("POST", "/v1/vector_stores/{vector_store_id}/files"): Case(404, {"file_id": "{file_id}"}),
    ("GET", "/v1/vector_stores/{vector_store_id}/files/{file_id}"): Case(404),
    ("DELETE", "/v1/vector_stores/{vector_store_id}/files/{file_id}"): Case(404),
    ("GET", "/v1/vector_stores/{vector_store_id}/files/{file_id}/content"): Case(404),
    ("POST", "/v1/vector_stores/{vector_store_id}"): Case(404, {"metadata": {"team": "Bob's"}}),
    ("POST", "/v1/vector_stores/{vector_store_id}/files/{file_id}"): Case(404, {"attributes": {"n": 1}}),
    ("POST", "/v1/vector_stores/{vector_store_id}/file_batches"): Case(404, {"file_ids": ["file-1"]}),
    ("GET", "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}"): Case(404),
    ("GET", "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/files"): Case(404),
    ("POST", "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel"): Case(404),
    ("GET", "/v1/files"): Case(200, empty=("data",)),
    ("POST", "/v1/files"): Case(415, {"purpose": "assistants"}),
    ("GET", "/v1/files/{file_id}"): Case(404),
    ("GET", "/v1/files/{file_id}/content"): Case(404),
    ("DELETE", "/v1/files/{file_id}"): Case(404),
    # Bob may have a profile of the same number; until he does, there is nothing.
    ("POST", "/v1/profiles/{profile_id}/search"): Case(404, QUESTION),
    ("POST", "/v1/profiles/{profile_id}/query"): Case(404, QUESTION),
    ("DELETE", "/v1/profiles/{profile_id}"): Case(404),
    ("POST", "/v1/profiles/{profile_id}"): Case(200, {"profile_summary": "From Bob."}),
    ("PUT", "/v1/profiles/{profile_id}"): Case(200, {"profile_summary": "Bob again."}),
    ("POST", "/v1/profiles/{profile_id}/documents"): Case(200, {"text": "Bob's CV."}),
    ("GET", "/v1/stats"): Case(200, empty=("models", "variants", "collections")),
    ("GET", "/v1/stats/usage"): Case(200, empty=("usage",)),
    ("POST", "/mcp"): Case(200, TOOL_CALL),  # tests/integration/mcp_http/test_mcp.py has every tool
    ("POST", "/mcp/"): Case(200, TOOL_CALL),
    ("GET", "/metrics"): Case(404),  # of all tenants
    ("GET", "/v1/keys"): Case(200, empty=("keys",)),
    ("POST", "/v1/keys"): Case(201, {"name": "Bob's"}),
    ("POST", "/v1/keys/{key_id}/rotate"): Case(404),
    ("DELETE", "/v1/keys/{key_id}"): Case(404),
}
REJECTED = {
    ("POST", "/v1/files"): 415,  # a form is required
    ("DELETE", "/v1/files/{file_id}"): 404,  # deleted by the route of its vector store
    ("POST", "/v1/vector_stores/{vector_store_id}/file_batches"): 400,  # no such file
}
"""Statuses of requests that are not even valid for their own tenant."""
ROUTES = [
    (method, route.path)
    for route in iter_route_contexts(create_routes().routes)
    for method in route.methods or ()
]


# Changes of stored data call no model.
COSTS_NOTHING = {
    *(route for route in CASES if route[0] in ("GET", "DELETE") and not route[1].endswith(".png")),
    ("PATCH", "/v1/collections/{collection_id}"),
    ("POST", "/v1/collections/{collection_id}/documents/delete"),
    *(
        ("POST", f"/v1/collections/{{collection_id}}/embedding-switch/{step}")
        for step in ("rollback", "finish", "cancel")
    ),
    ("POST", "/v1/conversations"),
    ("PATCH", "/v1/conversations/{conversation_id}"),
    ("POST", "/v1/keys"),
    ("POST", "/v1/keys/{key_id}/rotate"),
    ("POST", "/v1/queries/{query_id}/stop"),
    ("POST", "/v1/queries/{query_id}/feedback"),
    ("POST", "/v1/vector_stores/{vector_store_id}"),
    ("POST", "/v1/vector_stores/{vector_store_id}/files/{file_id}"),
    ("POST", "/v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel"),
}


def fill_in(path: str, ids: Mapping[str, str]) -> str:
    """Return a path, or another text, with these ids."""
    path = path.replace("{model:path}", f"vectorforge/{ids['collection_id']}")
    path = path.replace("{knowledge_base_id:path}", ids["collection_id"])
    return path.format(**ids, name="extractive", page=1)


@dataclass
class Alice:
    """Alice's server, and the ids of her objects."""

    api: LiveApi
    name: str
    bob: str
    ids: dict[str, str]

    def fill(self, path: str) -> str:
        return fill_in(path, self.ids)

    def fill_body(self, case: Case) -> dict[str, Any] | None:
        """Return the body with her ids."""
        return case.body and {
            name: self.fill(value) if isinstance(value, str) else value for name, value in case.body.items()
        }


async def furnish(client: httpx2.AsyncClient, secret: str) -> dict[str, str]:
    """Create one of everything for a tenant, with this text; return the ids for the routes."""
    collection_id = await new_collection(client)
    job = await add_documents(client, collection_id, secret=secret)
    conversation = (await client.post("/v1/conversations", json={"title": secret})).json()
    query_body = {**QUESTION, "conversation_id": conversation["id"]}
    answer = (await client.post("/v1/rag/query", json=query_body)).json()
    (entry,) = answer["context"]
    resumable = await ask_streaming(client, "/v1/rag/query", {**QUESTION, "resumable": True})
    (await client.post(f"/v1/profiles/{PROFILE}", json={"profile_summary": secret})).raise_for_status()
    key = (await client.post("/v1/keys", json={"name": secret})).json()
    erased = await client.delete(f"/v1/collections/{await new_collection(client, 'erased')}")
    store_id = await new_collection(client, "another")  # to be deleted in addition to the first one
    batch = await add_documents(client, store_id, secret=secret)
    stored = {"model": "vectorforge/another", "input": secret, "store": True}
    response = (await client.post("/v1/responses", json=stored)).json()
    return {
        "response_id": response["id"],
        "vector_store_id": f"vs_{UUID(store_id).hex}",
        "file_id": f"file-{UUID(batch['documents'][0]['document_id']).hex}",
        "batch_id": f"vsfb_{UUID(batch['id']).hex}",
        "collection_id": collection_id,
        "document_id": entry["document_id"],
        "chunk_id": entry["chunk_id"],
        "job_id": job["id"],
        "query_id": resumable[0].data["request_id"],
        "profile_id": PROFILE,
        "conversation_id": conversation["id"],
        "key_id": key["id"],
        "erasure_id": erased.json()["id"],
    }


@asynccontextmanager
async def furnished(app_url: str, name: str, bob: str, *others: str) -> AsyncIterator[Alice]:
    """Start a server with one of everything of Alice; Bob and the others have only keys."""
    config = settings_for(
        app_url,
        [name, bob, *others],
        server={"local_tenant": name},
        aws=AwsSettings(uploads_bucket="uploads"),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        for variable, value in aws_environment("http://127.0.0.1:1").items():  # uploads are only signed here
            monkeypatch.setenv(variable, value)
        async with live_api(config) as api, api.client(name) as client:
            ids = {**await furnish(client, SECRET), "tenant": name}
            yield Alice(api, name, bob, ids)


@pytest.fixture
async def alice(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Alice]:
    async with furnished(app_url, make_tenant(), make_tenant()) as started:
        yield started


async def request(client: httpx2.AsyncClient, method: str, path: str, body: Any) -> httpx2.Response:
    return await client.request(method, path, json=body) if body else await client.request(method, path)


def deleted_when(route: tuple[str, str]) -> tuple[int, ...]:
    """Return a sort key: deletions last, and containers after their contents."""
    method, path = route
    if path == "/v1/tenant":
        return (2,)
    return (1, path.count("collection"), -path.count("/")) if method == "DELETE" else (0,)


# A name in use, and steps of a model change that has only begun.
HAS_NO_PLACE_NOW = {
    ("POST", "/v1/collections"),
    *(
        ("POST", f"/v1/collections/{{collection_id}}/embedding-switch/{step}")
        for step in ("switch", "rollback", "finish")
    ),
}


def code_of(response: httpx2.Response) -> str:
    """Return the error's code, which OpenAI's paths nest one level deeper, and JSON-RPC two."""
    body = response.json()
    error = body.get("error", body)
    return str(error.get("data", error)["code"])
