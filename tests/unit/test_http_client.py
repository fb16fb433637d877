"""The HTTP client against docs/openapi.json, its retries, and what it imports."""

import json
import subprocess
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, get_type_hints

import httpx2
import pytest
from pydantic import BaseModel

from vectorforge.http_client import calls, models, stored_models
from vectorforge.http_client.calls import Call
from vectorforge.http_client.errors import (
    ForbiddenError,
    InvalidRequestError,
    MissingObjectError,
    RateLimitedError,
    ResponseError,
    ServerUnreachableError,
    ServiceError,
    StateConflictError,
    UnauthenticatedError,
    UnexpectedResponseError,
)
from vectorforge.http_client.transport import EventDecoder, _request, responses, results

OPENAPI = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
SCHEMAS: Mapping[str, Any] = OPENAPI["components"]["schemas"]
REQUESTS: dict[type[Any], tuple[str, set[str]]] = {
    # the client sets these fields itself, or has no method that returns a dry run
    calls.QueryOptions: ("RAGQueryRequest", {"query", "stream", "resumable", "dry_run"}),
    calls.SearchOptions: ("SearchRequest", {"query"}),
    calls.CollectionOptions: ("CollectionRequest", {"name"}),
    calls.CollectionChanges: ("CollectionChange", set()),
    calls.NewDocument: ("NewDocument", set()),
    calls.FeedbackOptions: ("FeedbackRequest", {"rating"}),
    calls.ChatMessage: ("ChatMessage", set()),
}
RESULTS: dict[type[BaseModel], tuple[str, set[str]]] = {
    models.Answer: ("RAGQueryResponse", {"object"}),
    models.ContextChunk: ("ContextEntry", set()),
    models.SearchResults: ("SearchResponse", set()),
    models.SearchResult: ("SearchResult", set()),
    models.Source: ("SourceBody", set()),
    models.Done: ("DoneData", {"structured"}),  # of /v1/docrag/query
    stored_models.Collection: ("CollectionBody", set()),
    stored_models.CollectionPage: ("CollectionList", set()),
    stored_models.Document: ("DocumentBody", set()),
    stored_models.DocumentPage: ("DocumentList", set()),
    stored_models.Job: ("JobWithDocuments", {"documents_limit", "documents_offset"}),
    stored_models.JobDocument: ("JobDocument", set()),
    stored_models.JobFailure: ("JobError", set()),
    stored_models.Erasure: ("ErasureBody", set()),
    stored_models.Feedback: ("FeedbackBody", set()),
}
CALLS: list[tuple[str, Call[Any], str]] = [
    ("/v1/rag/query", calls.query("?", k=2), "RAGQueryResponse"),
    ("/v1/rag/query", calls.stream("?"), "RAGQueryResponse"),
    ("/v1/search", calls.search("?"), "SearchResponse"),
    ("/v1/collections", calls.create_collection("a"), "CollectionBody"),
    ("/v1/collections", calls.list_collections(), "CollectionList"),
    ("/v1/collections/{collection_id}", calls.get_collection("a/b"), "CollectionBody"),
    ("/v1/collections/{collection_id}", calls.update_collection("a"), "CollectionBody"),
    ("/v1/collections/{collection_id}", calls.delete_collection("a"), "ErasureBody"),
    ("/v1/collections/{collection_id}/documents", calls.add_documents("a"), "JobWithDocuments"),
    ("/v1/collections/{collection_id}/documents", calls.list_documents("a", filters={}), "DocumentList"),
    ("/v1/documents/{document_id}", calls.get_document("a"), "DocumentBody"),
    ("/v1/documents/{document_id}", calls.delete_document("a"), "ErasureBody"),
    ("/v1/jobs/{job_id}", calls.get_job("a"), "JobWithDocuments"),
    ("/v1/queries/{query_id}/feedback", calls.create_feedback("a", "up"), "FeedbackBody"),
    ("/v1/queries/{query_id}/stop", calls.stop_answer("a"), ""),
]


@pytest.mark.parametrize("options", REQUESTS, ids=lambda options: options.__name__)
def test_options_are_the_fields_of_the_request(options: type[Any]) -> None:
    name, own = REQUESTS[options]
    hints = get_type_hints(options, include_extras=True)
    assert set(hints) == set(SCHEMAS[name]["properties"]) - own
    if options.__total__:
        required = {field for field, hint in hints.items() if typing.get_origin(hint) is not NotRequired}
        assert required == set(SCHEMAS[name]["required"])


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_results_have_the_fields_of_the_response(result: type[BaseModel]) -> None:
    name, left_out = RESULTS[result]
    check_fields(result, SCHEMAS[name], left_out)


def check_fields(result: type[BaseModel], schema: Mapping[str, Any], left_out: set[str]) -> None:
    assert set(result.model_fields) == set(schema["properties"]) - left_out
    needed = {name for name, field in result.model_fields.items() if field.is_required()}
    assert needed <= set(schema["required"])
    for name, field in result.model_fields.items():
        is_nullable = any(
            option.get("type") == "null" for option in schema["properties"][name].get("anyOf", ())
        )
        assert (type(None) in typing.get_args(field.annotation)) >= is_nullable, name


def test_events_have_the_fields_of_the_stream() -> None:
    content = OPENAPI["paths"]["/v1/rag/query"]["post"]["responses"]["200"]["content"]
    described = {
        event["properties"]["event"]["const"]: event["properties"]["data"]["contentSchema"]["$ref"]
        for event in content["text/event-stream"]["itemSchema"]["oneOf"]
    }
    assert set(models.EVENTS) | {"error"} == set(described)
    for name, type_ in models.EVENTS.items():
        schema = SCHEMAS[described[name].rpartition("/")[2]]
        check_fields(type_, schema, {"structured"} if name == "done" else set())


@pytest.mark.parametrize(("path", "call", "result"), CALLS)
def test_calls_have_documented_path_method_parameters_and_result(
    path: str, call: Call[Any], result: str
) -> None:
    operation = OPENAPI["paths"][path][call.method.lower()]
    segments = path.split("/")
    assert len(call.path.split("/")) == len(segments)
    for documented, sent in zip(segments, call.path.split("/"), strict=True):
        assert documented == sent or documented.startswith("{")
    parameters = {parameter["name"] for parameter in operation["parameters"]} if call.params else set()
    assert set(call.params) <= parameters
    if call.idempotency_key is not None:
        assert "Idempotency-Key" in {parameter["name"] for parameter in operation["parameters"]}
    responses = [response for status, response in operation["responses"].items() if status.startswith("2")]
    assert not result or f'schemas/{result}"' in json.dumps(responses)


def test_every_call_is_compared() -> None:
    described = [
        name
        for name, function in vars(calls).items()
        if callable(function) and "return" in getattr(function, "__annotations__", ())
        if function.__module__ == calls.__name__ and not name.startswith("_")
    ]
    assert len(described) - len(["wait_for_job"]) == len(CALLS)


def respond(status: int, **headers: str) -> httpx2.Response:
    problem = {"code": "some_code", "detail": "Wrong.", "request_id": "r-1", "errors": None}
    return httpx2.Response(status, json=problem, headers={k.replace("_", "-"): v for k, v in headers.items()})


def exchange(call: Call[Any], *answers: httpx2.Response | Exception, retries: int = 3) -> list[float]:
    """Answer the requests of a call in turn; returns the pauses between them."""
    running = responses(call, retries)
    pauses: list[float] = []
    assert next(running) is call
    for number, answer in enumerate(answers):
        try:
            step = running.send(answer)
        except StopIteration:
            assert number == len(answers) - 1
            return pauses
        assert isinstance(step, float)
        pauses.append(step)
        assert next(running) is call
    raise AssertionError("another request follows")


GET, CREATE, DELETE = calls.get_job("a"), calls.create_collection("a"), calls.delete_document("a")
REQUEST = httpx2.Request("GET", "http://rag.test/v1/jobs/a")
LOST = httpx2.RemoteProtocolError("cut", request=REQUEST)


def test_temporary_errors_are_retried_with_backoff() -> None:
    pauses = exchange(GET, respond(503), LOST, respond(429), respond(200))
    for pause, longest in zip(pauses, (0.5, 1, 2), strict=True):
        assert longest / 2 <= pause <= longest


def test_retry_after_is_honored() -> None:
    assert exchange(GET, respond(429, retry_after="7"), respond(200)) == [7]
    assert exchange(GET, respond(404, retry_after="2"), respond(200)) == [2]  # feedback that is too early
    with pytest.raises(RateLimitedError) as caught:
        exchange(GET, respond(429, retry_after="3600"))
    assert caught.value.retry_after_s == 3600


@pytest.mark.parametrize("answer", [respond(503), respond(429, retry_after="1"), LOST])
def test_request_that_is_unsafe_to_repeat_is_sent_once(answer: httpx2.Response | Exception) -> None:
    with pytest.raises((ResponseError, ServerUnreachableError)):
        exchange(CREATE, answer)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (DELETE, LOST),  # it may be done, and would find nothing
        (GET, httpx2.ReadTimeout("slow", request=REQUEST)),
        (GET, respond(500)),
        (GET, respond(404)),
    ],
)
def test_lasting_errors_are_not_retried(call: Call[Any], answer: httpx2.Response | Exception) -> None:
    with pytest.raises((ResponseError, ServerUnreachableError)):
        exchange(call, answer)


def test_unreachable_server_is_named_with_its_address_without_secrets() -> None:
    request = httpx2.Request("GET", "http://user:canary@rag.test/v1/jobs/a?token=canary")
    with pytest.raises(ServerUnreachableError, match=r"GET http://rag\.test/v1/jobs/a: cut$") as raised:
        exchange(GET, httpx2.RemoteProtocolError("cut", request=request), retries=0)
    assert "canary" not in str(raised.value)


def test_last_retry_raises() -> None:
    with pytest.raises(ServiceError):
        exchange(GET, respond(503), respond(503), retries=1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnauthenticatedError),
        (403, ForbiddenError),
        (404, MissingObjectError),
        (405, ResponseError),
        (409, StateConflictError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (429, RateLimitedError),
        (502, ServiceError),
    ],
)
def test_status_decides_the_class_of_the_error(status: int, kind: type[ResponseError]) -> None:
    with pytest.raises(ResponseError) as caught:
        exchange(CREATE, respond(status))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (status, "some_code", "r-1")


def test_response_of_another_server_is_an_error() -> None:
    with pytest.raises(ServiceError, match="<h1>Bad gateway"):
        exchange(CREATE, httpx2.Response(502, text="<h1>Bad gateway</h1>"))
    running = results(GET, 0)
    next(running)
    with pytest.raises(UnexpectedResponseError):
        running.send(httpx2.Response(200, text="<h1>Welcome</h1>"))


def test_unknown_fields_and_events_are_ignored() -> None:
    token = models.Token.model_validate({"text": "a", "new": 1})
    assert token == models.Token(text="a")
    decoder = EventDecoder(GET, httpx2.Response(200))
    lines = (
        ": ping",
        "",
        "retry: 1000",
        "",
        "event: new",
        "data: {}",
        "",
        "event:token",
        'data:{"text": "a"}',
    )
    assert [decoder.feed(line) for line in lines] == [None] * len(lines)
    assert decoder.feed("") == token


def test_error_event_is_raised_with_its_partial_answer() -> None:
    decoder = EventDecoder(GET, httpx2.Response(200))
    problem = {
        "status": 503,
        "code": "llm_unavailable",
        "detail": "No.",
        "partial_answer": "It",
        "stage": "x",
    }
    for line in ("event: error", f"data: {json.dumps(problem)}", "id: 7"):
        decoder.feed(line)
    with pytest.raises(ServiceError) as caught:
        decoder.feed("")
    assert (caught.value.code, caught.value.partial_answer, decoder.has_ended) == (
        "llm_unavailable",
        "It",
        True,
    )


def test_base_url_may_have_a_path_and_path_segments_are_encoded() -> None:
    client = httpx2.Client(base_url="https://api.example/dev/")
    request = _request(client, calls.get_collection("a/b ?"))
    assert str(request.url) == "https://api.example/dev/v1/collections/a%2Fb%20%3F"


def test_client_needs_no_package_of_the_server() -> None:
    heavy = ["fastapi", "starlette", "psycopg", "boto3", "openai", "anthropic", "aiohttp", "mcp", "typer"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy}))\n"  # None: an import fails
        "from vectorforge.http_client import AsyncVectorForge, VectorForge\n"
        "VectorForge().close()\n"
        "print(sorted(name for name in sys.modules if name.startswith('vectorforge.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name.startswith("vectorforge.http_client") for name in eval(done.stdout))  # noqa: S307
