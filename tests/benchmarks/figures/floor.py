"""Hand-written minimal server for cited answers, the baseline of the service.

Plain ASGI, psycopg and aiohttp. One pipelined transaction searches with row-level security and the
service's index, one request calls the model, and the texts are relayed. No validation, collections,
citations, retries, deadlines, metrics or query log.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import aiohttp
from figures.database import DIMENSION
from pgvector import Vector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.support.vendors.hashing_embedder import hashed_vector

_TOP_K = 5
_NEAREST = f"""
SELECT c.text, d.source FROM (
    SELECT tenant_id, chunk_id, document_id FROM vectorforge.embeddings
    WHERE tenant_id = %(tenant)s AND collection_id = %(collection)s AND space = %(space)s
    ORDER BY embedding::public.vector({DIMENSION}) OPERATOR(public.<=>) %(query)b LIMIT %(top_k)s
) nearest
JOIN vectorforge.chunks c ON c.tenant_id = nearest.tenant_id AND c.id = nearest.chunk_id
JOIN vectorforge.documents d ON d.tenant_id = nearest.tenant_id AND d.id = nearest.document_id
"""


class Floor:
    """Build the ASGI app.

    Args:
        database_url: Connection string of the app role.
        model_url: Base URL of the OpenAI-shaped server.
        key: API key of that server.
        tenant: Tenant of the chunks.
        collection: Collection to search.
    """

    def __init__(self, database_url: str, model_url: str, key: str, tenant: str, collection: UUID) -> None:
        self._database_url = database_url
        self._completions = f"{model_url}/chat/completions"
        self._key = key
        self._scope = {
            "tenant": tenant,
            "collection": collection,
            "space": f"cosine_{DIMENSION}",
            "top_k": _TOP_K,
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request = json.loads(body)
        passages = await self._search(request["query"])
        if request.get("stream"):
            await self._answer_as_stream(request["query"], passages, send)
        else:
            await self._answer_whole(request["query"], passages, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()

        async def configure(connection: AsyncConnection[Any]) -> None:
            await register_vector_async(connection)

        options = {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}
        async with (
            AsyncConnectionPool(
                self._database_url, kwargs=options, configure=configure, min_size=0, max_size=10, open=False
            ) as self._pool,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._key}"}) as self._http,
        ):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _search(self, query: str) -> list[dict[str, Any]]:
        params = {**self._scope, "query": Vector(hashed_vector(query, DIMENSION))}
        async with self._pool.connection() as connection:
            async with connection.pipeline():
                await connection.execute("BEGIN")
                await connection.execute("SELECT vectorforge.enter_search(%s, 200)", (params["tenant"],))
                cursor = await connection.execute(_NEAREST.encode(), params)
                await connection.execute("COMMIT")
            return await cursor.fetchall()

    def _request(self, query: str, passages: list[dict[str, Any]], *, stream: bool) -> Any:
        context = "\n\n".join(f"[Context {n}]\n{row['text']}" for n, row in enumerate(passages, start=1))
        messages = [
            {"role": "system", "content": f"Answer from this context:\n{context}"},
            {"role": "user", "content": query},
        ]
        return self._http.post(
            self._completions, json={"model": "gpt-4o", "messages": messages, "stream": stream}
        )

    async def _answer_whole(self, query: str, passages: list[dict[str, Any]], send: Any) -> None:
        async with self._request(query, passages, stream=False) as response:
            answer = (await response.json())["choices"][0]["message"]["content"]
        context = [{"text": row["text"], "source": row["source"]} for row in passages]
        data = json.dumps({"response": answer, "context": context}).encode()
        await _start(send, b"application/json")
        await send({"type": "http.response.body", "body": data})

    async def _answer_as_stream(self, query: str, passages: list[dict[str, Any]], send: Any) -> None:
        await _start(send, b"text/event-stream")
        sources = [{"text": row["text"], "source": row["source"]} for row in passages]
        await _send_event(send, "sources", {"sources": sources})
        async with self._request(query, passages, stream=True) as response:
            async for text in _texts(response):
                await _send_event(send, "token", {"text": text})
        await _send_event(send, "done", {})
        await send({"type": "http.response.body", "body": b""})


async def _texts(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        data = line.removeprefix(b"data: ").strip()
        chunk = json.loads(data) if data and data != b"[DONE]" else {}
        for choice in chunk.get("choices", ()):
            if text := choice["delta"].get("content"):
                yield text


async def _start(send: Any, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})


async def _send_event(send: Any, name: str, data: dict[str, Any]) -> None:
    event = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
    await send({"type": "http.response.body", "body": event, "more_body": True})
