"""A DocRag engine on a real PostgreSQL, with an embedder that can fail."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge import errors
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.docrag.engine import RAGEngine
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.local.postgres import EmbeddedPostgres

URL = "https://docs.example/install"


RUN = "https://docs.example/run"


INSTALL_TEXT = "How do I install the tool? Install the tool with pip, then check its version."


RUN_TEXT = "Start the server with the run command. It listens on port 8000 until it is stopped."


SAID = {
    "answer": "With pip.",
    "examples": ["pip install tool"],
    "sources": [URL, "https://x.example"],
    "confidence": "high",
}


QUESTION = "How do I install the tool?"


class FailingEmbedder(HashingEmbedder):
    """Fails while its flag is set."""

    failing = False

    async def _call_api(self, texts: Any, model: str) -> Any:
        if self.failing:
            raise errors.EmbeddingError("The embedding provider is down")
        return await super()._call_api(texts, model)


def build(
    url: str, tenant: str, llm: BaseLLMProvider | None = None, embedder: HashingEmbedder | None = None
) -> Application:
    config = VectorForgeConfig(
        database=DatabaseSettings(database_url=SecretStr(url)), server=ServerSettings(local_tenant=tenant)
    )
    embeddings, models = EmbeddingProviderRegistry(), LLMProviderRegistry()
    embeddings.register(embedder or HashingEmbedder())
    models.register(llm or ScriptedLLM([json.dumps(SAID)]))
    database = Database(url, pool_size=3, timeout_s=5)
    return Application(config, database=database, embedding_registry=embeddings, llm_registry=models)


@pytest.fixture
def tenant() -> str:
    return f"tenant-{uuid4().hex[:12]}"


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM([json.dumps(SAID)])


@pytest.fixture
def embedder() -> FailingEmbedder:
    return FailingEmbedder()


@pytest.fixture
def engine(
    postgres_server: EmbeddedPostgres, tenant: str, llm: ScriptedLLM, embedder: FailingEmbedder
) -> Iterator[RAGEngine]:
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm, embedder)) as opened:
        yield opened


@pytest.fixture
def filled(engine: RAGEngine) -> RAGEngine:
    stored = engine.add_documents(
        [
            {"content": INSTALL_TEXT, "source_url": URL, "title": "Install", "doc_type": "guide"},
            {"content": RUN_TEXT, "metadata": {"source_url": RUN}},
        ]
    )
    assert [document["status"] for document in stored] == ["succeeded", "succeeded"], stored
    return engine
