"""The baseline: aiohttp, orjson, psycopg in binary; no SDK, no checks, nothing else that a service needs."""

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import numpy as np
import orjson

from peers import job
from peers.contestants.by_hand import Passages, answer, messages


class Contestant:
    """See ``job.Contestant``."""

    def __init__(self) -> None:
        self._place = job.Place.from_environment()
        self._passages = Passages(self._place)

    async def open(self) -> None:
        await self._passages.open()
        headers = {"authorization": f"Bearer {job.API_KEY}", "content-type": "application/json"}
        self._http = aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=64))

    async def close(self) -> None:
        await self._http.close()
        await self._passages.close()

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        async with self._http.post(self._place.model_url + path, data=orjson.dumps(body)) as response:
            response.raise_for_status()
            return orjson.loads(await response.read())

    async def _embed(self, texts: list[str]) -> list[Any]:
        body = {"model": job.EMBEDDING_MODEL, "input": texts, "encoding_format": "base64"}
        data = (await self._post("/embeddings", body))["data"]
        return [np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4") for item in data]

    async def query(self, question: str, category: str) -> job.Answer:
        vector = (await self._embed([question]))[0]
        rows = await self._passages.nearest(vector, category)
        body = {"model": job.CHAT_MODEL, "messages": messages(question, rows)}
        response = await self._post("/chat/completions", body)
        return answer(response["choices"][0]["message"]["content"], rows)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        vector = (await self._embed([question]))[0]
        rows = await self._passages.nearest(vector, category)
        body = orjson.dumps(
            {
                "model": job.CHAT_MODEL,
                "messages": messages(question, rows),
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        async with self._http.post(f"{self._place.model_url}/chat/completions", data=body) as response:
            response.raise_for_status()
            async for text in _deltas(response.content.iter_any()):
                yield text

    async def clear(self) -> None:
        await self._passages.clear()

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        await self._passages.add(chunks, self._embed)

    async def index(self) -> None:
        await self._passages.index()


async def _deltas(blocks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the pieces of text of an event stream that arrives in blocks of any size."""
    rest = b""
    async for block in blocks:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line.startswith(b"data: {"):
                choices = orjson.loads(line[6:])["choices"]
                if choices and (text := choices[0]["delta"].get("content")):
                    yield text
