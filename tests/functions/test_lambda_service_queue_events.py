"""Events of queues and buckets, and the meaning of a function's answer to one."""

import json
from urllib.parse import unquote_plus

import pytest

from infra.emulator.lambda_service.invocation import FunctionError, Invocation
from infra.emulator.lambda_service.queue_events import MAX_EVENT_BYTES, cut, failed_ids
from infra.emulator.lambda_service.recursion import count_hop, total_hops
from tests.functions.queue_sources import RecordingFunction
from tests.support.aws.bucket_event_source import BucketEventSource

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
def test_failed_ids_of_an_answer_are_those_that_lambda_keeps(
    answer: object, failed: set[str]
) -> None:  # faults 39
    invocation = Invocation(b"{}", 1)
    invocation.add(json.dumps(answer).encode())
    invocation.finish()
    assert failed_ids(invocation, ["a", "b"]) == failed


@pytest.mark.parametrize(("body", "failed"), [(b"", set()), (b"{not json", {"a"})])
def test_failed_ids_of_a_broken_body_are_the_whole_batch(body: bytes, failed: set[str]) -> None:
    invocation = Invocation(b"{}", 1)
    invocation.add(body)
    invocation.finish()
    assert failed_ids(invocation, ["a"]) == failed
    broken = Invocation(b"{}", 1)
    broken.fail(FunctionError("E", b""))
    assert failed_ids(broken, ["a"]) == {"a"}


def test_batch_over_the_event_limit_is_cut() -> None:
    megabytes = [{"body": "x" * (1 << 20)} for _ in range(13)]
    batches = list(cut(megabytes))
    assert [len(batch) for batch in batches] == [5, 5, 3]
    assert all(len(json.dumps({"Records": batch})) < MAX_EVENT_BYTES for batch in batches)
    assert list(cut([])) == []


async def test_object_created_event_encodes_its_key() -> None:
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


def test_hops_of_a_chain_are_counted_for_each_function() -> None:
    header, hops = count_hop("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", "first")
    assert (hops, total_hops(header)) == (1, 1)
    header, hops = count_hop(header, "second")
    assert (hops, total_hops(header)) == (1, 2)
    quoted = header.replace("|", "%7C")  # as botocore sends it
    header, hops = count_hop(quoted, "first")
    assert (hops, total_hops(header)) == (2, 3)
    assert header.startswith("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1;Lineage=")
