"""Cached answers and vectors on a real database: hits, misses and their cost."""

from typing import Any

import httpx2
import pytest

from tests.integration.caching.conftest import GUIDES, LONG, QUESTION, RAG, Process, Start, ask, named, row_of
from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    new_collection,
)
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure

SHORT = "Let the dough rise for two hours."
"""Answers that pass the quality checks: others are not cached."""


async def test_repeated_query_is_served_from_cache_without_model_call(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21, D-031
    process.openai.script(Reply(texts=("Let the dough rise for two hours [Context 1].",)))
    first, second = await ask(client), await ask(client)
    assert (first["cached"], second["cached"]) == (False, True)
    assert len(second["citations"]) == 1
    assert (first["outcome"], second["outcome"]) == ("answered", "cached")
    assert len(process.openai.requests) == 1
    same = ("response", "context", "citations", "funnel", "provider", "model", "extractive", "finish_reason")
    assert {name: first[name] for name in same} == {name: second[name] for name in same}
    assert second["funnel"] == {
        "matched": 2, "matched_is_at_least": False, "candidates": 2, "below_min_score": 0,
        "dropped_by_budget": 0, "used": 2, "cited": 1,
        "search_mode": "hybrid", "scan": "exact", "scan_reason": "few",
    }  # fmt: skip
    assert second["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert second["cost_usd"] == 0
    assert second["degraded"] == []
    row = await row_of(client, second)
    assert (row["outcome"], row["cached"], row["generated_response"]) == ("cached", True, first["response"])
    assert row["retrieved_chunk_ids"] == [entry["chunk_id"] for entry in first["context"]]
    assert process.counted("pipeline.cache.misses") == 1
    assert process.counted("pipeline.cache.hits", tier="memory") == 1


async def test_cache_hit_streams_sources_and_citations(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21
    process.openai.unscripted = Reply(
        texts=("Two hours [Con", "text 1], baking ", "at 230 degrees [Context 1].")
    )
    streams = [await ask_streaming(client, RAG, QUESTION) for _ in range(2)]
    first, second = streams
    assert [named(events, "meta")[0]["cached"] for events in streams] == [False, True]
    assert len(named(first, "citation")) == 2
    for name in ("sources", "citation"):
        assert [{**data, "retrieval_ms": 0} for data in named(first, name)] == [
            {**data, "retrieval_ms": 0} for data in named(second, name)
        ]
    text = "Two hours [Context 1], baking at 230 degrees [Context 1]."
    assert ["".join(t["text"] for t in named(events, "token")) for events in streams] == [text, text]
    assert [e.name for e in second] == [
        "meta", "sources", "token", "citation", "token", "citation", "token", "usage", "done",
    ]  # fmt: skip
    assert named(second, "done")[0]["cached"] is True
    assert (await ask(client))["cached"] is True  # buffered and streamed answers are the same ones


async def test_cached_answer_is_never_shared_across_tenants(
    process: Process, client: httpx2.AsyncClient, tenants: tuple[str, str]
) -> None:  # C21; threat 5
    await ask(client)
    async with process.client(tenants[1]) as other:
        await add_documents(other, await new_collection(other), **GUIDES)
        answer = await ask(other)
        assert answer["cached"] is False
        assert len(process.openai.requests) == 2
        assert (await ask(other))["cached"] is True
        assert (await other.delete("/v1/cache")).json()["deleted"] == 2  # an answer and a vector
        assert (await ask(other))["cached"] is False
    assert (await ask(client))["cached"] is True


async def test_cached_answer_is_shared_across_processes(
    process: Process, client: httpx2.AsyncClient, start: Start, tenants: tuple[str, str]
) -> None:
    await ask(client)
    second = await start()
    embedded = len(process.embedder.requests)
    async with second.client(tenants[0]) as there:
        assert (await ask(there))["cached"] is True
        assert second.counted("pipeline.cache.hits", tier="database") == 1
        assert (await ask(there))["cached"] is True
        assert second.counted("pipeline.cache.hits", tier="memory") == 1
    assert len(process.openai.requests) == 1
    assert len(process.embedder.requests) == embedded


async def test_query_vector_is_shared_across_processes_within_tenant(
    process: Process, client: httpx2.AsyncClient, start: Start, tenants: tuple[str, str]
) -> None:  # D-011
    before = len(process.embedder.requests)
    await ask(client)
    assert len(process.embedder.requests) == before + 1
    second = await start()
    async with second.client(tenants[0]) as there:
        answer = await ask(there, temperature=0.1)  # another answer, the same vector
        assert answer["cached"] is False
        assert len(process.embedder.requests) == before + 1
        model = "text-embedding-3-small"
        assert second.counted("embedding.cache_hits", provider="http", model=model) == 1
    async with second.client(tenants[1]) as stranger:
        await new_collection(stranger)
        await ask(stranger)
        assert len(process.embedder.requests) == before + 2  # each tenant has its own entries


@pytest.mark.parametrize(
    "change",
    [
        {"query": "How long must the dough rest?"},
        {"k": 1},
        {"filters": {"kind": "bread"}},
        {"temperature": 0.1},
        {"top_p": 0.5},
        {"max_tokens": 100},
        {"model": "gpt-next"},
        {"messages": [{"role": "user", "content": "Hello"}]},
    ],
)
async def test_request_change_that_affects_prompt_misses_cache(
    process: Process, client: httpx2.AsyncClient, change: dict[str, Any]
) -> None:  # C21
    await ask(client)
    assert (await ask(client, **change))["cached"] is False
    assert (await ask(client, **change))["cached"] is True
    assert (await ask(client))["cached"] is True
    assert len(process.openai.requests) == 2


async def test_api_surfaces_do_not_share_cached_answers(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    path = f"/v1/collections/{collection['id']}/query"
    await ask(client)
    answers = [(await client.post(path, json=QUESTION)).json()["cached"] for _ in range(2)]
    assert answers == [False, True]
    template = {**QUESTION, "system_prompt": "Say it in one word: {context}"}
    assert (await client.post(path, json=template)).json()["cached"] is False


async def test_conversations_differing_in_third_last_turn_do_not_share_answers(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C20
    def conversation(third_last: str) -> list[dict[str, str]]:
        exchanges = [third_last, "And butter?", "And salt?"]
        return [
            message
            for text in exchanges
            for message in ({"role": "user", "content": text}, {"role": "assistant", "content": "Yes."})
        ]

    process.openai.script(Reply(texts=(LONG,)), Reply(texts=(SHORT,)))
    rye = await ask(client, messages=conversation("I bake rye bread."))
    wheat = await ask(client, messages=conversation("I bake wheat bread."))
    assert (rye["response"], wheat["response"]) == (LONG, SHORT)
    assert (await ask(client, messages=conversation("I bake rye bread.")))["response"] == rye["response"]


@pytest.mark.parametrize("header", ["no-cache", "max-age=0, No-Cache"])
async def test_cache_control_no_cache_regenerates_and_stores_answer(
    process: Process, client: httpx2.AsyncClient, header: str
) -> None:
    process.openai.script(Reply(texts=(LONG,)), Reply(texts=(SHORT,)))
    assert (await ask(client))["response"] == LONG
    embedded = len(process.embedder.requests)
    regenerated = await ask(client, headers={"Cache-Control": header})
    assert (regenerated["response"], regenerated["cached"]) == (SHORT, False)
    assert len(process.embedder.requests) == embedded + 1
    again = await ask(client)
    assert (again["response"], again["cached"]) == (SHORT, True)


@pytest.mark.parametrize(
    "behaviour",
    [
        Failure(500),
        Reply(texts=(LONG,), finish="length"),
        Reply(texts=()),
        Reply(texts=(LONG,), finish="refusal"),
        Reply(ending="cut"),
        Reply(texts=("Seventeen chess players [Context 9].",)),
    ],
)
async def test_incomplete_or_failed_answer_is_not_cached(
    process: Process, client: httpx2.AsyncClient, behaviour: Any
) -> None:  # C21
    process.openai.script(behaviour)
    first = await client.post(RAG, json=QUESTION)
    assert first.status_code == 200
    assert (await ask(client))["cached"] is False
    assert (await ask(client))["cached"] is True


async def test_empty_search_result_is_not_cached(process: Process, client: httpx2.AsyncClient) -> None:
    for _ in range(2):
        answer = await ask(client, filters={"kind": "car"})
        assert (answer["outcome"], answer["cached"]) == ("empty", False)
