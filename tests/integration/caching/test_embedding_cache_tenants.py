"""The embedding cache of a process: each tenant has its own entries and a share of the capacity."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.integration.caching.conftest import GUIDES, Process, Start
from tests.support.http.live_api import add_documents, new_collection
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

MODEL = "text-embedding-3-small"
ENTRIES = 40


@pytest.fixture
async def process(start: Start) -> Process:
    """A server whose only cache of vectors is the one in memory, shared by all tenants."""
    started: Process = await start(embedding_cache_ttl_s=0, answer_cache=False)
    embeddings = started.api.application.embedding_registry
    cache = InMemoryEmbeddingCache(ENTRIES)
    provider = OpenAIEmbeddingProvider(
        name="http", api_key=None, base_url=started.embedder.base_url, dimension=64, retries=0, cache=cache
    )
    embeddings.register(provider)
    return started


@pytest.fixture
async def other(process: Process, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with process.client(tenants[1]) as opened:
        await add_documents(opened, await new_collection(opened), bread="Bread of another tenant rests.")
        yield opened


def embedded(process: Process) -> list[str]:
    """Texts sent to the embedding server, in order."""
    return [text for request in process.embedder.requests for text in request["input"]]


async def search(client: httpx2.AsyncClient, query: str) -> None:
    response = await client.post("/v1/search", json={"query": query})
    assert response.status_code == 200, response.text


async def embed(client: httpx2.AsyncClient, *texts: str) -> None:
    response = await client.post("/v1/embeddings", json={"model": f"http/{MODEL}", "input": list(texts)})
    assert response.status_code == 200, response.text


async def test_query_vector_cached_for_one_tenant_misses_for_another(
    process: Process, client: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    for asker, expected in ((client, 1), (client, 1), (other, 2), (other, 2), (client, 2)):
        await search(asker, "severance of Ms Kent")
        assert embedded(process).count("severance of Ms Kent") == expected


async def test_embeddings_request_cached_for_one_tenant_misses_for_another(
    process: Process, client: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    for asker, expected in ((client, 1), (client, 1), (other, 2)):
        await embed(asker, "severance of Ms Kent")
        assert embedded(process).count("severance of Ms Kent") == expected


async def test_document_vectors_of_one_tenant_are_not_reused_for_another(
    process: Process, client: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    sent = embedded(process)
    await add_documents(other, await new_collection(other, name="copy"), **GUIDES)
    assert len(embedded(process)) == len(sent) + len(GUIDES)


async def test_flood_of_one_tenant_does_not_evict_entries_of_another(
    process: Process, client: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    await search(client, "How hot is the oven?")
    await embed(other, *(f"flood {number}" for number in range(5 * ENTRIES)))
    await search(client, "How hot is the oven?")
    assert embedded(process).count("How hot is the oven?") == 1
    await embed(other, f"flood {5 * ENTRIES - 1}")  # its latest text is still in its own share
    assert embedded(process).count(f"flood {5 * ENTRIES - 1}") == 1
