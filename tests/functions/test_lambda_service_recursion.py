"""Recursive loop detection for functions that invoke themselves through a queue, on moto's SQS over HTTP."""

import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import pytest

from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import (
    QueueEventSource,
)
from infra.emulator.lambda_service.recursion import MAX_HOPS, total_hops
from tests.functions.queue_sources import Batches, consumer, left_in
from tests.support.aws.fake_aws import REGION, aws_environment
from tests.support.aws.sqs_proxy import SqsProxy


@pytest.fixture
async def tracing_sqs(endpoint: str) -> AsyncIterator[SqsProxy]:
    async with SqsProxy(endpoint) as proxy:
        yield proxy


def relaying(url: str, proxy: SqsProxy, recursive_loop: Literal["Terminate", "Allow"]) -> LambdaFunction:
    environment = {**aws_environment(proxy.url), "QUEUE_URL": url}
    configuration = consumer(environment=environment, recursive_loop=recursive_loop)
    return LambdaFunction(dataclasses.replace(configuration, handler="sample_function.relay"))


async def test_recursive_function_is_stopped_after_sixteen_hops(
    endpoint: str, sqs: Any, make_queue: Callable[..., str], tracing_sqs: SqsProxy
) -> None:
    dead = make_queue()
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 5})
    url = make_queue(RedrivePolicy=policy)
    sqs.send_message(QueueUrl=url, MessageBody="20")
    batches = Batches()
    async with (
        relaying(url, tracing_sqs, "Terminate") as function,
        QueueEventSource(function, url, endpoint_url=endpoint, region=REGION, on_batch=batches),
    ):
        results = await batches.until(MAX_HOPS + 1)
        hops = [total_hops(one.trace_id) for one in function.processes[0].invocations]
    assert hops == list(range(1, MAX_HOPS + 1))
    assert [result.recursion_stopped for result in results] == [False] * MAX_HOPS + [True]
    assert left_in(sqs, url) == (0, 0)
    assert left_in(sqs, dead) == (1, 0)


async def test_recursive_function_with_allowed_loop_continues(
    endpoint: str, sqs: Any, make_queue: Callable[..., str], tracing_sqs: SqsProxy
) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="20")
    batches = Batches()
    async with (
        relaying(url, tracing_sqs, "Allow") as function,
        QueueEventSource(function, url, endpoint_url=endpoint, region=REGION, on_batch=batches),
    ):
        results = await batches.until(21)
        hops = [total_hops(one.trace_id) for one in function.processes[0].invocations]
    assert hops == list(range(1, 22))
    assert not any(result.recursion_stopped for result in results)
    assert left_in(sqs, url) == (0, 0)
