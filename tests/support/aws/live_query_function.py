"""Surroundings of the query function: a filled database, a language model and an embedder on sockets."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from tests.support.http.live_api import build_application, key_of, settings_for
from tests.support.http.tls import NO_AUTHORITIES
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import VectorForgeConfig
from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft

QUERY_HANDLER = "functions.query.handler.handler"
QUERY_PATH = "/v1/rag/query"
EMBEDDING_KEY = "key-of-the-embedder"
DIMENSION = 64
INIT_TIMEOUT_S = 60.0
"""AWS allows 10 s; a busy machine may import more slowly than Lambda."""
PASSAGE = "How long does a refund take? A refund does take five days."


@dataclass(frozen=True, slots=True)
class QuerySurroundings:
    """One tenant's document and the vendors that one query function uses."""

    app_url: str
    """Connection string of the app role."""
    tenant: str
    vendor: FakeOpenAI
    embeddings: FakeEmbeddingsServer

    def environment(self, **more: str) -> dict[str, str]:
        """Environment variables of the function; ``more`` in any case, without the prefix VECTORFORGE_."""
        key = hashlib.sha256(key_of(self.tenant).encode()).hexdigest()
        settings = {
            "database_url": self.app_url,
            "database_pool_size": "3",
            "api_keys": json.dumps({key: self.tenant}),
            "default_embedding_provider": "http",
            "embedding_base_url": self.embeddings.base_url,
            "embedding_model": "fake-embeddings",
            "embedding_dimension": str(DIMENSION),
            "embedding_api_key": EMBEDDING_KEY,
            "openai_base_url": self.vendor.base_url,
            "openai_api_key": self.vendor.api_key,
            "response_mode": "stream",
            "answer_cache": "false",  # tests repeat queries and expect the model to answer
            **more,
        }
        return {f"VECTORFORGE_{name.upper()}": value for name, value in settings.items()}

    def function(self, environment: dict[str, str] | None = None, **options: Any) -> FunctionConfiguration:
        """The query function with these surroundings.

        Args:
            environment: Environment variables; by default ``environment()``.
            **options: Other fields of the configuration.
        """
        named = {"handler": QUERY_HANDLER, "name": "query", "init_timeout_s": INIT_TIMEOUT_S, **options}
        return FunctionConfiguration(environment=environment or self.environment(), **named)

    def client(self, url: str, **options: Any) -> httpx2.AsyncClient:
        """Return a client with the tenant's key, to be used as a context manager."""
        headers = {"Authorization": f"Bearer {key_of(self.tenant)}", **options.pop("headers", {})}
        return httpx2.AsyncClient(
            base_url=url, headers=headers, **{"timeout": 30, **options}, verify=NO_AUTHORITIES
        )


@asynccontextmanager
async def query_surroundings(
    app_url: str, tenant: str, *, fill: bool = True
) -> AsyncIterator[QuerySurroundings]:
    """Start both vendors; with ``fill`` also add ``PASSAGE`` to the tenant's default collection."""
    async with (
        FakeOpenAI() as vendor,
        FakeEmbeddingsServer(dimension=DIMENSION, api_key=EMBEDDING_KEY) as embeddings,
    ):
        if fill:
            await add_passage(app_url, tenant)
        yield QuerySurroundings(app_url, tenant, vendor, embeddings)


async def add_passage(app_url: str, tenant: str, text: str = PASSAGE) -> None:
    """Create the tenant's default collection with one chunk, embedded as the fake server embeds."""
    application = build_application(settings_for(app_url))
    async with application:
        services = application.for_tenant(tenant)
        collection = await services.collections.create(
            VectorForgeConfig().query.default_collection,
            embedding_provider="http",
            embedding_model="fake-embeddings",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        digest = hashlib.sha256(text.encode()).digest()
        draft = ChunkDraft(
            index=0,
            text=text,
            start_offset=0,
            end_offset=len(text),
            token_count=12,
            content_hash=digest,
            vector=await application.embedding_registry.get_default().embed_query(text),
        )
        document = DocumentDraft("refunds.txt", text, "text/plain", digest)
        await services.vector_store.replace_document(collection.id, document, [draft])


class LockStep:
    """The gate of a reply (``Reply.gate``): each ``release`` lets one text pass."""

    def __init__(self, *, free: int = 1) -> None:
        """Let ``free`` texts pass."""
        self.waiting = asyncio.Event()
        """Set while the vendor waits for a release."""
        self._tickets = asyncio.Semaphore(free)

    async def __call__(self, number: int) -> None:
        """Wait for a release."""
        if self._tickets.locked():
            self.waiting.set()
        await self._tickets.acquire()

    def release(self, texts: int = 1) -> None:
        """Let further texts pass."""
        for _ in range(texts):
            self._tickets.release()
