"""The embedding model changes while a profile is searched and written: requests reload it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.types import Vector

BAKER = "Baked rye bread at dawn."
SAILOR = "Sailed around the world alone."


class OvertakenEmbedder(HashingEmbedder):
    """Waits for a concurrent action in its next call."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        vectors = await super()._call_api(texts, model)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return vectors


class BackwardEmbedder(HashingEmbedder):
    """Vectors of the other model's length that cannot be compared with it."""

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        return [list(vector)[::-1] for vector in await super()._call_api(texts, model)]


class Room:
    """A tenant with a profile embedded by "hashing", and the next model "new"."""

    def __init__(self, api: LiveApi, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.old, self.new = OvertakenEmbedder(), BackwardEmbedder(name="new")
        for embedder in (self.old, self.new):
            api.application.embedding_registry.register(embedder)

    async def post(self, path: str, **body: Any) -> Any:
        response = await self.client.post(path, json=body)
        assert response.status_code < 300, response.text
        return response.json()

    async def add(self, text: str, source_id: str) -> None:
        await self.post("/v1/profiles/7/documents", text=text, source_id=source_id)

    async def finds(self, text: str) -> bool:
        """Return whether a chunk is nearest to its own text, at distance 0."""
        found = await self.post("/v1/profiles/7/search", query=text, top_k=1)
        [best] = found["results"]
        return bool(best["text"] == text and best["score"] == pytest.approx(1.0))

    @property
    def overtaken(self) -> bool:
        """Return whether the concurrent action has happened."""
        return self.old.meanwhile is None

    async def ready(self) -> str:
        """Fill the new model's space; return the path of the change."""
        [collection] = (await self.client.get("/v1/collections")).json()["collections"]
        path = f"/v1/collections/{collection['id']}/embedding-switch"
        await self.post(path, embedding_provider="new")
        async with asyncio.timeout(30):
            while (await self.client.get(path)).json()["state"] != "ready":  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.02)
        return path


@pytest.fixture
async def room(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Room]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        room = Room(api, client)
        await room.add(BAKER, "1")
        yield room


def switching(room: Room, path: str) -> Callable[[], Awaitable[None]]:
    async def switch() -> None:
        await room.post(f"{path}/switch", skip_comparison=True)

    return switch


async def test_search_during_switch_is_reembedded(room: Room) -> None:
    room.old.meanwhile = switching(room, await room.ready())
    assert await room.finds(BAKER)
    assert room.overtaken
    assert room.new.texts[-1].endswith(BAKER)


async def test_document_during_switch_is_reembedded(room: Room) -> None:
    """Vectors of both models have one length, so that nothing else distinguishes them."""
    room.old.meanwhile = switching(room, await room.ready())
    await room.add(SAILOR, "2")
    assert room.overtaken
    assert await room.finds(SAILOR)
    assert await room.finds(BAKER)


async def test_reused_pipeline_follows_the_switch(app_url: str, make_tenant: Callable[[], str]) -> None:
    """As an agent's tools: one pipeline for all calls."""
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        room = Room(api, client)
        await room.add(BAKER, "1")
        profiles = api.application.for_tenant(tenant).profiles
        pipeline = await profiles.retrieval()
        await switching(room, await room.ready())()
        for _ in range(2):
            [found] = await pipeline.retrieve(BAKER, 7, 1)
            assert found.text == BAKER
            assert found.score == pytest.approx(1.0)
        assert sum(text.endswith(BAKER) for text in room.old.texts) == 2  # stored, and once in vain
