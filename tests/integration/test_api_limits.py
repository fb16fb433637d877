"""Tenant limits over HTTP: usage is settled, streams and documents are counted."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.limit_admissions import ASK, QUESTION, REFUND, fill, until_streams
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import LLMSettings, ModelPrice
from vectorforge.db.connection import Database
from vectorforge.errors import LLMError
from vectorforge.limits.settings import Limits, TenantLimits
from vectorforge.local.postgres import EmbeddedPostgres


class TestApiLimits:
    """One server; the limits are the tenant's."""

    @pytest.mark.parametrize(("path", "extra"), [(ASK, {}), ("/v1/chat/completions", None)])
    async def test_actual_usage_is_settled(
        self,
        postgres_server: EmbeddedPostgres,
        direct_database: Database,
        make_tenant: Callable[[], str],
        path: str,
        extra: dict[str, Any] | None,
    ) -> None:
        tenant = make_tenant()
        limits = TenantLimits(direct_database.for_tenant(tenant))
        await limits.change(Limits(tokens_per_day=1_000_000, cost_per_month_usd=Decimal(50)))
        prices = {"scripted-1": ModelPrice(input=1000, output=10_000)}
        config = settings_for(postgres_server.app_url, [tenant], llm=LLMSettings(model_prices=prices))
        chat = {"model": "vectorforge/default", "messages": [{"role": "user", "content": "How long?"}]}
        body = chat if extra is None else QUESTION
        async with live_api(config, ScriptedLLM()) as api, api.client(tenant) as client:
            await fill(client)
            before = (await limits.usage()).tokens  # of the document
            for is_stream in (False, True):
                response = await client.post(path, json={**body, "stream": is_stream})
                assert response.status_code == 200, response.text
                assert response.headers["ratelimit"].startswith('"tokens";r=99')
            used = await limits.usage()
            assert (used.tokens - before, used.streams) == (2 * 110, 0)
            assert used.cost_usd == Decimal("0.4")  # of 100 tokens in and 10 out, twice

    async def test_cached_answer_consumes_no_tokens(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        limits = TenantLimits(direct_database.for_tenant(tenant))
        await limits.change(Limits(tokens_per_day=1_000_000))
        async with (
            live_api(settings_for(postgres_server.app_url, [tenant]), ScriptedLLM([REFUND])) as api,
            api.client(tenant) as client,
        ):
            await fill(client)
            before = (await limits.usage()).tokens
            responses = [await client.post(ASK, json={**QUESTION, "temperature": 0}) for _ in range(3)]
            assert [response.json()["cached"] for response in responses] == [False, True, True]
            assert (await limits.usage()).tokens - before == 110

    async def test_failed_query_releases_its_reservation(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        limits = TenantLimits(direct_database.for_tenant(tenant))
        await limits.change(Limits(tokens_per_day=1_000_000, concurrent_streams=1))
        config = settings_for(postgres_server.app_url, [tenant])
        async with (
            live_api(config, ScriptedLLM(["It"], error=LLMError("gone"))) as api,
            api.client(tenant) as client,
        ):
            await fill(client)
            before = (await limits.usage()).tokens
            missing = await client.post(ASK, json={**QUESTION, "collection": "none such"})
            assert missing.status_code == 404
            dry = await client.post(ASK, json={**QUESTION, "dry_run": True})
            assert dry.status_code == 200
            async with asyncio.timeout(5):  # released when the request is over, which is after its last byte
                while (held := await limits.usage()).tokens != before:  # noqa: ASYNC110 - polls a database
                    await asyncio.sleep(0.01)
            assert held.streams == 0
            broken = await client.post(ASK, json={**QUESTION, "stream": True})
            assert "event: error" in broken.text
            used = await limits.usage()
            assert (used.streams, used.tokens > before) == (0, True)  # the generated tokens are charged

    async def test_concurrent_streams_are_limited(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        limits = TenantLimits(direct_database.for_tenant(tenant))
        await limits.change(Limits(concurrent_streams=1))
        gate = asyncio.Semaphore(0)
        body = {**QUESTION, "stream": True}
        async with (
            live_api(
                settings_for(postgres_server.app_url, [tenant]), ScriptedLLM(["It ", "is so."], gate=gate)
            ) as api,
            api.client(tenant) as client,
        ):
            await fill(client)
            async with client.stream("POST", ASK, json=body) as first:
                assert first.status_code == 200
                second = await client.post(ASK, json=body)
                assert (second.status_code, second.json()["errors"][0]["field"]) == (
                    429,
                    "concurrent_streams",
                )
                whole = await client.post(ASK, json={**QUESTION, "max_tokens": 5})
                assert whole.status_code == 200  # not a stream
            await until_streams(limits, 0)  # the client has disconnected
            gate.release()
            third = await client.post(ASK, json=body)
            assert third.status_code == 200

    async def test_documents_are_charged_before_embedding(
        self, postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        limits = TenantLimits(direct_database.for_tenant(tenant))
        await limits.change(Limits(tokens_per_day=50))
        async with (
            live_api(settings_for(postgres_server.app_url, [tenant])) as api,
            api.client(tenant) as client,
        ):
            collection = await new_collection(client)
            done = await add_documents(client, collection, short="A refund takes five days.")
            assert done["status"] == "succeeded"
            used = (await limits.usage()).tokens
            assert 0 < used < 50
            failed = await add_documents(client, collection, long="A refund takes five days. " * 50)
            assert failed["documents_failed"] == 1, failed
            profile = {"text": "A refund takes five days. " * 50, "source_type": "cv", "source_id": "1"}
            refused = await client.post("/v1/profiles/7/documents", json=profile)
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["field"] == "documents"
            vectors = await client.post("/v1/embeddings", json={"model": "hashing", "input": "word " * 500})
            assert (vectors.status_code, vectors.json()["error"]["param"]) == (400, "input")
            assert (await limits.usage()).tokens == used
