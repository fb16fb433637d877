"""Ingestion jobs through SQS: announced, carried out, resumed, put off; nothing lost, nothing done twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.lambda_context import LambdaContext
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import key_of, settings_for
from tests.support.http.live_server import serve
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.api.app import create_app
from vectorforge.aws.handlers.ingest import IngestFunction, handle
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.job_types import IngestionJob, NewJobItem
from vectorforge.deadline import Deadline
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import EmbeddingRateLimitError
from vectorforge.ingestion.embedding_prefetch import SMALL_BYTES
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.types import Vector

EVENTS = Path(__file__).parents[2] / "events"
TENANT = "acme"
LONG = "word " * (SMALL_BYTES // 5)
"""Makes a document too large for its vectors to be made together with others'."""


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def aws(aws_server: FakeAws, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server


@dataclass
class Stage:
    """A tenant's documents, the queue, and the function's application."""

    queue: Queue
    application: Application
    embedder: HashingEmbedder
    url: str

    @property
    def tenant(self) -> TenantServices:
        return self.application.for_tenant(TENANT)

    async def job(self, *texts: str, collection: str = "default", tenant: str = TENANT) -> UUID:
        """A job that was stored and announced, as an upload over HTTP does."""
        services = self.application.for_tenant(tenant)
        found = await services.collections.find_by_name(collection)
        found = found or await services.create_collection(collection)
        items = [NewJobItem(f"{n}.txt", None, text.encode()) for n, text in enumerate(texts)]
        job = await services.jobs.create(found.id, items)
        await self.application.background.announce_job(tenant, job.id)
        return job.id

    async def deliver(self, *, seconds: float = 60.0, most: int = 10) -> tuple[int, list[str]]:
        """One invocation with the messages that can be seen; how many, and the ids of those that failed."""
        records = self.queue.receive(most=most)
        if not records:
            return 0, []
        answer = await handle(self.application, {"Records": records}, Deadline.after(seconds))
        assert answer is not None
        failed = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        self.queue.delete([record for record in records if record["messageId"] not in failed])
        return len(records), failed

    async def look(self, job_id: UUID, tenant: str = TENANT) -> IngestionJob:
        job = await self.application.for_tenant(tenant).jobs.find_by_id(job_id)
        assert job is not None
        return job

    async def attempts(self, job_id: UUID) -> list[int]:
        return [item.attempts for item in await self.tenant.jobs.items(job_id)]


def build(url: str, queue: str | None, *embedders: HashingEmbedder, **ingestion: Any) -> Application:
    embeddings, models = EmbeddingProviderRegistry(), LLMProviderRegistry()
    for embedder in embedders:
        embeddings.register(embedder)
    models.register(ExtractiveProvider(embed=embedders[0].embed_documents))
    config = settings_for(
        url,
        [TENANT],
        aws=AwsSettings(ingestion_queue_url=queue),
        ingestion=IngestionSettings(chunk_size_chars=100, chunk_overlap_chars=0, **ingestion),
    )
    return Application(
        config, database=Database(url, pool_size=5), embedding_registry=embeddings, llm_registry=models
    )


@pytest.fixture
async def stage(aws: FakeAws, fresh_database_url: str) -> AsyncIterator[Stage]:
    queue = Queue(aws.client("sqs"), "ingestion")
    embedder = HashingEmbedder(batch_size=1)
    async with build(fresh_database_url, queue.url, embedder) as application:
        yield Stage(queue, application, embedder, fresh_database_url)


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


async def test_a_document_sent_over_http_is_ingested_by_the_function(stage: Stage) -> None:
    app = create_app(stage.application)
    async with serve(app) as url:
        import httpx2

        headers = {"Authorization": f"Bearer {key_of(TENANT)}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            made = await client.post("/v1/collections", json={"name": "default"})
            documents = [{"source": "refunds.txt", "text": "A refund takes five days."}]
            path = f"/v1/collections/{made.json()['id']}/documents"
            response = await client.post(path, json={"documents": documents})
            assert response.status_code == 202
            job_id = UUID(response.json()["id"])
            await asyncio.sleep(0.3)  # the server must leave it to the function
            assert (await stage.look(job_id)).status == "queued"
            assert json.loads(stage.queue.receive()[0]["body"]) == {
                "tenant_id": TENANT,
                "job_id": str(job_id),
                "waits": 0,
            }
            stage.queue.send(json.dumps({"tenant_id": TENANT, "job_id": str(job_id)}))
            await stage.application.open()
            assert await stage.deliver() == (1, [])
            answer = await client.post(
                f"/v1/collections/{made.json()['id']}/query", json={"query": "How long does a refund take?"}
            )
            assert "five days" in answer.text


# faults.md row 38
async def test_fifty_messages_of_one_job_are_one_run(stage: Stage) -> None:
    job_id = await stage.job("one", "two", "three")
    for _ in range(49):
        await stage.application.background.announce_job(TENANT, job_id)
    for _ in range(5):
        assert await stage.deliver() == (10, [])
    assert await stage.deliver() == (0, [])
    assert stage.queue.count() == (0, 0, 0)
    assert stage.embedder.texts == ["one", "two", "three"]
    assert await stage.attempts(job_id) == [1, 1, 1]


async def test_concurrent_invocations_with_the_same_message_are_one_run(stage: Stage) -> None:
    job_id = await stage.job(*(f"Text number {n}" for n in range(8)))
    stage.embedder._delay_s = 0.05
    for _ in range(4):
        await stage.application.background.announce_job(TENANT, job_id)
    results = await asyncio.gather(*(stage.deliver(most=1) for _ in range(5)))
    assert [failed for _, failed in results] == [[]] * 5
    assert len(stage.embedder.texts) == 8
    assert (await stage.look(job_id)).status == "succeeded"


async def test_the_message_of_a_deleted_job_is_dropped(stage: Stage) -> None:
    await stage.job("text")
    collection = await stage.tenant.find_collection("default")
    await stage.tenant.collections.delete(collection.id)
    stage.queue.send(json.dumps({"tenant_id": "nobody", "job_id": str(uuid4())}))
    assert await stage.deliver() == (2, [])
    assert stage.queue.count() == (0, 0, 0)


async def test_a_job_that_another_worker_holds_is_seen_again_later(stage: Stage) -> None:
    older = await stage.job("older")
    younger = await stage.job("younger")
    claimed = await JobDispatcher(stage.application.database).claim(60)
    assert claimed is not None
    assert claimed.job_id == older
    assert await stage.deliver() == (2, [])  # one is held, the other waits behind it and needs no message
    assert stage.queue.count() == (0, 0, 1)
    assert stage.embedder.texts == []

    await stage.tenant.jobs.release(older)
    stage.queue.send(json.dumps({"tenant_id": TENANT, "job_id": str(younger), "waits": 3}))
    assert await stage.deliver() == (1, [])
    assert stage.embedder.texts == ["older", "younger"]


async def test_a_row_of_waiting_jobs_keeps_one_message(stage: Stage) -> None:
    texts = [f"Text number {n}" for n in range(20)]
    jobs = [await stage.job(text) for text in texts]
    claimed = await JobDispatcher(stage.application.database).claim(60)
    assert claimed is not None
    while (await stage.deliver())[0]:
        pass
    assert stage.queue.count() == (0, 0, 1)  # of the job that another worker holds

    await stage.tenant.jobs.release(claimed.job_id)  # that worker had to stop, and says so
    await stage.application.background.announce_job(TENANT, claimed.job_id)
    assert await stage.deliver() == (1, [])
    assert [(await stage.look(job)).status for job in jobs] == ["succeeded"] * 20
    assert stage.embedder.texts == texts


async def test_who_has_to_stop_hands_on_what_waits(stage: Stage) -> None:
    stage.embedder._delay_s = 0.5
    jobs = [await stage.job(f"Text number {n}") for n in range(8)]
    stage.queue.purge()
    await stage.application.background.announce_job(TENANT, jobs[0])
    invocations = 0
    while (received := await stage.deliver(seconds=4))[0]:
        assert received == (1, [])
        assert sum(stage.queue.count()) <= 1  # they do not multiply
        invocations += 1
    assert invocations >= 2
    assert [(await stage.look(job)).status for job in jobs] == ["succeeded"] * 8


async def test_a_job_without_a_message_is_found_by_the_scheduled_look(stage: Stage) -> None:
    older, younger = await stage.job("older"), await stage.job("younger")
    assert await JobDispatcher(stage.application.database).claim(60) is not None
    assert await stage.deliver() == (2, [])
    stage.queue.purge()
    await stage.tenant.jobs.finish(older)  # by a worker that was killed just then
    assert (await stage.look(younger)).status == "queued"
    assert await handle(stage.application, event("ingest_scheduled"), Deadline.after(60)) is None
    assert (await stage.look(younger)).status == "succeeded"


async def test_an_older_job_of_the_collection_comes_first(stage: Stage) -> None:
    older = await stage.job("older")
    stage.queue.purge()
    younger = await stage.job("younger")
    assert await stage.deliver() == (1, [])
    assert stage.embedder.texts == ["older", "younger"]
    assert [(await stage.look(job)).status for job in (older, younger)] == ["succeeded"] * 2


async def test_a_message_that_comes_again_in_vain_begins_nothing(stage: Stage) -> None:
    done = await stage.job("done")
    assert await stage.deliver() == (1, [])
    waiting = await stage.job("a document that may kill its function")
    stage.queue.purge()
    await stage.application.background.announce_job(TENANT, done)
    assert await stage.deliver() == (1, [])
    assert (await stage.look(waiting)).status == "queued"


# faults.md row 39
async def test_poison_goes_to_the_dead_letter_queue_and_its_peers_do_not(stage: Stage) -> None:
    job_id = await stage.job("text")
    poison = ["no JSON", "[]", "{}", '{"job_id": 7}', json.dumps({"tenant_id": "", "job_id": str(uuid4())})]
    poison += [json.dumps({"Records": [{"s3": {}}]}), json.dumps({"Records": 7}), "[" * 100_000]
    poison += [json.dumps({"tenant_id": TENANT, "job_id": str(uuid4()), "waits": "x"})]
    for body in poison:
        stage.queue.send(body)
    received, failed = await stage.deliver()
    assert (received, len(failed)) == (10, len(poison))
    assert (await stage.look(job_id)).status == "succeeded"
    for _ in range(6):
        await stage.deliver()
    assert stage.queue.count() == (0, 0, 0)
    assert stage.queue.count(dead=True) == (len(poison), 0, 0)


# faults.md row 37
async def test_a_long_job_goes_on_in_the_next_invocation(stage: Stage) -> None:
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


async def test_a_document_that_never_gets_done_ends_the_third_time(stage: Stage) -> None:
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


async def test_a_message_stays_out_of_sight_while_its_document_takes_long(stage: Stage) -> None:
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
    assert len(stage.queue.receive()) == 1  # not deleted here, and nobody holds it any more


async def test_an_unreachable_database_fails_the_messages_and_nothing_is_lost(
    stage: Stage, fresh_database_url: str
) -> None:
    job_id = await stage.job("text")
    url = fresh_database_url + " host=127.0.0.1 port=1 connect_timeout=2"
    broken = build(url, stage.queue.url, stage.embedder)
    [record] = stage.queue.receive()
    answer = await handle(broken, {"Records": [record]}, Deadline.after(30))
    assert answer == {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    assert stage.queue.count() == (0, 1, 0)
    assert (await stage.look(job_id)).status == "queued"


# faults.md row 41, for ingestion
async def test_a_job_that_nobody_announced_is_found(
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


async def test_the_scheduled_look_deletes_what_was_kept_long_enough(stage: Stage) -> None:
    job_id = await stage.job("text")
    assert await stage.deliver() == (1, [])
    with psycopg.connect(stage.url.replace("vectorforge_app", "postgres"), autocommit=True) as admin:
        admin.execute("UPDATE vectorforge.ingestion_jobs SET finished_at = now() - interval '91 days'")
    await handle(stage.application, event("ingest_scheduled"), Deadline.after(60))
    assert await stage.tenant.jobs.find_by_id(job_id) is None


async def test_the_event_of_a_job_in_its_real_shape(stage: Stage) -> None:
    assert await handle(stage.application, event("ingest_sqs_job"), Deadline.after(30)) == {
        "batchItemFailures": []  # there is no such job (any more)
    }


async def test_a_function_whose_loop_is_gone_makes_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "DATABASE_URL": stage.url,
        "INGESTION_QUEUE_URL": stage.queue.url,
        "EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1",
        "EMBEDDING_MODEL": "m",
        "EMBEDDING_DIMENSION": "3",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"VECTORFORGE_{name}", value)
    function = IngestFunction()
    context = LambdaContext(remaining_ms=60_000)

    def twice() -> list[dict[str, Any] | None]:
        answers = [function({"Event": "s3:TestEvent"}, context)]  # opens a pool, and no connection in it
        assert function._loop is not None
        function._loop.close()  # as in a fork of the process, which has no such thread
        answers.append(function(event("ingest_sqs_job"), context))
        function.shutdown()
        return answers

    assert await asyncio.to_thread(twice) == [None, {"batchItemFailures": []}]


class FailingOnce(HashingEmbedder):
    """Refuses its first call."""

    calls = 0

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        self.calls += 1
        if self.calls == 1:
            raise EmbeddingRateLimitError
        return await super()._call_api(texts, model)


async def test_a_change_of_the_model_that_has_to_wait_goes_on_by_a_later_message(
    aws: FakeAws, fresh_database_url: str
) -> None:
    """It waits for its provider, and then for its own rate: a batch of two passages in a minute."""
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
        assert queue.count() == (0, 0, 1)  # seen in a minute
        assert await stage.application.background.worker.run_next() is False


async def test_scheduled_look_that_takes_up_a_change_of_the_model_hands_it_on(
    aws: FakeAws, fresh_database_url: str
) -> None:
    """Else a change whose message was lost would advance by one batch every five minutes."""
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
        assert queue.count() == (0, 0, 1)  # one that finds the pause adds none
