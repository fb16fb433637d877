"""Two servers, models behind a gate, and clients that disconnect."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.integration.keyed_servers import (
    PIECES,
    QUESTION,
    STREAM,
    KeyedServers,
    keyed_servers,
)
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.local.postgres import EmbeddedPostgres

BOTH = pytest.mark.parametrize("body", [QUESTION, STREAM], ids=["json", "stream"])


@pytest.fixture
def app_url(postgres_server: EmbeddedPostgres) -> str:
    """Connect directly: ``test_idempotency`` also covers PgBouncer."""
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
    """Create models that continue after their first piece once the gate is opened."""
    gate = asyncio.Semaphore(0)
    return [ScriptedLLM(PIECES, gate=gate) for _ in range(2)], gate


def open_gate(gate: asyncio.Semaphore) -> None:
    for _ in range(100):
        gate.release()
