"""The engine with settings from the environment: embedder, model, and the fields of ``Config``."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import SecretStr

from tests.integration.rag_engine.conftest import INSTALL_TEXT, QUESTION, RUN, RUN_TEXT, URL, build
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.docrag.config import Config
from vectorforge.docrag.engine import RAGEngine
from vectorforge.errors import ConfigurationError
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.local.postgres import EmbeddedPostgres

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DEFAULT_EMBEDDING_PROVIDER", "ANTHROPIC_API_KEY")


@pytest.fixture
def environment(
    postgres_server: EmbeddedPostgres, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    """Set up the environment of a laptop without any key, with the test's tenant and database."""
    for name in KEYS:
        monkeypatch.delenv(f"VECTORFORGE_{name}", raising=False)
    monkeypatch.setenv("VECTORFORGE_DATABASE_URL", postgres_server.app_url)
    monkeypatch.setenv("VECTORFORGE_LOCAL_TENANT", tenant)
    return monkeypatch


# D-018, D-009, C04: no threshold by default, and without a key the local model embeds
def test_engine_without_api_key_answers_or_returns_no_answer(environment: pytest.MonkeyPatch) -> None:
    with RAGEngine() as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        stats = engine.get_rag_performance_stats()
        assert stats["embedding_stats"]["model"] == "all-MiniLM-L6-v2"
        response = engine.query("What do I install the tool with?")
        assert "Install the tool with pip" in response["answer"]
        assert (response["sources"], len(response["passages"])) == ([URL], 1)
        assert engine.query("Who painted the ceiling of the Sistine Chapel?")["answer"] == NO_ANSWER


# C04, D-018
def test_threshold_is_applied_exactly(postgres_server: EmbeddedPostgres, tenant: str) -> None:
    documents = [{"content": INSTALL_TEXT, "source_url": URL}, {"content": RUN_TEXT, "source_url": RUN}]
    with RAGEngine(application=build(postgres_server.app_url, tenant)) as engine:
        engine.add_documents(documents)
        best, worst = engine.query(QUESTION)["passages"]
    between = (best["similarity_score"] + worst["similarity_score"]) / 2
    for threshold, expected in (
        (worst["similarity_score"], [URL, RUN]),
        (between, [URL]),
        (0.999, []),
        (None, [URL, RUN]),
    ):
        config = Config(MIN_SIMILARITY=threshold)
        with RAGEngine(config, application=build(postgres_server.app_url, tenant)) as engine:
            found = [passage["source_url"] for passage in engine.query(QUESTION)["passages"]]
        assert found == expected, threshold


# D-003: the fields of design D's Config, from the environment or a settings file
def test_config_parses_plain_strings() -> None:
    read: dict[str, Any] = {
        "OPENAI_API_KEY": "sk-secret", "CHROMA_DB_PATH": "~/docs", "CHUNK_SIZE": "400", "CHUNK_OVERLAP": "40",
        "MAX_RESPONSE_TOKENS": "700", "TEMPERATURE": "0.5", "MIN_SIMILARITY": "0.4", "CACHE_TTL": "60",
        "OPENAI_MAX_RETRIES": "1",
    }  # fmt: skip
    config = Config(**read)
    assert SecretStr("sk-secret") == config.OPENAI_API_KEY
    assert "sk-secret" not in repr(config)
    assert (Path("~/docs"), 400, 40) == (config.CHROMA_DB_PATH, config.CHUNK_SIZE, config.CHUNK_OVERLAP)
    assert (config.MAX_RESPONSE_TOKENS, config.TEMPERATURE, config.MIN_SIMILARITY) == (700, 0.5, 0.4)
    assert (config.CACHE_TTL, config.OPENAI_MAX_RETRIES) == (60, 1)
    assert Config(OPENAI_API_KEY=" ").OPENAI_API_KEY is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHUNK_SIZE", "many"),
        ("TEMPERATURE", None),
        ("MIN_SIMILARITY", 1.1),
        ("MIN_SIMILARITY", "nan"),
        ("OPENAI_API_KEY", 5),
    ],
)
def test_config_value_of_wrong_type_raises_error_naming_the_key(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: value})


# D-009, D-041, C14
async def test_openai_key_in_environment_selects_openai_embeddings(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeEmbeddingsServer(dimension=1536, api_key="sk-environment") as vectors:

        def use() -> None:
            with RAGEngine() as engine:
                (stored,) = engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
                assert stored["status"] == "succeeded", stored
                stats = engine.get_rag_performance_stats()["embedding_stats"]
                assert (stats["model"], stats["dimension"]) == ("text-embedding-3-small", 1536)

        environment.setenv("VECTORFORGE_OPENAI_API_KEY", "sk-environment")
        environment.setenv("VECTORFORGE_OPENAI_BASE_URL", vectors.base_url)
        await asyncio.to_thread(use)
    assert {body["model"] for body in vectors.requests} == {"text-embedding-3-small"}
    assert not [message for message in caplog.messages if "embeds with" in message]


# D-009: another model than the configured one is never used silently
async def test_collection_of_other_embedding_model_logs_warning(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def use(config: Config | None = None) -> Any:
        with RAGEngine(config) as engine:
            return engine.collection

    await asyncio.to_thread(use)
    assert not [message for message in caplog.messages if "embeds with" in message]
    with caplog.at_level(logging.WARNING):
        collection = await asyncio.to_thread(use, Config(OPENAI_API_KEY="sk-later"))
    assert collection.embedding_model == "all-MiniLM-L6-v2"
    (warned,) = [message for message in caplog.messages if "embeds with" in message]
    assert "all-MiniLM-L6-v2" in warned
    assert "text-embedding-3-small" in warned


def test_provider_in_environment_takes_precedence_over_key(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("VECTORFORGE_OPENAI_API_KEY", "sk-environment")
    environment.setenv("VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER", "local")
    with RAGEngine() as engine:
        assert engine.collection.embedding_model == "all-MiniLM-L6-v2"


# D-004: the member is the official client, ready to use
async def test_openai_client_is_the_official_client(environment: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI() as server:

        def use() -> str | None:
            with RAGEngine(Config(OPENAI_API_KEY=server.api_key)) as engine:
                client = engine.openai_client
                assert isinstance(client, openai.OpenAI)
                assert engine.openai_client is client
                assert client.max_retries == 0
                with pytest.raises(openai.InternalServerError):
                    client.chat.completions.create(model="gpt-4o", messages=[])
                answer = client.chat.completions.create(
                    model="gpt-4o", messages=[{"role": "user", "content": "Hello"}]
                )
            assert client.is_closed()
            return answer.choices[0].message.content

        environment.setenv("VECTORFORGE_OPENAI_BASE_URL", server.base_url)
        server.script(Failure(500), Reply(texts=("Hello", " there")))
        assert await asyncio.to_thread(use) == "Hello there"
        assert len(server.bodies) == 2


def test_openai_client_without_key_raises_error_naming_the_setting(environment: pytest.MonkeyPatch) -> None:
    with RAGEngine() as engine, pytest.raises(ConfigurationError, match="VECTORFORGE_OPENAI_API_KEY"):
        _ = engine.openai_client
