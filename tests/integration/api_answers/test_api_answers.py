"""Queries over HTTP: cited answers, buffered and streamed, from both API surfaces."""

import time
from typing import Any

import httpx2
import pytest

from tests.integration.api_answers.conftest import GUIDES, RAG, ask, texts
from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    new_collection,
)
from tests.support.rag.fenced import unfenced
from tests.support.vendors.fake_openai import FakeOpenAI


@pytest.fixture
async def guides(client: httpx2.AsyncClient) -> str:
    collection_id = await new_collection(client)
    job = await add_documents(client, collection_id, **GUIDES)
    assert job["status"] == "succeeded", job
    return collection_id


# B-002, B-013, B-014, B-015, B-016, B-017, B-018, B-019, B-020, B-022, B-038, B-044, C09, C10
async def test_query_without_options_returns_cited_answer(client: httpx2.AsyncClient, guides: str) -> None:
    sent_at = int(time.time())
    answer = await ask(client)
    assert sent_at <= answer["created"] <= time.time()
    assert "two hours" in answer["response"]
    assert answer["id"].startswith("ragq_")
    assert answer["object"] == "rag.query.completion"
    assert answer["query"] == "How long must the dough rise?"
    assert answer["extractive"] is True
    assert answer["outcome"] == "answered"
    usage = answer["usage"]
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert [entry["label"] for entry in answer["context"]] == ["[Context 1]", "[Context 2]", "[Context 3]"]

    citation = answer["citations"][0]
    cited = answer["context"][citation["source_number"] - 1]
    assert cited["chunk_id"] == citation["chunk_id"]
    assert "two hours" in cited["text"]
    assert answer["response"][citation["start"] : citation["end"]] == f"[Context {citation['source_number']}]"
    text = (await client.get(f"/v1/documents/{cited['document_id']}/text")).json()["text"]
    assert text[cited["start_offset"] : cited["end_offset"]] == cited["text"]

    stats = answer["retrieval_stats"]
    scores = [entry["score"] for entry in answer["context"]]
    assert stats["chunks_retrieved"] == 3
    assert stats["top_score"] == round(max(scores), 4)
    assert stats["avg_score"] == round(sum(scores) / 3, 4)
    assert stats["min_score"] == round(min(scores), 4)
    assert stats["retrieval_time_ms"] == round(stats["retrieval_time_ms"], 2) > 0


@pytest.mark.parametrize("path", [RAG, "/v1/collections/{id}/query"])
async def test_stream_matches_the_whole_answer(
    client: httpx2.AsyncClient, guides: str, path: str
) -> None:  # C41, A-156
    path = path.format(id=guides)
    whole = await ask(client, path)
    events = await ask_streaming(client, path, {"query": "How long must the dough rise?"})
    done = events[-1].data
    text = whole["response"] if path == RAG else whole["answer"]
    assert texts(events) == done["answer"] == text
    assert [e.data for e in events if e.name == "citation"] == whole["citations"]
    (sources,) = (e.data["sources"] for e in events if e.name == "sources")
    if path == RAG:
        assert [s["chunk_id"] for s in sources] == [entry["chunk_id"] for entry in whole["context"]]
    else:
        assert sources == whole["sources"]
    (usage,) = (e.data for e in events if e.name == "usage")
    assert usage == {**whole["usage"], "estimated": False}
    assert (done["finish_reason"], done["outcome"]) == (whole["finish_reason"], whole["outcome"])
    assert done["funnel"] == whole["funnel"]
    assert (done["funnel"]["matched"], done["funnel"]["used"]) == (len(sources), len(sources))
    assert done["funnel"]["cited"] == len({citation["chunk_id"] for citation in whole["citations"]}) > 0


async def test_query_is_logged_under_the_answer_id(
    client: httpx2.AsyncClient, guides: str
) -> None:  # A-114, C31
    answer = await ask(client)
    events = await ask_streaming(client, RAG, {"query": "When is the chain oiled?"})
    for query_id, question in (
        (answer["id"].removeprefix("ragq_"), "How long must the dough rise?"),
        (events[0].data["request_id"], "When is the chain oiled?"),
    ):
        row = (await client.get(f"/v1/queries/{query_id}")).json()
        assert (row["query_text"], row["outcome"]) == (question, "answered")
    listed = (await client.get("/v1/queries", params={"outcome": "answered", "limit": 1})).json()["queries"]
    assert [row["query_text"] for row in listed] == ["When is the chain oiled?"]


@pytest.mark.parametrize("k", [1, 2, 3])
async def test_k_limits_the_chunk_count(
    client: httpx2.AsyncClient, guides: str, k: int
) -> None:  # B-004, B-043
    answer = await ask(client, k=k, temperature=0.7, include_context=True)
    assert answer["retrieval_stats"]["chunks_retrieved"] == len(answer["context"]) == k


async def test_filters_restrict_the_search(
    client: httpx2.AsyncClient, guides: str
) -> None:  # B-005, B-024, B-025
    answer = await ask(client, k=7, filters={"kind": "bike"}, temperature=0.5, max_tokens=1024)
    assert [entry["metadata"]["kind"] for entry in answer["context"]] == ["bike"]
    assert (answer["funnel"]["matched"], answer["funnel"]["candidates"]) == (1, 1)


async def test_include_context_false_omits_the_context(client: httpx2.AsyncClient, guides: str) -> None:
    answer = await ask(client, include_context=False)  # B-010, B-017
    assert answer["context"] is None
    assert answer["citations"]
    events = await ask_streaming(client, RAG, {"query": "dough?", "include_context": False})
    assert events[1].data["sources"] == []
    assert (await ask(client, include_context=None))["context"]


async def test_empty_search_result_returns_null_scores(
    client: httpx2.AsyncClient, guides: str
) -> None:  # B-021, C11
    nothing: dict[str, Any] = {"filters": {"kind": "car"}}
    answer = await ask(client, **nothing)
    assert (answer["context"], answer["citations"], answer["outcome"]) == ([], [], "empty")
    stats = answer["retrieval_stats"]
    assert stats["chunks_retrieved"] == 0
    assert [stats[name] for name in ("top_score", "avg_score", "min_score")] == [None, None, None]

    path = f"/v1/collections/{guides}/query"
    whole = await ask(client, path, **nothing)
    assert whole["answer"] == "No relevant documents found for your query."
    events = await ask_streaming(client, path, {"query": "dough?", **nothing})
    assert texts(events) == whole["answer"]
    assert [e.name for e in events] == ["meta", "sources", "token", "usage", "done"]


async def test_collection_is_selected_by_name_or_id(client: httpx2.AsyncClient, guides: str) -> None:  # C17
    other = await new_collection(client, "Others")
    await add_documents(client, other, tea="# Tea\n\nLet the dough of tea biscuits rise for one minute.\n")
    for reference in ("Others", other):
        answer = await ask(client, collection=reference)
        assert [entry["source"] for entry in answer["context"]] == ["tea.md"]
    missing = await client.post(RAG, json={"query": "x", "collection": "nowhere"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_query_without_default_collection_returns_404_with_instructions(
    client: httpx2.AsyncClient,
) -> None:
    response = await client.post(RAG, json={"query": "x"})
    assert response.status_code == 404
    assert "POST /v1/collections" in response.json()["detail"]
    assert "vectorforge ingest" in response.json()["detail"]


async def test_search_returns_results_without_calling_a_model(
    client: httpx2.AsyncClient, guides: str
) -> None:
    response = await client.post("/v1/search", json={"query": "oil the chain", "top_k": 2})
    body = response.json()
    assert (body["query"], body["collection_id"]) == ("oil the chain", guides)
    assert body["results"][0]["source"] == "bike.md"
    assert len(body["results"]) == 2
    high = await client.post("/v1/search", json={"query": "oil the chain", "min_score": 0.99})
    assert high.json()["results"] == []


# B-006, B-012, B-034
async def test_messages_are_sent_to_the_model_before_the_query(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]
    answer = await ask(model_client, messages=turns, top_p=None)
    assert (answer["response"], answer["extractive"]) == ("The answer is 42 [Source 1].", False)
    body = openai.bodies[-1]
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert unfenced(body["messages"][0]["content"]).startswith(
        "You are a helpful assistant. Use the following context to answer the user's question.\n\nContext:\n"
        "[Context 1]\n"
    )
    assert body["messages"][1:3] == turns
    assert body["messages"][3]["content"] == "How long must the dough rise?"
    assert (body["temperature"], "top_p" in body) == (0.7, False)  # B-007, B-008


async def test_api_surface_defaults_are_applied_per_surface(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # B-009, C03, C12
    (collection,) = (await model_client.get("/v1/collections")).json()["collections"]
    await ask(model_client)
    await ask(model_client, f"/v1/collections/{collection['id']}/query")
    rag, own = openai.bodies
    limits = [body.get("max_completion_tokens", body.get("max_tokens")) for body in (rag, own)]
    assert limits == [2048, 1024]
    assert (rag["top_p"], "top_p" in own) == (0.9, False)
    assert "[Source 1]" in own["messages"][0]["content"]


async def test_query_id_is_independent_of_client_request_id(client: httpx2.AsyncClient, guides: str) -> None:
    headers = {"X-Request-Id": "trace-0123456789"}
    first = await client.post(RAG, json={"query": "dough?"}, headers=headers)
    second = await client.post(RAG, json={"query": "dough?"}, headers=headers)
    assert first.headers["x-request-id"] == second.headers["x-request-id"] == "trace-0123456789"
    assert first.json()["id"] != second.json()["id"]
