"""The DocRag engine while its parts fail, and the errors it raises."""

import json

import pytest

from tests.integration.rag_engine.conftest import (
    INSTALL_TEXT,
    QUESTION,
    RUN,
    RUN_TEXT,
    SAID,
    URL,
    FailingEmbedder,
    build,
)
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge import errors
from vectorforge.docrag.engine import EmbeddingError, RAGEngine, RetrievalError
from vectorforge.docrag.responses import GenerationError, RAGError, rag_error
from vectorforge.errors import InvalidInputError
from vectorforge.local.postgres import EmbeddedPostgres


def test_embedding_provider_outage_raises_embedding_error(
    filled: RAGEngine, embedder: FailingEmbedder, llm: ScriptedLLM
) -> None:  # D-010, D-012, D-035, D-038
    embedder.failing = True
    (outcome,) = filled.add_documents([{"content": RUN_TEXT + " Twice.", "source_url": RUN}])
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "embedding_error")
    with pytest.raises(
        EmbeddingError, match=r"^Failed to generate embedding: The embedding provider is down"
    ):
        filled.query("Something never asked before?")
    response = filled.query_with_fallback("Something never asked before?")
    assert (response["error"], response["degraded"]) == ("service_unavailable", ["template"])
    assert llm.calls == []  # no model is called without chunks
    allowed = filled.query_with_fallback("Something never asked before?", allow_ungrounded=True)
    assert (allowed["answer"], allowed["degraded"]) == ("With pip.", ["ungrounded"])
    assert (allowed["sources"], allowed["dropped_sources"]) == ([], 2)
    messages = llm.calls[0][0]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "JSON" in messages[0]["content"]  # otherwise OpenAI rejects json_object
    embedder.failing = False
    assert filled.retrieve_relevant_chunks(RUN_TEXT, 1)[0]["content"] == RUN_TEXT  # unchanged


def test_model_outage_raises_generation_error(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # D-029, D-035, C22
    llm = ScriptedLLM([], error=errors.LLMError("Provider scripted failed"))
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        with pytest.raises(GenerationError, match=r"^Failed to generate response: Provider scripted failed"):
            engine.query(QUESTION)


def test_query_with_rejected_model_credentials_returns_template(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # D-029, D-038, C22
    llm = ScriptedLLM([], error=errors.LLMAuthenticationError("Provider scripted refused the credentials"))
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        response = engine.query_with_fallback(QUESTION)
    text = "I'm temporarily unable to process your question. Please try again later."
    assert response["answer"] == text
    assert (response["examples"], response["sources"], response["confidence"]) == ([], [], "low")
    assert (response["error"], response["degraded"]) == ("service_unavailable", ["template"])


def test_cached_answer_needs_no_embedding_or_search(
    filled: RAGEngine, embedder: FailingEmbedder, llm: ScriptedLLM
) -> None:  # D-038
    first = filled.query(QUESTION)
    embedder.failing = True
    assert filled.query_with_fallback(QUESTION)["answer"] == first["answer"]
    assert len(llm.calls) == 1


def test_engine_errors_subclass_rag_and_pipeline_errors() -> None:  # D-035
    assert issubclass(EmbeddingError, RAGError)
    assert issubclass(EmbeddingError, errors.EmbeddingError)
    assert issubclass(RetrievalError, RAGError)
    assert issubclass(RetrievalError, errors.RetrievalError)
    assert issubclass(GenerationError, RAGError)
    assert issubclass(GenerationError, errors.LLMError)


def test_pipeline_error_is_mapped_to_engine_error() -> None:  # D-010, D-029, D-035
    cause = errors.DatabaseUnavailableError("The database cannot be reached")
    error = rag_error(cause)
    assert type(error) is RetrievalError
    assert error.message == "Failed to retrieve documents: The database cannot be reached"
    assert (error.retryable, error.__cause__) == (True, cause)
    assert type(rag_error(errors.LLMTimeoutError("late"))) is GenerationError
    assert type(rag_error(errors.EmbeddingRateLimitError("slowly", retry_after_s=7))) is EmbeddingError
    wrong = InvalidInputError("Query cannot be empty", field="query")
    assert rag_error(wrong) is wrong  # the caller has to change the request


def test_success_rate_includes_failed_queries(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # D-041
    llm = ScriptedLLM([json.dumps(SAID)], first_errors=[errors.LLMError("down")])
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        with pytest.raises(GenerationError):
            engine.query(QUESTION)
        engine.query(QUESTION)
        assert engine.get_rag_performance_stats()["generation_stats"]["success_rate"] == 0.5
