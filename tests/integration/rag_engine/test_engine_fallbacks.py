"""``query_with_fallback`` while its parts fail, one at a time (D-038)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.conftest import ObservedPostgres
from tests.integration.rag_engine.conftest import INSTALL_TEXT, QUESTION, URL, FailingEmbedder, build
from tests.support.postgres.pgbouncer import PgBouncer
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge import errors
from vectorforge.docrag.engine import RAGEngine, RetrievalError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.presets import UNAVAILABLE_ANSWER

UNKNOWN = "Something that nobody has asked before?"


@pytest.fixture
def searchless(
    make_database: Callable[..., str], tenant: str, llm: ScriptedLLM
) -> Iterator[tuple[RAGEngine, ScriptedLLM]]:
    """Return an engine whose search fails after its documents were added: their vectors cannot be read."""
    owner_url = make_database()
    url = make_conninfo(owner_url, user="vectorforge_app")
    with RAGEngine(application=build(url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE vectorforge.chunks RENAME TO chunks_that_are_gone")
        yield engine, llm


def test_failed_search_returns_ungrounded_model_answer(
    searchless: tuple[RAGEngine, ScriptedLLM],
) -> None:
    engine, llm = searchless
    with pytest.raises(RetrievalError):
        engine.query(QUESTION)
    assert llm.calls == []
    response = engine.query_with_fallback(QUESTION)
    assert (response["answer"], response["degraded"]) == ("With pip.", ["ungrounded"])
    assert (response["sources"], response["passages"]) == ([], [])
    assert "error" not in response
    ((messages, _),) = llm.calls
    assert INSTALL_TEXT not in json.dumps(messages)


def test_failed_search_without_ungrounded_fallback_returns_fixed_text(
    searchless: tuple[RAGEngine, ScriptedLLM],
) -> None:
    engine, llm = searchless
    check_fixed_text(engine.query_with_fallback(QUESTION, allow_ungrounded=False))
    assert llm.calls == []


def test_unavailable_database_returns_ungrounded_model_answer(
    postgres_server: ObservedPostgres, private_dir: Callable[[str], Path], tenant: str, llm: ScriptedLLM
) -> None:
    bouncer = PgBouncer(private_dir("pge"), postgres_server.socket)
    with bouncer:
        engine = RAGEngine(application=build(bouncer.route(postgres_server.app_url), tenant, llm))
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
    with engine:
        response = engine.query_with_fallback(QUESTION)
    assert (response["answer"], response["degraded"]) == ("With pip.", ["ungrounded"])


def test_failed_embedding_serves_cached_answers_only(
    filled: RAGEngine, embedder: FailingEmbedder, llm: ScriptedLLM
) -> None:
    first = filled.query(QUESTION)
    embedder.failing = True
    again = filled.query_with_fallback(QUESTION)
    assert (again["answer"], again["cached"]) == (first["answer"], True)
    check_fixed_text(filled.query_with_fallback(UNKNOWN))
    assert len(llm.calls) == 1
    assert filled.query_with_fallback(UNKNOWN, allow_ungrounded=True)["degraded"] == ["ungrounded"]


def test_failed_model_returns_fixed_text_with_chunks(postgres_server: EmbeddedPostgres, tenant: str) -> None:
    llm = ScriptedLLM([], error=errors.LLMError("Provider scripted failed"))
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        response = engine.query_with_fallback(QUESTION)
    check_fixed_text(response)
    assert [passage["content"] for passage in response["passages"]] == [INSTALL_TEXT]


def check_fixed_text(response: dict[str, Any]) -> None:
    assert response["answer"] == UNAVAILABLE_ANSWER
    assert (response["examples"], response["sources"], response["confidence"]) == ([], [], "low")
    assert response["quality"] is None
    assert (response["error"], response["degraded"][-1]) == ("service_unavailable", "template")
