"""An Idempotency-Key when something goes wrong: clients that leave, workers that die, answers that fail."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest

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
from tests.integration.server_processes import server_process
from tests.support.aws.live_query_function import LockStep, query_surroundings
from tests.support.http.live_api import add_documents, new_collection
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.streaming.idempotency import MAX_WAITING
from vectorforge.config import QuerySettings, StreamSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.idempotent_answer_repo import LEASE_S
from vectorforge.errors import LLMError
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker.worker import IngestionWorker
from vectorforge.limits.settings import Limits, TenantLimits
from vectorforge.local.postgres import EmbeddedPostgres

BOTH = pytest.mark.parametrize("body", [QUESTION, STREAM], ids=["json", "stream"])
SILENT = f"written_at = written_at - interval '{LEASE_S} seconds'"
REFUND = "How long does a refund take?"


@pytest.fixture
def app_url(postgres_server: EmbeddedPostgres) -> str:
    """Directly: ``test_idempotency`` goes through PgBouncer as well."""
    return postgres_server.app_url


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def servers(app_url: str, tenants: tuple[str, str]) -> AsyncIterator[KeyedServers]:
    async with keyed_servers(app_url, tenants) as started:
        yield started


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a fake's counter
            await asyncio.sleep(0.01)


def gated() -> tuple[list[ScriptedLLM], asyncio.Semaphore]:
    """Models that go on after their first piece when the gate is opened."""
    gate = asyncio.Semaphore(0)
    return [ScriptedLLM(PIECES, gate=gate) for _ in range(2)], gate


def open_gate(gate: asyncio.Semaphore) -> None:
    for _ in range(100):
        gate.release()


async def cut_after_first_token(client: httpx2.AsyncClient, key: dict[str, str], body: Any = STREAM) -> None:
    async with client.stream("POST", RAG, json=body, headers=key) as response:
        async for line in response.aiter_lines():
            if line == "event: token":
                return


class TestDisconnectedClients:
    async def test_disconnect_before_whole_answer_still_stores_it(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, llms = new_key(), [ScriptedLLM(delay_s=0.5) for _ in range(2)]
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            asking = asyncio.create_task(servers.ask(0, key))
            await until(lambda: servers.generations == 1)
            asking.cancel()
            await asyncio.wait({asking})
            again = await servers.ask(1, key)
            assert (again.status_code, again.headers[REPLAYED]) == (200, "true")
            (log,) = await servers.logs()
            assert (servers.generations, log.outcome) == (1, "answered")

    async def test_disconnect_during_stream_still_stores_the_answer(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, (llms, gate) = new_key(), gated()
        settings = StreamSettings(resume_grace_s=0)  # nobody is expected back, but for the key
        async with keyed_servers(app_url, tenants, llms=llms, streams=settings) as servers:
            await cut_after_first_token(servers.clients[0], key)
            again = asyncio.create_task(servers.ask(1, key, STREAM))
            await asyncio.sleep(0.7)  # the server notices that its client has gone, and says that it goes on
            assert not again.done()
            open_gate(gate)
            answer = await again
            assert (answer.status_code, answer.headers[REPLAYED]) == (200, "true")
            assert [name for name in answer.text.splitlines() if name.startswith("event: ")][
                -1
            ] == "event: done"
            (log,) = await servers.logs()
            assert (servers.generations, log.outcome) == (1, "answered")

    async def test_waiting_request_past_its_deadline_returns_409_with_retry_after(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, (llms, gate) = new_key(), gated()
        async with (
            keyed_servers(app_url, tenants, llms=llms) as servers,
            keyed_servers(
                app_url,
                (servers.tenant, servers.stranger),
                query=QuerySettings(query_timeout_s=0.5),
                fill=False,
            ) as hasty,
        ):
            first = asyncio.create_task(servers.ask(0, key, STREAM))
            await until(lambda: servers.generations == 1)
            refused = await hasty.ask(1, key, STREAM)
            assert (refused.status_code, refused.headers["retry-after"]) == (409, "2")
            assert refused.json()["code"] == "idempotent_answer_pending"
            open_gate(gate)
            answer = await first
            again = await hasty.ask(0, key, STREAM)
            assert (again.content, again.headers[REPLAYED]) == (answer.content, "true")
            assert servers.generations == 1

    async def test_waiting_requests_for_one_answer_are_limited(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, (llms, gate) = new_key(), gated()
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            first = asyncio.create_task(servers.ask(0, key, STREAM))
            await until(lambda: servers.generations == 1)
            others = [asyncio.create_task(servers.ask(1, key, STREAM)) for _ in range(MAX_WAITING + 3)]
            await until(lambda: sum(task.done() for task in others) == 3)
            assert {task.result().status_code for task in others if task.done()} == {409}
            open_gate(gate)
            answers = await asyncio.gather(*others)
            assert servers.generations == 1
            done = [response for response in answers if response.status_code == 200]
            assert len(done) == MAX_WAITING
            assert {response.content for response in done} == {(await first).content}
            assert (await servers.ask(1, key, STREAM)).status_code == 200  # nobody waits any more


class TestCrashedWorkers:
    """Two processes; PostgreSQL knows what they share."""

    @BOTH
    async def test_concurrent_requests_to_two_processes_share_one_answer(
        self, app_url: str, tenants: tuple[str, str], body: Any
    ) -> None:
        key, asked = new_key(), {**body, "query": REFUND}
        async with (
            query_surroundings(app_url, tenants[0]) as surroundings,
            server_process(surroundings) as (_, url),
            server_process(surroundings) as (_, other_url),
            surroundings.client(url) as client,
            surroundings.client(other_url) as other,
        ):
            surroundings.vendor.unscripted = Reply(texts=("It takes ", "five days."), pause_s=0.2)
            requests = [
                one.post(RAG, json=asked, headers=key) for one in (client, other, client, other, other)
            ]
            responses = await asyncio.gather(*requests)
            assert [response.status_code for response in responses] == [200] * 5
            assert len({response.content for response in responses}) == 1
            assert sum(REPLAYED in response.headers for response in responses) == 4
            assert len(surroundings.vendor.requests) == 1

    async def test_key_of_killed_worker_is_taken_over(
        self, app_url: str, tenants: tuple[str, str], direct_database: Database
    ) -> None:
        key, asked, gate = new_key(), {**STREAM, "query": REFUND}, LockStep(free=1)
        async with (
            query_surroundings(app_url, tenants[0]) as surroundings,
            server_process(surroundings) as (pid, url),
            server_process(surroundings) as (_, other_url),
            surroundings.client(url) as client,
            surroundings.client(other_url) as other,
        ):
            surroundings.vendor.script(
                Reply(texts=("It ", "takes "), gate=gate), Reply(texts=("Five days.",))
            )
            first = asyncio.create_task(client.post(RAG, json=asked, headers=key))
            await gate.waiting.wait()
            again = asyncio.create_task(other.post(RAG, json=asked, headers=key))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                await first
            await asyncio.sleep(1)
            assert not again.done()  # the dead one might only be slow
            await direct_database.for_tenant(tenants[0]).execute(
                f"UPDATE vectorforge.answer_streams SET {SILENT} WHERE tenant_id = %s", (tenants[0],)
            )
            answer = await again
            assert (answer.status_code, REPLAYED in answer.headers) == (200, False)
            assert "Five days." in answer.text
            third = await other.post(RAG, json=asked, headers=key)
            assert (third.content, third.headers[REPLAYED]) == (answer.content, "true")
            assert len(surroundings.vendor.requests) == 2

    async def test_active_worker_retains_its_key(self, app_url: str, tenants: tuple[str, str]) -> None:
        """It says so before there is anything to keep, too: the model has said nothing yet."""
        key, llms = new_key(), [ScriptedLLM(delay_s=2) for _ in range(2)]
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            first = asyncio.create_task(servers.ask(0, key))
            await until(lambda: servers.generations == 1)
            await servers.change_kept(SILENT)
            await asyncio.sleep(0.8)
            again = await servers.ask(1, key)
            assert (again.content, again.headers[REPLAYED]) == ((await first).content, "true")
            assert servers.generations == 1


class TestFailures:
    """They are not kept: the client may try again under the same key."""

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
        assert (await servers.ask(1, key)).status_code == 200  # put right, under the same key

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
            answer = await servers.ask(1, key)  # where nobody has been refused yet
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
            assert servers.generations == 1  # it is not paid for twice, either


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
