"""Telemetry of the query function, in a real process under both runtimes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.emf import Measured, read_emf, read_fields
from tests.support.aws.fake_aws_faults import AwsFailure, FaultyAws
from tests.support.aws.live_query_function import EMBEDDING_KEY, QuerySurroundings, query_surroundings
from tests.support.aws.query_events import Event, Mode, load_event, query_function, response_of
from tests.support.aws.xray_daemon import XRayDaemon
from tests.support.http.live_api import key_of
from tests.support.vendors.fake_embeddings import Reply
from vectorforge.local.postgres import EmbeddedPostgres

QUERY, STREAM = "query_function_url_query", "query_function_url_query_stream"
TRACE_ID, SEGMENT_ID = "1-6920f0a1-3f5c7d9e1b2a4c6d8e0f1a2b", "53995c3f42cd8ad8"
SAMPLED = f"Root={TRACE_ID};Parent={SEGMENT_ID};Sampled=1"
STEPS = ["preprocess", "retrieve", "context", "generate", "log"]
SECRET_ID = "vectorforge/canaries"
OLD, NEW, BROKEN = "sk-old-canary-0123456789", "sk-new-canary-0123456789", '{"openai_api_key": "sk-canary'
MODES = pytest.mark.parametrize("mode", [pytest.param("buffered", marks=pytest.mark.slow), "stream"])


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture(scope="module")
def faulty_aws() -> Iterator[FaultyAws]:
    with FaultyAws() as server:
        yield server


@pytest.fixture
def event(surroundings: QuerySurroundings) -> Callable[..., Event]:
    """Load an event with the tenant's key."""
    return partial(load_event, x_api_key=key_of(surroundings.tenant))


LAST_METRIC = "http.request.duration_ms"
"""Last metric of an invocation."""


async def new_metrics(function: FunctionProcess) -> Measured:
    """Return the output since the last call, once it has the last metric of the invocation."""
    async with asyncio.timeout(10):
        await function.output.wait_for(LAST_METRIC)
    lines = list(function.output.lines)
    function.output.lines.clear()
    return {**read_emf(lines), **read_fields(lines)}


def objects(lines: list[str]) -> list[dict[str, Any]]:
    """Return the log lines that are JSON and not metrics."""
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in found if "_aws" not in line]


def count(measured: Measured, name: str) -> int:
    return sum(len(values) for (metric, _), values in measured.items() if metric == name)


@MODES
async def test_invocation_prints_own_metrics_once(
    surroundings: QuerySurroundings, event: Callable[..., Event], mode: Mode
) -> None:  # F-005, C26
    async with FunctionProcess(query_function(surroundings, mode)) as function:
        for number in range(3):
            for name in (QUERY, STREAM):
                invocation = await function.invoke(event(name))
                status, _, _ = await response_of(invocation)
                assert status == 200
                measured = await new_metrics(function)
                for metric in (
                    "pipeline.query.calls",
                    "pipeline.query.duration_ms",
                    "retriever.search.calls",
                    "context.build.duration_ms",
                    "llm.generate.calls",
                    "query_log.write.calls",
                    "http.requests",
                ):
                    assert count(measured, metric) == 1, metric
                assert count(measured, "pipeline.query.errors") == 0
                assert count(measured, "ColdStart") == (1 if (number, name) == (0, QUERY) else 0)
                services = {dict(dimensions)["service"] for _, dimensions in measured}
                assert services == {"query"}


async def test_metrics_are_printed_after_last_byte_and_before_freeze(
    surroundings: QuerySurroundings, event: Callable[..., Event]
) -> None:
    """They are printed after the client's last byte, and before the process is frozen."""
    printed_at_last_byte: list[int] = []

    async def last_byte(process: FunctionProcess, *_: object) -> None:
        printed_at_last_byte.append(process.output.text.count("pipeline.query.calls"))

    configuration = query_function(surroundings, "stream", freeze_between_invocations=True)
    async with FunctionProcess(configuration, hooks={"before_response_reply": last_byte}) as function:
        invocation = await function.invoke(event(STREAM))
        await invocation.completed.wait()
        assert count(await new_metrics(function), "pipeline.query.calls") == 1
    assert printed_at_last_byte == [0]


@MODES
async def test_query_steps_are_subsegments_of_the_invocation(
    surroundings: QuerySurroundings, event: Callable[..., Event], mode: Mode
) -> None:
    with XRayDaemon() as daemon:
        variables = {"VECTORFORGE_TRACING": "true", "AWS_XRAY_DAEMON_ADDRESS": daemon.address}
        async with FunctionProcess(query_function(surroundings, mode, variables=variables)) as function:
            for name in (QUERY, STREAM):
                invocation = await function.invoke(event(name), trace_id=SAMPLED)
                await response_of(invocation)
                await invocation.completed.wait()
                documents = daemon.received()
                assert [d["name"] for d in documents] == [*STEPS, "query"]
                assert {(d["trace_id"], d["parent_id"]) for d in documents} == {(TRACE_ID, SEGMENT_ID)}
                assert not any("fault" in d for d in documents)
            await response_of(
                await function.invoke(event(QUERY), trace_id=SAMPLED.replace("Sampled=1", "Sampled=0"))
            )
            assert daemon.received() == []


def cut_short(function: FunctionProcess) -> list[dict[str, Any]]:
    """Return the warnings about a query that was too long."""
    found = objects(list(function.output.lines))
    return [line for line in found if line["level"] == "WARNING" and "truncated" in line["message"]]


@MODES
async def test_warning_includes_request_ids_and_is_logged_once(
    surroundings: QuerySurroundings, event: Callable[..., Event], mode: Mode
) -> None:
    async with FunctionProcess(query_function(surroundings, mode)) as function:
        too_long = {"query": "How long does a refund take? " * 1000}
        named = event(QUERY, body=too_long, x_request_id="order-4711-a")
        invocation = await function.invoke(named, trace_id=SAMPLED)
        _, headers, _ = await response_of(invocation)
        await invocation.completed.wait()
        assert headers["x-request-id"] == "order-4711-a"
        (line,) = cut_short(function)
        assert line["correlation_id"] == "order-4711-a"
        assert line["function_request_id"] == invocation.request_id
        assert line["xray_trace_id"] == TRACE_ID
        assert line["cold_start"] is True
        assert line["service"] == "query"
        assert line["name"].startswith("vectorforge.")
        assert function.output.text.count(line["message"]) == 1  # not repeated by the root logger

        invocation = await function.invoke(event(QUERY, body=too_long))
        _, headers, _ = await response_of(invocation)
        await invocation.completed.wait()
        line = cut_short(function)[-1]
        assert line["correlation_id"] == headers["x-request-id"]  # by default the app's
        assert line["cold_start"] is False
        assert "refund" not in function.output.text


@MODES
async def test_unexpected_failure_is_logged_without_its_message(
    surroundings: QuerySurroundings, event: Callable[..., Event], mode: Mode
) -> None:
    async with FunctionProcess(query_function(surroundings, mode)) as function:
        surroundings.embeddings.replies = [Reply(status=401)]
        _, _, body = await response_of(await function.invoke(event(QUERY)))
        assert json.loads(body)["status"] >= 500
        assert EMBEDDING_KEY not in function.output.text + body
        assert "Something in our words" not in function.output.text + body
        invocation = await function.invoke({"unknown": "canary event"})
        await invocation.completed.wait()
        assert invocation.error is not None
        errors = [line for line in objects(list(function.output.lines)) if line["level"] == "ERROR"]
        assert errors[-1]["message"].startswith("The invocation failed: ")
        assert errors[-1]["function_request_id"] == invocation.request_id
        assert "canary" not in function.output.text
        # The process survives.
        status, _, _ = await response_of(await function.invoke(event(QUERY)))
        assert status == 200
        assert function.starts == 1


async def test_logs_traces_and_answers_hold_no_secret(
    surroundings: QuerySurroundings, event: Callable[..., Event], faulty_aws: FaultyAws
) -> None:  # threats 18 and 19: maximal logging, with the keys in Secrets Manager
    vendor = surroundings.vendor
    vendor.api_key = OLD
    faulty_aws.recover()
    store(faulty_aws, OLD)
    with XRayDaemon() as daemon:
        variables = {
            **faulty_aws.environment,
            "VECTORFORGE_TRACING": "true",
            "VECTORFORGE_PROVIDER_SECRET_ID": SECRET_ID,
            "VECTORFORGE_SECRET_MAX_AGE_S": "1",
            "VECTORFORGE_DEGRADED_ANSWERS": "false",
            "AWS_XRAY_DAEMON_ADDRESS": daemon.address,
            "POWERTOOLS_LOG_LEVEL": "DEBUG",
        }
        configuration = query_function(
            surroundings,
            "stream",
            variables=variables,
            without=("VECTORFORGE_OPENAI_API_KEY", "VECTORFORGE_EMBEDDING_API_KEY"),
            handler="tests.functions.verbose_query_handler.handler",
        )
        shown: list[str] = []
        async with FunctionProcess(configuration) as function, asyncio.timeout(120):

            async def ask(name: str) -> int:
                """Return the number of failed spans."""
                invocation = await function.invoke(event(name), trace_id=SAMPLED)
                shown.append(str(await response_of(invocation)))
                await invocation.completed.wait()
                documents = daemon.received()
                shown.append(str(documents))
                return sum("fault" in document for document in documents)

            assert await ask(QUERY) == 0
            store(faulty_aws, NEW)
            vendor.api_key = "another"  # it quotes the rejected key
            assert await ask(QUERY) >= 1
            assert await ask(STREAM) >= 1
            for failure in (None, AwsFailure(503, "InternalServiceError")):
                faulty_aws.put_secret(SECRET_ID, BROKEN)
                faulty_aws.failure = failure
                faulty_aws.calls.clear()
                while not faulty_aws.calls:  # until the keys are old enough to be reread
                    await ask(STREAM)
            shown.append(function.output.text)
    sent_headers = {str(request.headers) for request in vendor.requests}
    assert any(OLD in headers for headers in sent_headers)
    assert any(NEW in headers for headers in sent_headers)
    assert "botocore" in function.output.text  # logs requests and responses
    for text in shown:
        assert "canary" not in text
        assert EMBEDDING_KEY not in text
        assert key_of(surroundings.tenant) not in text


def store(aws: FaultyAws, key: str) -> None:
    aws.put_secret(SECRET_ID, {"openai_api_key": key, "embedding_api_key": EMBEDDING_KEY})
