"""Cross-origin access of web pages over real HTTP, behind uvicorn and on Lambda."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import httpx2
import pytest
from fastapi import APIRouter

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from tests.support.http.live_api import LiveApi, build_application, key_of, live_api, settings_for
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.local.postgres import EmbeddedPostgres

PAGE = "https://app.example.com"
ORIGINS = [PAGE, "https://*.partner.example", "http://localhost:3000"]
QUESTION = {"query": "How long does a refund take?"}
READER = "key-of-a-reader"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,idempotency-key,x-amz-content-sha256",
}
EXPOSED = {
    "x-request-id",
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "idempotent-replayed",
    "location",
    "www-authenticate",
}
MAX_BODY_BYTES = 100_000
NO_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/nowhere?connect_timeout=1"

Place: TypeAlias = Literal["uvicorn", "rest api", "function url"]


@dataclass(frozen=True, slots=True)
class Served:
    """A running server, whose tenant may send two limited requests per minute."""

    url: str
    tenant: str

    def client(self, key: str | None = None, origin: str = PAGE) -> httpx2.AsyncClient:
        """Return a page's client."""
        headers = {"origin": origin} | ({} if key is None else {"authorization": f"Bearer {key}"})
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30)


@pytest.fixture
def app_url(postgres_server: EmbeddedPostgres) -> str:
    return postgres_server.app_url


@pytest.fixture(params=["uvicorn", "rest api", "function url"])
async def served(
    request: pytest.FixtureRequest,
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Served]:
    tenant = make_tenant()
    async with query_surroundings(postgres_server.app_url, tenant) as surroundings:
        environment = limited(surroundings)
        if request.param == "uvicorn":
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            application = Application.build(VectorForgeConfig.from_environment())
            async with serve(create_app(application)) as url:
                yield Served(url, tenant)
            return
        async with (
            FunctionProcess(query_function(surroundings, "stream", variables=environment)) as process,
            RestApi(process) if request.param == "rest api" else FunctionUrl(process) as entrance,
        ):
            yield Served(entrance.url, tenant)


def limited(surroundings: QuerySurroundings) -> dict[str, str]:
    digests = {
        name: hashlib.sha256(name.encode()).hexdigest() for name in (key_of(surroundings.tenant), READER)
    }
    return surroundings.environment(
        api_keys=json.dumps(dict.fromkeys(digests.values(), surroundings.tenant)),
        credential_scopes=json.dumps({digests[READER]: "read"}),
        cors_origins=", ".join(ORIGINS),
        limit_requests_per_minute="2",
        max_body_bytes=str(MAX_BODY_BYTES),
    )


@asynccontextmanager
async def local_api(
    app_url: str, tenant: str, *origins: str, auth: str = "local"
) -> AsyncIterator[tuple[LiveApi, httpx2.AsyncClient]]:
    server = {"auth": auth, "local_tenant": tenant, "cors_origins": list(origins)}
    async with live_api(settings_for(app_url, [tenant], server=server)) as api, api.client(None) as client:
        yield api, client


def check_headers(answer: httpx2.Response, origin: str = PAGE) -> None:
    assert answer.headers.get_list("access-control-allow-origin") == [origin], answer.headers
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert {name.strip() for name in exposed.split(",")} >= EXPOSED
    assert "Origin" in answer.headers["vary"]
    assert answer.headers["x-request-id"]


async def test_preflight_without_credentials_succeeds_in_every_deployment(served: Served) -> None:
    async with served.client() as client:
        for path in ("/v1/rag/query", "/v1/chat/completions", "/api/chat", "/mcp", "/health", "/nowhere"):
            answer = await client.options(path, headers=PREFLIGHT)
            assert answer.status_code == 200, (path, answer.text)
            assert answer.headers.get_list("access-control-allow-origin") == [PAGE]
            assert answer.headers["access-control-allow-credentials"] == "true"
            methods = set(answer.headers["access-control-allow-methods"].split(", "))
            assert methods == {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
            assert (
                answer.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
            )
            assert "Origin" in answer.headers["vary"]


async def test_errors_and_streams_have_cors_headers_in_every_deployment(served: Served) -> None:
    key = key_of(served.tenant)
    async with served.client() as client:
        answers = {401: await client.post("/v1/rag/query", json=QUESTION)}
    async with served.client(READER) as client:
        answers[403] = await client.get("/v1/queries")
    async with served.client(key) as client:
        answers[404] = await client.get("/v1/collections/00000000-0000-4000-8000-000000000000")
        answers[405] = await client.put("/v1/search", json={})
        answers[413] = await client.post("/v1/search", json={"query": "x" * MAX_BODY_BYTES})
        answers[422] = await client.post("/v1/rag/query", json={"query": 7})
        async with client.stream("POST", "/v1/rag/query", json={**QUESTION, "stream": True}) as stream:
            text = "".join([part async for part in stream.aiter_text()])
        assert "event: done" in text
        answers[200] = stream
        while (answer := await client.post("/v1/rag/query", json=QUESTION)).status_code == 200:
            check_headers(answer)
        answers[429] = answer
    assert answers[429].headers["retry-after"]
    assert answers[429].headers["ratelimit"]
    for status, answer in answers.items():
        assert answer.status_code == status, (status, answer.headers)
        check_headers(answer)


async def test_errors_of_outermost_layers_have_cors_headers(make_tenant: Callable[[], str]) -> None:
    """500 of a route that fails unexpectedly, 421 of the host check, 503 without a database."""
    tenant = make_tenant()
    server = {"cors_origins": ORIGINS, "allowed_hosts": ["127.0.0.1"]}
    app = create_app(
        build_application(settings_for(NO_DATABASE, [tenant], server=server)), open_on_demand=True
    )
    router = APIRouter()

    @router.get("/health")
    async def broken() -> None:
        raise ValueError("broken")

    app.router.routes.clear()
    app.include_router(router)
    headers = {"authorization": f"Bearer {key_of(tenant)}", "origin": PAGE}
    async with serve(app, lifespan=False) as url, httpx2.AsyncClient(base_url=url, headers=headers) as client:
        for status, path, more in (
            (500, "/health", {}),
            (421, "/health", {"host": "elsewhere.example"}),
            (503, "/v1/collections", {}),
        ):
            answer = await client.get(path, headers=more)
            assert answer.status_code == status, (path, answer.text)
            check_headers(answer)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (PAGE, True),
        ("http://localhost:3000", True),
        ("https://eu.partner.example", True),
        ("https://a.b.partner.example", True),
        ("https://partner.example", False),
        ("http://eu.partner.example", False),
        ("https://eu.partner.example:8443", False),
        ("https://eu.partner.example.evil.example", False),
        ("https://evilpartner.example", False),
        ("https://eu_partner.example", False),
        ("https://app.example.com.evil.example", False),
        ("https://appXexample.com", False),
        ("https://app.example.com/", False),
        ("http://localhost:3001", False),
        ("http://localhost", False),
        ("null", False),
    ],
)
async def test_origins_are_compared_exactly(
    app_url: str, make_tenant: Callable[[], str], origin: str, allowed: bool
) -> None:
    async with local_api(app_url, make_tenant(), *ORIGINS, auth="api_key") as (_, client):
        preflight = await client.options("/v1/search", headers={"origin": origin, **PREFLIGHT})
        answer = await client.get("/health", headers={"origin": origin})
    assert preflight.is_success is allowed
    if not allowed:
        assert preflight.headers["content-type"] == "application/problem+json"
        assert preflight.json()["detail"] == "Origin not allowed; add it to VECTORFORGE_CORS_ORIGINS."
    for response in (preflight, answer):
        assert response.headers.get("access-control-allow-origin") == (origin if allowed else None)
        assert "Origin" in response.headers["vary"]


async def test_default_settings_allow_no_origin(app_url: str, make_tenant: Callable[[], str]) -> None:
    async with local_api(app_url, make_tenant(), auth="api_key") as (_, client):
        for answer in (
            await client.options("/v1/search", headers={"origin": PAGE, **PREFLIGHT}),
            await client.get("/health", headers={"origin": PAGE}),
        ):
            assert not any(name.startswith("access-control-") for name in answer.headers)


async def test_wildcard_origin_is_allowed_without_credentials(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    async with local_api(app_url, make_tenant(), "*", auth="api_key") as (_, client):
        for answer in (
            await client.options("/v1/search", headers={"origin": PAGE, **PREFLIGHT}),
            await client.get("/v1/collections", headers={"origin": PAGE}),
        ):
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answer.headers


async def test_wildcard_origin_without_authentication_is_rejected(app_url: str) -> None:
    config = settings_for(app_url, server={"auth": "local", "cors_origins": ["*"]})
    with pytest.raises(ConfigurationError, match=r"VECTORFORGE_CORS_ORIGINS.*VECTORFORGE_AUTH"):
        create_app(build_application(config))


BROWSER = {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


async def test_listed_cross_site_page_may_use_local_server(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    async with local_api(app_url, make_tenant(), *ORIGINS) as (_, client):
        for origin, site, status in (
            (PAGE, "cross-site", 201),
            ("http://localhost:3000", "same-site", 201),
            ("http://localhost:3001", "same-site", 403),
            ("https://evil.example", "cross-site", 403),
        ):
            headers = {"origin": origin, "sec-fetch-site": site, **BROWSER}
            answer = await client.post("/v1/collections", json={"name": origin}, headers=headers)
            assert answer.status_code == status, (origin, answer.text)


@pytest.mark.parametrize("fetch_site", ["same-site", None])
async def test_page_on_other_local_port_is_rejected(
    app_url: str, make_tenant: Callable[[], str], fetch_site: str | None
) -> None:
    """Browsers send a form body or an empty POST to another port without a preflight."""
    async with local_api(app_url, make_tenant()) as (api, client):
        collection_id = (await client.post("/v1/collections", json={"name": "mine"})).json()["id"]
        documents = f"/v1/collections/{collection_id}/documents"
        site = {"sec-fetch-site": fetch_site} if fetch_site else {}
        files = [("files", ("planted.txt", b"Planted."))]
        port = httpx2.URL(api.url).port
        for origin in ("http://127.0.0.1:1", f"https://127.0.0.1:{port}", f"http://localhost:{port}", "null"):
            headers = {"origin": origin, **site}
            for answer in (
                await client.post(documents, files=files, headers=headers),
                await client.post(f"/v1/queries/{collection_id}/stop", headers=headers),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "cross_site"), origin
        own = await client.post(documents, files=files, headers={"origin": api.url, **site})
        assert own.status_code == 202, own.text


async def test_same_site_request_without_origin_may_only_navigate(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    page = {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with local_api(app_url, make_tenant()) as (_, client):
        assert (await client.get("/", headers=page)).status_code == 200
        image = {**page, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
        assert (await client.get("/v1/collections", headers=image)).status_code == 403
        assert (await client.post("/v1/collections", headers=page)).status_code == 403
