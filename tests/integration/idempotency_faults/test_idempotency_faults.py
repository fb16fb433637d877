"""Idempotency-Key with faults: clients that disconnect, workers that die, answers that fail."""

import asyncio
import os
import signal
from typing import Any

import httpx2
import pytest

from tests.integration.idempotency_faults.conftest import BOTH, gated, open_gate, until
from tests.integration.keyed_servers import (
    RAG,
    REPLAYED,
    STREAM,
    keyed_servers,
    new_key,
)
from tests.integration.server_processes import server_process
from tests.support.aws.live_query_function import LockStep, query_surroundings
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.streaming.idempotency import MAX_WAITING
from vectorforge.config import QuerySettings, StreamSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.idempotent_answer_repo import LEASE_S

SILENT = f"written_at = written_at - interval '{LEASE_S} seconds'"
REFUND = "How long does a refund take?"


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
            query_task = asyncio.create_task(servers.ask(0, key))
            await until(lambda: servers.generations == 1)
            query_task.cancel()
            await asyncio.wait({query_task})
            again = await servers.ask(1, key)
            assert (again.status_code, again.headers[REPLAYED]) == (200, "true")
            (log,) = await servers.logs()
            assert (servers.generations, log.outcome) == (1, "answered")

    async def test_disconnect_during_stream_still_stores_the_answer(
        self, app_url: str, tenants: tuple[str, str]
    ) -> None:
        key, (llms, gate) = new_key(), gated()
        settings = StreamSettings(resume_grace_s=0)  # without the key, no client would return
        async with keyed_servers(app_url, tenants, llms=llms, streams=settings) as servers:
            await cut_after_first_token(servers.clients[0], key)
            again = asyncio.create_task(servers.ask(1, key, STREAM))
            await asyncio.sleep(0.7)  # the server notices the disconnect, and logs that it continues
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
            assert (await servers.ask(1, key, STREAM)).status_code == 200  # no client waits any more


class TestCrashedWorkers:
    """Two processes that share state in PostgreSQL."""

    @BOTH
    async def test_concurrent_requests_to_two_processes_share_one_answer(
        self, app_url: str, tenants: tuple[str, str], body: Any
    ) -> None:
        key, request = new_key(), {**body, "query": REFUND}
        async with (
            query_surroundings(app_url, tenants[0]) as surroundings,
            server_process(surroundings) as (_, url),
            server_process(surroundings) as (_, other_url),
            surroundings.client(url) as client,
            surroundings.client(other_url) as other,
        ):
            surroundings.vendor.unscripted = Reply(texts=("It takes ", "five days."), pause_s=0.2)
            requests = [
                one.post(RAG, json=request, headers=key) for one in (client, other, client, other, other)
            ]
            responses = await asyncio.gather(*requests)
            assert [response.status_code for response in responses] == [200] * 5
            assert len({response.content for response in responses}) == 1
            assert sum(REPLAYED in response.headers for response in responses) == 4
            assert len(surroundings.vendor.requests) == 1

    async def test_key_of_killed_worker_is_taken_over(
        self, app_url: str, tenants: tuple[str, str], direct_database: Database
    ) -> None:
        key, request, gate = new_key(), {**STREAM, "query": REFUND}, LockStep(free=1)
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
            first = asyncio.create_task(client.post(RAG, json=request, headers=key))
            await gate.waiting.wait()
            again = asyncio.create_task(other.post(RAG, json=request, headers=key))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                await first
            await asyncio.sleep(1)
            assert not again.done()  # the dead process might only be slow
            await direct_database.for_tenant(tenants[0]).execute(
                f"UPDATE vectorforge.answer_streams SET {SILENT} WHERE tenant_id = %s", (tenants[0],)
            )
            answer = await again
            assert (answer.status_code, REPLAYED in answer.headers) == (200, False)
            assert "Five days." in answer.text
            third = await other.post(RAG, json=request, headers=key)
            assert (third.content, third.headers[REPLAYED]) == (answer.content, "true")
            assert len(surroundings.vendor.requests) == 2

    async def test_active_worker_retains_its_key(self, app_url: str, tenants: tuple[str, str]) -> None:
        """The conflict is also reported before the model's first token."""
        key, llms = new_key(), [ScriptedLLM(delay_s=2) for _ in range(2)]
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            first = asyncio.create_task(servers.ask(0, key))
            await until(lambda: servers.generations == 1)
            await servers.change_kept(SILENT)
            await asyncio.sleep(0.8)
            again = await servers.ask(1, key)
            assert (again.content, again.headers[REPLAYED]) == ((await first).content, "true")
            assert servers.generations == 1
