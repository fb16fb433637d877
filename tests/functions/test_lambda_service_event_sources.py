"""Queues and buckets as event sources, on moto's SQS over HTTP."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, Unpack
from urllib.parse import unquote_plus

import pytest

from infra.emulator.lambda_service.bucket_event_source import BucketEventSource
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import FunctionError, Invocation, InvocationOptions
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import (
    BatchResult,
    DeliveryFaults,
    QueueEventSource,
)
from infra.emulator.lambda_service.queue_events import MAX_EVENT_BYTES, cut, failed_ids
from infra.emulator.lambda_service.recursion import MAX_HOPS, count_hop, total_hops
from tests.support.aws.fake_aws import REGION, FakeAws, aws_environment
from tests.support.aws.sqs_proxy import SqsProxy

HERE = Path(__file__).parent
LONG = "1000"  # a visibility timeout that no test waits for


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def endpoint(aws: FakeAws) -> str:
    return aws.url


@pytest.fixture
def sqs(aws: FakeAws) -> Any:
    return aws.client("sqs")


@pytest.fixture
def make_queue(sqs: Any, request: pytest.FixtureRequest) -> Callable[..., str]:
    def make(**attributes: str) -> str:
        number = len(sqs.list_queues().get("QueueUrls", []))
        made = sqs.create_queue(
            QueueName=f"queue-{number}", Attributes={"VisibilityTimeout": LONG, **attributes}
        )
        return str(made["QueueUrl"])

    return make


def consumer(**settings: Any) -> FunctionConfiguration:
    return FunctionConfiguration(
        handler="sample_function.consume",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        timeout_s=120,
        init_timeout_s=120,
        **settings,
    )


@pytest.fixture
async def consume() -> AsyncIterator[FunctionProcess]:
    async with FunctionProcess(consumer()) as process:
        yield process


class Batches:
    """What a source tells of its batches."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[BatchResult] = asyncio.Queue()

    async def __call__(self, result: BatchResult) -> None:
        await self.results.put(result)

    async def until(self, count: int) -> list[BatchResult]:
        """Batches until so many records have come."""
        batches: list[BatchResult] = []
        while sum(len(batch.records) for batch in batches) < count:
            batches.append(await self.results.get())
        return batches


def left_in(sqs: Any, url: str) -> tuple[int, int]:
    """Messages that wait, and messages that were received and not deleted."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(attributes[names[0]]), int(attributes[names[1]])


async def test_records_and_partial_failures(
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
    assert left_in(sqs, url) == (0, 1)  # the poison comes again after its visibility timeout
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


async def test_poison_goes_to_the_dead_letter_queue(
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


async def test_a_function_error_deletes_nothing(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    batches = Batches()
    async with (
        FunctionProcess(consumer(environment={"FAIL_INIT": "1"})) as broken,
        QueueEventSource(
            broken, url, endpoint_url=endpoint, region=REGION, on_batch=batches, reports_failures=False
        ),
    ):
        (result,) = await batches.until(1)
    assert result.error is not None
    assert result.error.error_type == "RuntimeError"
    assert left_in(sqs, url) == (0, 1)


ANSWERS: list[tuple[object, set[str]]] = [
    (None, set()),
    ({}, set()),
    ({"batchItemFailures": None}, set()),
    ({"batchItemFailures": []}, set()),
    ({"batchItemFailures": [{"itemIdentifier": "b"}]}, {"b"}),
    ({"batchItemFailures": [{"itemIdentifier": "b"}, {"itemIdentifier": "b"}]}, {"b"}),
    ({"batchItemFailures": [{"itemIdentifier": ""}]}, {"a", "b"}),
    ({"batchItemFailures": [{"itemIdentifier": None}]}, {"a", "b"}),
    ({"batchItemFailures": [{"wrongName": "b"}]}, {"a", "b"}),
    ({"batchItemFailures": [{"itemIdentifier": "unknown"}]}, {"a", "b"}),
    ({"batchItemFailures": ["b"]}, {"a", "b"}),
    ({"batchItemFailures": 7}, {"a", "b"}),
    ([1], {"a", "b"}),
    ("text", {"a", "b"}),
]


@pytest.mark.parametrize(("answer", "failed"), ANSWERS)
def test_what_an_answer_means(answer: object, failed: set[str]) -> None:  # faults 39
    invocation = Invocation(b"{}", 1)
    invocation.add(json.dumps(answer).encode())
    invocation.finish()
    assert failed_ids(invocation, ["a", "b"], reports_failures=True) == failed
    assert failed_ids(invocation, ["a", "b"], reports_failures=False) == set()


@pytest.mark.parametrize(("body", "failed"), [(b"", set()), (b"{not json", {"a"})])
def test_what_a_body_means(body: bytes, failed: set[str]) -> None:
    invocation = Invocation(b"{}", 1)
    invocation.add(body)
    invocation.finish()
    assert failed_ids(invocation, ["a"], reports_failures=True) == failed
    broken = Invocation(b"{}", 1)
    broken.fail(FunctionError("E", b""))
    assert failed_ids(broken, ["a"], reports_failures=False) == {"a"}


def test_a_batch_is_cut_where_an_event_is_full() -> None:
    megabytes = [{"body": "x" * (1 << 20)} for _ in range(13)]
    batches = list(cut(megabytes))
    assert [len(batch) for batch in batches] == [5, 5, 3]
    assert all(len(json.dumps({"Records": batch})) < MAX_EVENT_BYTES for batch in batches)
    assert list(cut([])) == []


class RecordingFunction:
    """Takes every event at once and answers that all is well; can be throttled or held."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.throttled = 0
        self.refusals = 0

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        if self.refusals < self.throttled:
            self.refusals += 1
            raise TooManyRequestsError
        assert isinstance(event, dict)
        self.events.append(event)
        invocation = Invocation(b"", 1)
        invocation.finish()
        return invocation


async def test_batches_are_gathered_within_their_window(
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


async def test_a_throttled_function_gets_the_batch_later(
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


async def test_a_backlog_waits_for_reserved_concurrency(
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


async def test_a_function_that_takes_nothing_leaves_the_messages(
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


async def test_faults_of_a_standard_queue(endpoint: str, sqs: Any, make_queue: Callable[..., str]) -> None:
    url = make_queue()
    for number in range(10):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    function, batches = RecordingFunction(), Batches()
    faults = DeliveryFaults(redelivered=1.0, shuffled=True, random=Random(1))
    async with QueueEventSource(
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


async def test_postponed_messages_arrive_later(
    endpoint: str, sqs: Any, make_queue: Callable[..., str]
) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    batches = Batches()
    async with QueueEventSource(
        RecordingFunction(),
        url,
        endpoint_url=endpoint,
        region=REGION,
        faults=DeliveryFaults(postponed=1.0),
        on_batch=batches,
    ):
        (result,) = await batches.until(1)
    assert result.records[0]["attributes"]["ApproximateReceiveCount"] == "3"


async def test_a_queue_that_comes_back_is_polled_on() -> None:
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


async def test_an_object_created_event() -> None:
    function = RecordingFunction()
    source = BucketEventSource(function, region="eu-central-1")
    key = "a folder/ü+(1).txt"
    await source.object_created("documents", key, size=3, etag="e")
    await source.object_created("documents", key)
    first, second = (event["Records"][0] for event in function.events)
    assert (first["eventSource"], first["eventName"]) == ("aws:s3", "ObjectCreated:Put")
    assert first["awsRegion"] == "eu-central-1"
    assert first["s3"]["bucket"]["name"] == "documents"
    assert first["s3"]["object"]["key"] == "a+folder/%C3%BC%2B%281%29.txt"
    assert unquote_plus(first["s3"]["object"]["key"]) == key
    assert (first["s3"]["object"]["size"], first["s3"]["object"]["eTag"]) == (3, "e")
    assert first["s3"]["object"]["sequencer"] < second["s3"]["object"]["sequencer"]


@pytest.fixture
async def tracing_sqs(endpoint: str) -> AsyncIterator[SqsProxy]:
    async with SqsProxy(endpoint) as proxy:
        yield proxy


def relaying(url: str, proxy: SqsProxy, recursive_loop: Literal["Terminate", "Allow"]) -> LambdaFunction:
    environment = {**aws_environment(proxy.url), "QUEUE_URL": url}
    configuration = consumer(environment=environment, recursive_loop=recursive_loop)
    return LambdaFunction(dataclasses.replace(configuration, handler="sample_function.relay"))


async def test_function_that_wakes_itself_is_stopped_after_sixteen_hops(
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


async def test_function_that_allows_recursion_wakes_itself_more_often(
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


def test_hops_are_counted_for_each_function_of_a_chain() -> None:
    header, hops = count_hop("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", "first")
    assert (hops, total_hops(header)) == (1, 1)
    header, hops = count_hop(header, "second")
    assert (hops, total_hops(header)) == (1, 2)
    quoted = header.replace("|", "%7C")  # as botocore sends it
    header, hops = count_hop(quoted, "first")
    assert (hops, total_hops(header)) == (2, 3)
    assert header.startswith("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1;Lineage=")
