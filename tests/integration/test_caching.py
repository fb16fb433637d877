"""Cached answers and vectors on a real database: when they are found, when not, and what that costs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx2
import psycopg
import pytest
from pydantic import SecretStr

from vectorforge.config import CacheSettings, LLMSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_dispatcher import JobDispatcher
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.event_stream import ReceivedEvent
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.fake_openai import FakeOpenAI
from vectorforge.testing.fake_vendor import Failure, Reply
from vectorforge.testing.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.testing.pin_detector import PinDetector

RAG = "/v1/rag/query"
QUESTION = {"query": "How long must the dough rise?"}
LONG = "Let the dough rise for two hours before baking it."
SHORT = "Let the dough rise for two hours."
"""Answers that the checks find well supported: a poor one is not kept."""
GUIDES = {
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
    "bike": "# Bike\n\nOil the chain every three hundred kilometres.\n",
}


@dataclass
class Process:
    """One server over the shared database, with its own memory."""

    api: LiveApi
    openai: FakeOpenAI
    embedder: FakeEmbeddingsServer

    def client(self, tenant: str) -> httpx2.AsyncClient:
        return self.api.client(tenant)

    def counted(self, name: str, **tags: str) -> float:
        return float(self.api.application.metrics.get(name, tags).total)  # type: ignore[attr-defined]


Start = Callable[..., Any]


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def start(postgres_server: EmbeddedPostgres, tenants: tuple[str, str]) -> AsyncIterator[Start]:
    """Starts a server: another process of the same deployment, but for the settings of caches given."""
    async with AsyncExitStack() as stack:
        openai = await stack.enter_async_context(FakeOpenAI())
        openai.unscripted = Reply(texts=(LONG,))
        embedder = await stack.enter_async_context(FakeEmbeddingsServer(dimension=64))

        async def make(**cache: Any) -> Process:
            config = settings_for(
                postgres_server.app_url,
                tenants,
                llm=LLMSettings(openai_api_key=SecretStr("sk-canary")),
                cache=CacheSettings(**cache),
            )
            provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
            api = await stack.enter_async_context(live_api(config, provider))
            embeddings = api.application.embedding_registry
            embeddings.register(
                OpenAIEmbeddingProvider(
                    name="http", api_key=None, base_url=embedder.base_url, dimension=64, retries=0
                )
            )
            embeddings.set_default("http")
            return Process(api, openai, embedder)

        yield make


@pytest.fixture
async def process(start: Start) -> Process:
    started: Process = await start()
    return started


@pytest.fixture
async def client(process: Process, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with process.client(tenants[0]) as opened:
        await add_documents(opened, await new_collection(opened), **GUIDES)
        yield opened


async def ask(
    client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **body: Any
) -> dict[str, Any]:
    response = await client.post(RAG, json={**QUESTION, **body}, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def row_of(client: httpx2.AsyncClient, answer: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = (await client.get(f"/v1/queries/{answer['id'].removeprefix('ragq_')}")).json()
    return row


def named(events: list[ReceivedEvent], name: str) -> list[Any]:
    return [event.data for event in events if event.name == name]


async def test_the_second_equal_question_asks_no_model(
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


async def test_a_hit_is_streamed_with_sources_and_citations(
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


async def test_one_ingested_document_makes_the_next_equal_question_miss(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    for text in ("Rye needs three hours.", "Rye needs four hours."):
        assert (await ask(client))["cached"] is False
        assert (await ask(client))["cached"] is True
        await add_documents(client, collection["id"], rye=f"# Rye\n\n{text} The dough must rise long.\n")
    third = await ask(client)
    assert third["cached"] is False
    assert any("four hours" in entry["text"] for entry in third["context"])
    document = next(e["document_id"] for e in third["context"] if "four hours" in e["text"])
    assert (await ask(client))["cached"] is True
    assert (await client.delete(f"/v1/documents/{document}")).status_code in (200, 204)
    assert (await ask(client))["cached"] is False
    assert len(process.openai.requests) == 4


async def test_a_write_while_the_model_answers_leaves_no_stale_answer(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    may_end = asyncio.Event()
    searched = asyncio.Event()

    async def gate(_: int) -> None:
        searched.set()
        await may_end.wait()

    process.openai.script(Reply(texts=(LONG,), gate=gate))
    asking = asyncio.create_task(ask_streaming(client, RAG, QUESTION))
    await searched.wait()  # the search is over
    await add_documents(
        client, collection["id"], rye="# Rye\n\nThe dough of rye must rise for three hours.\n"
    )
    may_end.set()
    assert named(await asking, "done")[0]["outcome"] == "answered"
    assert (await ask(client))["cached"] is False


async def test_no_tenant_gets_the_answer_of_another(
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


async def test_all_processes_share_the_answers(
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


async def test_all_processes_share_the_vectors_of_questions(
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
        assert len(process.embedder.requests) == before + 2  # a tenant's questions are its own


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
async def test_whatever_enters_the_prompt_is_part_of_the_key(
    process: Process, client: httpx2.AsyncClient, change: dict[str, Any]
) -> None:  # C21
    await ask(client)
    assert (await ask(client, **change))["cached"] is False
    assert (await ask(client, **change))["cached"] is True
    assert (await ask(client))["cached"] is True
    assert len(process.openai.requests) == 2


async def test_the_doors_do_not_share_answers(process: Process, client: httpx2.AsyncClient) -> None:  # C21
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    path = f"/v1/collections/{collection['id']}/query"
    await ask(client)
    answers = [(await client.post(path, json=QUESTION)).json()["cached"] for _ in range(2)]
    assert answers == [False, True]
    template = {**QUESTION, "system_prompt": "Say it in one word: {context}"}
    assert (await client.post(path, json=template)).json()["cached"] is False


async def test_conversations_that_differ_in_the_third_last_exchange_get_different_answers(
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
async def test_no_cache_makes_the_answer_anew_and_keeps_it(
    process: Process, client: httpx2.AsyncClient, header: str
) -> None:
    process.openai.script(Reply(texts=(LONG,)), Reply(texts=(SHORT,)))
    assert (await ask(client))["response"] == LONG
    embedded = len(process.embedder.requests)
    anew = await ask(client, headers={"Cache-Control": header})
    assert (anew["response"], anew["cached"]) == (SHORT, False)
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
async def test_only_whole_and_good_answers_are_kept(
    process: Process, client: httpx2.AsyncClient, behaviour: Any
) -> None:  # C21
    process.openai.script(behaviour)
    first = await client.post(RAG, json=QUESTION)
    assert first.status_code == 200
    assert (await ask(client))["cached"] is False
    assert (await ask(client))["cached"] is True


async def test_nothing_found_is_looked_for_again(process: Process, client: httpx2.AsyncClient) -> None:
    for _ in range(2):
        answer = await ask(client, filters={"kind": "car"})
        assert (answer["outcome"], answer["cached"]) == ("empty", False)


async def test_an_answer_expires(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache_ttl_s=0.5)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        await ask(client)
        found = (await client.get("/v1/cache")).json()
        await asyncio.sleep(0.6)
        assert (await ask(client))["cached"] is False
    assert found["ttl_s"] == 0.5


async def test_an_expired_answer_takes_the_place_of_one_that_cannot_be_had(
    start: Start, tenants: tuple[str, str]
) -> None:  # the ladder: stale
    process = await start(answer_cache_ttl_s=0.2, embedding_cache_ttl_s=0)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        dense: dict[str, Any] = {"search_mode": "dense"}  # without the embedder, nothing can be found
        fresh = await ask(client, **dense)
        await asyncio.sleep(0.3)
        process.openai.unscripted = Failure(500)
        stale = await ask(client, **dense)
        assert (stale["degraded"], stale["cached"], stale["outcome"]) == (["stale"], True, "cached")
        assert (stale["response"], stale["context"]) == (fresh["response"], fresh["context"])
        assert stale["funnel"] == fresh["funnel"]
        row = await row_of(client, stale)
        assert (row["degraded"], row["cached"]) == (["stale"], True)
        assert process.counted("pipeline.query.degraded", step="stale") == 1
        events = await ask_streaming(client, RAG, {**QUESTION, **dense})
        assert [e.name for e in events[:4]] == ["meta", "sources", "degraded", "token"]
        assert events[2].data["step"] == "stale"
        assert named(events, "done")[0]["degraded"] == ["stale"]
        assert (await ask(client, query="How often is the chain oiled?"))["degraded"] == ["passages"]

        # Also when the search itself fails (fault 13)
        await process.embedder.__aexit__()
        events = await ask_streaming(client, RAG, {**QUESTION, **dense})
        assert [e.name for e in events[:3]] == ["meta", "sources", "degraded"]
        assert named(events, "sources")[0]["sources"][0]["text"] == fresh["context"][0]["text"]
        assert named(events, "degraded")[0]["reason"] == "embedding_error"
        assert named(events, "done")[0]["answer"] == fresh["response"]
        assert named(events, "done")[0]["funnel"] == fresh["funnel"]
        await process.openai.__aexit__()
        assert (await ask(client, **dense))["degraded"] == ["stale"]


async def test_a_changed_collection_has_no_stale_answers(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache_ttl_s=0.2)
    async with process.client(tenants[0]) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        await ask(client)
        await asyncio.sleep(0.3)
        await add_documents(client, collection, rye="# Rye\n\nThe dough of rye must rise for three hours.\n")
        process.openai.unscripted = Failure(500)
        assert (await ask(client))["degraded"] == ["passages"]


async def test_statistics_say_what_is_there(client: httpx2.AsyncClient) -> None:
    empty = (await client.get("/v1/cache")).json()
    assert (empty["enabled"], empty["fresh"], empty["bytes"], empty["oldest_at"]) == (True, 0, 0, None)
    await ask(client)
    await ask(client)
    await ask(client, k=1)
    found = (await client.get("/v1/cache")).json()
    assert (found["fresh"], found["stale"], found["outdated"], found["embeddings"]) == (2, 0, 0, 1)
    assert (found["answered_last_day"], found["hits_last_day"]) == (3, 1)
    assert 0 < found["bytes"] < 20_000
    assert (await client.delete("/v1/cache")).json() == {"deleted": 3}
    assert (await client.get("/v1/cache")).json()["fresh"] == 0


async def test_it_can_be_switched_off(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache=False, embedding_cache_ttl_s=0)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        for _ in range(2):
            assert (await ask(client))["cached"] is False
        found = (await client.get("/v1/cache")).json()
        assert (found["enabled"], found["fresh"], found["embeddings"]) == (False, 0, 0)


async def test_a_table_that_nobody_can_read_stops_no_question(
    process: Process, client: httpx2.AsyncClient, postgres_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(postgres_server.migrator_url) as connection:
        connection.execute("LOCK TABLE vectorforge.cached_answers IN ACCESS EXCLUSIVE MODE")
        answer = await ask(client)
        assert (answer["response"], answer["cached"]) == (LONG, False)
        assert (await row_of(client, answer))["generated_response"] == LONG  # C01
    assert (await ask(client))["cached"] is True  # from memory: it was not kept elsewhere
    found = (await client.get("/v1/cache")).json()
    assert found["fresh"] == 0


Ask = Callable[[httpx2.AsyncClient, str], Awaitable[Any]]


async def ask_query(client: httpx2.AsyncClient, query: str) -> Any:
    return await ask(client, query=query)


async def round_trips(
    detector: PinDetector, client: httpx2.AsyncClient, questions: list[str], ask: Ask = ask_query
) -> int:
    """Transactions of one question; the fewest, for workers look for jobs meanwhile."""

    def count() -> int:
        return detector.messages["Sync"]  # each is one pipeline, which ends with it

    found = []
    for question in questions:
        before = count()
        await ask(client, question)
        found.append(count() - before)
    return min(found)


async def test_what_it_costs_in_round_trips(
    start: Start, tenants: tuple[str, str], pin_detector: PinDetector
) -> None:
    miss: dict[str, int] = {}
    again: dict[str, int] = {}
    processes = {
        "off": await start(answer_cache=False, embedding_cache_ttl_s=0),
        "vectors": await start(answer_cache=False),
        "both": await start(),
    }
    async with processes["off"].client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
    for name, process in processes.items():
        async with process.client(tenants[0]) as client:
            await ask(client, query=f"Warm up {name}")  # connections are opened
            questions = [f"Dough {name} {number}?" for number in range(4)]
            miss[name] = await round_trips(pin_detector, client, questions)
            again[name] = await round_trips(pin_detector, client, questions)
    assert miss["off"] == again["off"] == 3  # look-up, search, log
    assert miss["vectors"] == again["vectors"] == 3  # found with the collection, kept with the log
    assert miss["both"] == 3  # so are answers
    assert again["both"] == 2  # look-up, log


OTHER_DOORS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "chat": (
        "/v1/chat/completions",
        lambda query: {"model": "vectorforge", "messages": [{"role": "user", "content": query}]},
    ),
    "docrag": (
        "/v1/docrag/query",
        lambda query: {"query": query, "collection": "default", "min_score": None},
    ),
    "profiles": ("/v1/profiles/1/query", lambda query: {"query": query}),
    "mcp": (
        "/mcp",
        lambda query: {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask", "arguments": {"query": query}},
        },
    ),
}


async def ask_door(name: str, client: httpx2.AsyncClient, query: str) -> None:
    path, body_of = OTHER_DOORS[name]
    response = await client.post(path, json=body_of(query))
    assert response.status_code == 200, response.text
    assert LONG in response.text


async def test_every_door_asks_in_three_round_trips(
    process: Process, client: httpx2.AsyncClient, pin_detector: PinDetector
) -> None:  # issue 7, point 6
    (await client.put("/v1/profiles/1", json={"profile_summary": GUIDES["bread"]})).raise_for_status()
    found: dict[str, int] = {}
    for name in OTHER_DOORS:
        ask_it = partial(ask_door, name)
        await ask_it(client, f"Warm up {name}")
        questions = [f"Dough {name} {number}?" for number in range(4)]
        found[name] = await round_trips(pin_detector, client, questions, ask_it)
    assert found == dict.fromkeys(OTHER_DOORS, 3)  # look-up, search, log


async def test_expired_rows_are_deleted(
    start: Start, tenants: tuple[str, str], direct_database: Database
) -> None:
    process = await start(answer_cache_ttl_s=0.1, embedding_cache_ttl_s=0.1)
    async with process.client(tenants[0]) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        await ask(client)
        await asyncio.sleep(0.2)
        dispatcher = JobDispatcher(direct_database)
        await dispatcher.delete_expired_caches(3600)
        found = (await client.get("/v1/cache")).json()
        assert (found["stale"], found["embeddings"]) == (1, 0)
        await dispatcher.delete_expired_caches(0)
        assert (await client.get("/v1/cache")).json()["stale"] == 0


async def test_answers_of_older_documents_go_with_the_next_ones(client: httpx2.AsyncClient) -> None:
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    for number in range(5):
        await ask(client, query=f"Dough {number}?")
    await add_documents(client, collection["id"], rye="# Rye\n\nThe dough of rye must rise.\n")
    assert (await client.get("/v1/cache")).json()["outdated"] == 5
    await ask(client)
    found = (await client.get("/v1/cache")).json()
    assert (found["fresh"], found["outdated"]) == (1, 0)
