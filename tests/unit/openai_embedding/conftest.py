"""The embeddings server, requested over HTTP and over the SDK."""

from collections.abc import AsyncIterator

import pytest

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.unit.openai_embedding.embedding_server import KEY, Server


@pytest.fixture(params=["http", "sdk"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FakeEmbeddingsServer]:
    async with Server(dimension=1536, api_key=KEY) as running:
        running.client = request.param
        yield running
