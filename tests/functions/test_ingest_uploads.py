"""Objects uploaded to S3 become documents of the right tenant, once each; the latest version wins."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, settings_for
from vectorforge.aws import buckets
from vectorforge.aws.handlers.ingest import handle
from vectorforge.aws.handlers.ingest_events import UploadInbox, read_uploads
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError, VectorForgeError

EVENTS = Path(__file__).parents[2] / "events"
BUCKET = "vectorforge-uploads"
LIMIT = 1000


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


CREATED = event("ingest_s3_object_created")
KEY = "acme/handbook/policies/Refunds & returns (2026).md"


def created(key: str, sequencer: str = "01", **changes: Any) -> dict[str, Any]:
    """Return S3's event of an object."""
    changed = copy.deepcopy(CREATED)
    stored = {"key": quote_plus(key, safe="/"), "sequencer": sequencer, **changes}
    changed["Records"][0]["s3"]["object"].update(stored)
    return changed


@dataclass
class Bucket:
    """The bucket of uploads, and the function that reads it."""

    aws: FakeAws
    application: Application
    queue: Queue
    admin_url: str

    def put(self, key: str, text: str, **options: Any) -> None:
        self.aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=text.encode(), **options)

    async def notify(self, notification: dict[str, Any]) -> None:
        assert await handle(self.application, notification, Deadline.after(60)) is None

    def tenant(self, name: str = "acme") -> TenantServices:
        return self.application.for_tenant(name)

    async def texts(self, collection: str, tenant: str = "acme") -> dict[str, str | None]:
        found = await self.tenant(tenant).find_collection(collection)
        documents, _ = await self.tenant(tenant).documents.list(found.id)
        return {d.source: await self.tenant(tenant).documents.text(d.id) for d in documents}


@pytest.fixture
async def bucket(aws: FakeAws, fresh_database_url: str) -> AsyncIterator[Bucket]:
    queue = Queue(aws.client("sqs"), "ingestion")
    aws.create_bucket(BUCKET)
    config = settings_for(
        fresh_database_url,
        aws=AwsSettings(ingestion_queue_url=queue.url),
        ingestion=IngestionSettings(max_document_bytes=LIMIT),
    )
    async with build_application(config) as application:
        admin_url = make_conninfo(fresh_database_url, user="postgres")
        yield Bucket(aws, application, queue, admin_url)


async def test_upload_becomes_document_of_its_tenant(bucket: Bucket) -> None:
    bucket.put(KEY, "# Refunds\n\nA refund takes five days.", ContentType="text/markdown")
    await bucket.notify(CREATED)
    source = f"s3://{BUCKET}/{KEY}"
    assert await bucket.texts("handbook") == {source: "# Refunds\n\nA refund takes five days."}
    assert await bucket.tenant("other").collections.list() == []
    [job] = await bucket.tenant().jobs.list()
    assert (job.status, job.documents_total) == ("succeeded", 1)


async def test_notification_through_queue_ingests_upload(bucket: Bucket) -> None:
    bucket.put(KEY, "A refund takes five days.")
    wrapped = event("ingest_sqs_s3_notification")
    assert await handle(bucket.application, wrapped, Deadline.after(60)) == {"batchItemFailures": []}
    assert list(await bucket.texts("handbook")) == [f"s3://{BUCKET}/{KEY}"]
    assert bucket.queue.count() == (0, 0, 0)


# faults.md row 38
async def test_repeated_event_creates_one_job(bucket: Bucket) -> None:
    bucket.put(KEY, "A refund takes five days.")
    await asyncio.gather(*(bucket.notify(CREATED) for _ in range(5)))
    await bucket.notify(CREATED)
    [job] = await bucket.tenant().jobs.list()
    assert [item.attempts for item in await bucket.tenant().jobs.items(job.id)] == [1]


@pytest.mark.parametrize("versioned", [False, True])
async def test_latest_content_is_stored_for_any_event_order(bucket: Bucket, versioned: bool) -> None:
    if versioned:
        bucket.aws.client("s3").put_bucket_versioning(
            Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
        )
    key = "acme/docs/a.txt"
    for number, text in enumerate(("first", "second", "first")):  # old content: still an event
        bucket.put(key, text)
        await bucket.notify(created(key, f"000{number}"))
    assert await bucket.texts("docs") == {f"s3://{BUCKET}/{key}": "first"}
    for text in ("second", "first"):
        bucket.put(key, text)
    await bucket.notify(created(key, "03"))
    await bucket.notify(created(key, "01"))
    await bucket.notify(created(key, "02"))
    assert await bucket.texts("docs") == {f"s3://{BUCKET}/{key}": "first"}
    bucket.put(key, "fourth")
    await bucket.notify(created(key, "04"))
    await bucket.notify(created(key, "02"))
    assert await bucket.texts("docs") == {f"s3://{BUCKET}/{key}": "fourth"}


class OvertakenBucket(buckets.Bucket):
    """The object is overwritten after its first read."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.application.aws.clients, BUCKET)
        self._bucket = bucket
        self._reads = 0

    async def read_as(self, key: str, expected: buckets.StoredObject) -> bytes | None:
        content = await super().read_as(key, expected)
        self._reads += 1
        if self._reads == 1:
            self._bucket.put(key, "newer")
        return content


async def test_object_changed_while_read_is_read_again(bucket: Bucket) -> None:
    key = "acme/docs/a.txt"
    bucket.put(key, "older")
    [upload] = read_uploads(created(key))
    overtaken = OvertakenBucket(bucket)
    jobs = await UploadInbox(bucket.application, lambda _: overtaken).accept(upload)
    assert len(jobs) == 2
    await bucket.application.background.worker.run_until_idle()
    assert await bucket.texts("docs") == {f"s3://{BUCKET}/{key}": "newer"}


async def test_oversized_object_creates_failed_job(bucket: Bucket) -> None:
    bucket.put("acme/docs/large.txt", "x" * (LIMIT + 1))
    bucket.put("acme/docs/fits.txt", "y" * LIMIT)
    await bucket.notify(created("acme/docs/large.txt"))
    await bucket.notify(created("acme/docs/fits.txt"))
    assert list(await bucket.texts("docs")) == [f"s3://{BUCKET}/acme/docs/fits.txt"]
    fits, large = await bucket.tenant().jobs.list()
    assert (fits.status, large.status) == ("succeeded", "failed")
    [item] = await bucket.tenant().jobs.items(large.id)
    assert item.error is not None
    assert item.error.code == "document_too_large"
    assert "1,001 bytes; at most 1,000" in item.error.message


async def test_oversized_object_job_is_never_visible_as_queued(bucket: Bucket) -> None:
    bucket.put("acme/docs/large.txt", "x" * (LIMIT + 1))
    with psycopg.connect(bucket.admin_url, autocommit=True) as admin:
        admin.execute("CREATE TABLE vectorforge.seen (status text, xid xid8)")
        admin.execute(
            "CREATE FUNCTION vectorforge.see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN INSERT INTO vectorforge.seen VALUES (NEW.status, pg_current_xact_id()); "
            "RETURN NEW; END $$"
        )
        admin.execute(
            "CREATE TRIGGER see AFTER INSERT OR UPDATE ON vectorforge.ingestion_jobs "
            "FOR EACH ROW EXECUTE FUNCTION vectorforge.see()"
        )
        await bucket.notify(created("acme/docs/large.txt"))
        seen = admin.execute("SELECT status, xid FROM vectorforge.seen ORDER BY status").fetchall()
    assert [status for status, _ in seen] == ["failed", "queued"]
    assert len({xid for _, xid in seen}) == 1  # one transaction


@pytest.mark.parametrize(
    ("key", "expected_text"),
    [
        ("acme/" + "c" * 400 + "/a.txt", "cannot be carried out"),
        ("acme/docs/a\0.txt", "cannot be understood"),
        ("acme/do\0cs/a.txt", "cannot be understood"),
    ],
)
async def test_unstorable_upload_is_dead_lettered_immediately(
    bucket: Bucket, key: str, expected_text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message is visible again immediately, not after half a minute, two, eight, ..."""
    bucket.put(key, "text")
    bucket.queue.send(json.dumps(created(key)))
    for _ in range(6):
        records = bucket.queue.receive()
        if records:
            answer = await handle(bucket.application, {"Records": records}, Deadline.after(60))
            assert answer == {"batchItemFailures": [{"itemIdentifier": records[0]["messageId"]}]}
    assert bucket.queue.count() == (0, 0, 0)
    assert expected_text in caplog.text


async def test_whitespace_around_collection_name_is_stripped(bucket: Bucket) -> None:
    bucket.put("acme/ docs /a.txt", "text")
    await bucket.notify(created("acme/ docs /a.txt"))
    assert list(await bucket.texts("docs")) == [f"s3://{BUCKET}/acme/ docs /a.txt"]


async def test_missing_object_creates_no_job(bucket: Bucket) -> None:
    await bucket.notify(CREATED)
    assert await bucket.tenant().jobs.list() == []


async def test_non_upload_events_are_ignored(bucket: Bucket) -> None:
    await bucket.notify({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET})
    removed = created("acme/docs/a.txt")
    removed["Records"][0]["eventName"] = "ObjectRemoved:Delete"
    await bucket.notify(removed)
    await bucket.notify(created("acme/docs/folder/"))
    assert await bucket.tenant().collections.list() == []


@pytest.mark.parametrize(
    "key", ["a.txt", "acme/a.txt", "acme//a.txt", "/docs/a.txt", "t" * 129 + "/docs/a.txt", "acme/ /a.txt"]
)
async def test_key_without_tenant_and_collection_is_rejected(bucket: Bucket, key: str) -> None:
    with pytest.raises(InvalidInputError):
        await bucket.notify(created(key))
    wrapped = event("ingest_sqs_s3_notification")
    wrapped["Records"][0]["body"] = json.dumps(created(key))
    answer = await handle(bucket.application, wrapped, Deadline.after(60))
    assert answer == {"batchItemFailures": [{"itemIdentifier": wrapped["Records"][0]["messageId"]}]}


async def test_unreachable_s3_returns_message_to_queue(
    bucket: Bucket, aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = event("ingest_sqs_s3_notification")
    aws.client("s3").delete_bucket(Bucket=BUCKET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    answer = await handle(bucket.application, wrapped, Deadline.after(60))
    assert answer == {"batchItemFailures": [{"itemIdentifier": wrapped["Records"][0]["messageId"]}]}
    with pytest.raises(VectorForgeError):  # without a queue Lambda itself retries
        await handle(bucket.application, CREATED, Deadline.after(60))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["s3", "object", "key"]), inner),
    max_leaves=8,
)


@given(record=_JSON)
def test_invalid_record_is_rejected(record: Any) -> None:
    with pytest.raises(InvalidInputError):
        read_uploads({"Records": [record]})


@given(key=st.text(st.characters(exclude_characters="\0"), min_size=1))  # S3 accepts NUL, PostgreSQL does not
def test_any_key_is_decoded_from_s3_encoding(key: str) -> None:
    try:
        [upload] = read_uploads(created("acme/docs/x" + key.encode(errors="replace").decode() + "x"))
    except InvalidInputError:
        raise AssertionError("refused") from None
    assert upload.tenant_id == "acme"
    assert upload.collection_name == "docs"
    assert upload.key == "acme/docs/x" + key.encode(errors="replace").decode() + "x"
