"""The buffered query function under AWS's own runtime, on real event shapes."""

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncIterator, Callable

import pytest

from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import FunctionFailedError
from infra.emulator.lambda_service.proxy_responses import STREAM_CONTENT_TYPE
from tests.functions.ending_time import seconds_to_end
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.aws.live_query_function import QUERY_HANDLER, QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Event, Mode, load_event, query_function, response_of
from tests.support.http.live_api import key_of
from vectorforge.local.postgres import EmbeddedPostgres

HEALTH = ["query_apigateway_rest_health", "query_function_url_health", "query_http_api_health"]
QUERY = ["query_apigateway_rest_query", "query_function_url_query", "query_http_api_query"]
STREAM = ["query_apigateway_rest_query_stream", "query_function_url_query_stream"]
PROVIDER_SECRET = "vectorforge-test/providers"
DEAD_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/x?connect_timeout=1"
NO_DATABASE = {
    "VECTORFORGE_DATABASE_URL": DEAD_DATABASE,
    "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
    "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
}


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


def bare_function(environment: dict[str, str]) -> FunctionConfiguration:
    """Run the function under AWS's runtime, with these settings only."""
    return FunctionConfiguration(handler=QUERY_HANDLER, environment=environment, command=AWSLAMBDARIC_COMMAND)


async def ask(function: FunctionProcess, event: Event) -> tuple[int, dict[str, str], str]:
    return await response_of(await function.invoke(event))


async def test_front_doors_are_answered_by_one_warm_process(surroundings: QuerySurroundings) -> None:
    # B-044, C02
    key = key_of(surroundings.tenant)
    async with FunctionProcess(query_function(surroundings, "buffered")) as function:
        for name in HEALTH:
            status, _, body = await ask(function, load_event(name))
            assert (status, json.loads(body)["status"]) == (200, "ok"), name
        for name in QUERY:
            status, headers, body = await ask(function, load_event(name, x_api_key=key))
            assert status == 200, name
            assert headers["content-type"] == "application/json"
            assert json.loads(body)["response"] == "The answer is 42 [Source 1]."
            assert json.loads(body)["citations"]
        for name in STREAM:
            _, headers, body = await ask(function, load_event(name, x_api_key=key))
            assert headers["content-type"].startswith("text/event-stream"), name
            assert body.rstrip().rsplit("event: ", 1)[1].startswith("done")
        encoded = load_event(QUERY[1], x_api_key=key)
        encoded.update(body=base64.b64encode(encoded["body"].encode()).decode(), isBase64Encoded=True)
        status, _, _ = await ask(function, encoded)
        assert status == 200
        status, headers, _ = await ask(function, load_event(QUERY[1], x_api_key="a stranger's"))
        assert (status, headers["content-type"]) == (401, "application/problem+json")
        assert function.starts == 1


async def test_insufficient_time_returns_504_before_provider_calls(surroundings: QuerySurroundings) -> None:
    event = load_event(QUERY[1], x_api_key=key_of(surroundings.tenant))
    async with FunctionProcess(query_function(surroundings, "stream", timeout_s=2)) as function:
        status, _, body = await ask(function, event)
    assert status == 504  # the rest is reserved for the error and the log
    assert json.loads(body)["detail"].startswith("RAG query error: ")
    assert surroundings.embeddings.requests == []


async def test_sigterm_ends_process_within_lambda_budget(surroundings: QuerySurroundings) -> None:
    event = load_event(QUERY[1], x_api_key=key_of(surroundings.tenant))
    seconds = []
    for _ in range(3):  # other work on this machine delays some
        async with FunctionProcess(query_function(surroundings, "stream")) as function:
            assert (await ask(function, event))[0] == 200
            environment = function.environment
            seconds.append(await seconds_to_end(environment.pid, environment.exit))
        if seconds[-1] < 0.3:
            break
    assert min(seconds) < 0.3  # an external extension's runtime is killed then


async def test_missing_database_returns_503(surroundings: QuerySurroundings) -> None:
    configuration = query_function(surroundings, "buffered", variables=NO_DATABASE)
    async with FunctionProcess(configuration) as function:
        status, _, body = await ask(function, load_event(HEALTH[0]))
        assert (status, json.loads(body)["status"]) == (503, "degraded")
        event = load_event(QUERY[0], x_api_key=key_of(surroundings.tenant))
        status, _, problem = await ask(function, event)
        assert (status, json.loads(problem)["code"]) == (503, "database_unavailable")
    assert "canary" not in body + problem + function.output.text


@pytest.mark.parametrize("mode", ["buffered", "stream"])
async def test_missing_provider_key_returns_503_naming_command(
    surroundings: QuerySurroundings, mode: Mode
) -> None:
    key = key_of(surroundings.tenant)
    no_key = {name: value for name, value in NO_DATABASE.items() if "API_KEY" not in name}
    embedding = [f"VECTORFORGE_EMBEDDING_{name}" for name in ("BASE_URL", "MODEL", "DIMENSION")]
    configuration = query_function(
        surroundings, mode, variables=no_key, without=[*embedding, "VECTORFORGE_OPENAI_API_KEY"]
    )
    handler = "tests.functions.keyless_query_handler.handler"
    configuration = dataclasses.replace(configuration, handler=handler)
    async with FunctionProcess(configuration) as function:
        for name in HEALTH[:2]:
            status, _, body = await ask(function, load_event(name))
            assert (status, json.loads(body)["status"]) == (200, "degraded"), name
            assert "secret" not in body
        for name in QUERY[:2]:
            status, headers, body = await ask(function, load_event(name, x_api_key=key))
            assert (status, headers["content-type"]) == (503, "application/problem+json"), name
            problem = json.loads(body)
            assert problem["code"] == "not_configured"
            assert "aws secretsmanager put-secret-value --secret-id" in problem["detail"]
        assert function.starts == 1


@pytest.mark.parametrize("mode", ["buffered", "stream"])
async def test_key_stored_later_is_used_by_same_process(surroundings: QuerySurroundings, mode: Mode) -> None:
    with FaultyAws() as aws:
        aws.put_secret(PROVIDER_SECRET, {})
        embedding = [f"VECTORFORGE_EMBEDDING_{name}" for name in ("BASE_URL", "MODEL", "DIMENSION")]
        configuration = query_function(
            surroundings,
            mode,
            variables={
                **aws.environment,
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
                "VECTORFORGE_PROVIDER_SECRET_ID": PROVIDER_SECRET,
            },
            without=[*embedding, "VECTORFORGE_EMBEDDING_API_KEY", "VECTORFORGE_OPENAI_API_KEY"],
        )
        handler = "tests.functions.impatient_query_handler.handler"
        listing = load_event(HEALTH[0], x_api_key=key_of(surroundings.tenant))
        listing = {**listing, "path": "/v1/collections"}
        async with FunctionProcess(dataclasses.replace(configuration, handler=handler)) as function:
            status, _, body = await ask(function, listing)
            assert (status, json.loads(body)["code"]) == (503, "not_configured")
            aws.put_secret(PROVIDER_SECRET, {"openai_api_key": surroundings.vendor.api_key})
            await asyncio.sleep(0.6)
            status, _, body = await ask(function, listing)
            assert status == 200, body
            assert "default" in body
            _, _, body = await ask(function, load_event(HEALTH[0]))
            assert json.loads(body)["status"] == "ok"
            assert function.starts == 1
            assert surroundings.vendor.api_key not in function.output.text


async def test_missing_setting_error_names_it() -> None:
    async with FunctionProcess(bare_function({})) as function:
        invocation = await function.invoke(load_event(HEALTH[0]))
        with pytest.raises(FunctionFailedError, match="VECTORFORGE_DATABASE_URL"):
            await response_of(invocation)


@pytest.mark.parametrize("runtime", ["stream", "buffered"])
async def test_unset_response_mode_follows_runtime(surroundings: QuerySurroundings, runtime: Mode) -> None:
    configured = query_function(surroundings, runtime, without=("VECTORFORGE_RESPONSE_MODE",))
    async with FunctionProcess(configured) as function:
        invocation = await function.invoke(load_event(HEALTH[0]))
        status, _, _ = await response_of(invocation)
    assert status == 200
    assert (invocation.content_type == STREAM_CONTENT_TYPE) is (runtime == "stream")


async def test_streaming_without_wrapper_fails_init_naming_setting() -> None:
    async with FunctionProcess(
        bare_function({**NO_DATABASE, "VECTORFORGE_RESPONSE_MODE": "stream"})
    ) as function:
        with pytest.raises(FunctionFailedError, match=r"AWS_LAMBDA_EXEC_WRAPPER.*buffered") as failure:
            await function.start()
        assert failure.value.error.error_type == "ConfigurationError"
        assert await function.environment.exit == 1
