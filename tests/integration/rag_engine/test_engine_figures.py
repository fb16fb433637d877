"""The engine's own figures: cache, statistics and answer quality."""

import json
from typing import Any

import psycopg
import pytest

from tests.integration.rag_engine.conftest import INSTALL_TEXT, QUESTION, RUN, RUN_TEXT, SAID, URL, build
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge import errors
from vectorforge.docrag.config import Config
from vectorforge.docrag.engine import RAGEngine
from vectorforge.docrag.responses import GenerationError
from vectorforge.local.postgres import EmbeddedPostgres


# D-007, D-030, D-032, C21
def test_cache_statistics_count_query_hits_and_misses(filled: RAGEngine, llm: ScriptedLLM) -> None:
    assert filled.cache.get_stats() == {"entries": 0, "hits": 0, "misses": 0, "hit_rate": None}
    filled.query(QUESTION)
    assert filled.cache.get_stats() == {"entries": 1, "hits": 0, "misses": 1, "hit_rate": 0.0}
    filled.query(QUESTION)
    filled.query_with_fallback(QUESTION)
    filled.query("How do I start the server?")
    assert filled.cache.get_stats() == {"entries": 2, "hits": 2, "misses": 2, "hit_rate": 0.5}
    assert len(llm.calls) == 2
    filled.add_documents([{"content": RUN_TEXT + " Then it ends.", "source_url": URL + "/new"}])
    assert filled.cache.get_stats()["entries"] == 0  # from older documents
    filled.cache.set("own", 1)
    assert filled.cache.get("own") == 1
    assert filled.cache.get_stats() == {"entries": 1, "hits": 3, "misses": 2, "hit_rate": 0.6}


def test_cache_statistics_count_own_collection_only(postgres_server: EmbeddedPostgres, tenant: str) -> None:
    for name in ("handbook", "docrag_embeddings"):
        config = Config(COLLECTION_NAME=name)
        with RAGEngine(config, application=build(postgres_server.app_url, tenant)) as engine:
            engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
            engine.query(QUESTION)
            assert engine.cache.get_stats()["entries"] == 1


# D-033: the key is computed from the query in lower case, stripped
@pytest.mark.parametrize("same", [QUESTION.upper(), f"  {QUESTION.lower()}\n", QUESTION.replace(" ", " \t ")])
def test_query_with_other_case_and_whitespace_hits_cache(
    filled: RAGEngine, llm: ScriptedLLM, same: str
) -> None:
    filled.query(QUESTION)
    assert filled.query(same)["cached"] is True
    assert filled.query(QUESTION.replace("tool", "tools"))["cached"] is False
    assert len(llm.calls) == 2


# D-041: all numbers differ, so that none can be mistaken for another
def test_performance_stats_count_collections_documents_and_queries(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    llm = ScriptedLLM([json.dumps(SAID)], first_errors=[errors.LLMError("down")])
    for name in ("one", "two"):
        config = Config(COLLECTION_NAME=name)
        with RAGEngine(config, application=build(postgres_server.app_url, tenant)) as other:
            other.add_documents(
                [{"content": f"{INSTALL_TEXT} {n}", "source_url": f"{URL}/{n}"} for n in range(4)]
            )
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        long = "\n\n".join(
            f"Part {n} of the page. " + "It says something of its own. " * 20 for n in range(6)
        )
        engine.add_documents([{"content": long, "source_url": URL}, {"content": RUN_TEXT, "source_url": RUN}])
        before = engine.get_rag_performance_stats()
        assert before["generation_stats"]["avg_response_time"] is None
        assert before["generation_stats"]["success_rate"] is None
        with pytest.raises(GenerationError):
            engine.query("Which one fails?")
        for n in (0, 1, 2, 3, 3, 3, 3):
            engine.query(f"{QUESTION} {n}")
        stats = engine.get_rag_performance_stats()
    assert stats["vector_store_stats"] == {"collection_count": 3, "document_count": 2, "chunk_count": 7}
    assert stats["embedding_stats"]["daily_requests"] == 5  # eight queries, three of them cached
    assert stats["cache_stats"]["hit_rate_last_day"] == pytest.approx(3 / 7)
    assert stats["generation_stats"]["success_rate"] == pytest.approx(7 / 8)
    with psycopg.connect(postgres_server.migrator_url) as connection:
        (logged,) = connection.execute(
            "SELECT array_agg(latency_ms) FROM vectorforge.query_logs WHERE tenant_id = %s", [tenant]
        ).fetchone() or (None,)
    assert len(logged) == 8
    assert stats["generation_stats"]["avg_response_time"] == pytest.approx(sum(logged) / 8 / 1000)


# D-039, C35
def test_answer_quality_uses_documented_field_names(postgres_server: EmbeddedPostgres, tenant: str) -> None:
    llm = ScriptedLLM([json.dumps(SAID | {"answer": "Install the tool with pip."})])
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as filled:
        filled.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        quality, again = (filled.query(QUESTION)["quality"] for _ in range(2))
    assert quality["relevance_score"] == quality["relevance"] == 1.0
    assert 0 < quality["completeness_score"] == quality["completeness"] <= 1
    assert quality["accuracy_indicators"] == ["sources_provided", "examples_provided"]
    assert again == quality  # cached


@pytest.mark.parametrize(
    ("response", "chunks", "relevance", "indicators"),
    [
        ({"answer": "alpha beta gamma delta", "sources": [URL]}, ["alpha beta"], 0.5, ["sources_provided"]),
        ({"answer": "alpha", "examples": ["x"]}, ["beta"], 0.0, ["examples_provided"]),
        ({"answer": ""}, ["beta"], 0.0, []),
        ({}, [], 0.0, []),
    ],
)
def test_response_assessment_returns_scores_and_warns_on_low_quality(
    engine: RAGEngine,
    response: dict[str, Any],
    chunks: list[str],
    relevance: float,
    indicators: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # D-039, C35
    assessed = engine.assess_response_quality("alpha?", response, [{"content": text} for text in chunks])
    assert (assessed["relevance_score"], assessed["accuracy_indicators"]) == (relevance, indicators)
    assert 0 <= assessed["completeness_score"] <= 1
    warned = [m for m in caplog.messages if m.startswith("Low answer quality")]
    assert len(warned) == (relevance < 0.3)
