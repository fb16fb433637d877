"""The server: page, headers, health, OpenAPI document, and access in local mode."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.http.live_api import LiveApi, live_api, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.health import ComponentHealth
from vectorforge.local.postgres import EmbeddedPostgres

LOCAL = {"auth": "local", "allowed_hosts": ["localhost", "127.0.0.1", "::1"], "local_tenant": "tenant-local"}


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(postgres_server.app_url, server=LOCAL), ScriptedLLM()) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(None) as opened:
        yield opened


async def test_root_lists_documented_routes(client: httpx2.AsyncClient) -> None:  # B-041
    root = (await client.get("/")).json()
    assert any("/v1/rag/query" in endpoint for endpoint in root["endpoints"])
    document = (await client.get(root["documentation"])).json()
    described = {re.sub(r"{\w+}", "{id}", path): operations for path, operations in document["paths"].items()}
    for endpoint in root["endpoints"]:
        method, path = re.sub(r"{\w+}", "{id}", endpoint).split()
        assert method.lower() in described[path]


async def test_browser_receives_page_with_strict_content_security_policy(client: httpx2.AsyncClient) -> None:
    page = await client.get("/", headers={"accept": "text/html,application/xhtml+xml"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind in ("script", "style"):
        pattern = rf"<{kind}(?! type=\"application/json\")[^>]*>(.*?)</{kind}>"  # data is not run
        blocks = re.findall(pattern, page.text, re.DOTALL)
        allowed = [
            f"'sha256-{base64.b64encode(hashlib.sha256(b.encode()).digest()).decode()}'" for b in blocks
        ]
        assert policy[f"{kind}-src"] == " ".join(allowed)
    assert not re.search(r"<(script|link)[^>]+(src|href)=[\"']?(https?:)?//", page.text)
    assert page.headers["x-frame-options"] == "DENY"


async def test_responses_have_security_headers(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/health", "/nothing", "/v1/collections"):
        headers = (await client.get(path)).headers
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["x-request-id"]


@pytest.mark.parametrize(
    ("given", "is_accepted"),
    [
        ("trace-0123456789", True),
        ("short", False),
        ("x" * 129, False),
        ("a b c d e f g h", False),
        ("", False),
    ],
)
async def test_valid_client_request_id_is_returned(
    client: httpx2.AsyncClient, given: str, is_accepted: bool
) -> None:
    response = await client.get("/health", headers={"x-request-id": given})
    assert (response.headers["x-request-id"] == given) is is_accepted


async def test_health_checks_database_and_providers_on_deep_only(
    api: LiveApi, client: httpx2.AsyncClient
) -> None:  # C25
    shallow = (await client.get("/health")).json()
    assert (shallow["status"], [c["name"] for c in shallow["components"]]) == ("ok", ["database"])
    statuses = []

    async def probe() -> ComponentHealth:
        statuses.append(1)
        return ComponentHealth("llm.broken", healthy=False, detail="Invalid credentials")

    api.application.health_checker.register("llm.broken", probe)
    await client.get("/health")
    assert statuses == []
    deep = await client.get("/health", params={"deep": "1"})
    assert (deep.status_code, deep.json()["status"]) == (200, "degraded")
    assert deep.json()["components"][-1]["name"] == "llm.broken"


async def test_deep_health_without_key_returns_401(postgres_server: EmbeddedPostgres) -> None:
    async with live_api(settings_for(postgres_server.app_url)) as api, api.client(None) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/health", params={"deep": "1"})).status_code == 401


async def test_providers_are_listed_without_secrets(client: httpx2.AsyncClient) -> None:
    body = (await client.get("/v1/providers")).json()
    (llm,) = body["llm"]
    assert (llm["name"], llm["default_model"], llm["is_default"]) == ("scripted", "scripted-1", True)
    assert llm["extractive"] is False
    assert body["embedding"] == [
        {"name": "hashing", "default_model": "hashing-v1", "dimension": 64, "is_default": True}
    ]
    assert body["generation_enabled"] is True


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "169.254.169.254", "[::2]", ""]
)
async def test_unknown_host_returns_421(client: httpx2.AsyncClient, host: str) -> None:
    response = await client.get("/v1/collections", headers={"host": host})
    assert (response.status_code, response.json()["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000"])
async def test_local_host_names_are_accepted(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/collections", headers={"host": host})).status_code == 200


NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("POST", NAVIGATION, 403),
        ("GET", {**NAVIGATION, "sec-fetch-dest": "iframe"}, 403),
        ("POST", {"origin": "https://evil.example"}, 403),
        ("POST", {"origin": "null"}, 403),
        ("GET", NAVIGATION, 200),  # a link to the page, clicked somewhere else
        ("GET", {"sec-fetch-site": "same-origin"}, 200),
        ("GET", {"origin": "http://127.0.0.1:1234"}, 403),  # another port is another origin
        ("GET", {}, 200),
    ],
)
async def test_cross_site_request_to_local_server_returns_403_except_navigation(
    client: httpx2.AsyncClient, method: str, headers: dict[str, str], status: int
) -> None:
    response = await client.request(method, "/v1/collections", headers=headers)
    assert response.status_code == status
    if status == 403:
        assert response.json()["code"] == "cross_site"


async def test_authenticated_server_ignores_host_and_fetch_headers(postgres_server: EmbeddedPostgres) -> None:
    config = settings_for(postgres_server.app_url, ["tenant-k"])
    async with live_api(config) as api, api.client("tenant-k") as client:
        headers = {"sec-fetch-site": "cross-site", "host": "rag.example"}
        assert (await client.get("/v1/collections", headers=headers)).status_code == 200
