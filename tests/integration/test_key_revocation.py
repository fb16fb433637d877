"""A key revoked by one process is rejected by all that have cached it, at no cost to valid keys."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.tenant_routes import CASES, Alice, alice, request
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.postgres.pin_detector import PinDetector
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import QuerySettings
from vectorforge.db.errors import WRONG_KEY
from vectorforge.db.repositories.api_key_repo import ApiKeyRepository, NewApiKey
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Scope

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
QUESTION = {"query": "How hot is the oven?"}
_FIXTURE = alice
READS_NOTHING_OF_A_TENANT = {
    ("GET", "/metrics"),
    ("GET", "/v1/providers"),
    ("GET", "/v1/providers/{name}/models"),
}
"""Paths of models, and an unknown path: for them a key may be cached for 30 seconds."""


def bearer(key: NewApiKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.secret}"}


def keys_of(api: LiveApi, tenant: str) -> ApiKeyRepository:
    return api.application.for_tenant(tenant).api_keys


@pytest.fixture
async def api(
    app_url: str, make_tenant: Callable[[], str]
) -> AsyncIterator[tuple[LiveApi, str, ScriptedLLM]]:
    """Start a server with a tenant and its model."""
    tenant, model = make_tenant(), ScriptedLLM(["At 230 degrees [Source 1]."])
    config = settings_for(app_url, [tenant], query=QuerySettings(degraded_answers=False))
    async with live_api(config, model) as served, served.client(tenant) as client:
        await add_documents(client, await new_collection(client), bread="The oven is at 230 degrees.")
        yield served, tenant, model


async def test_key_revoked_by_other_process_is_rejected_immediately(
    api: tuple[LiveApi, str, ScriptedLLM], postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:  # security 10
    served, tenant, model = api
    key = await keys_of(served, tenant).create("leaked", Scope.READ)
    async with served.client(None) as client:
        client.headers.update(bearer(key))
        for _ in range(2):  # the second time from the cache
            assert (await client.post("/v1/rag/query", json=QUESTION)).status_code == 200
        model_calls = len(model.calls)
        process = await asyncio.create_subprocess_exec(
            *(VECTORFORGE, "keys", "revoke", key.key.id, "--tenant", tenant, "--yes"),
            env={**os.environ, "VECTORFORGE_DATABASE_URL": postgres_server.app_url},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        _, output = await process.communicate()
        assert process.returncode == 0, output.decode()
        refused = await client.post("/v1/rag/query", json={"query": "How hot is it?"})
        assert (refused.status_code, refused.json()["detail"]) == (401, WRONG_KEY)
        assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert len(model.calls) == model_calls
        # It is dropped from the cache, so that routes without reads reject it as well.
        assert (await client.get("/v1/providers")).status_code == 401


async def test_routes_reject_a_key_revoked_by_other_process(alice: Alice) -> None:
    served: set[tuple[str, str]] = set()
    keys = keys_of(alice.api, alice.name)  # discloses nothing to authenticated callers
    async with alice.api.client(None) as client:
        for (method, path), case in CASES.items():
            key = await keys.create("short", Scope.ADMIN)
            client.headers.update(bearer(key))
            assert (await client.get("/v1/providers")).status_code == 200  # now it is cached
            await keys.revoke(key.key.id)
            response = await request(client, method, alice.fill(path + case.query), alice.fill_body(case))
            if path.startswith("/mcp"):
                assert response.json()["result"]["isError"], response.text
                assert WRONG_KEY in response.text
            elif response.status_code != 401:
                served.add((method, path))
    assert served == READS_NOTHING_OF_A_TENANT | {("POST", "/v1/files")}  # 415: it needs a form


async def test_upload_with_revoked_key_stores_nothing(alice: Alice) -> None:
    keys = keys_of(alice.api, alice.name)
    key = await keys.create("short", Scope.ADMIN)
    form, purpose = {"file": ("notes.md", b"Notes")}, {"purpose": "assistants"}
    async with alice.api.client(None) as client:
        client.headers.update(bearer(key))
        assert (await client.get("/v1/providers")).status_code == 200  # now it is cached
        await keys.revoke(key.key.id)
        assert (await client.post("/v1/files", files=form, data=purpose)).status_code == 401
    async with alice.api.client(alice.name) as client:
        assert "notes.md" not in (await client.get("/v1/files")).text


async def test_stream_with_revoked_key_returns_401_before_any_event(
    api: tuple[LiveApi, str, ScriptedLLM],
) -> None:
    served, tenant, model = api
    keys = keys_of(served, tenant)
    async with served.client(None) as client:
        for more in ({"stream": True}, {"stream": True, "resumable": True}):
            key = await keys.create("short", Scope.READ)
            client.headers.update(bearer(key))
            assert (await client.post("/v1/rag/query", json={**QUESTION, **more})).status_code == 200
            model_calls = len(model.calls)
            await keys.revoke(key.key.id)
            response = await client.post("/v1/rag/query", json={"query": "And then?", **more})
            assert (response.status_code, len(model.calls)) == (401, model_calls)


async def test_request_with_two_keys_is_rejected_once_one_is_revoked(
    api: tuple[LiveApi, str, ScriptedLLM],
) -> None:
    served, tenant, _ = api
    keys = keys_of(served, tenant)
    async with served.client(None) as client:
        old, other = await keys.create("old", Scope.READ), await keys.create("other", Scope.READ)
        both = {**bearer(old), "X-Api-Key": other.secret}
        for headers in (bearer(old), bearer(other), both):
            assert (await client.get("/v1/collections", headers=headers)).status_code == 200
        await keys.rotate(old.key.id, overlap=timedelta(hours=1))
        assert (await client.get("/v1/collections", headers=both)).status_code == 200
        await keys.revoke(other.key.id)
        assert (await client.get("/v1/collections", headers=both)).status_code == 401  # one of two
        assert (await client.get("/v1/collections", headers=bearer(old))).status_code == 200


async def test_query_with_issued_key_costs_no_additional_statement(
    api: tuple[LiveApi, str, ScriptedLLM], pin_detector: PinDetector
) -> None:
    served, tenant, _ = api
    issued = await keys_of(served, tenant).create("good", Scope.READ)

    async def cost(client: httpx2.AsyncClient, name: str) -> tuple[int, int]:
        await client.post("/v1/rag/query", json={"query": f"Warm up {name}"})
        found = []
        for number in range(6):  # the fewest, since workers poll for jobs meanwhile
            before = (pin_detector.messages["Sync"], pin_detector.statements)
            response = await client.post("/v1/rag/query", json={"query": f"How hot, {name} {number}?"})
            assert response.status_code == 200
            after = (pin_detector.messages["Sync"], pin_detector.statements)
            found.append((after[0] - before[0], after[1] - before[1]))
        return min(found)

    async with served.client(tenant) as configured, served.client(None) as with_key:
        with_key.headers.update(bearer(issued))
        costs: dict[str, Any] = {
            "configured": await cost(configured, "configured"),
            "issued": await cost(with_key, "issued"),
        }
    assert costs["issued"] == costs["configured"]
    assert costs["issued"][0] == 4  # look-up, started row, search, log
