"""A new embedding model is used only when it finds the same as the old one; the switch fails no query."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.types import Vector

SMALL, LARGE = 384, 768
WORDS = (
    *("anvil", "basil", "cedar", "delta", "ember", "fjord", "grape", "heron", "ivory", "jasmin"),
    *("kayak", "lemon", "maple", "nutmeg", "olive", "pearl", "quartz", "raven", "saddle", "tulip"),
    *("umber", "violet", "walnut", "xenon", "yarrow", "zephyr", "amber", "birch", "coral", "dune"),
)
TEXTS = {word: f"The {word} is kept in the cellar behind the {word[::-1]}." for word in WORDS}
QUESTIONS = [f"Where is the {word} kept?" for word in WORDS]


class MeaninglessEmbedder(HashingEmbedder):
    """Distinct vectors that are unrelated to their texts."""

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        await super()._call_api(texts, model)
        vectors = []
        for text in texts:
            draw = random.Random(hashlib.sha256(text.encode()).digest())
            vectors.append([draw.gauss(0, 1) for _ in range(LARGE)])
        return vectors


class Room:
    """A tenant at the API, with a collection of one chunk per word."""

    def __init__(self, api: LiveApi, client: httpx2.AsyncClient, collection_id: str) -> None:
        self.api = api
        self.client = client
        self.collection_id = collection_id
        self.path = f"/v1/collections/{collection_id}/embedding-switch"

    async def post(self, step: str = "", **body: Any) -> httpx2.Response:
        return await self.client.post(self.path + step, json=body)

    async def status(self) -> dict[str, Any]:
        response = await self.client.get(self.path)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    async def ready(self, provider: str) -> None:
        response = await self.post(embedding_provider=provider)
        assert response.status_code == 202, response.text
        await self.until(lambda response: response.json()["state"] == "ready")

    async def gone(self) -> None:
        await self.until(lambda response: response.status_code == 404)

    async def until(self, reached: Callable[[httpx2.Response], bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                if reached(await self.client.get(self.path)):
                    return
                await asyncio.sleep(0.05)

    async def provider(self) -> str:
        response = await self.client.get(f"/v1/collections/{self.collection_id}")
        return str(response.json()["embedding_provider"])

    async def search(self, word: str) -> str:
        body = {"query": TEXTS[word], "collection": self.collection_id, "top_k": 1}
        response = await self.client.post("/v1/search", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["results"][0]["text"])


@pytest.fixture
async def room(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[Room]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        registry = api.application.embedding_registry
        registry.register(HashingEmbedder(name="small", dimension=SMALL))
        registry.register(HashingEmbedder(name="large", dimension=LARGE))
        registry.register(MeaninglessEmbedder(name="bad", dimension=LARGE))
        registry.set_default("small")
        collection_id = await new_collection(client, "cellar")
        job = await add_documents(client, collection_id, **TEXTS)
        assert job["status"] == "succeeded", job
        yield Room(api, client, collection_id)


class Load:
    """Search, query and ingest until ``over`` is set; a failure fails the test."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.over = asyncio.Event()
        self.searched = self.answered = self.stored = 0

    async def searches(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self.over.is_set():
            word = draw.choice(WORDS)
            assert await self.room.search(word) == TEXTS[word]
            self.searched += 1

    async def answers(self) -> None:
        path = f"/v1/collections/{self.room.collection_id}/query"
        while not self.over.is_set():
            response = await self.room.client.post(path, json={"query": QUESTIONS[self.answered % 30]})
            assert response.status_code == 200, response.text
            self.answered += 1

    async def documents(self) -> None:
        while not self.over.is_set():
            name = f"n{self.stored}"
            text = f"A note, number {name}."
            job = await add_documents(self.room.client, self.room.collection_id, **{name: text})
            assert job["status"] == "succeeded", job
            self.stored += 1

    async def change(self) -> None:
        try:
            await self.room.ready("large")
            for step, answering in (("/switch", "large"), ("/rollback", "small"), ("/switch", "large")):
                await self.taken(step)
                assert await self.room.provider() == answering
                await asyncio.sleep(0.3)
            await self.taken("/finish", status=202)
            await self.room.gone()
            await asyncio.sleep(0.3)
        finally:
            self.over.set()

    async def taken(self, step: str, status: int = 200) -> None:
        """Take a step, which is rejected while a new chunk lacks a vector or is being written."""
        body = {"skip_comparison": True} if step == "/switch" else None
        async with asyncio.timeout(30):
            while True:
                response = await self.room.client.post(self.room.path + step, json=body)
                if response.status_code != 409:
                    break
                await asyncio.sleep(0.1)
        assert response.status_code == status, response.text


async def test_embedding_switch_under_load_fails_no_query(room: Room) -> None:  # N15, D13
    """No query fails, and each finds its chunk, with either model."""
    load = Load(room)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for seed in range(4):
            group.create_task(load.searches(seed))
        for task in (load.answers(), load.documents(), load.change()):
            group.create_task(task)
    assert min(load.searched, load.answered, load.stored) > 0
    assert await room.provider() == "large"


async def test_switch_to_worse_model_is_rejected_with_figures(room: Room) -> None:  # N15
    await room.ready("bad")
    response = await room.post("/switch", questions=[{"question": text} for text in QUESTIONS])
    assert response.status_code == 409
    assert response.json()["code"] == "embedding_switch_refused"
    assert "0.400 are required" in response.json()["detail"]
    found = await room.status()
    assert found["state"] == "ready"
    assert found["comparison"]["passed"] is False
    assert 0 <= found["comparison"]["overlap"] < 0.4
    assert await room.provider() == "small"
    assert (await room.client.post(room.path + "/cancel")).status_code == 202
    await room.gone()
    assert await room.search("heron") == TEXTS["heron"]


async def test_switch_to_good_model_passes_with_logged_queries(room: Room) -> None:
    for text in QUESTIONS[:5]:
        path = f"/v1/collections/{room.collection_id}/query"
        (await room.client.post(path, json={"query": text})).raise_for_status()
    await room.ready("large")
    seen = await room.post("/switch", dry_run=True)
    assert seen.status_code == 200, seen.text
    assert seen.json()["state"] == "ready"
    comparison = seen.json()["comparison"]
    assert (comparison["questions"], comparison["judged"], comparison["passed"]) == (5, 0, True)
    assert comparison["k"] == len(WORDS) // 5  # fewer than 10, to exclude chance
    assert comparison["overlap"] > 0.6
    assert (await room.post("/switch")).json()["state"] == "switched"


async def test_relevance_judgments_decide_the_comparison(room: Room) -> None:
    judged = [{"question": f"Where is the {word} kept?", "relevant": [f"{word}.md"]} for word in WORDS]
    await room.ready("bad")
    response = await room.post("/switch", questions=judged)
    assert response.status_code == 409
    assert "nDCG@6 falls from" in response.json()["detail"]
    comparison = (await room.status())["comparison"]
    assert comparison["judged"] == len(WORDS)
    assert comparison["ndcg_after"] < comparison["ndcg_before"] - 0.02
    await room.client.post(room.path + "/cancel")
    await room.gone()
    await room.ready("large")
    assert (await room.post("/switch", questions=judged)).status_code == 200


async def test_switch_without_queries_to_compare_is_rejected(room: Room) -> None:
    early = await room.post("/switch")
    assert early.status_code == 404
    await room.ready("large")
    response = await room.post("/switch")
    assert response.status_code == 422, response.text
    assert await room.provider() == "small"


async def test_dry_run_returns_estimate_and_starts_nothing(room: Room) -> None:
    response = await room.post(embedding_provider="large", dry_run=True)
    assert response.status_code == 202, response.text
    assert response.json()["change"] is None
    estimate = response.json()["estimate"]
    assert (estimate["dimension"], estimate["passages"], estimate["cost_usd"]) == (LARGE, len(WORDS), 0.0)
    assert estimate["tokens"] > 0
    assert estimate["passages_per_s"] > 0
    assert (await room.client.get(room.path)).status_code == 404
    unknown = await room.post(embedding_provider="nobody")
    assert unknown.status_code == 422
