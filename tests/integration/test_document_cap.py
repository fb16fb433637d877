"""One document with many similar chunks does not displace another document (security 17)."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import httpx2
from hypothesis import given
from hypothesis import strategies as st

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.rag.chunks import make_chunk
from vectorforge.config import QuerySettings
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.retriever.choice import search_chosen
from vectorforge.vectorstore.base import NearestChunks

BLOCKER = "\n\n".join(
    f"## Refund {number}\n\nHow long does a refund take? We say a refund is refused, number {number}."
    for number in range(60)
)
RIGHT = "How long does a refund take? Five days after we have the parcel."
QUESTION = "How long does a refund take, we say?"


@asynccontextmanager
async def filled(url: str, tenant: str, cap: int, **documents: str) -> AsyncIterator[httpx2.AsyncClient]:
    config = settings_for(url, [tenant], query=QuerySettings(max_passages_per_document=cap))
    async with live_api(config) as api, api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **documents)
        yield client


async def sources(client: httpx2.AsyncClient, top_k: int = 5) -> list[str]:
    body = {"query": QUESTION, "top_k": top_k, "min_score": None}
    response = await client.post("/v1/search", json=body)
    assert response.status_code == 200, response.text
    return [found["source"] for found in response.json()["results"]]


async def test_document_cap_leaves_room_for_other_documents(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    documents = {"blocker": BLOCKER, "right": RIGHT, "other": "Parcels are sent on Mondays."}
    async with filled(postgres_server.app_url, make_tenant(), 0, **documents) as client:
        assert set(await sources(client)) == {"blocker.md"}  # what the cap is for
    async with filled(postgres_server.app_url, make_tenant(), 2, **documents) as client:
        found = await sources(client)
        assert len(found) == 5
        assert {"right.md", "other.md"} <= set(found)
        answer = (await client.post("/v1/rag/query", json={"query": QUESTION})).json()
        assert "right.md" in {entry["source"] for entry in answer["context"]}


async def test_document_cap_does_not_limit_a_single_document(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    async with filled(postgres_server.app_url, make_tenant(), 2, blocker=BLOCKER) as client:
        assert await sources(client) == ["blocker.md"] * 5


@given(
    st.lists(st.integers(0, 6), max_size=60),
    st.integers(1, 12),
    st.integers(1, 4),
)
async def test_document_cap_fills_results_within_the_cap(documents: list[int], top_k: int, cap: int) -> None:
    ranked = [make_chunk(f"{place}", document_id=UUID(int=of)) for place, of in enumerate(documents)]
    requested = []

    async def search(wanted: int) -> NearestChunks:
        requested.append(wanted)
        return NearestChunks(ranked[:wanted], len(ranked))

    found = await search_chosen(search, top_k, per_document=cap)
    assert len(found) == min(top_k, len(ranked))
    places = [ranked.index(chunk) for chunk in found]
    assert places == sorted(set(places))
    counts = Counter(documents[place] for place in places)
    under_cap = sum(min(count, cap) for count in Counter(documents).values())
    if under_cap >= top_k:
        assert max(counts.values(), default=0) <= cap
    if max(Counter(documents[:top_k]).values(), default=0) <= cap:
        assert requested == [top_k]
        assert places == list(range(len(found)))
