"""Typical code without a framework: OpenAI's SDK as in its documentation, and psycopg."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from openai import AsyncOpenAI

from peers import job
from peers.contestants.by_hand import Passages, answer, messages


class Contestant:
    """See ``job.Contestant``."""

    def __init__(self) -> None:
        self._place = job.Place.from_environment()
        self._passages = Passages(self._place)

    async def open(self) -> None:
        await self._passages.open()
        self._client: Any = AsyncOpenAI(base_url=self._place.model_url, api_key=job.API_KEY)

    async def close(self) -> None:
        await self._client.close()
        await self._passages.close()

    async def _embed(self, texts: list[str]) -> list[Any]:
        response = await self._client.embeddings.create(model=job.EMBEDDING_MODEL, input=texts)
        return [np.asarray(item.embedding, dtype="f4") for item in response.data]

    async def query(self, question: str, category: str) -> job.Answer:
        vector = (await self._embed([question]))[0]
        rows = await self._passages.nearest(vector, category)
        response = await self._client.chat.completions.create(
            model=job.CHAT_MODEL, messages=messages(question, rows)
        )
        return answer(response.choices[0].message.content, rows)

    async def stream(self, question: str, category: str) -> AsyncIterator[str]:
        vector = (await self._embed([question]))[0]
        rows = await self._passages.nearest(vector, category)
        events = await self._client.chat.completions.create(
            model=job.CHAT_MODEL,
            messages=messages(question, rows),
            stream=True,
            stream_options={"include_usage": True},
        )
        async for event in events:
            if event.choices and (text := event.choices[0].delta.content):
                yield text

    async def clear(self) -> None:
        await self._passages.clear()

    async def ingest(self, chunks: Sequence[job.Chunk]) -> None:
        await self._passages.add(chunks, self._embed)

    async def index(self) -> None:
        await self._passages.index()
