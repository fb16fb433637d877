"""A synchronous service with documents."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from tests.support.rag.ingested import ingest_bytes
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.bootstrap import Application
from vectorforge.client import RAGService
from vectorforge.config import DatabaseSettings, QuerySettings, ServerSettings, VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.local.postgres import EmbeddedPostgres

DOCUMENTS = {
    "cats.md": ("Cats sleep most of the day.", {"category": "animals", "year": "2024"}),
    "dogs.md": ("Dogs bark at night.", {"category": "animals", "year": "2025"}),
    "tax.md": ("The invoice is due within thirty days.", {"category": "finance", "year": "2024"}),
}


def build(url: str, tenant: str, embedder: Any, llm: BaseLLMProvider | None = None) -> Application:
    config = VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(url)),
        server=ServerSettings(local_tenant=tenant),
        query=QuerySettings(default_collection="notes"),
    )
    embeddings, models = EmbeddingProviderRegistry(), LLMProviderRegistry()
    embeddings.register(embedder)
    models.register(llm or ScriptedLLM(["Cats ", "do."]))
    database = Database(url, pool_size=3, timeout_s=5)
    return Application(config, database=database, embedding_registry=embeddings, llm_registry=models)


def fill(application: Application, tenant: str) -> None:
    """Ingest the documents asynchronously, in a separate event loop and application."""

    async def ingest() -> None:
        async with application:
            services = application.for_tenant(tenant)
            collection = await services.create_collection("notes")
            for source, (text, metadata) in DOCUMENTS.items():
                await ingest_bytes(
                    services.ingestion, collection, text.encode(), source, None, None, metadata
                )

    asyncio.run(ingest())


@pytest.fixture
def tenant() -> str:
    return f"tenant-{uuid4().hex[:12]}"


@pytest.fixture
def service(postgres_server: EmbeddedPostgres, tenant: str) -> Iterator[RAGService]:
    fill(build(postgres_server.app_url, tenant, HashingEmbedder()), tenant)
    with RAGService(build(postgres_server.app_url, tenant, HashingEmbedder())) as opened:
        yield opened


def sources(results: list[dict[str, Any]]) -> list[str]:
    return [result["document_source"] for result in results]
