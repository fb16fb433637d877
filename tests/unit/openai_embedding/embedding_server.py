"""A fake embeddings server and an OpenAI-compatible provider connected to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.embedding.providers.openai import (
    OpenAIEmbeddingProvider,
)
from vectorforge.vendors.accounts import ClientKind

KEY = "sk-secret-1234567890"


class Server(FakeEmbeddingsServer):
    client: ClientKind = "http"
    """Kind of client used."""


@asynccontextmanager
async def connected(
    server: FakeEmbeddingsServer, *, key: str = KEY, **options: Any
) -> AsyncIterator[OpenAIEmbeddingProvider]:
    if isinstance(server, Server):
        options = {"client": server.client, **options}
    provider = OpenAIEmbeddingProvider(api_key=SecretStr(key), base_url=server.base_url, **options)
    try:
        yield provider
    finally:
        await provider.aclose()
