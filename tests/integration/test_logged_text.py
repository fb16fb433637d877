"""Texts of queries and answers in the log, by tenant: in the table, in the queue, on stdout."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.aws.fake_aws import aws_environment
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import AwsSettings, QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
QUESTION = "Does ann@example.org know when the kettle boils?"
ANSWER = "Yes, +49 30 1234567 said 100 degrees [Source 1]."
SURFACES: dict[str, dict[str, Any]] = {
    "/v1/rag/query": {"query": QUESTION},
    "/v1/chat/completions": {
        "model": "vectorforge/default",
        "messages": [{"role": "user", "content": QUESTION}],
    },
}


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        server.unscripted = Reply(texts=(ANSWER,))
        yield server


async def ask(client: httpx2.AsyncClient, surface: str) -> str:
    response = await client.post(surface, json=SURFACES[surface], headers={"Cache-Control": "no-cache"})
    assert response.status_code == 200, response.text
    return response.text


async def last_row(client: httpx2.AsyncClient) -> tuple[str, str]:
    row = (await client.get("/v1/queries", params={"limit": 1})).json()["queries"][0]
    return row["query_text"], row["generated_response"]


def provider(vendor: FakeOpenAI) -> OpenAIProvider:
    return OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)


@pytest.mark.parametrize("surface", list(SURFACES))
async def test_log_text_policy_applies_per_tenant(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: FakeOpenAI, surface: str
) -> None:  # threat 20
    tenants = {policy: make_tenant() for policy in (None, "full", "hash", "off")}
    rows = {}
    async with live_api(
        settings_for(postgres_server.app_url, list(tenants.values())), provider(vendor)
    ) as api:
        for policy, tenant in tenants.items():
            await api.application.for_tenant(tenant).caches.settings.set_log_text(policy)
            async with api.client(tenant) as client:
                await add_documents(
                    client, await new_collection(client), a="The kettle boils at 100 degrees."
                )
                assert "+49 30 1234567" in await ask(client, surface)  # the client gets the full answer
                rows[policy] = await last_row(client)
    masked = "Does [email] know when the kettle boils?"
    assert rows[None] == (masked, "Yes, [phone] said 100 degrees [Source 1].")
    assert rows["full"] == (QUESTION, ANSWER)
    assert rows["off"] == ("", "")
    assert all(text.startswith("sha256:") and len(text) == 71 for text in rows["hash"])


async def test_log_text_policy_change_applies_to_the_next_query(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: FakeOpenAI
) -> None:  # read by the query's own statement
    tenant = make_tenant()
    async with (
        live_api(settings_for(postgres_server.app_url, [tenant]), provider(vendor)) as api,
        api.client(tenant) as client,
    ):
        await add_documents(client, await new_collection(client), a="The kettle boils at 100 degrees.")
        settings = api.application.for_tenant(tenant).caches.settings
        seen = []
        for policy in ("full", "off", None):
            await settings.set_log_text(policy)
            await ask(client, "/v1/rag/query")
            seen.append((await last_row(client))[0])
    assert seen == [QUESTION, "", "Does [email] know when the kettle boils?"]


async def test_unmasked_text_never_leaves_the_process(
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    vendor: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # a queue that does not answer: the record is printed to stdout
    tenant = make_tenant()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in aws_environment(f"http://127.0.0.1:{silent.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        config = settings_for(
            postgres_server.app_url,
            [tenant],
            aws=AwsSettings(query_log_queue_url="http://sqs/queue", query_log_timeout_s=0.1),
        )
        async with live_api(config, provider(vendor)) as api:
            await fill(api, tenant)
            async with api.client(tenant) as client:
                for surface in SURFACES:
                    await ask(client, surface)
    printed = capsys.readouterr().out
    records = [json.loads(line) for line in printed.splitlines() if line.startswith('{"type"')]
    assert {record["outcome"] for record in records} == {"started", "answered"}
    assert {record["query_text"] for record in records} == {"Does [email] know when the kettle boils?"}
    assert "ann@" not in printed
    assert "1234567" not in printed


async def fill(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as client:
        await add_documents(client, await new_collection(client), a="The kettle boils at 100 degrees.")


async def test_server_default_log_text_policy_is_applied(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: FakeOpenAI
) -> None:
    tenant = make_tenant()
    config = settings_for(postgres_server.app_url, [tenant], query=QuerySettings(log_text="full"))
    async with live_api(config, provider(vendor)) as api, api.client(tenant) as client:
        await fill(api, tenant)
        await ask(client, "/v1/rag/query")
        assert await last_row(client) == (QUESTION, ANSWER)


def test_logs_text_command_shows_and_sets_the_policy(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [VECTORFORGE, "logs", "text", *arguments, "--tenant", tenant, "--json"],
            env={**os.environ, "VECTORFORGE_DATABASE_URL": postgres_server.app_url},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run() == {"tenant": tenant, "log_text": None}
    assert run("off") == {"tenant": tenant, "log_text": "off"}
    assert run("default") == {"tenant": tenant, "log_text": None}
