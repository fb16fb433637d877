"""Requests of further routes for ``test_rows_read``; ``rows_read_world`` has the first ones."""

import asyncio
from typing import Any
from uuid import UUID

from tests.integration.rows_read_world import Case, World, get, of_row

PROFILE = {"profile_summary": "Bakes bread."}


def post(path: str, body: dict[str, Any]) -> Case:
    """Return a case with one request; ``{small}`` in a text is the small collection's id."""

    async def case(world: World) -> None:
        filled = {
            key: value.format(small=world.small) if isinstance(value, str) else value
            for key, value in body.items()
        }
        await world.ok("POST", path.format(small=world.small, store=store_of(world.small)), json=filled)

    return case


def store_of(collection_id: str) -> str:
    """Return the id of a collection as a vector store."""
    return f"vs_{UUID(collection_id).hex}"


async def _collection(world: World) -> None:
    made = await world.ok("POST", "/v1/collections", json={"name": f"made-{next(world.numbers)}"})
    path = f"/v1/collections/{made['id']}"
    await world.ok("GET", path)
    await world.ok("PATCH", path, json={"dense_weight": 0.4})


async def _collection_erased(world: World) -> None:
    made = await world.ok("POST", "/v1/collections", json={"name": f"made-{next(world.numbers)}"})
    await world.ok("DELETE", f"/v1/collections/{made['id']}")


async def _embedding_switch(world: World) -> None:
    path = f"/v1/collections/{world.small}/embedding-switch"
    await world.ok("POST", path, json={"dry_run": True})
    for step in ("switch", "rollback", "finish", "cancel"):
        await world.client.post(f"{path}/{step}", json={"skip_comparison": True})  # none is open
    await world.client.get(path)


async def _documents_deleted(world: World) -> None:
    path = f"/v1/collections/{world.small}/documents/delete"
    await world.ok("POST", path, json={"filters": {"kind": "none"}, "dry_run": True})


async def _stored_response(world: World) -> None:
    body = {"model": f"vectorforge/{world.small}", "input": f"why {next(world.numbers)}?", "store": True}
    path = f"/v1/responses/{(await world.ok('POST', '/v1/responses', json=body))['id']}"
    await world.ok("GET", path)
    await world.ok("GET", f"{path}/input_items")
    await world.ok("DELETE", path)


async def _store(world: World) -> None:
    made = await world.ok("POST", "/v1/vector_stores", json={"name": f"store-{next(world.numbers)}"})
    await world.ok("POST", f"/v1/vector_stores/{made['id']}", json={"metadata": {"a": "b"}})


async def _store_deleted(world: World) -> None:
    made = await world.ok("POST", "/v1/vector_stores", json={"name": f"store-{next(world.numbers)}"})
    await world.ok("DELETE", f"/v1/vector_stores/{made['id']}")


async def _stored_file(world: World) -> None:
    file = f"file-{world.id('document').hex}"
    path = f"/v1/vector_stores/{store_of(world.big)}/files/{file}"
    await world.ok("POST", path, json={"attributes": {"a": 1}})
    await world.ok("GET", f"{path}/content")
    await world.ok("GET", f"/v1/files/{file}")


async def _file(world: World) -> str:
    files = {"file": (f"upload-{next(world.numbers)}.md", b"Words.", "text/markdown")}
    made = await world.ok("POST", "/v1/files", data={"purpose": "assistants"}, files=files)
    return str(made["id"])


async def _waiting_file(world: World) -> None:
    path = f"/v1/files/{await _file(world)}"
    await world.ok("GET", f"{path}/content")
    await world.ok("DELETE", path)


async def _file_batch(world: World) -> None:
    base = f"/v1/vector_stores/{store_of(world.big)}/file_batches"
    batch = await world.ok("POST", base, json={"file_ids": [await _file(world)]})
    for _ in range(400):
        if (await world.ok("GET", f"{base}/{batch['id']}"))["status"] != "in_progress":
            break
        await asyncio.sleep(0.05)
    await world.ok("GET", f"{base}/{batch['id']}/files")
    await world.ok("POST", f"{base}/{batch['id']}/cancel")


async def _page_of_files(world: World) -> None:
    after = f"file-{world.id('document').hex}"
    await world.ok("GET", f"/v1/files?limit=5&after={after}")
    await world.ok("GET", f"/v1/vector_stores/{store_of(world.big)}/files?limit=5&order=asc&after={after}")
    await world.ok("GET", f"/v1/vector_stores/{store_of(world.big)}/files?limit=5&filter=completed")


async def _page_of_stores(world: World) -> None:
    await world.ok("GET", f"/v1/vector_stores?limit=5&order=asc&after={store_of(world.small)}")


async def _stored_file_deleted(world: World) -> None:
    file = f"file-{world.id('document').hex}"
    await world.ok("DELETE", f"/v1/vector_stores/{store_of(world.big)}/files/{file}")


async def _key(world: World) -> None:
    made = await world.ok("POST", "/v1/keys", json={"name": "a"})
    rotated = await world.ok("POST", f"/v1/keys/{made['id']}/rotate", json={})
    await world.ok("DELETE", f"/v1/keys/{rotated['id']}")


async def _stopped(world: World) -> None:
    await world.client.post(f"/v1/queries/{world.id('stream')}/stop")


async def _feedback_deleted(world: World) -> None:
    path = f"/v1/queries/{world.id('query')}/feedback"
    await world.ok("POST", path, json={"rating": "up"})
    await world.ok("DELETE", path)


async def _replayed(world: World) -> None:
    await world.ok("POST", "/v1/rag/query", json=world.query())
    newest = (await world.ok("GET", "/v1/queries?limit=1"))["queries"][0]
    await world.ok("GET", f"/v1/queries/{newest['id']}/replay")


async def _profile(world: World) -> None:
    path = f"/v1/profiles/{next(world.numbers)}"
    await world.ok("PUT", path, json=PROFILE)
    await world.ok("POST", path, json=PROFILE)
    await world.ok("POST", f"{path}/documents", json={"text": "CV."})
    await world.ok("POST", f"{path}/search", json={"query": "bread"})
    await world.ok("POST", f"{path}/query", json={"query": "bread?"})


async def _profile_erased(world: World) -> None:
    path = f"/v1/profiles/{next(world.numbers)}"
    await world.ok("PUT", path, json=PROFILE)
    await world.ok("DELETE", path)


def tool(name: str, **arguments: Any) -> Case:
    """Return a call of an MCP tool, by default in the small collection."""

    async def case(world: World) -> None:
        values = {"collection": "small", **arguments}
        if name == "list_collections":
            del values["collection"]
        if "document" in values:
            values |= {"collection": "big", "document": str(world.id("document"))}
        params = {"name": name, "arguments": values}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await world.ok("POST", "/mcp", json=message, headers={"Accept": "application/json"})
        assert not answer["result"].get("isError"), answer

    return case


COMPLETION = {"model": "vectorforge/{small}", "messages": [{"role": "user", "content": "why?"}]}
CHAT = {
    "id": "1",
    "collection": "{small}",
    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "why?"}]}],
}
KNOWLEDGE_BASE = {
    "input": {"text": "why?"},
    "retrieveAndGenerateConfiguration": {
        "type": "KNOWLEDGE_BASE",
        "knowledgeBaseConfiguration": {"knowledgeBaseId": "small", "modelArn": "extractive"},
    },
}
ROUTE_CASES: dict[str, Case] = {
    "page": get("/"),
    "health": get("/health"),
    "providers": get("/v1/providers"),
    "models of a provider": get("/v1/providers/extractive/models"),
    "collection": _collection,
    "collection erased": _collection_erased,
    "documents deleted": _documents_deleted,
    "embedding switch": _embedding_switch,
    "document erased": of_row("DELETE", "/v1/documents/{}", "document"),
    "page image": lambda w: w.client.get(f"/v1/documents/{w.id('document')}/pages/1.png"),
    "conversation renamed": of_row("PATCH", "/v1/conversations/{}", "conversation", json={"title": "x"}),
    "feedback deleted": _feedback_deleted,
    "replay": _replayed,
    "stream stopped": _stopped,
    "erasure": of_row("GET", "/v1/erasures/{}", "erasure"),
    "cache cleared": lambda w: w.ok("DELETE", "/v1/cache"),
    "key rotated": _key,
    "profile": _profile,
    "profile erased": _profile_erased,
    "query of a collection": post("/v1/collections/{small}/query", {"query": "why?"}),
    "docrag query": post("/v1/docrag/query", {"query": "why?", "collection": "{small}"}),
    "chat completion": post("/v1/chat/completions", COMPLETION),
    "models": get("/v1/models"),
    "model": lambda w: w.ok("GET", f"/v1/models/vectorforge/{w.small}"),
    "embeddings": post("/v1/embeddings", {"model": "hashing", "input": "hello"}),
    "stored response": _stored_response,
    "store made": _store,
    "store deleted": _store_deleted,
    "store searched": post("/v1/vector_stores/{store}/search", {"query": "why?"}),
    "file of a store": _stored_file,
    "file of a store erased": _stored_file_deleted,
    "waiting file": _waiting_file,
    "file batch": _file_batch,
    "next page of files": _page_of_files,
    "next page of stores": _page_of_stores,
    "ui chat": post("/api/chat", CHAT),
    "bedrock retrieve": post("/bedrock/knowledgebases/small/retrieve", {"retrievalQuery": {"text": "why?"}}),
    "bedrock answer": post("/bedrock/retrieveAndGenerate", KNOWLEDGE_BASE),
    "bedrock stream": post("/bedrock/retrieveAndGenerateStream", KNOWLEDGE_BASE),
    "tool semantic_search": tool("semantic_search", query="why?"),
    "tool semantic_search_with_context": tool("semantic_search_with_context", query="why?"),
    "tool ask": tool("ask", query="why?"),
    "tool list_collections": tool("list_collections"),
    "tool list_documents": tool("list_documents"),
    "tool read_document": tool("read_document", document=""),
    "tool find_in_document": tool("find_in_document", document="", text="word"),
}
