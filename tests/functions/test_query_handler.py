"""The buffered query function under AWS's own runtime, on real event shapes."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

from vectorforge.local.lambda_service.function_process import FunctionProcess
from vectorforge.local.lambda_service.invocation import FunctionFailedError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.query_function import (
    API_KEY,
    DIMENSION,
    EMBEDDING_KEY,
    Event,
    add_refund_document,
    buffered,
    load_event,
    query_environment,
    response_of,
)

HEALTH = ["query_apigateway_rest_health", "query_function_url_health", "query_http_api_health"]
QUERY = ["query_apigateway_rest_query", "query_function_url_query", "query_http_api_query"]
STREAM = ["query_apigateway_rest_query_stream", "query_function_url_query_stream"]
DEAD_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/x?connect_timeout=1"


@pytest.fixture
async def embeddings() -> AsyncIterator[FakeEmbeddingsServer]:
    async with FakeEmbeddingsServer(dimension=DIMENSION, api_key=EMBEDDING_KEY) as server:
        yield server


async def ask(function: FunctionProcess, event: Event) -> tuple[int, dict[str, str], str]:
    return await response_of(await function.invoke(event))


async def test_every_front_door_is_answered_by_one_warm_process(
    postgres_server: EmbeddedPostgres, embeddings: FakeEmbeddingsServer, make_tenant: Callable[[], str]
) -> None:  # B-044, C02
    tenant = make_tenant()
    await add_refund_document(postgres_server.app_url, tenant)
    environment = query_environment(postgres_server.app_url, tenant, embeddings)
    async with FunctionProcess(buffered(environment)) as function:
        for name in HEALTH:
            status, _, body = await ask(function, load_event(name))
            assert (status, json.loads(body)["status"]) == (200, "ok"), name
        for name in QUERY:
            status, headers, body = await ask(function, load_event(name))
            assert status == 200, name
            assert headers["content-type"] == "application/json"
            assert "five days" in json.loads(body)["response"]
            assert json.loads(body)["citations"]
        for name in STREAM:
            _, headers, body = await ask(function, load_event(name))
            assert headers["content-type"].startswith("text/event-stream"), name
            assert body.rstrip().rsplit("event: ", 1)[1].startswith("done")
        encoded = load_event(QUERY[1])
        encoded.update(body=base64.b64encode(encoded["body"].encode()).decode(), isBase64Encoded=True)
        status, _, _ = await ask(function, encoded)
        assert status == 200
        stranger = load_event(QUERY[1])
        del stranger["headers"]["x-api-key"]
        status, headers, _ = await ask(function, stranger)
        assert (status, headers["content-type"]) == (401, "application/problem+json")
        assert function.starts == 1


async def test_too_little_time_is_said_before_anything_is_asked(
    postgres_server: EmbeddedPostgres, embeddings: FakeEmbeddingsServer, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    await add_refund_document(postgres_server.app_url, tenant)
    environment = query_environment(postgres_server.app_url, tenant, embeddings)
    async with FunctionProcess(buffered(environment, timeout_s=2)) as function:
        status, _, body = await ask(function, load_event(QUERY[1]))
    assert status == 504  # what is left is kept for the error and the log
    assert json.loads(body)["detail"].startswith("RAG query error: ")
    assert embeddings.requests == []


async def test_without_its_database_the_function_still_answers(make_tenant: Callable[[], str]) -> None:
    environment = {
        "VECTORFORGE_DATABASE_URL": DEAD_DATABASE,
        "VECTORFORGE_API_KEYS": json.dumps({hashlib.sha256(API_KEY.encode()).hexdigest(): make_tenant()}),
        "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
    }
    async with FunctionProcess(buffered(environment)) as function:
        status, _, body = await ask(function, load_event(HEALTH[0]))
        assert (status, json.loads(body)["status"]) == (503, "degraded")
        status, _, problem = await ask(function, load_event(QUERY[0]))
        assert (status, json.loads(problem)["code"]) == (503, "database_unavailable")
    assert "canary" not in body + problem + function.output.text


async def test_a_setting_that_is_missing_is_named() -> None:
    async with FunctionProcess(buffered({})) as function:
        invocation = await function.invoke(load_event(HEALTH[0]))
        with pytest.raises(FunctionFailedError, match="VECTORFORGE_DATABASE_URL"):
            await response_of(invocation)


async def test_streaming_under_a_runtime_that_cannot_says_what_to_set() -> None:
    environment = {
        "VECTORFORGE_DATABASE_URL": DEAD_DATABASE,
        "VECTORFORGE_RESPONSE_MODE": "stream",
        "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
    }
    async with FunctionProcess(buffered(environment)) as function:
        invocation = await function.invoke(load_event(HEALTH[0]))
        with pytest.raises(FunctionFailedError, match=r"AWS_LAMBDA_EXEC_WRAPPER.*buffered"):
            await response_of(invocation)
