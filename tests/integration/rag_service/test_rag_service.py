"""The synchronous client: the same service from any thread, over its own event loop."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rag_service.conftest import build, sources
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.sentence_encoder import HashingSentenceEncoder
from vectorforge.client import RAGService, get_rag_service
from vectorforge.embedding.providers.nomic import NomicEmbedder, NomicEmbeddingProvider
from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    FilterError,
    InvalidInputError,
    NotFoundError,
)
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric, SearchMode


def test_search_by_text_returns_scored_documents(service: RAGService) -> None:  # B-001, B-022, B-026, C24
    results = service.search_documents("When do cats sleep?")
    assert len(results) == 3
    best = results[0]
    assert best["text"] == "Cats sleep most of the day."
    assert best["metadata"]["category"] == "animals"
    assert set(best) >= {"text", "score", "document_source", "metadata", "chunk_id"}
    scores = [result["score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert sources(service.search_documents("cats", limit=1)) == ["cats.md"]


def test_filters_are_combined_equalities(service: RAGService) -> None:  # B-024, B-025, C18
    found = service.search_documents("cats", filters={"category": "animals", "year": "2024"})
    assert sources(found) == ["cats.md"]
    assert service.search_documents("cats", filters={"category": "animals", "year": 2024}) == []
    with pytest.raises(FilterError):
        service.search_documents("cats", filters={"year": {"$like": "2%"}})


def test_search_by_vector_matches_search_by_text(service: RAGService) -> None:  # B-001, B-023, B-027, C16
    assert service.storage.collection_name == "notes"
    question = "invoice due"
    vector = service.embedder.embed_text(question)
    assert len(vector) == service.embedder.dimension == 64
    assert service.storage.search(query_vector=vector) == service.search_documents(question)
    filtered = service.storage.search(query_vector=vector, limit=2, filter_conditions={"year": "2025"})
    assert sources(filtered) == ["dogs.md"]
    (itself,) = service.storage.search(service.embedder.embed_text("Dogs bark at night."), limit=1)
    assert itself["score"] == pytest.approx(1.0, abs=1e-6)  # cosine of equal directions
    opposite = [-value for value in service.embedder.embed_text("Dogs bark at night.")]
    assert service.storage.search(opposite)[-1]["score"] == pytest.approx(-1.0, abs=1e-6)  # not clamped


def test_query_returns_answer_with_filtered_chunks(service: RAGService) -> None:
    result = service.query("When do cats sleep?", k=2, filters={"year": "2024"})
    assert result.answer == "Cats do."
    assert [chunk.document_source for chunk in result.retrieved_chunks] == ["cats.md", "tax.md"]


def test_query_options_are_accepted_as_in_json(service: RAGService) -> None:
    history = [{"role": "user", "content": "Do cats sleep?"}, {"role": "assistant", "content": "Yes."}]
    result = service.query("When do cats sleep?", search_mode="lexical", history=history, rewrite=False)
    assert (result.answer, result.funnel.search_mode) == ("Cats do.", SearchMode.LEXICAL)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"k": "many"}, "top_k"),
        ({"search_mode": "words"}, "search_mode"),
        ({"temperature": "hot"}, "temperature"),
        ({"conversation_id": "mine"}, "conversation_id"),
        ({"history": [{"role": "user"}]}, "history.0.content"),
    ],
)
def test_query_with_invalid_option_names_the_field(
    service: RAGService, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"`{field}`") as caught:
        service.query("When do cats sleep?", **options)
    assert caught.value.field == field


def test_query_with_unknown_option_raises_type_error(service: RAGService) -> None:
    with pytest.raises(TypeError, match="serch_mode"):
        service.query("When do cats sleep?", serch_mode="dense")


def test_errors_of_async_services_are_raised(service: RAGService) -> None:
    for limit in (0, 101):
        with pytest.raises(InvalidInputError, match="limit"):
            service.search_documents("cats", limit=limit)
    with pytest.raises(DimensionMismatchError):
        service.storage.search([1.0, 2.0])


def test_collection_is_created_with_model_dimension(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:  # B-029, B-030, C14
    encoder = HashingSentenceEncoder("nomic")
    nomic = NomicEmbeddingProvider(NomicEmbedder(load=lambda _: encoder))
    with RAGService(build(postgres_server.app_url, tenant, nomic), collection="papers") as service:
        with pytest.raises(NotFoundError):
            service.search_documents("cats")
        with pytest.raises(DimensionMismatchError):
            service.storage.create_collection(vector_size=384)
        assert service.embedder.dimension == 768
        made = service.storage.create_collection(vector_size=768)
        assert (made.name, made.dimension, made.distance_metric) == ("papers", 768, DistanceMetric.COSINE)
        assert (made.query_prefix, made.document_prefix) == ("search_query: ", "search_document: ")
        with pytest.raises(ConflictError):
            service.storage.create_collection(768)
        assert service.search_documents("cats") == []
        assert len(service.embedder.embed_batch(["a", "b"])) == 2
    assert encoder.sentences == ["search_query: cats", "search_document: a", "search_document: b"]


def test_collection_of_other_tenant_is_not_found(
    service: RAGService, postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    assert service.tenant_id == tenant
    application = build(postgres_server.app_url, tenant, HashingEmbedder())
    with (
        RAGService(application, tenant_id=f"{tenant}-other") as other,
        pytest.raises(NotFoundError),
    ):
        other.search_documents("cats")


def test_get_rag_service_returns_one_instance_per_process(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # B-001, C24
    monkeypatch.setenv("VECTORFORGE_DATABASE_URL", fresh_database_url)
    monkeypatch.setenv("VECTORFORGE_LOCAL_TENANT", "me")
    with ThreadPoolExecutor(4) as pool:
        services = list(pool.map(lambda _: get_rag_service(), range(4)))
    first = services[0]
    assert all(service is first for service in services)
    assert (first.tenant_id, first.storage.collection_name) == ("me", "default")
    first.close()
    second = get_rag_service()
    assert second is not first
    assert second.is_open
    second.close()


def test_service_without_a_database_url_uses_the_embedded_database(
    private_dir: Callable[[str], Path],
) -> None:  # B-001, F-007
    folder = private_dir("laptop")
    script = (
        "from vectorforge.client import get_rag_service\n"
        "with get_rag_service() as service:\n"
        "    service.storage.create_collection(service.embedder.dimension)\n"
        "    print(service.search_documents('cats', search_mode='hybrid'))\n"
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**inherited, "VECTORFORGE_DATA_DIR": str(folder)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    finally:
        EmbeddedPostgres(folder / "postgres").stop(force=True)


def test_search_mode_determines_result_order(service: RAGService) -> None:  # B-022
    query = "invoice thirty days cats"
    by_default = service.search_documents(query)
    scores = [result["score"] for result in by_default]
    assert scores == sorted(scores, reverse=True)
    assert service.search_documents(query, search_mode="dense") == by_default
    assert sources(service.search_documents("invoice", search_mode="lexical")) == ["tax.md"]
    dogs_often = "dogs " * 4 + "cats sleep most of"  # often for the vector, once for BM25
    ranked = {mode: sources(service.search_documents(dogs_often, search_mode=mode)) for mode in SearchMode}
    assert ranked == {
        SearchMode.DENSE: ["dogs.md", "cats.md", "tax.md"],
        SearchMode.HYBRID: ["cats.md", "dogs.md", "tax.md"],
        SearchMode.LEXICAL: ["cats.md", "dogs.md"],
    }
    with pytest.raises(InvalidInputError, match="search_mode"):
        service.search_documents(query, search_mode="fuzzy")
