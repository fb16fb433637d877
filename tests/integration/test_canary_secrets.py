"""Secrets in keys, addresses and errors appear in no response, log line or metric, whatever fails."""

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from tests.support.vendors.scripted_llm import ScriptedLLM
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.config import QuerySettings
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import ProviderCall
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
CANARY = "canary-7c1d9e"
KEY = f"sk-{CANARY}-0123456789"
SURFACES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/rag/query", {"query": "kettle?"}),
    ("/v1/rag/query", {"query": "kettle?", "stream": True}),
    ("/v1/docrag/query", {"query": "kettle?", "min_score": 0.0}),
    (
        "/v1/chat/completions",
        {"model": "vectorforge/default", "messages": [{"role": "user", "content": "kettle?"}]},
    ),
)
CLIENTS = ("httpx", "httpcore", "hpack")
"""Loggers of the tests' own client, which knows its key."""


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Return all log records of all loggers at any level."""
    caplog.set_level(logging.DEBUG)

    def lines() -> str:
        records = [record for record in caplog.records if not record.name.startswith(CLIENTS)]
        return "\n".join(logging.Formatter("%(name)s %(message)s").format(record) for record in records)

    return lines


@asynccontextmanager
async def failing(url: str, tenant: str, *providers: BaseLLMProvider) -> AsyncIterator[LiveApi]:
    config = settings_for(url, [tenant], query=QuerySettings(degraded_answers=False))
    async with live_api(config, *providers) as api:
        yield api


async def shown_by(api: LiveApi, tenant: str) -> list[str]:
    """Return the output of every API surface and the metrics."""
    shown = [repr(api.application.config)]
    async with api.client(tenant) as client:
        for path, body in SURFACES:
            response = await client.post(path, json=body)
            shown.append(f"{response.status_code} {response.headers} {response.text}")
        read = [await client.get(path) for path in ("/metrics", "/v1/queries", "/v1/providers", "/health")]
        shown += [response.text for response in read]
    return shown


def check(shown: list[str], lines: str) -> None:
    for text in (*shown, lines):
        assert CANARY not in text, text
    assert lines


@pytest.mark.parametrize("vendor", [FakeOpenAI, FakeAnthropic])
async def test_provider_error_quoting_the_key_is_redacted(
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    logged: Callable[[], str],
    vendor: type[FakeVendor],
) -> None:  # threat 19
    tenant, made = make_tenant(), {FakeOpenAI: OpenAIProvider, FakeAnthropic: AnthropicProvider}[vendor]
    shown: list[str] = []
    async with vendor() as server:  # it has another key, and quotes ours in the error, as vendors do
        provider = made(SecretStr(KEY), base_url=server.base_url, retries=0)
        async with failing(postgres_server.app_url, tenant, provider) as api:
            async with api.client(tenant) as client:
                await add_documents(client, await new_collection(client), a="The kettle boils.")
            for status in (None, 400, 403, 500):
                if status is not None:
                    server.api_key, server.unscripted = KEY, Failure(status, message=f"{KEY} is wrong")
                calls = len(server.requests)
                shown += await shown_by(api, tenant)
                assert len(server.requests) > calls, status
        assert any(KEY in str(request.headers) for request in server.requests)
    check(shown, logged())


async def test_provider_url_with_password_is_redacted(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], logged: Callable[[], str]
) -> None:  # threat 18, 19
    tenant = make_tenant()
    provider = OpenAIProvider(SecretStr(KEY), base_url=f"http://user:{CANARY}@127.0.0.1:1/v1", retries=0)
    async with failing(postgres_server.app_url, tenant, provider) as api:
        async with api.client(tenant) as client:
            await add_documents(client, await new_collection(client), a="The kettle boils.")
        shown = await shown_by(api, tenant)
    check(shown, logged())


def test_database_url_with_password_is_redacted() -> None:  # threat 18
    url = f"postgresql://app:{CANARY}@127.0.0.1:1/x?application_name={CANARY}"
    done = subprocess.run(
        [VECTORFORGE, "logs", "text", "--debug"],
        env={**os.environ, "VECTORFORGE_DATABASE_URL": url, "VECTORFORGE_DATABASE_TIMEOUT_S": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "Traceback" in done.stderr  # even then
    check([done.stdout], done.stderr)


async def test_unexpected_error_with_secret_is_redacted(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], logged: Callable[[], str]
) -> None:  # threat 19
    class Broken(ScriptedLLM):
        async def _begin(self, call: ProviderCall) -> None:
            try:
                raise KeyError(KEY)
            except KeyError as exc:
                raise RuntimeError(f"with {KEY}") from exc

    tenant = make_tenant()
    async with failing(postgres_server.app_url, tenant, Broken(["x"])) as api:
        async with api.client(tenant) as client:
            await add_documents(client, await new_collection(client), a="The kettle boils.")
        shown = await shown_by(api, tenant)
    check(shown, logged())


async def test_invalid_caller_key_is_redacted(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], logged: Callable[[], str]
) -> None:  # threat 19
    tenant = make_tenant()
    async with (
        failing(postgres_server.app_url, tenant, ScriptedLLM(["x"])) as api,
        api.client(None) as client,
    ):
        shown = []
        for headers in (
            {"Authorization": f"Bearer {KEY}"},
            {"X-Api-Key": KEY},
            {"Authorization": f"Basic {KEY}"},
        ):
            response = await client.post(SURFACES[0][0], json=SURFACES[0][1], headers=headers)
            assert response.status_code == 401
            shown.append(f"{response.headers} {response.text}")
    check(shown, logged())
