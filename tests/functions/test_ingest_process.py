"""The ingest function as a process on the Lambda service: freezes, kills, timeouts, deliveries."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    RUNTIME_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import (
    BatchResult,
)
from infra.emulator.lambda_service.recursion import count_hop, total_hops
from tests.support.aws.bucket_event_source import object_created_event
from tests.support.aws.fake_aws import REGION, FakeAws
from tests.support.aws.faulty_queue import DeliveryFaults, FaultyQueueEventSource
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.sqs_events import Queue
from tests.support.aws.sqs_proxy import SqsProxy
from tests.support.http.live_api import build_application, settings_for
from tests.support.vendors.fake_embeddings import Reply
from vectorforge.aws.queues import AnnouncedJob
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.job_types import IngestionJob, NewJobItem
from vectorforge.ingestion.group import SMALL_BYTES
from vectorforge.types import DistanceMetric

BUCKET = "uploads"
TENANT = "acme"
LONG = "word " * (SMALL_BYTES // 5)
"""Makes a document too large to share embedding requests with others."""


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@dataclass
class Cloud:
    """The queue, the bucket and the database that the functions share."""

    aws: FakeAws
    queue: Queue
    surroundings: QuerySurroundings
    application: Application
    """Application for inspecting the database."""
    batches: list[BatchResult] = field(default_factory=list)

    @property
    def tenant(self) -> TenantServices:
        return self.application.for_tenant(TENANT)

    def environment(self) -> dict[str, str]:
        variables = self.surroundings.environment(
            ingestion_queue_url=self.queue.url, chunk_size_chars="50", chunk_overlap_chars="0"
        )
        return {**variables, **self.aws.environment}

    def ingest(self, **options: Any) -> FunctionConfiguration:
        return FunctionConfiguration(
            handler="functions.ingest.handler.handler",
            name="ingest",
            environment=self.environment(),
            freeze_between_invocations=True,
            init_timeout_s=30.0,  # this machine is not Lambda
            **options,
        )

    def events_for(
        self, function: LambdaFunction, *, faults: DeliveryFaults | None = None, **options: Any
    ) -> FaultyQueueEventSource:
        async def note(result: BatchResult) -> None:
            self.batches.append(result)

        options |= {"endpoint_url": self.aws.url, "region": REGION, "on_batch": note}
        return FaultyQueueEventSource(function, self.queue.url, faults=faults or DeliveryFaults(), **options)

    async def job(self, *texts: str) -> UUID:
        """Store a job and enqueue its message."""
        found = await self.tenant.collections.find_by_name("default")
        collection = found or await self.tenant.collections.create(
            "default",
            embedding_provider="http",
            embedding_model="fake-embeddings",
            dimension=64,
            distance_metric=DistanceMetric.COSINE,
        )
        items = [NewJobItem(f"{n}.txt", None, text.encode()) for n, text in enumerate(texts)]
        job = await self.tenant.jobs.create(collection.id, items)
        self.queue.send(AnnouncedJob(TENANT, job.id).body())
        return job.id

    async def ended(self, job_id: UUID) -> IngestionJob:
        async with asyncio.timeout(60):
            while True:
                job = await self.tenant.jobs.find_by_id(job_id)
                assert job is not None
                if job.finished_at is not None:
                    return job
                await asyncio.sleep(0.05)

    async def emptied(self) -> None:
        """Wait until every message is settled."""
        async with asyncio.timeout(120):
            while self.queue.count() != (0, 0, 0):  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)

    async def chunks(self) -> dict[str, list[str]]:
        """Return the chunks of each document by its source."""
        found = await self.tenant.find_collection("default")
        documents, _ = await self.tenant.documents.list(found.id, limit=100)
        return {
            document.source: [chunk.text for chunk in await self.tenant.documents.chunks(document.id)]
            for document in documents
        }


@pytest.fixture
async def cloud(aws_server: FakeAws, fresh_database_url: str) -> AsyncIterator[Cloud]:
    aws_server.reset()
    queue = Queue(aws_server.client("sqs"), "ingestion")
    aws_server.create_bucket(BUCKET)
    application = build_application(settings_for(fresh_database_url))
    async with application, query_surroundings(fresh_database_url, TENANT, fill=False) as surroundings:
        yield Cloud(aws_server, queue, surroundings, application)


async def test_document_sent_over_http_is_queryable(cloud: Cloud) -> None:
    query = cloud.surroundings.function(
        {
            **cloud.environment(),
            "VECTORFORGE_RESPONSE_MODE": "buffered",
            "VECTORFORGE_OPENAI_API_KEY": "",
            "VECTORFORGE_OPENAI_BASE_URL": "",
        },
        init_timeout_s=30.0,
    )
    async with (
        FunctionProcess(query) as answering,
        LambdaFunction(cloud.ingest()) as ingesting,
        FunctionUrl(answering, response_mode="buffered") as front_door,
        cloud.surroundings.client(front_door.url) as client,
    ):
        made = await client.post("/v1/collections", json={"name": "default"})
        documents = [{"source": "refunds.txt", "text": "How long does a refund take? It takes five days."}]
        path = f"/v1/collections/{made.json()['id']}"
        sent = await client.post(f"{path}/documents", json={"documents": documents})
        assert sent.status_code == 202
        assert sent.json()["status"] == "queued"
        async with cloud.events_for(ingesting):
            job = await cloud.ended(UUID(sent.json()["id"]))
            await cloud.emptied()
        assert job.status == "succeeded"
        answer = await client.post(f"{path}/query", json={"query": "How long does a refund take?"})
        assert "five days" in answer.text
        lines = [json.loads(line) for line in ingesting.processes[0].output.lines if line.startswith("{")]
    (measured,) = [line for line in lines if "embedding.texts" in line]
    assert (measured["message"], measured["service"], measured["embedding.texts"]) == (
        "Measured",
        "ingest",
        1,
    )


@pytest.mark.parametrize("command", [RUNTIME_COMMAND, AWSLAMBDARIC_COMMAND], ids=["ours", "awslambdaric"])
async def test_function_runs_under_both_runtimes(cloud: Cloud, command: tuple[str, ...]) -> None:
    job_id = await cloud.job("one")
    async with FunctionProcess(cloud.ingest(command=command)) as function:
        records = cloud.queue.receive()
        for _ in range(2):  # the second time the job has ended
            invocation = await function.invoke({"Records": records})
            assert await invocation.result() == {"batchItemFailures": []}
    assert (await cloud.ended(job_id)).status == "succeeded"


# faults.md rows 37, 45
@pytest.mark.slow
async def test_function_killed_in_every_document_stores_each_exactly_once(cloud: Cloud) -> None:
    texts = ["\n\n".join(f"Document {n} says {m} in a paragraph." for m in range(3)) for n in range(4)]
    job_id = await cloud.job(*texts)
    admin_url = make_conninfo(cloud.surroundings.app_url, user="postgres")
    async with FunctionProcess(cloud.ingest()) as function:
        for n in range(4):
            embeddings = cloud.surroundings.embeddings
            embeddings.replies = [*[Reply()] * (1 if n else 0), Reply(delay_s=5)]
            [record] = cloud.queue.receive()
            assert record["attributes"]["ApproximateReceiveCount"] == str(n + 1)
            invocation = await function.invoke({"Records": [record]})
            async with asyncio.timeout(30):
                while embeddings.replies:  # noqa: ASYNC110 - until the last reply is being made
                    await asyncio.sleep(0.02)
            await function.kill()
            await invocation.ended.wait()
            assert invocation.error is not None
            # A minute later: the lease has expired, and the message is visible.
            with psycopg.connect(admin_url, autocommit=True) as admin:
                admin.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now()")
            cloud.queue.show([record])
        [record] = cloud.queue.receive()
        invocation = await function.invoke({"Records": [record]})
        assert await invocation.result() == {"batchItemFailures": []}
    job = await cloud.ended(job_id)
    assert (job.status, job.documents_done, job.documents_failed) == ("succeeded", 4, 0)
    # killed together first, then each but the first one alone
    assert [item.attempts for item in await cloud.tenant.jobs.items(job_id)] == [2, 3, 3, 3]
    found = await cloud.chunks()
    assert {source: "\n\n".join(chunks) for source, chunks in found.items()} == {
        f"{n}.txt": text for n, text in enumerate(texts)
    }


@pytest.mark.slow
async def test_job_longer_than_function_timeout_completes(cloud: Cloud) -> None:
    job_id = await cloud.job(*(f"Text number {n}. {LONG}" for n in range(16)))
    cloud.surroundings.embeddings.replies = [Reply(delay_s=0.4)] * 16
    async with LambdaFunction(cloud.ingest(timeout_s=5.0)) as function:
        await function.processes[0].start()
        async with cloud.events_for(function):
            job = await cloud.ended(job_id)
            await cloud.emptied()
    assert (job.status, job.documents_done) == ("succeeded", 16)
    assert len(cloud.batches) >= 2
    assert {batch.error for batch in cloud.batches} == {None}  # it was never killed by its timeout
    counts = {r["attributes"]["ApproximateReceiveCount"] for batch in cloud.batches for r in batch.records}
    assert counts == {"1"}
    embedded = [text for request in cloud.surroundings.embeddings.requests for text in request["input"]]
    assert sum(text.startswith("Text number") for text in embedded) == 16  # each once


@pytest.mark.slow
async def test_job_with_more_than_twenty_hops_completes(cloud: Cloud) -> None:
    """Lambda treats more than 16 hops through a queue as an endless loop, unless the function allows it."""
    documents, earlier_hops = 24, 10
    job_id = await cloud.job(*(f"Text number {n}. {LONG}" for n in range(documents)))
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    for _ in range(earlier_hops):
        trace, _ = count_hop(trace, "ingest")
    cloud.queue.purge()
    cloud.queue.send(AnnouncedJob(TENANT, job_id).body(), trace=trace)
    cloud.surroundings.embeddings.replies = [Reply(delay_s=0.4)] * documents
    async with SqsProxy(cloud.aws.url) as sqs:  # with 2.2 s, an invocation starts no third document
        ingest = cloud.ingest(timeout_s=2.2, recursive_loop="Allow")
        ingest = dataclasses.replace(
            ingest, environment={**ingest.environment, "AWS_ENDPOINT_URL_SQS": sqs.url}
        )
        async with LambdaFunction(ingest) as function:
            await function.processes[0].start()
            async with cloud.events_for(function):
                job = await cloud.ended(job_id)
                await cloud.emptied()
            hops = max(total_hops(invocation.trace_id) for invocation in function.processes[0].invocations)
    assert (job.status, job.documents_done) == ("succeeded", documents)
    assert hops > 20
    assert not any(batch.recursion_stopped for batch in cloud.batches)


# faults.md rows 38, 39
async def test_duplicate_unordered_upload_events_are_ingested_once(cloud: Cloud) -> None:
    for n in range(12):
        key = f"{TENANT}/default/a folder/{n}.txt"
        content = f"Upload {n} für alle"
        cloud.aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content.encode())
        cloud.queue.send(json.dumps(object_created_event(BUCKET, key)))
    cloud.queue.send("poison")
    faults = DeliveryFaults(redelivered=1.0, postponed=0.3, shuffled=True)
    async with (
        LambdaFunction(cloud.ingest(), concurrency=2) as function,
        cloud.events_for(function, batch_size=5, faults=faults),
    ):
        await cloud.emptied()
    assert await cloud.chunks() == {
        f"s3://{BUCKET}/{TENANT}/default/a folder/{n}.txt": [f"Upload {n} für alle"] for n in range(12)
    }
    jobs = await cloud.tenant.jobs.list()
    assert len(jobs) == 12
    for job in jobs:
        assert [item.attempts for item in await cloud.tenant.jobs.items(job.id)] == [1]
    assert cloud.queue.count(dead=True) == (1, 0, 0)
