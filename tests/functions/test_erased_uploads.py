"""Uploaded files are erased with their documents, and later messages do not restore them."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, settings_for
from vectorforge.aws.handlers.ingest import handle
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import Erasure, Subject

BUCKET = "vectorforge-uploads"
KEYS = ("acme/a/x.txt", "acme/ a /y.txt", "acme/b/x.txt", "acme2/a/x.txt")


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def s3(aws_server: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Any:
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    aws_server.create_bucket(BUCKET)
    return aws_server.client("s3")


@pytest.fixture
def queue(aws_server: FakeAws, s3: Any) -> Queue:
    return Queue(aws_server.client("sqs"), "ingestion")


@pytest.fixture
async def application(fresh_database_url: str, queue: Queue) -> AsyncIterator[Application]:
    settings = AwsSettings(uploads_bucket=BUCKET, ingestion_queue_url=queue.url)
    async with build_application(settings_for(fresh_database_url, ["acme"], aws=settings)) as opened:
        yield opened


def notification(key: str) -> str:
    """Return S3's notification of a written object."""
    s3 = {"bucket": {"name": BUCKET}, "object": {"key": key.replace(" ", "+"), "sequencer": "01"}}
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}
    return json.dumps({"Records": [record]})


async def upload(s3: Any, application: Application, queue: Queue, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"Oil the chain.")
        queue.send(notification(key))
    await deliver(application, queue)


async def deliver(application: Application, queue: Queue) -> list[str]:
    """Deliver all messages to the function; return the ids of those to redeliver."""
    failed: list[str] = []
    while records := queue.receive():
        answer = await handle(application, {"Records": records}, Deadline.after(60))
        assert answer is not None
        failed += [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        queue.delete(records)
    return failed


async def sources(application: Application, tenant: str) -> set[str]:
    services = application.for_tenant(tenant)
    return {
        document.source
        for collection in await services.collections.list()
        for document in (await services.documents.list(collection.id, limit=50, offset=0))[0]
    }


def listed(s3: Any) -> set[str]:
    return {found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}


async def erase_from_the_query_function(
    application: Application, database_url: str, subject: Subject
) -> Erasure:
    """Erase from the query function, which may not delete files and leaves them to the ingest function."""
    eraser = application.for_tenant("acme").eraser
    done = await eraser.run(await eraser.begin(subject, logs="text", requested_by="test"))
    assert (done.is_done, done.stage) == (False, "objects")
    with psycopg.connect(make_conninfo(database_url, user="postgres")) as connection:  # the lease has expired
        connection.execute("UPDATE vectorforge.erasures SET lease_expires_at = now() - interval '1 second'")
    assert await handle(application, {"source": "aws.events"}, Deadline.after(60)) is None  # the schedule
    found = await eraser.erasures.find_by_id(done.id)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["document", "collection", "tenant"])
async def test_erased_uploads_are_deleted_and_not_ingested_again(
    s3: Any, queue: Queue, application: Application, fresh_database_url: str, kind: str
) -> None:
    await upload(s3, application, queue, *KEYS)
    assert len(await sources(application, "acme")) == 3
    services = application.for_tenant("acme")
    found = await services.find_collection("a")
    document = await services.documents.find_by_source(found.id, f"s3://{BUCKET}/acme/a/x.txt")
    assert document is not None
    subject, gone = {
        "document": (Subject("document", document_id=document.id), {KEYS[0]}),
        "collection": (Subject("collection", found.id), {KEYS[0], KEYS[1]}),
        "tenant": (Subject("tenant"), set(KEYS[:3])),
    }[kind]
    done = await erase_from_the_query_function(application, fresh_database_url, subject)
    assert (done.is_done, done.counts["uploaded files"], list(done.objects)) == (True, len(gone), [])
    assert listed(s3) == set(KEYS) - gone

    # Messages delivered twice, or redriven from a dead-letter queue, after all that.
    queue.send(
        *(notification(key) for key in gone), json.dumps({"tenant_id": "acme", "job_id": str(done.id)})
    )
    assert await deliver(application, queue) == []
    left = await sources(application, "acme")
    assert left == {f"s3://{BUCKET}/{key}" for key in set(KEYS[:3]) - gone}
    assert await sources(application, "acme2") == {f"s3://{BUCKET}/{KEYS[3]}"}


async def test_message_during_tenant_erasure_is_returned_to_queue(
    s3: Any, queue: Queue, application: Application
) -> None:
    await upload(s3, application, queue, KEYS[0])
    eraser = application.for_tenant("acme").eraser
    erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
    queue.send(notification(KEYS[0]))
    assert len(await deliver(application, queue)) == 1
    assert not (await eraser.run(erasure_id)).is_done
