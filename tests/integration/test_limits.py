"""Limits of tenants are exact for every credential, every end of a request, and after crashes."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.integration.limit_admissions import ASK, QUESTION, fill, until_streams
from tests.support.http.live_api import key_of, live_api, settings_for
from vectorforge.config import LimitSettings
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError, LimitExceededError
from vectorforge.limits.admission import Admission, LimitGate, charge
from vectorforge.limits.settings import Claim, Limits, TenantLimits
from vectorforge.local.postgres import EmbeddedPostgres

SERVER = Path(__file__).with_name("limited_server.py")


def admission(db: TenantDatabase, limits: Limits, request_id: UUID | None = None) -> Admission:
    """Return the admission of a new request, in a process without state."""
    return Admission(db, LimitGate(limits), request_id or uuid4(), hold_s=60)


async def let_in(db: TenantDatabase, limits: Limits, claim: Claim) -> Admission:
    request = admission(db, limits)
    await request.admit(lambda: claim)
    return request


async def settle(db: TenantDatabase, request: Admission, tokens: int, cost_usd: float = 0.0) -> None:
    await db.run(request.settling(tokens, cost_usd))
    request.confirm()


async def refusal(db: TenantDatabase, limits: Limits, claim: Claim) -> LimitExceededError:
    with pytest.raises(LimitExceededError) as caught:
        await let_in(db, limits, claim)
    return caught.value


class TestReservations:
    async def test_requests_beyond_the_minute_limit_are_rejected(self, tenant_db: TenantDatabase) -> None:
        limits = Limits(requests_per_minute=3)
        left = [(await let_in(tenant_db, limits, Claim())).state for _ in range(3)]
        assert [state and state.requests_left for state in left] == [2, 1, 0]
        error = await refusal(tenant_db, limits, Claim())
        assert (error.limit, error.value) == ("requests_per_minute", 3)
        assert error.retry_after_s is not None
        assert 0 < error.retry_after_s <= 61
        assert "requests_per_minute is 3" in error.message

    async def test_minute_window_uses_database_time(self, tenant_db: TenantDatabase) -> None:
        limits = Limits(requests_per_minute=2)
        for _ in range(2):
            await let_in(tenant_db, limits, Claim())
        await refusal(tenant_db, limits, Claim())
        await tenant_db.execute("UPDATE vectorforge.limit_counters SET last_second = last_second - 30")
        await refusal(tenant_db, limits, Claim())  # they are still within a minute
        await tenant_db.execute("UPDATE vectorforge.limit_counters SET last_second = last_second - 31")
        await let_in(tenant_db, limits, Claim())

    async def test_repeated_admission_of_one_request_counts_once(self, tenant_db: TenantDatabase) -> None:
        limits, request_id = Limits(requests_per_minute=1, tokens_per_day=10), uuid4()
        for _ in range(2):
            await admission(tenant_db, limits, request_id).admit(lambda: Claim(tokens=10))
        await refusal(tenant_db, limits, Claim())

    async def test_tokens_are_reserved_and_settled(self, tenant_db: TenantDatabase) -> None:
        limits = Limits(tokens_per_day=100)
        first = await let_in(tenant_db, limits, Claim(tokens=60))
        early = await refusal(tenant_db, limits, Claim(tokens=60))
        assert early.retry_after_s == 1  # it fits once the first has used less
        await settle(tenant_db, first, 30)
        second = await let_in(tenant_db, limits, Claim(tokens=70))
        assert second.state is not None
        assert second.state.tokens_left == 0
        await settle(tenant_db, second, 70)
        late = await refusal(tenant_db, limits, Claim(tokens=1))
        assert late.retry_after_s is not None
        assert 1 <= late.retry_after_s <= 86_400  # tomorrow
        await tenant_db.execute("UPDATE vectorforge.limit_counters SET day = day - 1")
        await let_in(tenant_db, limits, Claim(tokens=100))

    async def test_cost_limit_applies_per_month(self, tenant_db: TenantDatabase) -> None:
        limits = Limits(cost_per_month_usd=Decimal("1.00"))
        first = await let_in(tenant_db, limits, Claim(cost_usd=0.7))
        await refusal(tenant_db, limits, Claim(cost_usd=0.7))
        await settle(tenant_db, first, 1, 0.25)
        await let_in(tenant_db, limits, Claim(cost_usd=0.75))
        error = await refusal(tenant_db, limits, Claim(cost_usd=0.01))
        assert error.limit == "cost_per_month_usd"
        assert (await TenantLimits(tenant_db).usage()).cost_usd == Decimal("1.00")

    async def test_claim_above_the_limit_is_rejected_as_invalid(self, tenant_db: TenantDatabase) -> None:
        with pytest.raises(InvalidInputError, match=r"tokens_per_day is 100") as caught:
            await let_in(tenant_db, Limits(tokens_per_day=100), Claim(tokens=101))
        assert caught.value.field == "max_tokens"

    async def test_reservation_expires(self, tenant_db: TenantDatabase) -> None:
        limits = Limits(tokens_per_day=100, concurrent_streams=1)
        claim = Claim(is_stream=True, tokens=100)
        lost = await let_in(tenant_db, limits, claim)
        assert (await refusal(tenant_db, limits, claim)).limit == "concurrent_streams"
        await tenant_db.execute("UPDATE vectorforge.limit_reservations SET expires_at = now()")
        await let_in(tenant_db, limits, claim)
        await settle(tenant_db, lost, 100)  # too late: it has expired
        assert (await TenantLimits(tenant_db).usage()).tokens == 100

    async def test_background_work_is_charged_immediately(self, tenant_db: TenantDatabase) -> None:
        gate = LimitGate(Limits(tokens_per_day=100, requests_per_minute=1))
        await charge(tenant_db, gate, 60)
        with pytest.raises(LimitExceededError, match="tokens_per_day"):
            await charge(tenant_db, gate, 60)
        assert (await TenantLimits(tenant_db).usage()).tokens == 60
        await let_in(tenant_db, gate.defaults, Claim())  # not counted as a request

    async def test_tenant_limits_override_server_defaults(
        self, tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
    ) -> None:
        await TenantLimits(tenant_db).change(Limits(requests_per_minute=1))
        server = Limits(requests_per_minute=5, concurrent_streams=7)
        state = (await let_in(tenant_db, server, Claim())).state
        assert state is not None
        assert state.limits == Limits(requests_per_minute=1, concurrent_streams=7)
        await refusal(tenant_db, server, Claim())
        await let_in(other_tenant_db, server, Claim())

    async def test_unlimited_tenant_writes_no_counters(self, tenant_db: TenantDatabase) -> None:
        gate = LimitGate(Limits())
        await Admission(tenant_db, gate, uuid4(), hold_s=60).admit()
        assert gate.is_open(tenant_db.tenant_id)
        request = Admission(tenant_db, gate, uuid4(), hold_s=60)
        assert request.piggyback(lambda: pytest.fail("nobody needs to know")) is None
        assert request.settling(5, 1.0) == []
        for table in ("limit_counters", "limit_reservations"):
            assert await tenant_db.fetch_all(f"SELECT FROM vectorforge.{table}") == []


@asynccontextmanager
async def server_process(
    app_url: str, *tenants: str, delay_s: float = 0.0, **limits: int
) -> AsyncIterator[Any]:
    """Start a server process; yield its process id and URL."""
    names = {f"VECTORFORGE_LIMIT_{name.upper()}": str(value) for name, value in limits.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SERVER), app_url, str(delay_s), *tenants),
        env={**os.environ, **names},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process.pid, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answered(client: httpx2.AsyncClient) -> httpx2.Response:
    response = await client.post(ASK, json={**QUESTION})
    await response.aread()
    return response


async def test_concurrent_requests_across_processes_respect_the_limit(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    loud, quiet = make_tenant(), make_tenant()
    async with (
        live_api(settings_for(postgres_server.app_url, [loud, quiet])) as api,
        AsyncExitStack() as stack,
    ):
        for tenant in (loud, quiet):
            async with api.client(tenant) as client:
                await fill(client)
        clients = {}
        servers = [
            await stack.enter_async_context(
                server_process(postgres_server.app_url, loud, quiet, requests_per_minute=60)
            )
            for _ in range(3)
        ]
        for tenant in (loud, quiet):
            headers = {"Authorization": f"Bearer {key_of(tenant)}"}
            clients[tenant] = [
                await stack.enter_async_context(httpx2.AsyncClient(base_url=url, headers=headers, timeout=60))
                for _, url in servers
            ]
        order = [(loud, number) for number in range(200)] + [(quiet, number) for number in range(20)]
        responses = await asyncio.gather(
            *(answered(clients[tenant][number % len(servers)]) for tenant, number in order)
        )
    by_tenant = {tenant: Counter[int]() for tenant in (loud, quiet)}
    for (tenant, _), response in zip(order, responses, strict=True):
        by_tenant[tenant][response.status_code] += 1
    assert by_tenant == {loud: {200: 60, 429: 140}, quiet: {200: 20}}  # unaffected by the busy one
    refused = next(response for response in responses if response.status_code == 429)
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["code"], problem["status"]) == ("limit_exceeded", 429)
    assert problem["errors"][0] | {"message": ""} == {
        "field": "requests_per_minute",
        "limit": 60,
        "message": "",
    }
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert refused.headers["ratelimit-policy"] == '"requests";q=60;w=60'
    assert refused.headers["ratelimit"].startswith('"requests";r=0;t=')


async def test_reservation_of_killed_server_expires(
    postgres_server: EmbeddedPostgres, direct_database: Database, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    db = direct_database.for_tenant(tenant)
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        await fill(client)
    limits = {"concurrent_streams": 1, "tokens_per_day": 20_000}
    async with server_process(postgres_server.app_url, tenant, delay_s=3600, **limits) as (pid, url):
        headers = {"Authorization": f"Bearer {key_of(tenant)}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            hanging = asyncio.create_task(client.post(ASK, json={**QUESTION, "stream": True}))
            await until_streams(TenantLimits(db), 1)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx2.HTTPError):
                await (await hanging).aread()
    held = await TenantLimits(db).usage()
    assert (held.streams, held.tokens > 2048) == (1, True)
    server = Limits(concurrent_streams=1, tokens_per_day=20_000)
    assert (await refusal(db, server, Claim(is_stream=True))).limit == "concurrent_streams"
    await db.execute("UPDATE vectorforge.limit_reservations SET expires_at = now()")  # time passes
    await let_in(db, server, Claim(is_stream=True, tokens=20_000))


def test_limit_settings_are_server_defaults() -> None:
    settings = LimitSettings(limit_requests_per_minute=5, limit_cost_per_month_usd=Decimal("1.5"))
    assert settings.limit_tokens_per_day is None
