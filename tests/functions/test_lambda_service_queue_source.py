"""Queues as event sources, on moto's SQS over HTTP."""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import QueueEventSource
from tests.functions.queue_sources import Batches, RecordingFunction, consumer, left_in
from tests.support.aws.fake_aws import REGION, FakeAws
from tests.support.aws.faulty_queue import DeliveryFaults, FaultyQueueEventSource


async def test_queue_source_with_partial_failures_keeps_the_failed_message(
    endpoint: str, sqs: Any, make_queue: Callable[..., str], consume: FunctionProcess
) -> None:  # faults 39
    url = make_queue()
    attribute = {"name": {"DataType": "String", "StringValue": "v"}}
    raw = {"name": {"DataType": "Binary", "BinaryValue": b"\xff"}}
    sqs.send_message(QueueUrl=url, MessageBody="good ü", MessageAttributes=attribute)
    sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=raw)
    batches = Batches()
    async with QueueEventSource(consume, url, endpoint_url=endpoint, region=REGION, on_batch=batches):
        results = await batches.until(2)
    records = [record for batch in results for record in batch.records]
    good, poison = sorted(records, key=lambda record: record["body"])
    assert set().union(*(batch.failed for batch in results)) == {poison["messageId"]}
    assert left_in(sqs, url) == (0, 1)  # the poison is redelivered after its visibility timeout
    assert set(good) == {
        "messageId",
        "receiptHandle",
        "body",
        "attributes",
        "messageAttributes",
        "md5OfBody",
        "md5OfMessageAttributes",
        "eventSource",
        "eventSourceARN",
        "awsRegion",
    }
    assert (good["eventSource"], good["awsRegion"]) == ("aws:sqs", REGION)
    assert good["eventSourceARN"].startswith(f"arn:aws:sqs:{REGION}:")
    assert good["attributes"]["ApproximateReceiveCount"] == "1"
    assert int(good["attributes"]["SentTimestamp"]) > 0
    empty: dict[str, Any] = {"stringListValues": [], "binaryListValues": []}
    assert good["messageAttributes"]["name"] == empty | {"dataType": "String", "stringValue": "v"}
    assert poison["messageAttributes"]["name"] == empty | {"dataType": "Binary", "binaryValue": "/w=="}
    assert json.loads(consume.invocations[0].payload)["Records"]


async def test_poison_message_reaches_the_dead_letter_queue(
    endpoint: str, sqs: Any, make_queue: Callable[..., str], consume: FunctionProcess
) -> None:  # faults 39
    dead = make_queue()
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    url = make_queue(VisibilityTimeout="0", RedrivePolicy=policy)
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    batches = Batches()
    source = QueueEventSource(
        consume, url, endpoint_url=endpoint, region=REGION, maximum_concurrency=1, on_batch=batches
    )
    async with source:
        records = [batch.records[0] for batch in await batches.until(3)]
        poll = {"QueueUrl": dead, "WaitTimeSeconds": 20, "VisibilityTimeout": 0}
        (buried,) = (await asyncio.to_thread(lambda: sqs.receive_message(**poll)))["Messages"]
    assert buried["Body"] == "poison"
    assert [one["attributes"]["ApproximateReceiveCount"] for one in records] == ["1", "2", "3"]
    assert left_in(sqs, url) == (0, 0)


async def test_function_error_deletes_no_message(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    batches = Batches()
    async with (
        FunctionProcess(consumer(environment={"FAIL_INIT": "1"})) as broken,
        QueueEventSource(broken, url, endpoint_url=endpoint, region=REGION, on_batch=batches),
    ):
        (result,) = await batches.until(1)
    assert result.error is not None
    assert result.error.error_type == "RuntimeError"
    assert left_in(sqs, url) == (0, 1)


async def test_batching_window_gathers_a_full_batch(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    for number in range(25):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    batches = Batches()
    async with QueueEventSource(
        RecordingFunction(),
        url,
        endpoint_url=endpoint,
        region=REGION,
        batch_size=25,
        batching_window_s=60,
        maximum_concurrency=1,
        on_batch=batches,
    ):
        (batch,) = await batches.until(25)
    assert {record["body"] for record in batch.records} == {str(number) for number in range(25)}
    assert left_in(sqs, url) == (0, 0)


async def test_throttled_function_gets_the_batch_later(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:  # faults 46
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    function, batches = RecordingFunction(), Batches()
    function.throttled = 3
    async with QueueEventSource(function, url, endpoint_url=endpoint, region=REGION, on_batch=batches):
        (result,) = await batches.until(1)
    assert (function.refusals, len(function.events), result.throttled) == (3, 1, False)
    assert left_in(sqs, url) == (0, 0)


async def test_backlog_over_reserved_concurrency_is_delivered_whole(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:  # faults 46: nothing is dropped
    url = make_queue()
    for number in range(30):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    batches = Batches()
    async with (
        LambdaFunction(consumer(), concurrency=1) as function,
        QueueEventSource(
            function,
            url,
            endpoint_url=endpoint,
            region=REGION,
            batch_size=1,
            maximum_concurrency=4,
            on_batch=batches,
        ),
    ):
        results = await batches.until(30)
        assert sum(process.starts for process in function.processes) == 1
    assert sorted(int(result.records[0]["body"]) for result in results) == list(range(30))
    assert left_in(sqs, url) == (0, 0)


async def test_function_that_is_always_throttled_leaves_the_messages(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    function, batches = RecordingFunction(), Batches()
    function.throttled = 10**9
    async with QueueEventSource(function, url, endpoint_url=endpoint, region=REGION, on_batch=batches):
        (result, *_) = await batches.until(1)
    assert (result.throttled, len(result.failed)) == (True, 1)
    assert left_in(sqs, url) == (1, 0)


async def test_delivery_faults_repeat_and_shuffle_messages(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    for number in range(10):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    function, batches = RecordingFunction(), Batches()
    faults = DeliveryFaults(redelivered=1.0, shuffled=True, random=Random(1))
    async with FaultyQueueEventSource(
        function,
        url,
        endpoint_url=endpoint,
        region=REGION,
        faults=faults,
        on_batch=batches,
        maximum_concurrency=1,
    ):
        results = await batches.until(30)  # each three times: only the first two receives are touched
    seen = [record["body"] for result in results for record in result.records]
    assert sorted(seen) == sorted([str(number) for number in range(10)] * 3)
    assert seen[:10] != [str(number) for number in range(10)]
    assert left_in(sqs, url) == (0, 0)


async def test_postponed_message_arrives_on_a_later_receive(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    batches = Batches()
    async with FaultyQueueEventSource(
        RecordingFunction(),
        url,
        endpoint_url=endpoint,
        region=REGION,
        faults=DeliveryFaults(postponed=1.0),
        on_batch=batches,
    ):
        (result,) = await batches.until(1)
    assert result.records[0]["attributes"]["ApproximateReceiveCount"] == "3"


async def test_queue_that_is_deleted_and_recreated_is_polled_again() -> None:
    with FakeAws() as aws:
        sqs = aws.client("sqs")
        url = sqs.create_queue(QueueName="returning")["QueueUrl"]
        batches = Batches()
        async with QueueEventSource(
            RecordingFunction(), url, endpoint_url=aws.url, region=REGION, on_batch=batches
        ):
            sqs.delete_queue(QueueUrl=url)
            await asyncio.sleep(0.2)  # polls fail
            sqs.create_queue(QueueName="returning")
            sqs.send_message(QueueUrl=url, MessageBody="x")
            await batches.until(1)
