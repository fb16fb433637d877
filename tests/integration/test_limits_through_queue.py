"""Usage of a query is settled once, by the process that answers it, regardless of its records' delivery."""

import asyncio
import json
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.campaigns.query_log.delivery import LogQueue, log_writer
from tests.integration.limit_admissions import QUESTION, REFUND, fill
from tests.integration.test_limits import server_process
from tests.support.aws.fake_aws import aws_environment
from tests.support.aws.fake_sqs import FakeSqs
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import key_of, live_api, settings_for
from tests.support.rag.query_logs import message, started
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.config import AwsSettings, LLMSettings, ModelPrice
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.limits.settings import Limits, LimitUsage, TenantLimits
from vectorforge.local.postgres import EmbeddedPostgres

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]

ASK = "/v1/rag/query"
TOKENS = 110
"""Tokens of each answer of the scripted model: 100 in and 10 out."""
UNSETTLED = "SELECT FROM vectorforge.limit_reservations WHERE NOT settled"
END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 10_000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event = 'advisory'"
)


async def used(limits: TenantLimits) -> LimitUsage:
    return replace(await limits.usage(), requests=0)  # these expire


@pytest.mark.slow
async def test_duplicated_and_shuffled_records_count_each_query_once(
    postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str], rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fault 38  # fmt: skip
    """Records are duplicated, shuffled and redelivered; writers are killed before and after storing."""
    tenant = make_tenant()
    db = direct_database.for_tenant(tenant)
    limits = TenantLimits(db)
    await limits.change(Limits(tokens_per_day=1_000_000, cost_per_month_usd=Decimal(500)))
    async with FakeSqs(duplicated=0.5, random=random.Random(3)) as sqs:
        for name, value in aws_environment(sqs.url).items():
            monkeypatch.setenv(name, value)
        queue = await asyncio.to_thread(LogQueue, sqs.url, visibility_s=1)
        config = settings_for(
            postgres_server.app_url,
            [tenant],
            aws=AwsSettings(query_log_queue_url=queue.url, query_log_timeout_s=5),
            llm=LLMSettings(model_prices={"scripted-1": ModelPrice(input=1000, output=10_000)}),
        )
        writer = log_writer(
            queue, postgres_server.log_writer_url, rng=random.Random(5), killed=0.4, batch_size=3
        )
        async with (
            live_api(config, ScriptedLLM([REFUND])) as api,
            api.client(tenant) as client,
            writer as deliveries,
        ):
            await fill(client)
            before = await used(limits)
            bodies = [{"query": f"How long, number {n}?", "stream": bool(n % 2)} for n in range(12)]
            cached = {**QUESTION, "temperature": 0}
            for body in (*bodies, cached, cached):
                assert (await client.post(ASK, json=body)).status_code == 200
            used_before = await used(limits)
            await queue.empty()
            assert await queue.dead() == []
    assert deliveries.killed
    assert (used_before.tokens - before.tokens, used_before.streams) == (13 * TOKENS, 0)
    assert used_before.cost_usd == before.cost_usd + Decimal("0.2") * 13
    assert await used(limits) == used_before
    assert await db.fetch_all(UNSETTLED) == []
    logged = await rows(tenant)
    assert (len(logged), "started" in {row.outcome for row in logged}) == (14, False)
    paid = [row for row in logged if not row.cached]
    assert sum((row.prompt_tokens or 0) + (row.completion_tokens or 0) for row in paid) == 13 * TOKENS


async def test_late_records_do_not_change_settled_usage(
    queue: Queue, writer: QueryLogWriterFunction, direct_database: Database, make_tenant: Callable[[], str],
    rows: Rows, postgres_server: EmbeddedPostgres,
) -> None:  # fmt: skip
    """Out of order and five times, also after reservations have been added to the counters."""
    tenant = make_tenant()
    limits = TenantLimits(direct_database.for_tenant(tenant))
    await limits.change(Limits(tokens_per_day=1_000_000))
    aws = AwsSettings(query_log_queue_url=queue.url, query_log_timeout_s=5)
    async with (
        live_api(settings_for(postgres_server.app_url, [tenant], aws=aws), ScriptedLLM()) as api,
        api.client(tenant) as client,
    ):
        await fill(client)
        for number in range(5):
            body = {"query": f"How long, number {number}?", "stream": bool(number % 2)}
            assert (await client.post(ASK, json=body)).status_code == 200
        used_before = await used(limits)
        queue.deliver(writer)
        logged = await rows(tenant)
        assert [row.outcome for row in logged] == ["answered"] * 5
        records = [message(tenant, one) for row in logged for one in (row, started(row))] * 5
        random.Random(11).shuffle(records)
        queue.send(*records)
        queue.deliver(writer)
    assert queue.bodies(dead=True) == []
    assert await used(limits) == used_before
    assert {row.id: row for row in await rows(tenant)} == {row.id: row for row in logged}


async def test_reservation_of_unsettled_record_expires(
    make_database: Callable[..., str], make_writer: Callable[[str], QueryLogWriterFunction], queue: Queue,
    clients: object, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The record is stored, and settles nothing: the reservation expires."""
    url, tenant = make_database(), "acme"
    app_url = make_conninfo(url, user="vectorforge_app")
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        await fill(client)
    monkeypatch.setenv("VECTORFORGE_QUERY_LOG_QUEUE_URL", queue.url)
    monkeypatch.setenv("VECTORFORGE_QUERY_LOG_TIMEOUT_S", "5")
    with psycopg.connect(url, autocommit=True) as superuser:
        hold_settlements(superuser)
        async with server_process(app_url, tenant, tokens_per_day=20_000) as (pid, server_url):
            headers = {"Authorization": f"Bearer {key_of(tenant)}"}
            async with httpx2.AsyncClient(base_url=server_url, headers=headers, timeout=60) as client:
                query_task = asyncio.create_task(client.post(ASK, json=QUESTION))
                records = await until_ended(queue)
                os.kill(pid, signal.SIGKILL)
                await asyncio.gather(query_task, return_exceptions=True)
        queue.send(*records * 5)
        await asyncio.to_thread(queue.deliver, make_writer(make_conninfo(url, user="vectorforge_log_writer")))
        found = superuser.execute("SELECT outcome, prompt_tokens FROM vectorforge.query_logs").fetchall()
        assert found == [("answered", 100)]
        async with Database(app_url, pool_size=1) as database:
            limits = TenantLimits(database.for_tenant(tenant))
            assert (await limits.usage()).tokens > 10 * TOKENS  # the claim
            superuser.execute(END_OTHERS)  # the statement of the killed one may still wait for the lock
            superuser.execute("SELECT pg_advisory_unlock_all()")
            superuser.execute("UPDATE vectorforge.limit_reservations SET expires_at = now()")
            assert (await limits.usage()).tokens == 0


def hold_settlements(superuser: psycopg.Connection) -> None:
    """Block all settlements while this connection has its lock."""
    superuser.execute(
        "CREATE FUNCTION vectorforge.held() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$"
    )
    superuser.execute(
        "CREATE TRIGGER held BEFORE UPDATE ON vectorforge.limit_reservations"
        " FOR EACH ROW WHEN (NEW.settled) EXECUTE FUNCTION vectorforge.held()"
    )
    superuser.execute("SELECT pg_advisory_lock(42)")


async def until_ended(queue: Queue) -> list[str]:
    """Return all records of one query, once its last one is there."""
    bodies: list[str] = []
    async with asyncio.timeout(60):
        while not any(json.loads(body)["outcome"] == "answered" for body in bodies):
            bodies += await asyncio.to_thread(queue.bodies)
    return bodies
