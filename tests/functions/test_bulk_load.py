"""Batches of a bulk load: each object's result, exactly once, and retryable errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.aws.bucket_event_source import object_created_event
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import settings_for
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.aws.handlers.ingest import handle
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.deadline import Deadline
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import DatabaseUnavailableError, DeadlineExceededError, ObjectStoreError
from vectorforge.llm.registry import LLMProviderRegistry

BUCKET = "vectorforge-uploads"
TENANT = "acme"
LIMIT = 1000
Report = dict[str, Any]


@dataclass
class Load:
    """The bucket, the queue, and the function's application."""

    aws: FakeAws
    queue: Queue
    application: Application
    embedder: HashingEmbedder

    @property
    def tenant(self) -> TenantServices:
        return self.application.for_tenant(TENANT)

    def put(self, *keys: str, text: str | None = None) -> None:
        for key in keys:
            body = f"Text of {key}" if text is None else text
            self.aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body.encode())

    async def run(self, *keys: str, seconds: float = 60, **more: Any) -> Report:
        """Invoke the function with a batch of the state machine."""
        items = [{"Key": key, "Etag": '"0"', "Size": 1, "LastModified": 1_795_302_600} for key in keys]
        batch = {"action": "ingest_objects", "bucket": BUCKET, "Items": items, **more}
        answer = await handle(self.application, json.loads(json.dumps(batch)), Deadline.after(seconds))
        assert answer is not None
        assert [entry["key"] for entry in answer["objects"]] == list(keys)
        counts = {status: n for status, n in answer.items() if isinstance(n, int)}
        reported = [entry["status"] for entry in answer["objects"]]
        assert counts == {status: reported.count(status) for status in counts}
        return answer

    async def documents(self, collection: str = "docs") -> dict[str, str | None]:
        found = await self.tenant.find_collection(collection)
        documents, _ = await self.tenant.documents.list(found.id, limit=1000)
        prefix = f"s3://{BUCKET}/"
        texts = {d.source: await self.tenant.documents.text(d.id) for d in documents}
        return {source.removeprefix(prefix): text for source, text in texts.items()}


def statuses(report: Report) -> list[str]:
    return [" ".join([entry["status"], *filter(None, [entry.get("code")])]) for entry in report["objects"]]


def build(url: str, queue: str | None, embedder: HashingEmbedder) -> Application:
    embeddings = EmbeddingProviderRegistry()
    embeddings.register(embedder)
    config = settings_for(
        url,
        aws=AwsSettings(ingestion_queue_url=queue),
        ingestion=IngestionSettings(max_document_bytes=LIMIT),
    )
    return Application(
        config,
        database=Database(url, pool_size=5),
        embedding_registry=embeddings,
        llm_registry=LLMProviderRegistry(),
    )


@pytest.fixture
async def load(aws: FakeAws, fresh_database_url: str) -> AsyncIterator[Load]:
    queue = Queue(aws.client("sqs"), "ingestion")
    aws.create_bucket(BUCKET)
    embedder = HashingEmbedder(batch_size=1)
    async with build(fresh_database_url, queue.url, embedder) as application:
        yield Load(aws, queue, application, embedder)


async def test_bulk_load_reports_every_object(load: Load) -> None:
    good = ["acme/docs/a.txt", "acme/docs/Übung & more (2026) + 100%.md", "acme/other/rows.jsonl"]
    load.put(*good[:2])
    load.put(good[2], text='{"text": "one"}\n{"text": "two"}\n')
    bad = ["acme/docs/large.txt", "acme/docs/broken.pdf", "acme/other/some.jsonl", "acme/docs/empty.txt"]
    load.put(bad[0], text="x" * (LIMIT + 1))
    load.put(bad[1], text="%PDF-1.7 nonsense")
    load.put(bad[2], text='{"text": "one"}\nnot JSON\n')
    load.put(bad[3], text="")
    odd = ["acme/docs/", "acme/nothing", "acme/docs/a\0.txt", "acme/docs/gone.txt", f"acme/{'c' * 300}/a.txt"]
    load.put(odd[2], odd[4])
    report = await load.run(*good, *bad, *odd)
    assert statuses(report) == [
        *["stored"] * 3,
        "failed document_too_large",
        "failed document_unreadable",
        "failed document_unreadable",
        "failed document_empty",
        "skipped",
        "failed invalid_input",
        "failed invalid_input",
        "failed not_found",
        "failed invalid_input",
    ]
    assert (report["bucket"], report["stored"], report["failed"], report["skipped"]) == (BUCKET, 3, 8, 1)
    assert set(await load.documents()) == set(good[:2])
    assert len(await load.documents("other")) == 3
    jobs = {str(job.id) for job in await load.tenant.jobs.list()}
    assert {entry["job_id"] for entry in report["objects"] if "job_id" in entry} == jobs
    assert await load.application.for_tenant("other").collections.list() == []


# faults.md row 38
async def test_repeated_revision_creates_one_job(load: Load) -> None:
    keys = [f"acme/docs/{n}.txt" for n in range(8)]
    load.put(*keys)
    reports = await asyncio.gather(*(load.run(*keys, *keys) for _ in range(3)))
    assert all(statuses(report) == ["stored"] * 16 for report in reports)
    assert len(await load.tenant.jobs.list()) == 8
    assert sorted(load.embedder.texts) == sorted(f"Text of {key}" for key in keys)
    again = await load.run(*keys, started_at="2099-01-01T00:00:00Z")
    assert again["objects"] == reports[0]["objects"][:8]

    load.put(keys[0], text="Newer")
    changed = await load.run(*keys)
    assert len(await load.tenant.jobs.list()) == 9
    assert (await load.documents())[keys[0]] == "Newer"
    assert changed["objects"][1:] == again["objects"][1:]


async def test_object_ingested_by_event_is_unchanged(load: Load) -> None:
    load.put("acme/docs/a.txt")
    await handle(load.application, object_created_event(BUCKET, "acme/docs/a.txt"), Deadline.after(60))
    assert statuses(await load.run("acme/docs/a.txt")) == ["unchanged"]
    assert load.embedder.texts == ["Text of acme/docs/a.txt"]


async def test_restored_content_is_a_new_revision(load: Load, aws: FakeAws) -> None:
    """Without versions its ETag is unchanged; only the modification time differs."""
    key = "acme/docs/a.txt"
    for text in ("first", "second", "first"):
        load.put(key, text=text)
        assert statuses(await load.run(key)) == ["stored"]
        assert (await load.documents())[key] == text
        written = aws.client("s3").head_object(Bucket=BUCKET, Key=key)["LastModified"]
        while datetime.now(UTC) < written + timedelta(seconds=1):  # noqa: ASYNC110 - S3 tells whole seconds
            await asyncio.sleep(0.05)


async def test_later_load_retries_failed_objects(load: Load) -> None:
    load.put("acme/docs/a.txt", "acme/docs/large.txt")
    load.put("acme/docs/large.txt", text="x" * (LIMIT + 1))
    before = datetime.now(UTC).isoformat()
    keys = ["acme/docs/a.txt", "acme/docs/large.txt"]
    expected = ["stored", "failed document_too_large"]
    first = await load.run(*keys, started_at=before)
    retried = await load.run(*keys, started_at=before)  # by the state machine, in the same load
    assert statuses(first) == statuses(retried) == expected
    assert len(await load.tenant.jobs.list()) == 2
    later = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    for _ in range(2):
        assert statuses(await load.run(*keys, started_at=later)) == expected
    assert len(await load.tenant.jobs.list()) == 3
    assert statuses(await load.run(*keys)) == expected
    assert len(await load.tenant.jobs.list()) == 3


async def test_job_held_by_another_invocation_is_awaited(load: Load) -> None:
    load.put("acme/docs/a.txt")
    await load.run("acme/docs/b.txt", "acme/docs/c/")  # has no objects
    assert await JobDispatcher(load.application.database).claim(60) is None
    load.embedder._delay_s = 1.0
    first = asyncio.create_task(load.run("acme/docs/a.txt"))
    await asyncio.sleep(0.5)
    second = await load.run("acme/docs/a.txt")
    assert statuses(await first) == statuses(second) == ["stored"]
    assert load.embedder.texts == ["Text of acme/docs/a.txt"]


async def test_unfinished_jobs_are_queued_at_deadline(load: Load) -> None:
    keys = [f"acme/docs/{n}.txt" for n in range(12)]
    load.put(*keys)
    load.embedder._delay_s = 1.5
    report = await load.run(*keys, seconds=10)
    assert report["stored"] >= 1
    assert report["pending"] >= 1
    assert report["stored"] + report["pending"] == 12
    load.embedder._delay_s = 0
    while records := load.queue.receive():
        assert await handle(load.application, {"Records": records}, Deadline.after(60)) == {
            "batchItemFailures": []
        }
        load.queue.delete(records)
    assert set(await load.documents()) == set(keys)
    assert sorted(load.embedder.texts) == sorted({f"Text of {key}" for key in keys})
    assert statuses(await load.run(*keys)) == ["stored"] * 12


async def test_unfinished_batch_without_queue_raises_and_is_repeatable(
    load: Load, fresh_database_url: str
) -> None:
    keys = [f"acme/docs/{n}.txt" for n in range(12)]
    load.put(*keys)
    load.embedder._delay_s = 1.5
    async with build(fresh_database_url, None, load.embedder) as application:
        alone = Load(load.aws, load.queue, application, load.embedder)
        with pytest.raises(DeadlineExceededError):
            await alone.run(*keys, seconds=6)
        load.embedder._delay_s = 0
        assert statuses(await alone.run(*keys)) == ["stored"] * 12
    assert sorted(load.embedder.texts) == sorted({f"Text of {key}" for key in keys})


async def test_batch_without_time_left_starts_no_job(load: Load) -> None:
    load.put("acme/docs/a.txt")
    with pytest.raises(DeadlineExceededError):
        await load.run("acme/docs/a.txt", seconds=0.1)
    assert await load.tenant.jobs.list() == []


async def test_unreachable_s3_raises_object_store_error(
    load: Load, monkeypatch: pytest.MonkeyPatch, fresh_database_url: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    async with build(fresh_database_url, load.queue.url, load.embedder) as application:
        alone = Load(load.aws, load.queue, application, load.embedder)
        with pytest.raises(ObjectStoreError):
            await alone.run("acme/docs/a.txt")


async def test_denied_object_is_reported_and_others_are_stored(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    load.put("acme/docs/a.txt", "acme/docs/b.txt")
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject"}
    denied["Resource"] = f"arn:aws:s3:::{BUCKET}/acme/docs/a.txt"
    policy = json.dumps({"Version": "2012-10-17", "Statement": [denied]})
    load.aws.client("s3").put_bucket_policy(Bucket=BUCKET, Policy=policy)
    report = await load.run("acme/docs/a.txt", "acme/docs/b.txt")
    assert statuses(report) == ["failed object_store_error", "stored"]


async def test_unreachable_database_raises_retryable_error(load: Load, fresh_database_url: str) -> None:
    url = fresh_database_url + " host=127.0.0.1 port=1 connect_timeout=2"
    broken = Load(load.aws, load.queue, build(url, load.queue.url, load.embedder), load.embedder)
    with pytest.raises(DatabaseUnavailableError):
        await broken.run("acme/docs/a.txt")


async def test_empty_batch_reports_no_objects(load: Load) -> None:
    assert (await load.run())["objects"] == []
