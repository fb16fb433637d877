"""One object of every kind in a running server, so that requests find existing objects."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.fuzz.api_server import ApiServer, headers_of
from tests.support.formats.pdfs import hyphenated
from tests.support.http.live_api import add_documents, ask_streaming, finished_job, new_collection

_QUESTION = {"query": "How long does a refund take?"}
_TEXT = "A refund takes five working days. Opened goods are exchanged."
_NAMES = ("default", "store")
_STEPS = {"switch": False, "rollback": True, "finish": True, "cancel": False}
"""Each next step of an open change of the embedding model, and whether the change must be switched for it.
Each has its own collection, since one step leaves nothing to do for the others."""
_SWITCH = "/v1/collections/{collection_id}/embedding-switch"
_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Furniture:
    """Existing ids by their names in paths, queries and bodies."""

    ids: Mapping[str, Any]
    of_operations: Mapping[str, Mapping[str, Any]]
    """Ids by name for single operations."""
    reader: Mapping[str, str]
    """Headers of a read-only key."""

    def known_to(self, operation: str) -> Mapping[str, Any]:
        """Return the ids by name for an operation ("GET /v1/jobs")."""
        return {**self.ids, **self.of_operations.get(operation, {})}


async def furnish(server: ApiServer) -> Furniture:
    """Create a new object of every kind for the tenant; existing ones stay."""
    async with httpx2.AsyncClient(base_url=server.url, headers=server.headers, timeout=30) as client:
        for left in (await client.get("/v1/collections")).json()["collections"]:
            if left["name"] in (*_NAMES, *_STEPS):
                await client.delete(f"/v1/collections/{left['id']}")
        collection, store = [await new_collection(client, name) for name in _NAMES]
        jobs = [
            await add_documents(client, one, first=_TEXT, second="Another.") for one in (collection, store)
        ]
        ids = await _query_and_results(client, collection, jobs[0]["id"])
        ids |= {"vector_store_id": store, "file_id": jobs[1]["documents"][0]["document_id"]}
        ids |= {"batch_id": jobs[1]["id"]}
        # Not from the first collection: the answer would be erased with it.
        ids |= await _profile_and_key(client, jobs[1]["documents"][1]["document_id"])
        changes = {step: await _changing(client, step, switched=wanted) for step, wanted in _STEPS.items()}
        files = await _waiting_files_and_pdf(client, collection)
        page = (await client.get("/v1/queries", params={"limit": 1})).json()
        made = (await client.post("/v1/keys", json={"name": "reader", "scope": "read"})).json()
    await _stock(server)
    own = _names_of_operations(ids, changes, page["next"], server.spare) | files
    return Furniture(ids, own, {"Authorization": f"Bearer {made.get('key', 'none')}"})


async def _query_and_results(client: httpx2.AsyncClient, collection: str, job: str) -> dict[str, Any]:
    """Send a query; return the ids of the query and its results."""
    conversation = (await client.post("/v1/conversations", json={"title": "Refunds"})).json()["id"]
    answer = (await client.post("/v1/rag/query", json={**_QUESTION, "conversation_id": conversation})).json()
    resumable = await ask_streaming(client, "/v1/rag/query", {**_QUESTION, "resumable": True})
    body = {"model": f"vectorforge/{collection}", "input": _QUESTION["query"], "store": True}
    stored = (await client.post("/v1/responses", json=body)).json()
    passage = answer["context"][0]
    return {
        "collection_id": collection,
        "collection": collection,
        "conversation_id": conversation,
        "document_id": passage["document_id"],
        "chunk_id": passage["chunk_id"],
        "query_id": resumable[0].data["request_id"],
        "job_id": job,
        "response_id": stored["id"],
    }


async def _waiting_files_and_pdf(client: httpx2.AsyncClient, collection: str) -> dict[str, dict[str, Any]]:
    """Upload two files that are in no vector store, and a PDF; return the ids for the operations on them."""
    upload = {"file": ("a.md", _TEXT.encode(), "text/markdown")}
    waiting, unwanted = [
        (await client.post("/v1/files", data={"purpose": "assistants"}, files=upload)).json()["id"]
        for _ in range(2)
    ]
    pdf = ("files", ("a.pdf", hyphenated(1).content, "application/pdf"))
    job = (await client.post(f"/v1/collections/{collection}/documents", files=[pdf])).json()
    [document] = (await finished_job(client, job["id"]))["documents"]
    return {
        "POST /v1/vector_stores/{vector_store_id}/file_batches": {"file_id": waiting},
        "DELETE /v1/files/{file_id}": {"file_id": unwanted},
        "GET /v1/documents/{document_id}/pages/{page}.png": {
            "document_id": document["document_id"],
            "page": 1,
        },
    }


async def _profile_and_key(client: httpx2.AsyncClient, document: str) -> dict[str, Any]:
    """Create a profile, a key, and the erasure of a document; return their ids."""
    await client.post("/v1/profiles/7", json={"profile_summary": _TEXT})
    key = (await client.post("/v1/keys", json={"name": "fuzz"})).json()  # at most 1,000 per tenant
    erasure = (await client.delete(f"/v1/documents/{document}")).json()
    return {"profile_id": 7, "key_id": key.get("id", "none"), "erasure_id": erasure["id"]}


async def _changing(client: httpx2.AsyncClient, name: str, *, switched: bool) -> str:
    """Create a collection with a change of its model that can be switched, or is."""
    collection = await new_collection(client, name)
    await add_documents(client, collection, first=_TEXT)
    path = f"/v1/collections/{collection}/embedding-switch"
    (await client.post(path, json={"embedding_provider": "other"})).raise_for_status()
    async with asyncio.timeout(_WAIT_S):
        while True:
            if (await client.get(path)).json()["state"] != "filling":
                break
            await asyncio.sleep(0.05)
    if switched:
        (await client.post(f"{path}/switch", json={"skip_comparison": True})).raise_for_status()
    return collection


async def _stock(server: ApiServer) -> None:
    """Create data for the tenant to be erased; it may be locked for a moment."""
    async with httpx2.AsyncClient(
        base_url=server.url, headers=headers_of(server.spare), timeout=30
    ) as client:
        give_up_at = time.monotonic() + _WAIT_S
        while (found := await client.get("/v1/collections")).status_code == 409:
            if time.monotonic() > give_up_at:
                erasures = (await client.get("/v1/erasures")).text
                raise RuntimeError(f"The tenant is closed for more than {_WAIT_S} s: {erasures}")
            await asyncio.sleep(0.05)
        if not found.json()["collections"]:
            await add_documents(client, await new_collection(client), first=_TEXT)


def _names_of_operations(
    ids: Mapping[str, Any], changes: Mapping[str, str], after: str | None, spare: str
) -> dict[str, dict[str, Any]]:
    answers = {"model": f"vectorforge/{ids['collection']}"}
    condition, attributes = {"kind": "first"}, {"type": "eq", "key": "kind", "value": "first"}
    files = "/v1/vector_stores/{vector_store_id}/files"
    return {
        "GET /v1/providers/{name}/models": {"name": "extractive"},
        f"GET {_SWITCH}": {"collection_id": changes["switch"]},
        **{f"POST {_SWITCH}/{step}": {"collection_id": one} for step, one in changes.items()},
        "GET /v1/models/{model}": answers,
        "POST /v1/chat/completions": answers,
        "POST /v1/responses": answers,
        "POST /bedrock/knowledgebases/{knowledge_base_id}/retrieve": {"knowledge_base_id": ids["collection"]},
        "POST /v1/embeddings": {"model": "hashing"},
        "GET /v1/queries": {"after": after, "offset": 0},
        "GET /v1/vector_stores": {"after": ids["vector_store_id"]},
        "GET /v1/collections/{collection_id}/documents": {"filters": json.dumps(condition)},
        f"GET {files}": {"after": ids["file_id"], "filters": json.dumps(attributes)},
        "GET /v1/queries/{query_id}/events": {"last_event_id": "1", "Last-Event-ID": "1"},
        "DELETE /v1/tenant": {"confirm": spare},
    }
