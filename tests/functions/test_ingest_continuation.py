"""Ingestion that needs several invocations: long jobs, the schedule, model changes."""

import asyncio

import psycopg
import pytest

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.ingest_stage import LONG, TENANT, FailingOnce, Stage, build, event
from tests.support.aws.sqs_events import Queue
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.aws.handlers.ingest import handle
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.job_types import NewJobItem
from vectorforge.deadline import Deadline


async def test_invocation_without_time_hands_on_waiting_jobs(stage: Stage) -> None:
    stage.embedder._delay_s = 0.5
    jobs = [await stage.job(f"Text number {n}") for n in range(8)]
    stage.queue.purge()
    await stage.application.background.announce_job(
        TENANT, jobs[0]
    )  # the others' messages were dropped: they waited
    invocations = 0
    while (received := await stage.deliver(seconds=4))[0]:
        assert received == (1, [])
        assert sum(stage.queue.count()) <= 1  # they do not multiply
        invocations += 1
    assert invocations >= 2
    assert [(await stage.look(job)).status for job in jobs] == ["succeeded"] * 8


async def test_job_without_message_is_found_by_the_schedule(stage: Stage) -> None:
    older, younger = await stage.job("older"), await stage.job("younger")
    assert await JobDispatcher(stage.application.database).claim(60) is not None
    assert await stage.deliver() == (2, [])
    stage.queue.purge()
    await stage.tenant.jobs.finish(older)  # by a worker that was killed at that moment
    assert (await stage.look(younger)).status == "queued"
    assert await handle(stage.application, event("ingest_scheduled"), Deadline.after(60)) is None
    assert (await stage.look(younger)).status == "succeeded"


# faults.md row 37
async def test_long_job_continues_in_the_next_invocation(stage: Stage) -> None:
    stage.embedder._delay_s = 0.35
    begins = [f"Text number {n}." for n in range(12)]
    job_id = await stage.job(*(f"{begin} {LONG}" for begin in begins))
    invocations = 0
    while (await stage.look(job_id)).finished_at is None:
        [record] = stage.queue.receive()
        assert record["attributes"]["ApproximateReceiveCount"] == "1"  # progress costs no delivery
        answer = await handle(stage.application, {"Records": [record]}, Deadline.after(5))
        assert answer == {"batchItemFailures": []}
        stage.queue.delete([record])
        invocations += 1
    assert invocations >= 2
    embedded = [text.partition(" word")[0] for text in stage.embedder.texts if text.startswith("Text")]
    assert embedded == begins  # none was embedded twice: it stopped between documents
    assert await stage.attempts(job_id) == [1] * 12
    assert (await stage.look(job_id)).documents_done == 12


async def test_document_that_never_finishes_fails_at_the_third_attempt(stage: Stage) -> None:
    stage.embedder._delay_s = 30
    job_id = await stage.job("endless")
    for attempt in range(1, 4):
        assert await stage.deliver(seconds=1.8) == (1, [])
        assert await stage.attempts(job_id) == [attempt]
    stage.embedder._delay_s = 0
    job = await stage.look(job_id)
    assert (job.status, job.documents_failed) == ("queued", 1)
    assert await stage.deliver() == (1, [])
    assert (await stage.look(job_id)).status == "failed"
    [item] = await stage.tenant.jobs.items(job_id)
    assert item.error is not None
    assert item.error.code == "document_timeout"


async def test_message_of_slow_document_stays_invisible(stage: Stage) -> None:
    stage.embedder._delay_s = 4.5
    job_id = await stage.job("long")
    records = stage.queue.receive()
    working = asyncio.create_task(
        handle(stage.application, {"Records": records}, Deadline.after(60), visibility_s=2)
    )
    while not working.done():
        assert stage.queue.receive() == []
        await asyncio.sleep(0.2)
    assert await working == {"batchItemFailures": []}
    assert (await stage.look(job_id)).status == "succeeded"
    await asyncio.sleep(2.2)
    assert len(stage.queue.receive()) == 1  # not deleted here, and no worker holds it any more


# faults.md row 41, for ingestion
async def test_unannounced_job_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    async with build(stage.url, stage.queue.url, stage.embedder) as without_queue:
        items = [NewJobItem("a.txt", None, b"text")]
        collection = await without_queue.for_tenant(TENANT).create_collection("default")
        job = await without_queue.for_tenant(TENANT).jobs.create(collection.id, items)
        await without_queue.background.announce_job(TENANT, job.id)
    assert f"Job {job.id} was not announced" in caplog.text
    assert await handle(stage.application, event("ingest_scheduled"), Deadline.after(60)) is None
    assert (await stage.look(job.id)).status == "succeeded"


async def test_schedule_deletes_expired_logs(stage: Stage) -> None:
    job_id = await stage.job("text")
    assert await stage.deliver() == (1, [])
    with psycopg.connect(stage.url.replace("vectorforge_app", "postgres"), autocommit=True) as admin:
        admin.execute(
            "UPDATE vectorforge.ingestion_jobs SET created_at = now() - interval '91 days', "
            "finished_at = now() - interval '91 days'"
        )
    await handle(stage.application, event("ingest_scheduled"), Deadline.after(60))
    assert await stage.tenant.jobs.find_by_id(job_id) is None


async def test_delayed_model_change_continues_by_a_later_message(
    aws: FakeAws, fresh_database_url: str
) -> None:
    """The change waits for its provider, then for its own rate: a batch of two chunks per minute."""
    queue = Queue(aws.client("sqs"), "ingestion")
    new = FailingOnce(name="new", dimension=96)
    async with build(
        fresh_database_url, queue.url, HashingEmbedder(), new, reembed_passages_per_minute=2
    ) as application:
        stage = Stage(queue, application, new, fresh_database_url)
        await stage.job("one", "two", "three")
        await stage.deliver()
        changes = stage.tenant.model_changes
        collection = await stage.tenant.find_collection("default")
        await changes.start(collection, "new")
        assert await stage.deliver() == (1, [])
        assert (await changes.stored.get(collection.id)).failures == 1
        assert queue.count() == (0, 0, 1)
        async with asyncio.timeout(30):
            while not queue.count()[0]:  # noqa: ASYNC110 - polls a queue
                await asyncio.sleep(0.1)
        assert await stage.deliver() == (1, [])
        assert sorted(new.texts) == sorted(set(new.texts))
        assert len(new.texts) == 2
        assert queue.count() == (0, 0, 1)  # visible in a minute
        assert await stage.application.background.worker.run_next() is False


async def test_schedule_that_resumes_a_model_change_hands_it_on(
    aws: FakeAws, fresh_database_url: str
) -> None:
    """Otherwise a change whose message was lost would advance by one batch every five minutes."""
    queue = Queue(aws.client("sqs"), "ingestion")
    new = HashingEmbedder(name="new", dimension=96)
    async with build(
        fresh_database_url, queue.url, HashingEmbedder(), new, reembed_passages_per_minute=120
    ) as application:
        stage = Stage(queue, application, new, fresh_database_url)
        await stage.job(*(f"passage {n}" for n in range(200)))
        await stage.deliver()
        await stage.tenant.model_changes.start(await stage.tenant.find_collection("default"), "new")
        queue.purge()
        assert await handle(application, {"source": "aws.events"}, Deadline.after(60)) is None
        assert 0 < len(new.texts) < 200
        assert queue.count() == (0, 0, 1)
        assert await handle(application, {"source": "aws.events"}, Deadline.after(60)) is None
        assert queue.count() == (0, 0, 1)  # a run during the pause adds none
