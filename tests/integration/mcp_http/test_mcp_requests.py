"""HTTP requests to ``/mcp``: keys, paths, limits, and clients that disconnect."""

import asyncio
from typing import Any

import pytest
from mcp import MCPError

from tests.integration.mcp_http.conftest import QUESTION, checked_call
from tests.integration.tenant_routes import code_of
from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.http.mcp_client import MODES, mcp_client
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.asyncio(loop_scope="module")

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def aborted(api: LiveApi, tenant: str) -> dict[str, Any]:
    async with api.client(tenant) as http:
        while True:
            if rows := (await http.get("/v1/queries?outcome=aborted")).json()["queries"]:
                return dict(rows[0])
            await asyncio.sleep(0.02)


async def disconnected(openai: FakeOpenAI) -> asyncio.Event:
    """Return the event that is set when the model's client has disconnected."""
    while not openai.requests:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0.01)
    return openai.requests[-1].client_closed


@pytest.mark.parametrize("mode", MODES)
async def test_client_disconnect_stops_the_model_and_is_logged(
    api: LiveApi, tenant: str, openai: FakeOpenAI, mode: str
) -> None:
    async def ask_and_wait() -> None:
        async with mcp_client(api.url, tenant, mode=mode) as client:
            await client.call_tool("ask", QUESTION)

    openai.script(Reply(pause_s=60))
    call_task = asyncio.create_task(ask_and_wait())
    async with asyncio.timeout(20):
        closed = await disconnected(openai)
        call_task.cancel()
        await closed.wait()
        assert (await aborted(api, tenant))["query_text"] == QUESTION["query"]
    with pytest.raises(asyncio.CancelledError):
        await call_task


async def test_cancelled_call_stops_the_model_and_client_continues(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    openai.script(Reply(pause_s=60))
    async with mcp_client(api.url, tenant) as client, asyncio.timeout(20):
        call_of_ask = asyncio.create_task(client.call_tool("ask", QUESTION))
        closed = await disconnected(openai)
        call_of_ask.cancel()
        await closed.wait()
        assert (await aborted(api, tenant))["query_text"] == QUESTION["query"]
        with pytest.raises(asyncio.CancelledError):
            await call_of_ask
        assert (await checked_call(client, "ask", **QUESTION))["outcome"] == "answered"


async def test_client_without_valid_key_shows_the_reason(api: LiveApi) -> None:
    async with api.client(None) as http:
        for path in ("/mcp", "/mcp/"):
            response = await http.post(path, json=INITIALIZE)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
            assert response.json()["error"]["data"]["code"] == "unauthenticated"
    for key, reason in ((None, "An API key is required"), ("no key", "The API key is not valid")):
        shown = pytest.RaisesExc(MCPError, match=reason)
        with pytest.RaisesGroup(shown, flatten_subgroups=True, allow_unwrapped=True):
            async with mcp_client(api.url, key):
                pass


async def test_mcp_path_with_or_without_slash_is_served_without_redirect(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as http:
        for path in ("/mcp", "/mcp/"):
            response = await http.post(path, json=INITIALIZE)
            assert response.status_code == 200
            assert response.json()["result"]["protocolVersion"] == "2025-11-25"
            assert response.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in response.headers
            assert response.headers["x-request-id"]
            assert response.headers["cache-control"] == "no-store"
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await http.post(path, json=done)).status_code == 202
            for method in ("GET", "DELETE"):  # no stream of the server, no session to end
                refused = await http.request(method, path, headers={"accept": "text/event-stream"})
                assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_mcp_message_limits_return_413_or_415(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as http:
        response = await http.post("/mcp", json={**INITIALIZE, "more": "x" * 1024 * 1024})
        error = response.json()["error"]
        assert (response.status_code, error["data"]["code"]) == (413, "body_too_large")
        assert error["message"] == "The message is larger than 1048576 bytes."
        response = await http.post("/mcp", content=b"{", headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)
        for named in ("text/plain", "", "application/ld+json"):
            response = await http.post("/mcp", content=b"{}", headers={"content-type": named})
            assert response.status_code == 415
            assert response.json()["error"]["code"] == -32600


@pytest.mark.parametrize("version", [None, *MODES.values()])
async def test_body_that_is_no_single_message_is_rejected(
    api: LiveApi, tenant: str, version: str | None
) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    bodies: list[Any] = [[INITIALIZE], [], {}, "x", 7]
    async with api.client(tenant) as http:
        for body in bodies:
            response = await http.post("/mcp", json=body, headers=headers)
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (400, -32600), body
            assert error["message"] == "Send one JSON-RPC message; batches are not supported."
            assert error["data"]["code"] == "malformed_request"


async def test_mcp_query_is_logged_under_its_result_id(api: LiveApi, tenant: str) -> None:
    async with mcp_client(api.url, tenant) as client, api.client(tenant) as http:
        answer = await checked_call(client, "ask", **QUESTION)
        row = (await http.get(f"/v1/queries/{answer['query_id']}")).json()
        assert (row["outcome"], row["query_text"]) == ("answered", QUESTION["query"])


async def test_cross_site_page_cannot_call_tools_of_local_server(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    local = {"auth": "local", "local_tenant": tenant, "allowed_hosts": ["127.0.0.1"]}
    config = settings_for(postgres_server.app_url, server=local)
    async with live_api(config) as running, running.client(None) as http:
        assert (await http.post("/mcp", json=INITIALIZE)).status_code == 200
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            response = await http.post("/mcp", json=INITIALIZE, headers=headers)
            assert (response.status_code, code_of(response)) == (403, "cross_site")
        rebound = await http.post("/mcp", json=INITIALIZE, headers={"host": "evil.example"})
        assert (rebound.status_code, code_of(rebound)) == (421, "wrong_host")
