"""Every example in openapi.json is sent to a running server and accepted."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.aws.fake_aws import FakeAws
from tests.support.http.live_api import add_documents, finished_job, live_api, new_collection, settings_for
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.api.openapi import document
from vectorforge.config import AwsSettings
from vectorforge.local.postgres import EmbeddedPostgres

OPERATIONS = {
    (method.upper(), path): operation
    for path, operations in document()["paths"].items()
    for method, operation in operations.items()
}
EXAMPLES = [
    pytest.param(method, path, example["value"], id=f"{method} {path} {name}")
    for (method, path), operation in OPERATIONS.items()
    for name, example in operation.get("requestBody", {})
    .get("content", {})
    .get("application/json", {})
    .get("examples", {})
    .items()
]
MESSAGE = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
async def client(
    postgres_server: EmbeddedPostgres, tenant: str, fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a tenant's client of a server that offers uploads and a second embedding model."""
    for name, value in fake_aws.environment.items():
        monkeypatch.setenv(name, value)
    config = settings_for(postgres_server.app_url, [tenant], aws=AwsSettings(uploads_bucket="uploads"))
    async with live_api(config) as api, api.client(tenant) as opened:
        opened.headers.update(MESSAGE)
        api.application.embedding_registry.register(HashingEmbedder(name="local", dimension=96))
        yield opened


async def seeded(client: httpx2.AsyncClient) -> dict[str, str]:
    """Fill the default collection, and return the parameters of all paths."""
    collection = await new_collection(client)
    await add_documents(client, collection, refunds="The head of finance approves refunds.")
    [listed] = (await client.get(f"/v1/collections/{collection}/documents")).json()["documents"]
    await client.post("/v1/rag/query", json={"query": "Who approves refunds?"})
    [logged] = (await client.get("/v1/queries")).json()["queries"]
    key = (await client.post("/v1/keys", json={"name": "program"})).json()
    examples = {
        parameter["name"]: str(parameter["example"])
        for operation in OPERATIONS.values()
        for parameter in operation.get("parameters", ())
        if "example" in parameter
    }
    profile = {"text": "Repaired pumps at Acme."}
    await client.post(f"/v1/profiles/{examples['profile_id']}/documents", json=profile)
    conversation = (await client.post("/v1/conversations", json={})).json()
    ids = {"vector_store_id": collection, "knowledge_base_id": collection, "file_id": listed["id"]}
    ids |= {"query_id": logged["id"], "conversation_id": conversation["id"], "key_id": key["id"]}
    return {**examples, **ids}


async def start_switch(client: httpx2.AsyncClient, path: str) -> None:
    """Start a change to the other embedding model, and wait until its vectors are complete."""
    (await client.post(path, json={"embedding_provider": "local"})).raise_for_status()
    async with asyncio.timeout(30):
        while True:
            if (await client.get(path)).json()["state"] == "ready":
                return
            await asyncio.sleep(0.05)


def test_every_json_body_has_an_example() -> None:  # issue 21
    bodies = {
        route
        for route, operation in OPERATIONS.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    assert bodies == {(example.values[0], example.values[1]) for example in EXAMPLES}


def test_every_operation_belongs_to_a_described_group() -> None:  # issue 21
    described = [tag["name"] for tag in document()["tags"] if tag["description"]]
    used = [operation["tags"] for operation in OPERATIONS.values()]
    assert {tag for tags in used for tag in tags} == set(described)
    assert all(len(tags) == 1 for tags in used)
    assert described[:3] == ["query", "search", "documents"]


@pytest.mark.parametrize(("method", "path", "body"), EXAMPLES)
async def test_example_is_accepted(
    client: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any]
) -> None:  # issue 21
    parameters = await seeded(client)
    if path.endswith("/embedding-switch/switch"):
        await start_switch(client, path.removesuffix("/switch").format(**parameters))
    if path.endswith("/file_batches"):  # of files that belong to no vector store yet
        file, purpose = {"file": ("new.md", b"Refunds take five days.")}, {"purpose": "assistants"}
        parameters["file_id"] = (await client.post("/v1/files", files=file, data=purpose)).json()["id"]
    text = json.dumps(body)
    for name in ("file_id", "knowledge_base_id"):
        text = text.replace(f"{{{name}}}", parameters[name])
    filled = json.loads(text)
    response = await client.request(method, path.format(**parameters), json=filled)
    assert response.is_success, response.text
    assert '"isError":true' not in response.text
    if response.status_code == 202 and "documents_total" in response.text:
        assert (await finished_job(client, response.json()["id"]))["status"] == "succeeded"
