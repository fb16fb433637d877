"""Every kind of error is a problem document that names field and limit and gives nothing away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import APIRouter

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
from vectorforge.config import IngestionSettings, QuerySettings
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
PLANTED = "postgresql://admin:hunter2@10.0.0.1/prod"
NO_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/nowhere?connect_timeout=1"


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str) -> AsyncIterator[LiveApi]:
    config = settings_for(
        postgres_server.app_url,
        [tenant],
        server={"max_body_bytes": 200_000},
        ingestion=IngestionSettings(max_document_bytes=1000, max_documents_per_request=3),
        query=QuerySettings(max_top_k=30, max_answer_tokens=4000),
    )
    async with live_api(config) as running:
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenant) as opened:
        yield opened


def check_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "code", "request_id"} <= set(problem)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:vectorforge:problem:{code}"
    assert problem["request_id"] == response.headers["x-request-id"]
    return problem


# B-004, B-007 to B-009, B-011, C42
@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("k", 0, 1),
        ("k", 21, 20),
        ("k", 1.5, None),
        ("temperature", 2.1, 2),
        ("temperature", -0.1, 0),
        ("top_p", 1.1, 1),
        ("max_tokens", 0, 1),
        ("messages", [{"role": "user", "content": ""}] * 101, 100),
        ("messages.0.role", [{"role": "tool", "content": "x"}], None),
        ("messages.0.name", [{"role": "user", "content": "x", "name": "y"}], None),
        ("filters", "technology", None),
        ("collection", "", 1),
        ("tenant_id", "someone", None),
        ("stream", "perhaps", None),
    ],
)
async def test_value_out_of_range_returns_422_naming_field_and_limit(
    client: httpx2.AsyncClient, field: str, value: Any, limit: float | None
) -> None:
    response = await client.post(RAG, json={"query": "x", field.split(".")[0]: value})
    (problem, *more) = check_problem(response, 422, "invalid_input")["errors"]
    assert (problem["field"], problem.get("limit")) == (field, limit)
    assert more == []


async def test_limits_from_settings_return_422_naming_the_field(client: httpx2.AsyncClient) -> None:
    await new_collection(client)
    for path, body, field in (
        (RAG, {"max_tokens": 4001}, "max_tokens"),
        ("/v1/search", {"top_k": 31}, "top_k"),
        (RAG, {"provider": "nobody"}, "provider"),
        (RAG, {"filters": {"$near": 1}}, "$near"),
    ):
        response = await client.post(path, json={"query": "x", **body})
        code = "invalid_filter" if field == "$near" else "invalid_input"
        problem = check_problem(response, 422, code)
        assert field in problem["errors"][0]["field"] + problem["detail"]


async def test_blank_query_is_rejected(client: httpx2.AsyncClient) -> None:
    collection_id = await new_collection(client)
    for path in (RAG, f"/v1/collections/{collection_id}/query", "/v1/search"):
        problem = check_problem(await client.post(path, json={"query": " \n "}), 422, "invalid_input")
        assert problem["detail"] == "Query cannot be empty"
    response = await client.post(RAG, json={"query": " ", "stream": True})
    check_problem(response, 422, "invalid_input")


async def test_template_without_placeholder_is_rejected(client: httpx2.AsyncClient) -> None:  # C08, C40
    collection_id = await new_collection(client)
    body = {"query": "x", "system_prompt": "Answer in French."}
    response = await client.post(f"/v1/collections/{collection_id}/query", json=body)
    (error,) = check_problem(response, 422, "invalid_input")["errors"]
    assert error == {"field": "system_prompt", "message": "must contain {context}"}


@pytest.mark.parametrize("text", ["\x00null\x00", "half \ud83d pair", "\ud83d\ude00"])
async def test_text_that_cannot_be_stored_is_answered(
    client: httpx2.AsyncClient, text: str
) -> None:  # fault 34
    await new_collection(client)
    body = {"query": text, "filters": {"kind": text}, "messages": [{"role": "user", "content": text}]}
    content, headers = json.dumps(body), {"content-type": "application/json"}  # escaped, as JavaScript does
    response = await client.post(RAG, content=content, headers=headers)
    assert response.status_code == 200, response.text
    assert "\x00" not in response.json()["query"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "malformed_request"),
        (b'{"query": NaN}', 422, "invalid_input"),
        (b'{"query": "x", "temperature": NaN}', 422, "invalid_input"),
        (b'{"query": "x", "filters": {"a": Infinity}}', 422, "invalid_input"),
        (b'{"query": "x", "filters": ' + b'{"a":' * 40 + b"1" + b"}" * 41, 422, "invalid_input"),
        (b"[" * 100_000, 400, "malformed_request"),
        (b'{"query": "x", "k": ' + b"9" * 5000 + b"}", 400, "malformed_request"),
        (b"\xff\xfe", 400, "malformed_request"),
        (b'"x"', 422, "invalid_input"),
        (b"", 422, "invalid_input"),
    ],
)
async def test_malformed_json_is_rejected(
    client: httpx2.AsyncClient, content: bytes, status: int, code: str
) -> None:
    for path in (RAG, "/v1/search", "/v1/collections"):
        response = await client.post(path, content=content, headers={"content-type": "application/json"})
        check_problem(response, status, code)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", None])
async def test_request_without_json_content_type_returns_415(
    client: httpx2.AsyncClient, content_type: str | None
) -> None:
    # A page of another site can send the first two without asking the browser's permission.
    headers = {"content-type": content_type} if content_type else {}
    response = await client.post(RAG, content=b'{"query": "x"}', headers=headers)
    check_problem(response, 415, "unsupported_media_type")


async def test_rejected_value_is_not_echoed(client: httpx2.AsyncClient) -> None:  # C22
    response = await client.post(RAG, json={"query": {"password": "hunter2"}, "k": "hunter2"})
    check_problem(response, 422, "invalid_input")
    assert "hunter2" not in response.text


async def test_unknown_route_method_or_id_returns_problem(client: httpx2.AsyncClient) -> None:
    for path in ("/nothing", "/v1/rag/nothing"):
        problem = check_problem(await client.get(path), 404, "route_not_found")
        assert "GET /openapi.json lists every route" in problem["detail"]
    response = await client.put(RAG)
    check_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"
    for path in ("collections", "documents", "chunks", "jobs", "queries"):
        check_problem(await client.get(f"/v1/{path}/{uuid4()}"), 404, "not_found")
        check_problem(await client.get(f"/v1/{path}/no-uuid"), 422, "invalid_input")
    check_problem(await client.get("/v1/jobs", params={"limit": 201}), 422, "invalid_input")
    check_problem(await client.get("/v1/queries", params={"offset": -1}), 422, "invalid_input")


async def test_duplicate_collection_name_returns_409(client: httpx2.AsyncClient) -> None:
    await new_collection(client, "twice")
    check_problem(await client.post("/v1/collections", json={"name": "twice"}), 409, "conflict")
    response = await client.post("/v1/collections", json={"name": "odd", "dimension": 63})
    check_problem(response, 409, "dimension_mismatch")
    response = await client.post("/v1/collections", json={"name": "odd", "embedding_provider": "nobody"})
    assert check_problem(response, 422, "invalid_input")["errors"][0]["field"] == "embedding_provider"


async def test_unknown_embedding_model_returns_problem_naming_it(app_url: str, tenant: str) -> None:
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        api.application.embedding_registry.register(LocalEmbeddingProvider())
        body = {"name": "odd", "embedding_provider": "local", "embedding_model": "nope"}
        problem = check_problem(await client.post("/v1/collections", json=body), 422, "invalid_input")
        assert problem["errors"][0]["field"] == "embedding_model"
        body["embedding_model"] = "all-MiniLM-L6-v2"
        response = await client.post("/v1/collections", json=body)
        assert (response.status_code, response.json()["dimension"]) == (201, 384)


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
    assert status in (401, 403, 404, 409, 422, 429, 500, 502, 503, 504)
    problem = problem_of(error, request_id="r", prefix="RAG query error: ")
    assert (problem.status, problem.code) == (status, error_class.code)
    assert problem.detail.startswith("RAG query error: ") == (status >= 500)
    if status == 500:
        assert error.message not in problem.detail
    if status == 429:
        assert retry_after_s(error) is not None
