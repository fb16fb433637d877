"""The DocRag engine: documents in, answers out, from synchronous code over the shared pipeline."""

import asyncio
import hashlib
import json
import logging
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.integration.rag_engine.conftest import (
    INSTALL_TEXT,
    QUESTION,
    RUN,
    RUN_TEXT,
    SAID,
    URL,
    build,
)
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.bootstrap import Application
from vectorforge.config import (
    DatabaseSettings,
    EmbeddingSettings,
    LLMSettings,
    ServerSettings,
    VectorForgeConfig,
)
from vectorforge.docrag.config import Config
from vectorforge.docrag.engine import RAGEngine
from vectorforge.docrag.responses import CacheManager, GenerationError
from vectorforge.errors import ConfigurationError, InvalidInputError
from vectorforge.local.postgres import EmbeddedPostgres


def test_engine_exposes_collection_and_text_splitter(
    engine: RAGEngine,
) -> None:  # D-001, D-002, D-004, D-005, D-006
    assert engine.collection.name == engine.chroma_client.collection_name == "docrag_embeddings"
    assert engine.collection.id == engine.collection.id
    assert engine.collection.distance_metric == "cosine"
    assert len(engine.text_splitter.split_text("word " * 400)) == 3


def test_config_defaults_are_documented_values_and_immutable() -> None:  # D-002, D-003, C12
    config = Config()
    assert (config.COLLECTION_NAME, config.CHUNK_SIZE, config.CHUNK_OVERLAP) == (
        "docrag_embeddings",
        800,
        150,
    )
    assert (config.OPENAI_MODEL, config.MAX_RESPONSE_TOKENS, config.TEMPERATURE) == ("gpt-4o", 1000, 0.3)
    assert (config.CACHE_TTL, config.OPENAI_MAX_RETRIES) == (3600, 3)
    assert (config.OPENAI_API_KEY, config.CHROMA_DB_PATH, config.MIN_SIMILARITY) == (None, None, None)
    with pytest.raises(FrozenInstanceError):
        config.TEMPERATURE = 1.0  # type: ignore[misc]
    assert "sk-secret" not in repr(Config(OPENAI_API_KEY=SecretStr("sk-secret")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHUNK_SIZE", 49),
        ("CHUNK_OVERLAP", 800),
        ("MAX_RESPONSE_TOKENS", 0),
        ("TEMPERATURE", 2.1),
        ("CACHE_TTL", 0),
        ("OPENAI_MAX_RETRIES", 11),
        ("COLLECTION_NAME", " "),
        ("OPENAI_MODEL", ""),
    ],
)
def test_config_value_out_of_range_is_rejected(name: str, value: Any) -> None:  # D-002, D-003
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: value})


def test_config_overrides_the_settings() -> None:  # D-003
    settings = VectorForgeConfig()
    over = Config(
        OPENAI_API_KEY=SecretStr("sk-1"), OPENAI_MODEL="m", OPENAI_MAX_RETRIES=1, CHROMA_DB_PATH=Path("/data")
    ).over(settings)
    assert (over.llm.openai_api_key, over.embedding.openai_api_key) == (SecretStr("sk-1"), SecretStr("sk-1"))
    assert (over.llm.default_provider, over.embedding.default_provider) == ("openai", "openai")
    assert (over.llm.default_model, over.llm.llm_max_retries) == ("m", 1)
    assert over.embedding.embedding_max_retries == 1
    assert over.cache.answer_cache_ttl_s == 3600
    assert (over.database.database_url, over.database.data_dir) == (None, Path("/data"))


# D-012, D-013, D-014, D-017, D-024, D-026, D-030, D-031, C10, C15, C27
def test_query_returns_answer_examples_and_sources(filled: RAGEngine, llm: ScriptedLLM) -> None:
    response = filled.query(QUESTION)
    assert (response["answer"], response["examples"]) == ("With pip.", ["pip install tool"])
    assert (response["sources"], response["dropped_sources"]) == ([URL], 1)
    assert (response["confidence"], response["cached"], response["degraded"]) == ("high", False, [])
    assert 0 < response["response_time"] < 30
    passage, other = response["passages"]
    assert (passage["content"], other["content"]) == (INSTALL_TEXT, RUN_TEXT)
    assert (passage["source_url"], passage["title"]) == (URL, "Install")
    assert passage["metadata"] == {
        "source_url": URL, "title": "Install", "doc_type": "guide", "chunk_index": 0,
        "external_id": f"{URL}#0", "content_hash": hashlib.sha256(INSTALL_TEXT.encode()).hexdigest(),
    }  # fmt: skip
    messages, config = llm.calls[0]
    assert f"\nSource: {URL} - Install\nContent: {INSTALL_TEXT}\n---" in messages[1]["content"]
    assert (config.temperature, config.max_tokens, config.model) == (0.3, 1000, "scripted-1")


def test_retrieve_relevant_chunks_returns_scored_chunks(filled: RAGEngine) -> None:  # D-017, D-018
    found = filled.retrieve_relevant_chunks(RUN_TEXT, n_results=2)
    assert [chunk["source_url"] for chunk in found] == [RUN, URL]
    assert found[0]["similarity_score"] == pytest.approx(1.0, abs=1e-6)
    assert (found[0]["title"], found[0]["metadata"]["doc_type"]) == ("", "unknown")
    assert filled.retrieve_relevant_chunks(RUN_TEXT, min_similarity=0.9) == found[:1]


def test_query_with_history_adds_previous_turns_to_prompt(
    filled: RAGEngine, llm: ScriptedLLM
) -> None:  # D-019, D-033, C20
    filled.query(QUESTION, [{"user_query": "Which tool?", "ai_response": "That one."}])
    assert "\nPrevious Q: Which tool?\nPrevious A: That one....\n" in llm.calls[0][0][1]["content"]
    with pytest.raises(InvalidInputError, match="user_query"):
        filled.query(QUESTION, [{"user_query": "Which tool?"}])


# D-030, D-031, D-032, D-033, D-034, C20, C21
def test_repeated_query_is_served_from_cache_until_a_write(
    filled: RAGEngine, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    first = filled.query(QUESTION)
    with caplog.at_level(logging.INFO):
        again = filled.query(QUESTION)
    assert (first["cached"], again["cached"]) == (False, True)
    fields = ("answer", "examples", "sources", "confidence", "dropped_sources")
    assert {name: again[name] for name in fields} == {name: first[name] for name in fields}
    assert f"Cache hit for query: {QUESTION[:50]}..." in caplog.messages
    assert len(llm.calls) == 1
    assert filled.query_with_variants(QUESTION, "precise")["cached"] is False
    history = [{"user_query": "Which OS?", "ai_response": "Linux"}]
    assert filled.query(QUESTION, history)["cached"] is False
    filled.add_documents([{"content": RUN_TEXT + " And more.", "source_url": URL + "/new"}])
    assert filled.query(QUESTION)["cached"] is False
    assert filled.get_rag_performance_stats()["cache_stats"]["hits_last_day"] == 1


def test_plain_text_answer_is_not_cached(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # D-028, C21
    llm = ScriptedLLM(["Just text."])
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        assert [engine.query(QUESTION)["cached"] for _ in range(2)] == [False, False]


def test_cache_manager_expires_and_evicts_caller_values(engine: RAGEngine) -> None:  # D-004, D-007
    now = 0.0
    cache = CacheManager(2, clock=lambda: now)
    cache.set("a", [1], ttl=10)
    cache.set("b", 2)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ([1], 2, None)
    now = 10.0
    assert cache.get("a") is None
    cache.set("c", 3)
    cache.set("d", 4)
    assert [cache.get(key) for key in "bcd"] == [None, 3, 4]
    assert cache.get_stats() == {"entries": 2, "hits": 4, "misses": 3, "hit_rate": 4 / 7}
    assert engine.cache.get_stats()["hit_rate"] is None


def test_query_variant_sets_temperature_and_token_limit(
    filled: RAGEngine, llm: ScriptedLLM
) -> None:  # D-040, C30
    for variant in ("default", "precise", "comprehensive"):
        assert filled.query_with_variants(QUESTION + variant, variant)["variant"] == variant
    sent = [(config.temperature, config.max_tokens) for _, config in llm.calls]
    assert sent == [(0.3, 1000), (0.1, 500), (0.3, 1000)]
    filled.query(QUESTION)
    assert (llm.calls[-1][1].temperature, llm.calls[-1][1].max_tokens) == (0.3, 1000)
    with pytest.raises(InvalidInputError, match="variant"):
        filled.query_with_variants(QUESTION, "no such")


# D-003, D-009, D-011, D-027, D-036, D-037, C14, C23
async def test_engine_with_openai_retries_and_uses_configured_models(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    async with FakeOpenAI() as chat, FakeEmbeddingsServer(dimension=1536) as vectors:
        config = Config(
            OPENAI_API_KEY=SecretStr(chat.api_key), OPENAI_MODEL="gpt-6-luna", OPENAI_MAX_RETRIES=2
        )
        settings = VectorForgeConfig(
            database=DatabaseSettings(database_url=SecretStr(postgres_server.app_url)),
            llm=LLMSettings(openai_base_url=chat.base_url),
            embedding=EmbeddingSettings(openai_base_url=vectors.base_url),
            server=ServerSettings(local_tenant=tenant),
        )

        def use() -> None:
            with RAGEngine(config, application=Application.build(config.over(settings))) as engine:
                engine.add_documents([{"content": INSTALL_TEXT.replace(". ", ".\n"), "source_url": URL}])
                chat.script(Failure(500), Failure(503), Reply(texts=(json.dumps(SAID),)))
                engine.query(INSTALL_TEXT.replace(". ", ".\n"))
                assert engine.collection.dimension == 1536
                assert engine.query(INSTALL_TEXT.replace(". ", ".\n"))["cached"] is True
                chat.script(*[Failure(500)] * 3)
                with pytest.raises(GenerationError):
                    engine.query(INSTALL_TEXT + " Again?")

        await asyncio.to_thread(use)
        assert {text for body in vectors.requests for text in body["input"]} >= {INSTALL_TEXT}
        assert {body["model"] for body in vectors.requests} == {"text-embedding-3-small"}
        assert len(chat.bodies) == 6
        assert {body["model"] for body in chat.bodies} == {"gpt-6-luna"}


def test_query_logs_analytics_line(filled: RAGEngine, caplog: pytest.LogCaptureFixture) -> None:  # D-042
    with caplog.at_level(logging.INFO):
        response = filled.query(QUESTION)
    (line,) = [m for m in caplog.messages if m.startswith("Query analytics: ")]
    logged = json.loads(line.removeprefix("Query analytics: "))
    assert logged.pop("timestamp").endswith("+00:00")
    assert logged == {
        "query_length": len(QUESTION),
        "response_length": len("With pip."),
        "sources_count": 1,
        "examples_count": 1,
        "processing_time": response["response_time"],
        "confidence_level": "high",
        "cached": False,
    }
    assert filled.track_query_analytics("four", {}, 0.5)["query_length"] == 4
