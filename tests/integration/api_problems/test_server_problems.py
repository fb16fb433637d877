"""Problem documents for bodies over a limit, unexpected exceptions and a missing database."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter

from tests.integration.api_problems.conftest import RAG, check_problem
from tests.support.http.live_api import (
    LiveApi,
    build_application,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.http.live_server import serve
from vectorforge import errors
from vectorforge.api.app import create_app
from vectorforge.api.problems import problem_of, retry_after_s, status_of
from vectorforge.local.postgres import EmbeddedPostgres

PLANTED = "postgresql://admin:hunter2@10.0.0.1/prod"
NO_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/nowhere?connect_timeout=1"


async def chunks_of(total: int, sent: list[int]) -> AsyncIterator[bytes]:
    for _ in range(total // 1000):
        sent.append(1000)
        yield b"x" * 1000
        await asyncio.sleep(0)


async def test_oversize_body_is_rejected_while_it_is_received(
    client: httpx2.AsyncClient,
) -> None:  # security 12
    check_problem(await client.post(RAG, content=b"x" * 200_001), 413, "body_too_large")
    sent: list[int] = []
    headers = {"content-type": "application/json"}
    try:
        response = await client.post(RAG, content=chunks_of(50_000_000, sent), headers=headers)
        check_problem(response, 413, "body_too_large")
    except (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError):
        pass  # the server closed the connection while we were sending, as it may
    assert sum(sent) < 25_000_000


async def test_client_that_sends_an_oversize_body_first_reads_the_reason(client: httpx2.AsyncClient) -> None:
    check_problem(await client.post(RAG, content=b"x" * 20_000_000), 413, "body_too_large")


@pytest.mark.parametrize(
    ("path", "status", "code"), [(RAG, 401, "unauthenticated"), ("/health", 413, "body_too_large")]
)
async def test_client_without_a_key_that_sends_an_oversize_body_first_reads_the_reason(
    api: LiveApi, path: str, status: int, code: str
) -> None:
    async with api.client(None) as client:
        check_problem(await client.post(path, content=b"x" * 20_000_000), status, code)


@pytest.mark.parametrize(("path", "status"), [(RAG, 401), ("/health", 413)])
async def test_oversize_body_without_a_key_is_not_read(api: LiveApi, path: str, status: int) -> None:
    sent: list[int] = []
    async with api.client(None) as client:
        body, headers = chunks_of(100_000_000, sent), {"content-length": "100000000"}
        closed = (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError)
        with suppress(*closed):  # while we were sending, as the server may
            assert (await client.post(path, content=body, headers=headers)).status_code == status
    assert sum(sent) < 50_000_000


async def test_unfinished_body_returns_408(app_url: str, tenant: str) -> None:  # security 12
    config = settings_for(app_url, [tenant], server={"body_timeout_s": 0.3})
    async with live_api(config) as api, api.client(tenant) as client, asyncio.timeout(20):
        uploads = f"/v1/collections/{await new_collection(client)}/documents"
        address = httpx2.URL(api.url)
        for path, media_type in ((RAG, "application/json"), (uploads, "multipart/form-data; boundary=b")):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: {address.host}\r\nX-Api-Key: {key_of(tenant)}\r\n"
                f"Content-Type: {media_type}\r\nContent-Length: 1000\r\n\r\n--b\r\n".encode()
            )
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")  # until the server closes
            assert head.startswith(b"HTTP/1.1 408 "), head
            assert json.loads(body)["code"] == "body_too_slow"
            writer.close()


async def test_upload_limits_return_413_or_422(client: httpx2.AsyncClient) -> None:  # security 12
    collection_id = await new_collection(client)
    path = f"/v1/collections/{collection_id}/documents"
    small = ("a.txt", b"x")
    check_problem(await client.post(path, files=[("files", ("a.txt", b"x" * 1001))]), 413, "body_too_large")
    check_problem(await client.post(path, files=[("files", small)] * 4), 400, "malformed_request")
    check_problem(await client.post(path, files=[("other", small)]), 422, "invalid_input")
    check_problem(
        await client.post(path, data={"metadata": "{}"}, files=[("x", small)]), 422, "invalid_input"
    )
    for metadata in ("{", "[]", "7", '{"a": NaN}', '{"a":' * 40 + "1" + "}" * 40):
        response = await client.post(path, files=[("files", small)], data={"metadata": metadata})
        assert check_problem(response, 422, "invalid_input")["errors"][0]["field"] == "metadata"
    response = await client.post(path, content=b"x", headers={"content-type": "text/plain"})
    check_problem(response, 415, "unsupported_media_type")

    document = {"source": "a", "text": "x"}
    for documents, status in (
        ([], 422),
        ([document] * 4, 422),
        ([{**document, "text": "x" * 1001}], 413),
        ([{**document, "source": " "}], 422),
        ([{**document, "source": "s" * 2001}], 422),
        ([{**document, "metadata": {"a": "x" * 70_000}}], 422),
        ([{**document, "tenant_id": "someone"}], 422),
    ):
        response = await client.post(path, json={"documents": documents})
        assert response.status_code == status, response.text


async def test_unexpected_exception_returns_500_without_details(
    postgres_server: EmbeddedPostgres, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:  # B-040, C22, security 24
    application = build_application(settings_for(postgres_server.app_url, [tenant]))
    app = create_app(application)
    router = APIRouter()

    @router.get("/v1/cache")
    async def broken() -> None:
        try:
            raise OSError(PLANTED)
        except OSError as exc:
            raise ValueError(f"cannot reach {PLANTED}") from exc

    app.include_router(router)
    async with serve(app) as url, httpx2.AsyncClient(base_url=url) as client:
        headers = {"Authorization": f"Bearer {key_of(tenant)}", "X-Request-Id": "trace-0123456789"}
        response = await client.get("/v1/cache", headers=headers)
    problem = check_problem(response, 500, "internal_error")
    assert problem["request_id"] == "trace-0123456789"
    assert "hunter2" not in response.text
    assert "hunter2" not in caplog.text
    assert "trace-0123456789 failed: builtins.ValueError" in caplog.text
    assert "builtins.OSError" in caplog.text


async def test_rejected_preflight_returns_a_problem_that_names_no_origin(app_url: str, tenant: str) -> None:
    page, other = "https://app.example", "https://evil.example"
    config = settings_for(app_url, [tenant], server={"cors_origins": [page]})
    async with live_api(config) as api, api.client(None) as client:
        wanted = {"origin": other, "access-control-request-method": "POST"}
        refused = await client.options(RAG, headers=wanted)
        problem = check_problem(refused, 403, "cross_site")
        assert problem["detail"] == "Origin not allowed; add it to VECTORFORGE_CORS_ORIGINS."
        assert page not in refused.text + str(refused.headers)
        assert (await client.options("/v1/models", headers=wanted)).json()["error"]["code"] == "cross_site"
        refused = await client.options(
            RAG, headers={"origin": page, "access-control-request-method": "TRACE"}
        )
        problem = check_problem(refused, 405, "method_not_allowed")
        assert problem["detail"].endswith("supported: GET, HEAD, POST, PUT, PATCH, DELETE.")
        assert refused.headers["access-control-allow-origin"] == page


async def test_request_without_database_returns_503(tenant: str) -> None:  # C22
    application = build_application(settings_for(NO_DATABASE, [tenant]))
    app = create_app(application, open_on_demand=True)
    async with serve(app, lifespan=False) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        response = await client.get("/v1/collections", headers={"x-api-key": key_of(tenant)})
        problem = check_problem(response, 503, "database_unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert "127.0.0.1" not in problem["detail"]
        health = await client.get("/health")
        assert health.status_code == 503
        assert health.json()["status"] == "degraded"
        assert health.json()["components"][0]["name"] == "database"
        assert "127.0.0.1" not in health.text


def all_errors(base: type[errors.VectorForgeError]) -> list[type[errors.VectorForgeError]]:
    return [base, *(e for sub in base.__subclasses__() for e in all_errors(sub))]


@pytest.mark.parametrize("error_class", all_errors(errors.VectorForgeError))
def test_error_classes_map_to_http_status(error_class: type[errors.VectorForgeError]) -> None:  # C22
    kwargs: dict[str, Any] = (
        {"expected": 1, "actual": 2} if error_class is errors.DimensionMismatchError else {}
    )
    error = error_class(**kwargs)
    status = status_of(error)
    assert status in (401, 403, 404, 409, 422, 429, 500, 501, 502, 503, 504)
    problem = problem_of(error, request_id="r", prefix="RAG query error: ")
    assert (problem.status, problem.code) == (status, error_class.code)
    assert problem.detail.startswith("RAG query error: ") == (status >= 500)
    if status == 500:
        assert error.message not in problem.detail
    if status == 429:
        assert retry_after_s(error) is not None
