"""The DocRag engine: documents in, answers out, from synchronous code over the one pipeline."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from vectorforge import errors
from vectorforge.bootstrap import Application
from vectorforge.config import (
    DatabaseSettings,
    EmbeddingSettings,
    LLMSettings,
    ServerSettings,
    VectorForgeConfig,
)
from vectorforge.db.connection import Database
from vectorforge.docrag.cache import CacheManager
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, InvalidInputError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.rag_engine import (
    Config,
    EmbeddingError,
    GenerationError,
    RAGEngine,
    RAGError,
    RetrievalError,
)
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.fake_openai import FakeOpenAI
from vectorforge.testing.fake_vendor import Failure, Reply
from vectorforge.testing.hashing_embedder import HashingEmbedder
from vectorforge.testing.scripted_llm import ScriptedLLM

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
    """Fails as long as it is told to."""

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


def test_members(engine: RAGEngine, llm: ScriptedLLM) -> None:  # D-001, D-002, D-004, D-005, D-006
    assert engine.collection.name == engine.chroma_client.collection_name == "docrag_embeddings"
    assert engine.collection.id == engine.collection.id
    assert engine.collection.distance_metric == "cosine"
    assert engine.openai_client is llm
    assert len(engine.text_splitter.split_text("word " * 400)) == 3


def test_config() -> None:  # D-002, D-003, C12
    config = Config()
    assert (config.COLLECTION_NAME, config.CHUNK_SIZE, config.CHUNK_OVERLAP) == (
        "docrag_embeddings",
        800,
        150,
    )
    assert (config.OPENAI_MODEL, config.MAX_RESPONSE_TOKENS, config.TEMPERATURE) == ("gpt-4o", 1000, 0.3)
    assert (config.CACHE_TTL, config.OPENAI_MAX_RETRIES) == (3600, 3)
    assert (config.OPENAI_API_KEY, config.CHROMA_DB_PATH) == (None, None)
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
def test_config_is_validated(name: str, value: Any) -> None:  # D-002, D-003
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: value})


def test_config_goes_over_the_settings() -> None:  # D-003
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
    assert Config().over(settings).embedding.default_provider == settings.embedding.default_provider


# D-012, D-013, D-014, D-017, D-024, D-026, D-030, D-031, C10, C15, C27
def test_asking_what_was_added(filled: RAGEngine, llm: ScriptedLLM) -> None:
    response = filled.query(QUESTION)
    assert (response["answer"], response["examples"]) == ("With pip.", ["pip install tool"])
    assert (response["sources"], response["dropped_sources"]) == ([URL], 1)
    assert (response["confidence"], response["cached"], response["degraded"]) == ("high", False, [])
    assert 0 < response["response_time"] < 30
    (passage,) = response["passages"]  # the other one scores below 0.7
    assert passage["content"] == INSTALL_TEXT
    assert (passage["source_url"], passage["title"]) == (URL, "Install")
    metadata = {"source_url": URL, "title": "Install", "doc_type": "guide"}
    assert passage["metadata"] == {**metadata, "chunk_index": 0, "external_id": f"{URL}#0"}
    messages, config = llm.calls[0]
    assert f"\nSource: {URL} - Install\nContent: {INSTALL_TEXT}\n---" in messages[1]["content"]
    assert (config.temperature, config.max_tokens, config.model) == (0.3, 1000, "scripted-1")


def test_searching(filled: RAGEngine) -> None:  # D-017, D-018
    found = filled.retrieve_relevant_chunks(RUN_TEXT, n_results=2)
    assert [chunk["source_url"] for chunk in found] == [RUN, URL]
    assert found[0]["similarity_score"] == pytest.approx(1.0, abs=1e-6)
    assert (found[0]["title"], found[0]["metadata"]["doc_type"]) == ("", "unknown")
    assert filled.retrieve_relevant_chunks(RUN_TEXT, min_similarity=0.9) == found[:1]


def test_threshold(postgres_server: EmbeddedPostgres, tenant: str, llm: ScriptedLLM) -> None:  # C04, D-018
    config = Config(MIN_SIMILARITY=None)
    with RAGEngine(config, application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": RUN_TEXT, "source_url": RUN}])
        assert engine.query("Elephants")["answer"] == "With pip."
    assert Config().MIN_SIMILARITY == 0.7


def test_conversation(filled: RAGEngine, llm: ScriptedLLM) -> None:  # D-019, D-033, C20
    filled.query(QUESTION, [{"user_query": "Which tool?", "ai_response": "That one."}])
    assert "\nPrevious Q: Which tool?\nPrevious A: That one....\n" in llm.calls[0][0][1]["content"]
    with pytest.raises(InvalidInputError, match="user_query"):
        filled.query(QUESTION, [{"user_query": "Which tool?"}])


def test_adding_again(filled: RAGEngine, caplog: pytest.LogCaptureFixture) -> None:  # D-012, D-014, C19
    same = {"content": INSTALL_TEXT, "source_url": URL, "title": "Install", "doc_type": "guide"}
    with caplog.at_level(logging.INFO):
        (unchanged,) = filled.add_documents([same])
    assert unchanged["status"] == "unchanged"
    assert "Skipping duplicate document: Install" in caplog.messages
    (elsewhere,) = filled.add_documents([{**same, "source_url": "https://docs.example/copy"}])
    assert (elsewhere["status"], elsewhere["chunks_added"]) == ("succeeded", 1)  # its filters find it, too
    (replaced,) = filled.add_documents([{**same, "content": RUN_TEXT}])
    assert (replaced["chunks_added"], replaced["chunks_removed"]) == (1, 1)


def test_chunks_that_were_cut_before(engine: RAGEngine) -> None:  # D-008, D-012, C19
    content = "\n\n".join(f"Paragraph {n}. " + "It says something of its own. " * 20 for n in range(4))
    chunks = engine.chunk_document(content, {"source_url": URL, "title": "Install", "doc_type": "guide"})
    assert [chunk["chunk_index"] for chunk in chunks] == [0, 1, 2, 3]
    stored = engine.add_documents(chunks)
    assert [document["chunks_added"] for document in stored] == [4, 4, 4, 4]
    found = engine.retrieve_relevant_chunks(chunks[2]["content"], n_results=1)
    assert found[0]["content"] == chunks[2]["content"]
    assert found[0]["metadata"]["external_id"] == f"{URL}#2"
    (again, *_) = engine.add_documents(chunks)
    assert again["status"] == "unchanged"
    changed = [*chunks[:3], {**chunks[3], "content": "Another end of this page, long enough to be kept."}]
    (kept, *_) = engine.add_documents(changed)
    assert (kept["chunks_kept"], kept["chunks_added"], kept["chunks_removed"]) == (3, 1, 1)


def test_one_bad_document_of_ten(engine: RAGEngine, caplog: pytest.LogCaptureFixture) -> None:  # D-016, C33
    documents: list[dict[str, Any]] = [
        {
            "content": f"Page {n} of the handbook tells about the number {n} at length.",
            "source_url": f"{URL}/{n}",
        }
        for n in range(10)
    ]
    documents[3] = {"content": "", "source_url": f"{URL}/3"}
    with caplog.at_level(logging.INFO):
        stored = engine.add_documents_batch(documents, batch_size=5)
    assert [document["status"] for document in stored].count("succeeded") == 9
    assert stored[3]["status"] == "failed"
    assert "content" in stored[3]["error"]["message"]
    assert [document["source_url"] for document in stored] == [f"{URL}/{n}" for n in range(10)]
    assert engine.collection.document_count == 9
    assert [m for m in caplog.messages if m.startswith("Added batch")] == [
        "Added batch 1: 5 documents",
        "Added batch 2: 4 documents",
    ]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"content": "x" * 60}, "source_url"),
        ({"source_url": URL}, "content"),
        ({"content": "x" * 60, "source_url": "u" * 2001}, "source_url"),
        ({"content": "x" * 60, "source_url": URL, "title": 5}, "title"),
        ({"content": "x" * 60, "source_url": URL, "chunk_index": -1}, "chunk_index"),
        ({"content": "x" * 60, "source_url": URL, "metadata": "m"}, "metadata"),
        ({"content": "too short", "source_url": URL}, "50 characters"),
        ("no dictionary", "dictionary"),
    ],
)
def test_documents_that_are_not_usable(engine: RAGEngine, document: Any, named: str) -> None:  # D-012, C33
    (outcome,) = engine.add_documents([document])
    assert outcome["status"] == "failed"
    assert named in outcome["error"]["message"]


def test_embedding_provider_is_down(
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
    assert llm.calls == []  # no model writes without passages
    allowed = filled.query_with_fallback("Something never asked before?", allow_ungrounded=True)
    assert (allowed["answer"], allowed["degraded"]) == ("With pip.", ["ungrounded"])
    assert (allowed["sources"], allowed["dropped_sources"]) == ([], 2)
    messages = llm.calls[0][0]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "JSON" in messages[0]["content"]  # or OpenAI refuses json_object
    embedder.failing = False
    assert filled.retrieve_relevant_chunks(RUN_TEXT, 1)[0]["content"] == RUN_TEXT  # as it was


def test_model_is_down(postgres_server: EmbeddedPostgres, tenant: str) -> None:  # D-029, D-035, D-038, C22
    llm = ScriptedLLM([], error=errors.LLMError("Provider scripted failed"))
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        with pytest.raises(GenerationError, match=r"^Failed to generate response: Provider scripted failed"):
            engine.query(QUESTION)
        passages = engine.query_with_fallback(QUESTION)
        response = engine.query_with_fallback("Is there anything about elephants?")
    assert "Install the tool with pip" in passages["answer"]
    assert (passages["degraded"], passages["sources"]) == (["passages"], [URL])
    assert "error" not in passages
    assert response["answer"] == "No relevant documents found for your query."


def test_nobody_can_answer(postgres_server: EmbeddedPostgres, tenant: str) -> None:  # D-029, D-038, C22
    llm = ScriptedLLM([], error=errors.LLMAuthenticationError("Provider scripted refused the credentials"))
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        response = engine.query_with_fallback(QUESTION)
    text = "I'm temporarily unable to process your question. Please try again later."
    assert response["answer"] == text
    assert (response["examples"], response["sources"], response["confidence"]) == ([], [], "low")
    assert (response["error"], response["degraded"]) == ("service_unavailable", ["template"])


def test_known_answer_needs_no_search(
    filled: RAGEngine, embedder: FailingEmbedder, llm: ScriptedLLM
) -> None:  # D-038
    first = filled.query(QUESTION)
    embedder.failing = True
    assert filled.query_with_fallback(QUESTION)["answer"] == first["answer"]
    assert len(llm.calls) == 1


# D-030, D-031, D-032, D-033, D-034, C20, C21
def test_the_same_question_again(
    filled: RAGEngine, llm: ScriptedLLM, caplog: pytest.LogCaptureFixture
) -> None:
    first = filled.query(QUESTION)
    with caplog.at_level(logging.INFO):
        again = filled.query(QUESTION)
    assert (first["cached"], again["cached"]) == (False, True)
    kept = ("answer", "examples", "sources", "confidence", "dropped_sources")
    assert {name: again[name] for name in kept} == {name: first[name] for name in kept}
    assert f"Cache hit for query: {QUESTION[:50]}..." in caplog.messages
    assert len(llm.calls) == 1
    assert filled.query_with_variants(QUESTION, "precise")["cached"] is False
    history = [{"user_query": "Which OS?", "ai_response": "Linux"}]
    assert filled.query(QUESTION, history)["cached"] is False
    filled.add_documents([{"content": RUN_TEXT + " And more.", "source_url": URL + "/new"}])
    assert filled.query(QUESTION)["cached"] is False
    assert filled.get_rag_performance_stats()["cache_stats"]["hits_last_day"] == 1


def test_text_is_not_kept(postgres_server: EmbeddedPostgres, tenant: str) -> None:  # D-028, C21
    llm = ScriptedLLM(["Just text."])
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        assert [engine.query(QUESTION)["cached"] for _ in range(2)] == [False, False]


def test_values_of_callers(engine: RAGEngine) -> None:  # D-004, D-007
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


def test_errors_are_both_kinds() -> None:  # D-035
    assert issubclass(EmbeddingError, RAGError)
    assert issubclass(EmbeddingError, errors.EmbeddingError)
    assert issubclass(RetrievalError, RAGError)
    assert issubclass(RetrievalError, errors.RetrievalError)
    assert issubclass(GenerationError, RAGError)
    assert issubclass(GenerationError, errors.LLMError)


def test_removing(filled: RAGEngine, caplog: pytest.LogCaptureFixture) -> None:  # D-015, C19
    with caplog.at_level(logging.INFO):
        assert filled.remove_existing_documents(URL) == 1
        assert filled.remove_existing_documents(URL) == 0
    assert f"Removed 1 existing chunks for {URL}" in caplog.messages
    assert filled.collection.document_count == 1


def test_readers_never_see_a_gap(filled: RAGEngine) -> None:  # D-015, C19
    texts = [INSTALL_TEXT + f" This is edition {n % 2} of the page." for n in range(20)]
    seen, stop = list[int](), threading.Event()

    def read() -> None:
        while not stop.is_set():
            found = filled.retrieve_relevant_chunks(INSTALL_TEXT, n_results=5)
            seen.append(sum(chunk["source_url"] == URL for chunk in found))

    with ThreadPoolExecutor(1) as readers:
        reading = readers.submit(read)
        for text in texts:
            (outcome,) = filled.add_documents([{"content": text, "source_url": URL}])
            assert outcome["status"] == "succeeded"
        stop.set()
        reading.result()
    assert set(seen) == {1}


def test_variants(filled: RAGEngine, llm: ScriptedLLM) -> None:  # D-040, C30
    for variant in ("default", "precise", "comprehensive"):
        assert filled.query_with_variants(QUESTION + variant, variant)["variant"] == variant
    sent = [(config.temperature, config.max_tokens) for _, config in llm.calls]
    assert sent == [(0.3, 1000), (0.1, 500), (0.3, 1000)]
    filled.query(QUESTION)
    assert (llm.calls[-1][1].temperature, llm.calls[-1][1].max_tokens) == (0.3, 1000)
    with pytest.raises(InvalidInputError, match="variant"):
        filled.query_with_variants(QUESTION, "no such")


def test_statistics(filled: RAGEngine) -> None:  # D-041
    before = filled.get_rag_performance_stats()
    assert before["generation_stats"] == {
        "model": "scripted-1",
        "avg_response_time": None,
        "success_rate": None,
    }
    took = [filled.query(f"{QUESTION} {n}")["response_time"] for n in range(3)]
    stats = filled.get_rag_performance_stats()
    assert stats["vector_store_stats"] == {"collection_count": 2, "document_count": 2}
    assert stats["embedding_stats"] == {"model": "hashing-v1", "dimension": 64, "daily_requests": 3}
    assert stats["generation_stats"]["success_rate"] == 1.0
    assert stats["generation_stats"]["avg_response_time"] == pytest.approx(sum(took) / 3, rel=0.5)
    cache = stats["cache_stats"]
    assert (cache["fresh"], cache["answered_last_day"], cache["hit_rate_last_day"]) == (3, 3, 0.0)


def test_success_rate_counts_failures(postgres_server: EmbeddedPostgres, tenant: str) -> None:  # D-041
    llm = ScriptedLLM([json.dumps(SAID)], first_errors=[errors.LLMError("down")])
    with RAGEngine(application=build(postgres_server.app_url, tenant, llm)) as engine:
        engine.add_documents([{"content": INSTALL_TEXT, "source_url": URL}])
        with pytest.raises(GenerationError):
            engine.query(QUESTION)
        engine.query(QUESTION)
        assert engine.get_rag_performance_stats()["generation_stats"]["success_rate"] == 0.5


# D-003, D-009, D-011, D-027, D-036, D-037, C14, C23
async def test_what_goes_over_the_wire(postgres_server: EmbeddedPostgres, tenant: str) -> None:
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


def test_analytics(filled: RAGEngine, caplog: pytest.LogCaptureFixture) -> None:  # D-042
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
