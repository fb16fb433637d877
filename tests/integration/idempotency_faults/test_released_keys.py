"""Idempotency keys that are released after a failure or expire."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.integration.idempotency_faults.conftest import BOTH, gated, open_gate, until
from tests.integration.keyed_servers import (
    ASKED,
    PIECES,
    QUESTION,
    RAG,
    REPLAYED,
    STREAM,
    KeyedServers,
    keyed_servers,
    new_key,
)
from tests.support.http.live_api import add_documents, new_collection
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import QuerySettings, StreamSettings
from vectorforge.db.connection import Database
from vectorforge.errors import LLMError
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.limits.settings import Limits, TenantLimits


class TestFailures:
    """Failures are not stored: the client may retry with the same key."""

    @BOTH
    async def test_failed_model_releases_the_key(
        self, app_url: str, tenants: tuple[str, str], body: Any
    ) -> None:
        broken = ScriptedLLM(PIECES[:2], error=LLMError("no"))
        async with keyed_servers(
            app_url,
            tenants,
            llms=[broken, ScriptedLLM()],
            query=QuerySettings(degraded_answers=False),
        ) as servers:
            key = new_key()
            failed = await servers.ask(0, key, body)
            assert failed.status_code == 502 if body == QUESTION else "event: error" in failed.text
            answers = [await servers.ask(1, key, body) for _ in range(2)]
            assert [answer.headers.get(REPLAYED) for answer in answers] == [None, "true"]
            assert answers[0].content == answers[1].content
            assert "It is so." in answers[0].text
            assert servers.generations == 2

    @BOTH
    async def test_exceeded_deadline_releases_the_key(
        self, app_url: str, tenants: tuple[str, str], body: Any
    ) -> None:
        llms = [ScriptedLLM(delay_s=30), ScriptedLLM()]
        settings = QuerySettings(degraded_answers=False, query_timeout_s=1)
        async with keyed_servers(app_url, tenants, llms=llms, query=settings) as servers:
            key = new_key()
            failed = await servers.ask(0, key, body)
            assert failed.status_code == 504 if body == QUESTION else "event: error" in failed.text
            again = await servers.ask(1, key, body)
            assert (again.status_code, REPLAYED in again.headers) == (200, False)

    async def test_rejected_request_releases_the_key(self, servers: KeyedServers) -> None:
        key = new_key()
        async with servers.apis[0].client(servers.stranger) as stranger:
            assert (await stranger.post(RAG, json=QUESTION, headers=key)).status_code == 404
            await add_documents(stranger, await new_collection(stranger), cup=f"{ASKED} A cup.")
            assert (await stranger.post(RAG, json=QUESTION, headers=key)).status_code == 200
        wrong = {**QUESTION, "provider": "nobody"}
        assert (await servers.ask(0, key, wrong)).status_code == 422
        assert (await servers.ask(1, key, {**QUESTION, "k": 0})).status_code == 422
        assert (await servers.ask(1, key)).status_code == 200  # corrected, under the same key

    async def test_rate_limited_request_releases_the_key(
        self, app_url: str, tenants: tuple[str, str], direct_database: Database
    ) -> None:
        limits, key = TenantLimits(direct_database.for_tenant(tenants[0])), new_key()
        await limits.change(Limits(requests_per_minute=3))  # two of them for the document
        async with keyed_servers(app_url, tenants) as servers:
            while (await servers.ask(0, new_key())).status_code == 200:
                pass
            assert (await servers.ask(0, key)).status_code == 429
            await limits.change(Limits(requests_per_minute=1000))
            answer = await servers.ask(1, key)  # for a tenant without earlier rejections
            assert (answer.status_code, REPLAYED in answer.headers) == (200, False)

    @BOTH
    async def test_oversize_answer_returns_409_on_replay(
        self, app_url: str, tenants: tuple[str, str], body: Any
    ) -> None:
        settings = StreamSettings(stream_buffer_bytes=10)
        async with keyed_servers(app_url, tenants, streams=settings) as servers:
            key = new_key()
            assert (await servers.ask(0, key, body)).status_code == 200
            again = await servers.ask(1, key, body)
            assert (again.status_code, again.json()["code"]) == (409, "idempotent_answer_too_long")
            assert "retry-after" not in again.headers
            assert servers.generations == 1  # nor is it charged twice


class TestExpiry:
    async def test_stored_answer_expires_after_a_day(self, servers: KeyedServers) -> None:
        key, db = new_key(), servers.database.for_tenant(servers.tenant)
        await servers.ask(0, key)
        row = await db.fetch_one("SELECT expires_at - now() AS kept FROM vectorforge.answer_streams")
        assert row is not None
        assert timedelta(hours=23, minutes=50) < row["kept"] <= timedelta(days=1)
        await servers.change_kept("expires_at = clock_timestamp()")
        again = await servers.ask(1, key)
        assert (again.status_code, REPLAYED in again.headers, servers.generations) == (200, False, 2)
        await servers.change_kept("expires_at = clock_timestamp()")
        await IngestionWorker(servers.database, no_pipeline, kept_stale_s=3600).run_until_idle()
        assert await db.fetch_one("SELECT 1 AS found FROM vectorforge.answer_streams") is None

    async def test_oldest_key_is_evicted_first(self, app_url: str, tenants: tuple[str, str]) -> None:
        settings = StreamSettings(idempotency_max_keys=2)
        async with keyed_servers(app_url, tenants, streams=settings) as servers:
            keys = [new_key() for _ in range(3)]
            for key in keys:
                await servers.ask(0, key)
            again = [await servers.ask(1, key) for key in reversed(keys)]
            assert [answer.headers.get(REPLAYED) for answer in again] == ["true", "true", None]

    @BOTH
    async def test_erased_document_deletes_stored_answer(self, servers: KeyedServers, body: Any) -> None:
        key = new_key()
        await servers.ask(0, key, body)
        erased = await servers.clients[0].delete(f"/v1/documents/{servers.document_id}")
        assert erased.status_code == 200
        db = servers.database.for_tenant(servers.tenant)
        assert await db.fetch_one("SELECT 1 AS found FROM vectorforge.answer_streams") is None
        assert REPLAYED not in (await servers.ask(1, key, body)).headers

    async def test_erasure_during_generation_stores_no_answer(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, (llms, gate) = new_key(), gated()
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            first = asyncio.create_task(servers.ask(0, key, STREAM))
            await until(lambda: servers.generations == 1)
            erased = await servers.clients[1].delete(f"/v1/documents/{servers.document_id}")
            assert erased.status_code == 200
            open_gate(gate)
            assert (await first).status_code == 200
            db = servers.database.for_tenant(servers.tenant)
            assert await db.fetch_one("SELECT 1 AS found FROM vectorforge.answer_stream_batches") is None
            assert REPLAYED not in (await servers.ask(1, key, STREAM)).headers


def no_pipeline(tenant_id: str) -> IngestionPipeline:
    raise AssertionError("there are no documents")
