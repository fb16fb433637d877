"""``/v1/docrag/query`` over real sockets: JSON from the model, readable text for who asks."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    finished_job,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.rag.fenced import unfenced, without_number
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.errors import EmbeddingError
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.types import Vector

DOCRAG = "/v1/docrag/query"
URL = "https://docs.example/bread"
QUESTION = "How long must the dough rise?"
TEXT = "Let the dough rise for two hours. How long must the dough rise? Two hours."
SAID = {
    "answer": 'Two hours,\nsays "Bread" – at 25 °C 😀.',
    "examples": ["rise(hours=2)"],
    "sources": [URL, "https://invented.example/dough"],
    "confidence": "high",
}


class EmbedderThatIsDown(HashingEmbedder):
    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        raise EmbeddingError("The embedding provider is down")


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
async def api(app_url: str, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(settings_for(app_url, [tenant]), provider) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        await store(opened, await new_collection(opened))
        yield opened


async def store(client: httpx2.AsyncClient, collection_id: str) -> None:
    documents = [
        {"source": URL, "title": "Bread", "text": TEXT},
        {"source": "https://docs.example/bike", "text": "Oil the chain of the bike after riding."},
    ]
    response = await client.post(f"/v1/collections/{collection_id}/documents", json={"documents": documents})
    job = await finished_job(client, response.json()["id"])
    assert job["status"] == "succeeded", job


async def ask(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(DOCRAG, json={"query": QUESTION, "min_score": 0.3, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def as_json(**changes: Any) -> Reply:
    return Reply(texts=tuple(json.dumps(SAID | changes, ensure_ascii=False)))


# D-023, D-024, D-025, D-026, D-027, D-031, C03, C10, C12, C27
async def test_docrag_query_returns_answer_with_examples_and_sources(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.script(as_json())
    answer = await ask(client)
    assert answer["answer"] == SAID["answer"]
    assert answer["examples"] == ["rise(hours=2)"]
    assert answer["sources"] == [URL]
    assert answer["dropped_sources"] == 1
    assert answer["confidence"] == "high"
    assert "invented.example" not in json.dumps(answer)
    assert answer["cached"] is False
    stats = answer["retrieval_stats"]
    parts_ms = stats["retrieval_time_ms"] + stats["generation_time_ms"]
    assert parts_ms / 1000 - 0.001 <= answer["response_time"] < 30
    assert answer["passages"][0]["document_source"] == URL
    (body,) = openai.bodies
    assert body["model"] == "gpt-4o"
    assert (body["max_tokens"], body["temperature"]) == (1000, 0.3)
    assert "top_p" not in body
    assert body["response_format"]["type"] == "json_schema"
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    asked = unfenced(body["messages"][1]["content"])
    assert asked.startswith(
        "Context from documentation:\n\n--- RELEVANT DOCUMENTATION ---\n\n"
        f"Source: {URL} - Bread\nContent: {TEXT}\n---"
    )
    assert asked.endswith(
        f"\n\nUser question: {QUESTION}\n\nPlease provide a helpful answer based on the context above."
    )


async def test_docrag_stream_emits_readable_text(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # C09
    openai.script(replace(as_json(), pause_s=0.002))
    events = await ask_streaming(client, DOCRAG, {"query": QUESTION, "min_score": 0.3})
    tokens = [event.data["text"] for event in events if event.name == "token"]
    assert "".join(tokens) == SAID["answer"]
    assert len(tokens) > 1  # as soon as the model writes them
    done = events[-1].data
    assert done["answer"] == SAID["answer"]
    assert done["structured"] == {
        "examples": ["rise(hours=2)"], "sources": [URL], "dropped_sources": 1, "confidence": "high",
    }  # fmt: skip
    assert "invented.example" not in json.dumps([event.data for event in events])


async def test_docrag_query_with_anthropic_uses_json_schema_output(
    app_url: str, tenant: str
) -> None:  # D-027
    async with FakeAnthropic() as server:
        provider = AnthropicProvider(
            server.api_key, base_url=server.base_url, default_model="claude-haiku-5-5", retries=0
        )
        server.unscripted = as_json(sources=[URL + "/"])
        async with (
            live_api(settings_for(app_url, [tenant]), provider) as running,
            running.client(tenant) as client,
        ):
            await store(client, await new_collection(client))
            whole = await ask(client)
            events = await ask_streaming(client, DOCRAG, {"query": QUESTION, "min_score": 0.3})
        assert whole["answer"] == events[-1].data["answer"] == SAID["answer"]
        assert whole["sources"] == [URL]
        assert [body["output_config"]["format"]["type"] for body in server.bodies] == ["json_schema"] * 2


async def test_docrag_query_falls_back_to_text_without_json_support(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-028
    openai.script(
        Failure(400, message="'response_format' of type 'json_schema' is not supported with this model."),
        Failure(400, message="'response_format' of type 'json_object' is not supported with this model."),
        Reply(texts=("Two ", "hours.")),
    )
    answer = await ask(client)
    assert (answer["answer"], answer["confidence"]) == ("Two hours.", "low")
    assert (answer["examples"], answer["sources"]) == ([], [])
    formats = [(body.get("response_format") or {}).get("type") for body in openai.bodies]
    assert formats == ["json_schema", "json_object", None]


async def test_chunks_below_min_score_are_dropped(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # C04, D-018
    openai.unscripted = as_json()
    scores = {p["document_source"]: p["score"] for p in (await ask(client, min_score=None))["passages"]}
    between = (scores[URL] + scores["https://docs.example/bike"]) / 2
    answer = await ask(client, min_score=between)
    assert [p["document_source"] for p in answer["passages"]] == [URL]
    assert answer["retrieval_stats"]["below_min_score"] == 1
    funnel = answer["funnel"]
    assert (funnel["candidates"], funnel["below_min_score"], funnel["used"]) == (2, 1, 1)
    collections = (await client.get("/v1/collections")).json()["collections"]
    other = await client.post(
        f"/v1/collections/{collections[0]['id']}/query", json={"query": QUESTION, "min_score": None}
    )
    assert len(other.json()["sources"]) == 2


async def test_docrag_query_without_min_score_drops_no_chunk(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # C04, D-018
    openai.unscripted = as_json()
    response = await client.post(DOCRAG, json={"query": "Where can a chain be bought?"})
    answer = response.json()
    assert max(passage["score"] for passage in answer["passages"]) < 0.7
    assert (answer["outcome"], len(answer["passages"])) == ("answered", 2)
    assert answer["retrieval_stats"]["below_min_score"] == 0


async def test_docrag_query_with_high_min_score_returns_empty_answer(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # C04, C11
    response = await client.post(DOCRAG, json={"query": "Where can a chain be bought?", "min_score": 0.7})
    answer = response.json()
    assert answer["outcome"] == "empty"
    assert answer["retrieval_stats"]["below_min_score"] == 2
    assert (answer["funnel"]["candidates"], answer["funnel"]["used"]) == (2, 0)
    assert (answer["examples"], answer["sources"], answer["confidence"]) == ([], [], "low")
    assert openai.bodies == []


async def test_conversation_history_is_placed_in_the_context(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-019
    openai.unscripted = as_json()
    history = [{"user_query": f"Q{n}?", "ai_response": f"A{n}" + "y" * 250} for n in range(4)]
    await ask(client, conversation_history=history)
    (body,) = openai.bodies
    assert len(body["messages"]) == 2
    expected = "".join(f"Previous Q: Q{n}?\nPrevious A: A{n}{'y' * 198}...\n" for n in (1, 2, 3))
    assert f"Context from documentation:\n{expected}\n--- RELEVANT" in unfenced(
        body["messages"][1]["content"]
    )


# D-039: the design's names beside ours, whole and streamed
async def test_docrag_quality_uses_documented_field_names(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    quality = (await ask(client))["quality"]
    assert quality["relevance_score"] == quality["relevance"] == 1.0
    assert 0 < quality["completeness_score"] == quality["completeness"] <= 1
    assert quality["accuracy_indicators"] == ["sources_provided", "examples_provided"]
    events = await ask_streaming(client, DOCRAG, {"query": QUESTION, "min_score": 0.3})
    assert events[-1].data["quality"] == quality
    elsewhere = (await client.post("/v1/rag/query", json={"query": QUESTION})).json()["quality"]
    assert "relevance_score" not in elsewhere


# D-033
async def test_query_with_other_case_and_whitespace_hits_cache(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    await ask(client)
    assert (await ask(client, query=f"  {QUESTION.upper()}\n"))["cached"] is True
    assert len(openai.bodies) == 1
    for query in (QUESTION, QUESTION.upper()):
        body = {"query": query, "temperature": 0.3, "top_p": None, "max_tokens": 1000}
        answer = (await client.post("/v1/rag/query", json=body)).json()
        assert answer["cached"] is False  # only DocRag's key is so made


async def test_docrag_collection_takes_precedence_over_default(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-003, C17
    openai.unscripted = as_json()
    assert (await ask(client))["passages"]
    own = await new_collection(client, "docrag_embeddings")
    assert (await ask(client))["outcome"] == "empty"
    assert (await ask(client, collection="default"))["passages"]
    await add_documents(client, own, dough=TEXT)
    assert (await ask(client))["passages"][0]["document_source"] == "dough.md"


async def test_dry_run_shows_the_request_that_is_later_sent(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.unscripted = as_json()
    history = [{"user_query": "Which bread?", "ai_response": "Rye."}]
    dry = await ask(client, dry_run=True, conversation_history=history)
    assert openai.bodies == []
    await ask(client, conversation_history=history)
    assert without_number(dry["request"]) == without_number(openai.bodies[0])
    assert dry["request"]["response_format"]["type"] == "json_schema"


async def test_stored_conversation_is_placed_in_the_context(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-019
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    conversation = (await client.post("/v1/conversations", json={})).json()["id"]
    await ask(client, conversation_id=conversation)
    await ask(client, conversation_id=conversation)
    asked = openai.bodies[1]["messages"][1]["content"]
    assert f"Previous Q: {QUESTION}\nPrevious A: Let the dough rise for two hours....\n" in asked


async def test_model_outage_returns_extractive_answer(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-038, C22
    openai.unscripted = Failure(500)
    answer = await ask(client)
    assert (answer["degraded"], answer["error"], answer["extractive"]) == (["passages"], None, True)
    assert (answer["sources"], answer["confidence"]) == ([URL], "low")
    assert "two hours" in answer["answer"].lower()


async def test_variant_sets_temperature_and_token_limit(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-040, C30
    openai.unscripted = as_json()
    assert (await ask(client, variant="precise"))["variant"] == "precise"
    assert (openai.bodies[0]["temperature"], openai.bodies[0]["max_tokens"]) == (0.1, 500)


async def test_repeated_docrag_query_is_served_from_cache(
    client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # D-030, D-032, C21
    openai.unscripted = as_json(answer="Let the dough rise for two hours.")
    first = await ask(client)
    again = await ask(client)
    assert (first["cached"], again["cached"], len(openai.bodies)) == (False, True, 1)
    for name in ("answer", "examples", "sources", "dropped_sources", "confidence"):
        assert again[name] == first[name]
    events = await ask_streaming(client, DOCRAG, {"query": QUESTION, "min_score": 0.3})
    assert events[-1].data["structured"]["examples"] == first["examples"]
    third = {"user_query": "Which bread?", "ai_response": "Rye."}
    rest = [{"user_query": f"Q{n}?", "ai_response": f"A{n}."} for n in range(2)]
    for changed in ({**third, "user_query": "Which pizza?"}, third):
        assert (await ask(client, conversation_history=[changed, *rest]))["cached"] is False  # C20


async def test_outage_of_model_and_embedder_returns_template(app_url: str, tenant: str) -> None:  # D-038, C22
    async with FakeOpenAI() as openai:
        openai.unscripted = Failure(500)
        provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
        async with (
            live_api(settings_for(app_url, [tenant]), provider) as running,
            running.client(tenant) as client,
        ):
            await new_collection(client)
            running.application.embedding_registry.register(EmbedderThatIsDown())
            answer = await ask(client)
    assert answer["answer"] == ("I'm temporarily unable to process your question. Please try again later.")
    assert (answer["degraded"], answer["error"]) == (["template"], "service_unavailable")
    assert (answer["examples"], answer["sources"], answer["confidence"]) == ([], [], "low")


async def test_invalid_docrag_field_returns_422_naming_it(client: httpx2.AsyncClient) -> None:
    for field, value in {
        "n_results": 0,
        "temperature": 2.1,
        "max_tokens": 0,
        "conversation_history": [{"user_query": "x"}],
        "provider": "nobody",
        "messages": [],
    }.items():
        response = await client.post(DOCRAG, json={"query": "x", field: value})
        assert response.status_code == 422, field
        assert field in response.text
    assert (await client.post(DOCRAG, json={"query": "x", "n_results": 101})).status_code == 422
