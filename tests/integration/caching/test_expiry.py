"""Cached answers and vectors that expire, are stale or are unavailable."""

import asyncio
from typing import Any

import httpx2
import psycopg

from tests.integration.caching.conftest import GUIDES, LONG, QUESTION, RAG, Process, Start, ask, named, row_of
from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    new_collection,
)
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.local.postgres import EmbeddedPostgres


async def test_document_write_makes_next_equal_query_miss(
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


async def test_write_during_generation_prevents_stale_cached_answer(
    process: Process, client: httpx2.AsyncClient
) -> None:  # C21
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    may_end = asyncio.Event()
    searched = asyncio.Event()

    async def gate(_: int) -> None:
        searched.set()
        await may_end.wait()

    process.openai.script(Reply(texts=(LONG,), gate=gate))
    query_task = asyncio.create_task(ask_streaming(client, RAG, QUESTION))
    await searched.wait()  # the search has finished
    await add_documents(
        client, collection["id"], rye="# Rye\n\nThe dough of rye must rise for three hours.\n"
    )
    may_end.set()
    assert named(await query_task, "done")[0]["outcome"] == "answered"
    assert (await ask(client))["cached"] is False


async def test_answer_expires_after_ttl(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache_ttl_s=0.5)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        await ask(client)
        found = (await client.get("/v1/cache")).json()
        await asyncio.sleep(0.6)
        assert (await ask(client))["cached"] is False
    assert found["ttl_s"] == 0.5


async def test_expired_answer_is_served_when_model_is_unavailable(
    start: Start, tenants: tuple[str, str]
) -> None:  # the ladder: stale
    process = await start(answer_cache_ttl_s=0.2, embedding_cache_ttl_s=0)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        dense: dict[str, Any] = {"search_mode": "dense"}  # without the embedder, search is impossible
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


async def test_changed_collection_serves_no_stale_answer(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache_ttl_s=0.2)
    async with process.client(tenants[0]) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        await ask(client)
        await asyncio.sleep(0.3)
        await add_documents(client, collection, rye="# Rye\n\nThe dough of rye must rise for three hours.\n")
        process.openai.unscripted = Failure(500)
        assert (await ask(client))["degraded"] == ["passages"]


async def test_cache_statistics_report_entries_and_bytes(client: httpx2.AsyncClient) -> None:
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


async def test_cache_switched_off_stores_nothing(start: Start, tenants: tuple[str, str]) -> None:
    process = await start(answer_cache=False, embedding_cache_ttl_s=0)
    async with process.client(tenants[0]) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        for _ in range(2):
            assert (await ask(client))["cached"] is False
        found = (await client.get("/v1/cache")).json()
        assert (found["enabled"], found["fresh"], found["embeddings"]) == (False, 0, 0)


async def test_locked_cache_table_does_not_block_queries(
    process: Process, client: httpx2.AsyncClient, postgres_server: EmbeddedPostgres
) -> None:
    with psycopg.connect(postgres_server.migrator_url) as connection:
        connection.execute("LOCK TABLE vectorforge.cached_answers IN ACCESS EXCLUSIVE MODE")
        answer = await ask(client)
        assert (answer["response"], answer["cached"]) == (LONG, False)
        assert (await row_of(client, answer))["generated_response"] == LONG  # C01
    assert (await ask(client))["cached"] is True  # from memory: it was not stored elsewhere
    found = (await client.get("/v1/cache")).json()
    assert found["fresh"] == 0


async def test_expired_rows_are_deleted_by_dispatcher(
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


async def test_outdated_answers_are_deleted_by_the_next_write(client: httpx2.AsyncClient) -> None:
    (collection,) = (await client.get("/v1/collections")).json()["collections"]
    for number in range(5):
        await ask(client, query=f"Dough {number}?")
    await add_documents(client, collection["id"], rye="# Rye\n\nThe dough of rye must rise.\n")
    assert (await client.get("/v1/cache")).json()["outdated"] == 5
    await ask(client)
    found = (await client.get("/v1/cache")).json()
    assert (found["fresh"], found["outdated"]) == (1, 0)
