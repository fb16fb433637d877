"""The degradation ladder on real parts: each step is reached by an outage, and reported."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import TextContent

from tests.conftest import ObservedPostgres
from tests.integration.degradation.conftest import BROKEN, QUESTION, RAG, Start, Surroundings
from tests.support.http.mcp_client import mcp_client
from tests.support.postgres.pgbouncer import PgBouncer
from tests.support.vendors.fake_reranker import FakeReranker
from tests.support.vendors.fake_vendor import Reply, ToolCall
from tests.support.vendors.vendor_behaviour import Behaviour, Failure


async def test_healthy_providers_never_degrade_answers(start: Start) -> None:
    here = await start(("anthropic",))
    for number in range(10):
        answer = await here.ask(query=f"Question {number} about dough?")
        assert (answer["degraded"], answer["provider"], answer["cached"]) == ([], "openai", False)
        assert (await here.row(answer["id"]))["degraded"] == []
    assert here.second.requests == []
    assert here.metrics.total("pipeline.query.degraded") == 0


@pytest.mark.parametrize("behaviour", BROKEN)
async def test_failed_models_return_chunks_as_answer(start: Start, behaviour: Behaviour) -> None:  # fault 14
    here = await start(("anthropic",))
    here.first.unscripted = here.second.unscripted = behaviour
    answer = await here.ask()
    assert (answer["degraded"], answer["extractive"], answer["provider"]) == (
        ["passages"],
        True,
        "extractive",
    )
    assert "two hours" in answer["response"]
    funnel = answer["funnel"]
    assert (funnel["matched"], funnel["used"], funnel["cited"]) == (2, 2, len(answer["citations"]))
    citation = answer["citations"][0]
    cited = answer["context"][citation["source_number"] - 1]
    assert "two hours" in cited["text"]
    assert answer["response"][citation["start"] : citation["end"]] == cited["label"]
    row = await here.row(answer["id"])
    assert (row["degraded"], row["outcome"], row["provider"]) == (["passages"], "answered", "extractive")
    assert here.counted("passages") == 1
    events = await here.stream()
    assert (events[2].name, events[2].data["step"], events[2].data["extractive"]) == (
        "degraded",
        "passages",
        True,
    )
    assert [e.data for e in events if e.name == "citation"] == answer["citations"]


async def test_irrelevant_chunks_are_returned_when_models_fail(start: Start) -> None:  # fault 14
    here = await start()
    here.first.unscripted = Failure(500)
    answer = await here.ask(query="Who won the chess tournament in Reykjavik?")
    assert answer["degraded"] == ["passages"]
    assert len(answer["citations"]) == 2
    assert "[Context 1]" in answer["response"]


async def test_disabled_degradation_returns_502(start: Start) -> None:
    here = await start(degraded_answers=False)
    here.first.unscripted = Failure(500)
    response = await here.client.post(RAG, json=QUESTION)
    assert (response.status_code, response.json()["code"]) == (502, "llm_error")


async def test_failed_model_without_chunks_returns_503_with_retry_after(start: Start) -> None:
    here = await start()
    here.first.unscripted = Failure(500)
    response = await here.client.post(RAG, json={**QUESTION, "filters": {"kind": "car"}})
    assert (response.status_code, response.json()["code"]) == (503, "answer_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    (row,) = (await here.client.get("/v1/queries")).json()["queries"]
    assert (row["outcome"], row["degraded"]) == ("error", [])


async def test_client_errors_never_degrade(start: Start) -> None:
    here = await start()
    await here.first.__aexit__()
    assert (await here.client.post(RAG, json={"query": " "})).status_code == 422
    assert (await here.client.post(RAG, json={**QUESTION, "collection": "none"})).status_code == 404
    async with here.api.client(None) as stranger:
        assert (await stranger.post(RAG, json=QUESTION)).status_code == 401


async def test_dense_search_without_embedder_returns_503_without_model_call(
    start: Start,
) -> None:  # fault 13
    here = await start(("anthropic",))
    await here.embedder.__aexit__()
    dense = {**QUESTION, "search_mode": "dense"}
    response = await here.client.post(RAG, json=dense)
    assert (response.status_code, response.json()["code"]) == (503, "answer_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    streamed = await here.client.post(RAG, json={**dense, "stream": True})
    assert streamed.status_code == 503
    assert here.first.requests == here.second.requests == []


async def test_query_without_embedder_falls_back_to_lexical_search(start: Start) -> None:  # fault 13
    here = await start(("anthropic",))
    whole = await here.ask()
    assert (whole["degraded"], whole["funnel"]["search_mode"]) == ([], "hybrid")
    await here.embedder.__aexit__()
    answer = await here.ask(query="dough")
    assert (answer["degraded"], answer["provider"]) == (["lexical"], "openai")
    assert (answer["funnel"]["search_mode"], answer["funnel"]["scan_reason"]) == ("lexical", "words")
    assert "dough" in answer["context"][0]["text"].lower()
    assert here.counted("lexical") == 1
    here.first.unscripted = Failure(500)
    events = await here.stream(query="the dough")
    assert [e.name for e in events[:4]] == ["meta", "sources", "degraded", "degraded"]
    assert [e.data["step"] for e in events if e.name == "degraded"] == ["lexical", "provider"]
    row = await here.row(events[0].data["request_id"])
    assert (row["degraded"], row["provider"]) == (["lexical", "provider"], "anthropic")
    nothing = await here.client.post(RAG, json={**QUESTION, "query": "xylophone"})  # no chunk has the word
    assert nothing.status_code == 503


async def test_failed_reranker_is_reported_and_its_answer_not_cached(start: Start) -> None:
    async with FakeReranker(api_key="") as reranker:
        here = await start(rerank=f"{reranker.origin}/rerank")
        here.first.unscripted = Reply(texts=("Let the dough rise for two hours [Source 1].",))
        reranker.replies += [None, None]
        answer = await here.ask()
        events = await here.stream()
        assert (answer["degraded"], answer["provider"]) == (["not_reranked"], "openai")
        assert [e.name for e in events[:3]] == ["meta", "sources", "degraded"]
        assert (events[2].data["step"], events[2].data["reason"]) == ("not_reranked", "retrieval_error")
        assert (await here.row(answer["id"]))["degraded"] == ["not_reranked"]
        assert here.counted("not_reranked") == here.metrics.total("pipeline.query.faults") == 2
        whole, cached = await here.ask(), await here.ask()
    assert (whole["degraded"], whole["cached"], cached["degraded"], cached["cached"]) == ([], False, [], True)


@pytest.mark.parametrize("stream", [False, True])
async def test_fallbacks_of_searches_by_model_are_reported_once(start: Start, stream: bool) -> None:
    call = ToolCall("search_documents", {"query": "dough or chain"})
    searching = Reply(texts=(), tool_calls=(call,), finish="tool")
    async with FakeReranker(api_key="") as reranker:
        here = await start(rerank=f"{reranker.origin}/rerank")
        await here.embedder.__aexit__()
        here.first.script(searching, searching, Reply(texts=("Two hours [Source 1].",)))
        reranker.replies.append(None)  # the second search is reranked
        messages: Any = [{"role": "user", "content": QUESTION["query"]}]
        body = {"model": "vectorforge/default", "messages": messages, "retrieval": "tool", "stream": stream}
        response = await here.client.post("/v1/chat/completions", json=body)
    assert '"degraded":["lexical","not_reranked"]' in response.text.replace(" ", "")
    (row,) = (await here.client.get("/v1/queries")).json()["queries"]
    assert row["degraded"] == ["lexical", "not_reranked"]
    assert (here.counted("lexical"), here.counted("not_reranked")) == (1, 1)


def searches(here: Surroundings, query: str, mode: str = "hybrid") -> list[Any]:
    """Query the API surfaces that only search."""
    body = {"query": query, "search_mode": mode}
    return [
        here.client.post("/v1/search", json=body),
        here.client.post("/v1/vector_stores/default/search", json={**body, "query": [f"{query}?", query]}),
    ]


async def test_search_without_embedder_falls_back_to_lexical_search(start: Start) -> None:  # fault 13
    here = await start()
    for request in searches(here, "bread"):
        assert (await request).json()["degraded"] == []
    await here.embedder.__aexit__()
    found, page = [(await request) for request in searches(here, "the dough")]
    assert (found.status_code, found.json()["degraded"]) == (200, ["lexical"])
    assert (found.json()["search_mode"], len(found.json()["results"])) == ("lexical", 1)
    assert "dough" in found.json()["results"][0]["text"]
    assert (page.status_code, page.json()["degraded"]) == (200, ["lexical"])
    assert "dough" in page.json()["data"][0]["content"][0]["text"]
    async with mcp_client(here.api.url, here.tenant) as client:
        for name in ("semantic_search", "semantic_search_with_context"):
            result = await client.call_tool(name, {"query": "the dough"})
            assert result.structured_content["degraded"] == ["lexical"]
        listed = await client.call_tool("semantic_search", {"query": "the dough"})
        assert isinstance(listed.content[0], TextContent)
        assert listed.content[0].text.startswith("(The question could not be embedded")
    for request in [*searches(here, "a dough", "dense"), *searches(here, "xylophone")]:
        assert (await request).status_code == 502


async def test_lexical_fallback_can_be_disabled(start: Start) -> None:
    here = await start(degraded_answers=False)
    await here.embedder.__aexit__()
    for request in searches(here, "dough"):
        assert (await request).status_code == 502


async def test_ungrounded_answer_requires_caller_permission(start: Start) -> None:
    here = await start(("anthropic",))
    await here.embedder.__aexit__()
    answer = await here.ask(search_mode="dense", allow_ungrounded=True)
    assert (answer["degraded"], answer["context"], answer["citations"]) == (["ungrounded"], [], [])
    assert answer["funnel"] == {
        "matched": None, "matched_is_at_least": False, "candidates": 0, "below_min_score": 0,
        "dropped_by_budget": 0, "used": 0, "cited": 0,
        "search_mode": None, "scan": None, "scan_reason": None,
    }  # fmt: skip
    assert [m["role"] for m in here.first.bodies[0]["messages"]] == ["user"]
    here.first.unscripted = Failure(500)
    events = await here.stream(search_mode="dense", allow_ungrounded=True)
    assert [e.data["step"] for e in events if e.name == "degraded"] == ["ungrounded", "provider"]
    assert events[-1].data["degraded"] == ["ungrounded", "provider"]
    row = await here.row(events[0].data["request_id"])
    assert (row["degraded"], row["provider"]) == (["ungrounded", "provider"], "anthropic")


async def test_allow_ungrounded_changes_nothing_while_search_works(start: Start) -> None:
    here = await start()
    answer = await here.ask(allow_ungrounded=True)
    assert answer["degraded"] == []
    assert here.first.bodies[0]["messages"][0]["role"] == "system"
    here.first.unscripted = Failure(500)
    another = await here.ask(query="And what of the chain?", allow_ungrounded=True)
    assert another["degraded"] == ["passages"]


async def test_unavailable_database_returns_503_until_it_recovers(
    start: Start, postgres_server: ObservedPostgres, private_dir: Callable[[str], Path]
) -> None:  # fault 26
    bouncer = PgBouncer(private_dir("pgd"), postgres_server.socket)
    with bouncer:
        here = await start(("anthropic",), url=bouncer.route(postgres_server.app_url))
        assert (await here.ask())["degraded"] == []
    response = await here.client.post(RAG, json={**QUESTION, "allow_ungrounded": True})
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    assert len(here.first.requests) == 1  # the tenant cannot be determined: no model is called
    with bouncer:
        async with asyncio.timeout(30):  # the pool retries at growing intervals
            while (await here.client.get("/v1/collections")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        answer = await here.ask(query="And what of the chain?")
        assert (answer["degraded"], answer["provider"]) == ([], "openai")
