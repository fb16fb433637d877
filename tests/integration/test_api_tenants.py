"""Two tenants over every route: each sees its own data only; a route without a case here fails."""

import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.integration.tenant_routes import (
    CASES,
    COSTS_NOTHING,
    HAS_NO_PLACE_NOW,
    PUBLIC,
    QUESTION,
    REJECTED,
    ROUTES,
    SECRET,
    TOOL_CALL,
    Alice,
    alice,
    code_of,
    deleted_when,
    furnished,
    request,
)
from tests.support.http.live_api import (
    live_api,
    new_collection,
)
from vectorforge.api.request_state import error_shape_of
from vectorforge.limits.settings import Limits

_FIXTURE = alice
in_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_server(app_url: str) -> AsyncIterator[tuple[Alice, list[str]]]:
    """Start a server with one of everything, and unused tenants of it."""
    alice, *others = (f"tenant-{uuid.uuid4().hex[:12]}" for _ in range(100))
    async with furnished(app_url, alice, *others) as started:
        yield started, others


@pytest.fixture
def unharmed(module_server: tuple[Alice, list[str]]) -> Alice:
    """Return Alice for tests that try to read or change her data as a new Bob, and do not."""
    alice, others = module_server
    return replace(alice, bob=others.pop())


def test_routes_have_a_tenant_isolation_case() -> None:
    assert set(ROUTES) == set(CASES) | PUBLIC


async def test_routes_return_no_data_of_other_tenant(alice: Alice) -> None:  # C17, C42, security 4
    async with alice.api.client(alice.name) as as_alice, alice.api.client(alice.bob) as as_bob:
        for (method, path), case in CASES.items():
            filled = alice.fill(path + case.query)
            response = await request(as_bob, method, filled, alice.fill_body(case))
            assert response.status_code == case.status, (method, path, response.text)
            assert SECRET not in response.text
            assert not any(id_ in response.text for id_ in alice.ids.values() if id_ not in filled), path
            for name in case.empty:
                assert response.json()[name] == [], path
            if (method, path) == ("POST", "/v1/collections"):
                await as_bob.delete(response.headers["location"])
        # Alice may make the same requests, and her data is intact. Deletions last, leaves first.
        order = sorted(CASES, key=deleted_when)
        for method, path in order:
            case = CASES[method, path]
            response = await request(as_alice, method, alice.fill(path + case.query), alice.fill_body(case))
            expected = 409 if (method, path) in HAS_NO_PLACE_NOW else REJECTED.get((method, path), 0)
            if path.endswith(".png"):
                expected = 404  # her document is a text, which has no page images
            assert response.status_code == expected or response.status_code < 300, (path, response.text)


async def test_billable_routes_are_rate_limited(alice: Alice) -> None:
    limits = Limits(requests_per_minute=1)
    await alice.api.application.for_tenant(alice.name).limits.own.change(limits)
    async with live_api(alice.api.application.config) as api, api.client(alice.name) as client:
        assert (await client.post("/v1/search", json=QUESTION)).status_code == 200
        for (method, path), case in CASES.items():
            if method == "DELETE":
                continue
            response = await request(client, method, alice.fill(path), alice.fill_body(case))
            if (method, path) in COSTS_NOTHING:
                assert response.status_code != 429, (method, path)
            elif path.startswith("/mcp"):
                assert response.json()["result"]["isError"], response.text
                assert "requests_per_minute is 1" in response.text
            else:
                assert response.status_code == 429, (method, path)
                assert code_of(response) == "limit_exceeded", (method, path)
                assert 1 <= int(response.headers["retry-after"]) <= 61
                assert response.headers["ratelimit"].startswith('"requests";r=0;t='), (method, path)


@in_module_loop
async def test_collection_id_of_other_tenant_returns_no_data(unharmed: Alice) -> None:  # C17
    async with unharmed.api.client(unharmed.bob) as client:
        for path in ("/v1/rag/query", "/v1/search"):
            for stream in ({}, {"stream": True}) if "rag" in path else ({},):
                body = {**QUESTION, "collection": unharmed.ids["collection_id"], **stream}
                assert (await client.post(path, json=body)).status_code == 404
        await new_collection(client, "default")
        for path in ("/v1/rag/query", "/v1/docrag/query"):
            body = {**QUESTION, "conversation_id": unharmed.ids["conversation_id"]}
            assert (await client.post(path, json=body)).status_code == 404
        for path in ("/v1/jobs", "/v1/queries", "/v1/stats", "/v1/stats/usage"):
            response = await client.get(path, params={"collection_id": unharmed.ids["collection_id"]})
            assert (response.status_code, code_of(response)) == (404, "not_found")


@in_module_loop
async def test_filter_deletion_in_collection_of_other_tenant_returns_404(unharmed: Alice) -> None:  # C17
    path = f"/v1/collections/{unharmed.ids['collection_id']}/documents"
    everything = {"filters": {"nothing": {"$exists": False}}}
    async with unharmed.api.client(unharmed.bob) as as_bob, unharmed.api.client(unharmed.name) as as_alice:
        assert (await as_bob.post(f"{path}/delete", json=everything)).status_code == 404
        assert (await as_alice.get(path)).json()["total"] == 1


@in_module_loop
async def test_request_without_valid_key_returns_401(
    unharmed: Alice, subtests: pytest.Subtests
) -> None:  # C42, security 10
    wrong = ("Bearer wrong", "Basic eA==", "Bearer", f"Bearer {'x' * 600}")
    credentials = ({}, {"X-Api-Key": "x"}, *({"Authorization": value} for value in wrong))
    async with unharmed.api.client(None) as client:
        for method, path in sorted(CASES):
            for headers in credentials:
                with subtests.test(f"{method} {path}", headers=headers):
                    # An unreadable body would be a 400: it is not parsed before the key is checked.
                    declared = {**headers, "content-type": "application/json"}
                    response = await client.request(
                        method, unharmed.fill(path), headers=declared, content=b"{"
                    )
                    assert (response.status_code, code_of(response)) == (401, "unauthenticated")
                    # RFC 6750: no error is named where there was no credential
                    presented = headers.get("Authorization") not in ("Basic eA==", "Bearer") and headers != {}
                    expected = 'Bearer error="invalid_token"' if presented else "Bearer"
                    assert response.headers["www-authenticate"] == expected


@in_module_loop
@pytest.mark.parametrize(
    "path", [path for (_, path), case in CASES.items() if case.body and case.body is not TOOL_CALL]
)
async def test_tenant_id_in_body_is_rejected(unharmed: Alice, path: str) -> None:  # C42
    method, case = next((m, c) for (m, p), c in CASES.items() if p == path and c.body)
    async with unharmed.api.client(unharmed.bob) as client:
        filled = unharmed.fill(path)
        body = {**(unharmed.fill_body(case) or {}), "tenant_id": unharmed.name}
        response = await client.request(method, filled, json=body)
    if path == "/api/chat":  # whose clients send their own fields, which are ignored
        assert response.status_code == 404
        return
    # Bob has no such collection, which is checked first.
    if filled.startswith("/v1/collections/") and re.search(
        "/(documents|embedding-switch(/switch)?)$", filled
    ):
        assert response.status_code == 404
        return
    if error_shape_of(filled) == "openai":  # its clients send unknown fields; this one has no effect
        assert response.status_code == case.status
        assert SECRET not in response.text
        return
    if path.startswith("/bedrock/"):
        assert response.status_code == 400
        assert "tenant_id is not supported" in response.json()["message"]
        return
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "tenant_id"
