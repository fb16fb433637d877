"""The committed OpenAPI document."""

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from vectorforge.api.openapi import document as openapi_document
from vectorforge.api.request_state import error_shape_of
from vectorforge.api.routers import ROUTERS
from vectorforge.api.streaming.sse import EVENT_DATA

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> Any:
    return openapi_document()


def test_openapi_document_matches_committed_file(document: Any) -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == json.loads(json.dumps(document)), (
        "run: python -m vectorforge.api.openapi > docs/openapi.json"
    )


def test_handlers_are_coroutine_functions() -> None:  # B-037
    endpoints = [route.endpoint for name in ROUTERS for route in import_module(name).router.routes]
    assert len(endpoints) >= 20
    assert [e.__name__ for e in endpoints if not inspect.iscoroutinefunction(e)] == []


def test_openapi_references_resolve(document: Any) -> None:
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    found: set[str] = set()

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            found.update([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    collect(document)
    assert found <= schemas


_OTHERS = (("/health", "503"), ("/mcp", "400"), ("/mcp", "406"))
"""A state of health, and errors of JSON-RPC."""


def test_openapi_errors_are_problem_documents(document: Any) -> None:  # C22
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400 and (path, status) not in _OTHERS:
                    is_ours = error_shape_of(path) == "problem"
                    shape = "application/problem+json" if is_ours else "application/json"
                    assert list(response["content"]) == [shape], (path, status)
            if path.startswith("/v1/"):
                unusable = "400" if error_shape_of(path) == "openai" else "422"
                assert {"401", unusable, "503"} <= set(operation["responses"]), path
                assert "requestBody" not in operation or "400" in operation["responses"], path
                assert operation["security"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_error_responses_build_no_validators() -> None:
    built = [
        (route.path, str(status))
        for name in ROUTERS
        for route in import_module(name).router.routes
        for status in route.response_fields
        if int(status) >= 400
    ]
    assert set(built) <= set(_OTHERS)


def test_routes_return_no_stored_vectors(document: Any) -> None:  # security 7
    found = {
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if '"items": {"type": "number"' in json.dumps(described)
    }
    assert found == {"EmbeddingBody.embedding"}  # /v1/embeddings: vectors of the caller's text


@pytest.mark.parametrize("path", ["/v1/rag/query", "/v1/collections/{collection_id}/query"])
def test_openapi_describes_json_and_stream_answers(document: Any, path: str) -> None:  # C41
    content = document["paths"][path]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
    events = content["text/event-stream"]["itemSchema"]["oneOf"]
    assert [event["properties"]["event"]["const"] for event in events] == list(EVENT_DATA)


def test_openapi_fields_have_documented_defaults(document: Any) -> None:  # B-003 to B-010
    schema = document["components"]["schemas"]["RAGQueryRequest"]
    fields = schema["properties"]
    assert schema["required"] == ["query"]
    assert fields["query"]["description"] == "Query text"
    k = fields["k"]
    assert (k["default"], k["minimum"], k["maximum"], k["description"]) == (5, 1, 20, "Top-k results")
    defaults = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 2048, "include_context": True}
    assert {name: fields[name]["default"] for name in defaults} == defaults
    assert schema["additionalProperties"] is False
