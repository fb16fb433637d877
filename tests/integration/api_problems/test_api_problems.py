"""Every kind of error is a problem document that names field and limit and discloses nothing."""

import json
import re
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.integration.api_problems.conftest import RAG, check_problem
from tests.support.http.live_api import (
    live_api,
    new_collection,
    settings_for,
)
from vectorforge.api.request_state import ROUTES
from vectorforge.embedding.providers.local import LocalEmbeddingProvider

TEXT = "messages.0.parts.0.text"


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


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/api/chat", {"messages": [{"role": "user", "parts": [{"type": "text", "text": 7}]}]}, {TEXT}),
        ("/api/chat", {"messages": [{"role": "user", "parts": [{"type": "text"}]}]}, {TEXT}),
        (
            "/api/chat",
            {"messages": [{"role": "user", "parts": [{"text": "x"}]}]},
            {"messages.0.parts.0.type"},
        ),
        ("/api/chat", {"messages": [{"role": "user", "parts": ["x"]}]}, {"messages.0.parts.0"}),
        (RAG, {"query": "x", "rewrite": "perhaps"}, {"rewrite"}),
        ("/v1/profiles/7", {"skills": [7]}, {"skills.0"}),
    ],
)
async def test_field_of_error_is_named_as_the_caller_wrote_it(
    client: httpx2.AsyncClient, path: str, body: Any, fields: set[str]
) -> None:
    response = await client.post(path, json=body)
    found = check_problem(response, 422, "invalid_input")["errors"]
    assert {problem["field"] for problem in found} == fields


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "Input should be an object"),
        ({"query": "x", "filters": "technology"}, "Input should be an object"),
        ({"query": "x", "intents": "why"}, "Input should be a valid list"),
        ({"query": "x", "intents": ["why"] * 5}, "List should have at most 4 items, not 5"),
    ],
)
async def test_value_of_wrong_type_is_rejected_in_terms_of_json(
    client: httpx2.AsyncClient, body: Any, message: str
) -> None:
    response = await client.post(RAG, json=body)
    (problem,) = check_problem(response, 422, "invalid_input")["errors"]
    assert problem["message"] == message


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        (RAG, "filter", "This field is unknown. Did you mean `filters`?"),
        ("/v1/search", "topk", "This field is unknown. Did you mean `top_k`?"),
        (RAG, "top_k", "This field is unknown. Did you mean `k`?"),
        ("/v1/docrag/query", "top_k", "This field is unknown. Did you mean `n_results`?"),
        (RAG, "color", "This field is unknown."),
    ],
)
async def test_unknown_field_error_names_a_similar_field(
    client: httpx2.AsyncClient, path: str, field: str, message: str
) -> None:
    response = await client.post(path, json={"query": "x", field: 3})
    assert check_problem(response, 422, "invalid_input")["errors"] == [{"field": field, "message": message}]


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("bukket=day", "bukket", "This field is unknown. Did you mean `bucket`?"),
        ("bucket=day&interval=day", "interval", "This field is unknown. Known: "),
    ],
)
async def test_unknown_query_parameter_error_names_a_similar_or_all_known_ones(
    client: httpx2.AsyncClient, query: str, field: str, message: str
) -> None:
    response = await client.get(f"/v1/stats?{query}")
    [problem] = check_problem(response, 422, "invalid_input")["errors"]
    assert problem["field"] == field
    assert problem["message"].startswith(message)
    assert "bucket" in problem["message"]


async def test_unknown_query_parameter_is_rejected_by_native_routes_only(client: httpx2.AsyncClient) -> None:
    for route in (route for routes in ROUTES.values() for route in routes):
        method, path = route.split(" ", 1)
        url = re.sub(r"\{.*?\}", str(uuid4()), path)
        status = (await client.request(method, f"{url}?nonsense=1", json={"query": "x"})).status_code
        family = path.split("/")[2] if path.startswith("/v1/") else ""
        if family not in ("", "chat", "responses", "models", "embeddings", "vector_stores", "files"):
            assert status == 422, route
    assert (await client.get("/v1/files?nonsense=1")).status_code == 200


async def test_known_query_parameters_do_not_include_headers(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"/v1/queries/{uuid4()}/events?nonsense=1")
    [problem] = check_problem(response, 422, "invalid_input")["errors"]
    assert problem["message"] == "This field is unknown. Known: last_event_id."


async def test_missing_field_error_says_so(client: httpx2.AsyncClient) -> None:
    problem = check_problem(await client.post(RAG, json={}), 422, "invalid_input")
    assert problem["detail"] == "query: This field is required."


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
    # A page of another site can send the first two without a preflight.
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
    problem = check_problem(response, 405, "method_not_allowed")
    assert problem["detail"].startswith("This route does not support ")
    assert response.headers["allow"] == "POST"
    response = await client.patch("/v1/profiles/7")
    problem = check_problem(response, 405, "method_not_allowed")
    assert problem["detail"] == "This route does not support PATCH; supported: DELETE, POST, PUT."
    assert response.headers["allow"] == "DELETE, POST, PUT"
    for path in ("collections", "documents", "chunks", "jobs", "queries"):
        check_problem(await client.get(f"/v1/{path}/{uuid4()}"), 404, "not_found")
        status, code = (404, "not_found") if path == "collections" else (422, "invalid_input")  # a name
        check_problem(await client.get(f"/v1/{path}/no-uuid"), status, code)
    problem = check_problem(await client.get(f"/v1/collections/{'n' * 201}"), 422, "invalid_input")
    assert problem["errors"][0]["field"] == "collection_id"
    check_problem(await client.get("/v1/collections/%00"), 404, "not_found")
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
