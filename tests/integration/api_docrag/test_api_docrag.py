"""``/v1/docrag/query`` over real sockets: JSON from the model, readable text for the client."""

import json
from dataclasses import replace

import httpx2

from tests.integration.api_docrag.conftest import DOCRAG, QUESTION, SAID, TEXT, URL, as_json, ask, store
from tests.support.http.live_api import (
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.rag.fenced import unfenced, without_number
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.llm.providers.anthropic import AnthropicProvider


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
    prompt = unfenced(body["messages"][1]["content"])
    assert prompt.startswith(
        "Context from documentation:\n\n--- RELEVANT DOCUMENTATION ---\n\n"
        f"Source: {URL} - Bread\nContent: {TEXT}\n---"
    )
    assert prompt.endswith(
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


# D-039: the design's names next to ours, buffered and streamed
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
