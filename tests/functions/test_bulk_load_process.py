"""A bulk load as Step Functions runs it: several processes of the ingest function, killed and retried."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    RUNTIME_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import FunctionFailedError
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, settings_for
from tests.support.vendors.fake_embeddings import Reply
from vectorforge.bootstrap import Application, TenantServices

BUCKET = "uploads"
TENANT = "acme"
Report = dict[str, Any]


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@dataclass
class Cloud:
    """The bucket, the queue and the database that the function's processes share."""

    aws: FakeAws
    queue: Queue
    surroundings: QuerySurroundings
    application: Application
    """Application for inspecting the database."""

    @property
    def tenant(self) -> TenantServices:
        return self.application.for_tenant(TENANT)

    def ingest(self, **options: Any) -> FunctionConfiguration:
        environment = self.surroundings.environment(ingestion_queue_url=self.queue.url)
        return FunctionConfiguration(
            handler="functions.ingest.handler.handler",
            name="ingest",
            environment={**environment, **self.aws.environment, **options.pop("environment", {})},
            freeze_between_invocations=True,
            init_timeout_s=30.0,  # this machine is not Lambda
            **options,
        )

    def put(self, key: str, text: str) -> None:
        self.aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=text.encode())

    def batches(self, size: int) -> list[dict[str, Any]]:
        """Return the state machine's events: the listed objects, in batches."""
        pages = self.aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        listed = [
            {"Key": found["Key"], "Etag": found["ETag"], "Size": found["Size"]}
            for page in pages
            for found in page["Contents"]
        ]
        return [
            {"action": "ingest_objects", "bucket": BUCKET, "Items": listed[start : start + size]}
            for start in range(0, len(listed), size)
        ]

    def expire_leases(self) -> None:
        """Expire the leases, as after half a minute."""
        url = make_conninfo(self.surroundings.app_url, user="postgres")
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now()")

    async def documents(self) -> dict[str, str | None]:
        """Return the text of each document by its key."""
        found = await self.tenant.find_collection("docs")
        documents, _ = await self.tenant.documents.list(found.id, limit=1000)
        prefix = f"s3://{BUCKET}/"
        return {d.source.removeprefix(prefix): await self.tenant.documents.text(d.id) for d in documents}


@pytest.fixture
async def cloud(aws_server: FakeAws, fresh_database_url: str) -> AsyncIterator[Cloud]:
    aws_server.reset()
    queue = Queue(aws_server.client("sqs"), "ingestion")
    aws_server.create_bucket(BUCKET)
    application = build_application(settings_for(fresh_database_url))
    async with application, query_surroundings(fresh_database_url, TENANT, fill=False) as surroundings:
        yield Cloud(aws_server, queue, surroundings, application)


class StateMachine:
    """The part of Step Functions relevant here: failed batches are retried.

    Args:
        function: Receives the batches; has as many processes as concurrent batches.
        attempts: Maximum number of invocations per batch.
    """

    def __init__(self, cloud: Cloud, function: LambdaFunction, *, attempts: int = 8) -> None:
        self._cloud = cloud
        self._function = function
        self._attempts = attempts
        self.errors: list[str] = []
        """Types of the errors that caused retries."""

    async def run(self, batches: list[dict[str, Any]], *, at_a_time: int) -> list[dict[str, str]]:
        slots = asyncio.Semaphore(at_a_time)
        reports = await asyncio.gather(*(self._batch(batch, slots) for batch in batches))
        return [entry for report in reports for entry in report["objects"]]

    async def _batch(self, batch: dict[str, Any], slots: asyncio.Semaphore) -> Report:
        for _ in range(self._attempts):
            async with slots:
                invocation = await self._function.invoke(batch)
                try:
                    report: Report = await invocation.result()
                except FunctionFailedError as exc:
                    self.errors.append(exc.error.error_type)
                else:
                    return report
            self._cloud.expire_leases()
        raise AssertionError(f"a batch failed {self._attempts} times: {self.errors}")


# faults.md rows 37, 38, 39
@pytest.mark.slow
async def test_objects_with_kills_and_poison_are_stored_exactly_once(
    cloud: Cloud,
) -> None:
    texts = {f"{TENANT}/docs/folder {n % 7}/{n:03}.txt": f"Text number {n} für alle" for n in range(60)}
    poison = {f"{TENANT}/docs/broken.pdf": "%PDF-1.7 nonsense", f"{TENANT}/no collection": "nobody's"}
    for key, text in {**texts, **poison}.items():
        cloud.put(key, text)
    async with LambdaFunction(cloud.ingest(timeout_s=300.0), concurrency=3) as function:
        machine = StateMachine(cloud, function)
        cloud.surroundings.embeddings.replies = [Reply()] * 10 + [Reply(delay_s=20)] * 2
        running = asyncio.create_task(machine.run(cloud.batches(8), at_a_time=3))
        async with asyncio.timeout(120):
            while cloud.surroundings.embeddings.replies:  # noqa: ASYNC110 - until two documents hang
                await asyncio.sleep(0.05)
        for process in function.processes[:2]:
            await process.kill()
        objects = await running
    assert len(machine.errors) >= 2
    # A killed process may have stored a document without saying so: the next attempt finds it unchanged.
    statuses = Counter(entry["status"].replace("unchanged", "stored") for entry in objects)
    assert statuses == {"stored": 60, "failed": 2}
    codes = {entry["key"]: entry["code"] for entry in objects if entry["status"] == "failed"}
    assert codes == dict(zip(sorted(poison), ["document_unreadable", "invalid_input"], strict=True))
    assert await cloud.documents() == texts
    jobs = await cloud.tenant.jobs.list(limit=1000)
    assert len(jobs) == 61  # one for each object that belongs to a tenant
    assert all(job.finished_at is not None for job in jobs)


async def test_load_of_one_collection_uses_several_processes(cloud: Cloud) -> None:
    for n in range(8):
        cloud.put(f"{TENANT}/docs/{n}.txt", f"Text number {n}")
    together = asyncio.Barrier(2)

    async def gate() -> None:
        async with asyncio.timeout(60):
            await together.wait()

    async with LambdaFunction(cloud.ingest(), concurrency=2) as function:
        first = await StateMachine(cloud, function).run(cloud.batches(1)[:1], at_a_time=1)  # the collection
        cloud.surroundings.embeddings.replies = [Reply(gate=gate)] * 2  # each waits for the other
        rest = await StateMachine(cloud, function).run(cloud.batches(4), at_a_time=2)
    assert [entry["status"] for entry in first + rest] == ["stored"] * 9


@pytest.mark.parametrize("command", [RUNTIME_COMMAND, AWSLAMBDARIC_COMMAND], ids=["ours", "awslambdaric"])
async def test_error_types_match_state_machine_retry_names(cloud: Cloud, command: tuple[str, ...]) -> None:
    cloud.put(f"{TENANT}/docs/a.txt", "text")
    [batch] = cloud.batches(10)
    no_s3 = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    no_database = {"VECTORFORGE_DATABASE_URL": "postgresql://vectorforge_app@127.0.0.1:1/x?connect_timeout=2"}
    cases: list[tuple[dict[str, str], dict[str, Any], str]] = [
        (no_s3, batch, "ObjectStoreError"),
        (no_database, batch, "DatabaseUnavailableError"),
        ({}, {**batch, "Items": 7}, "InvalidInputError"),
    ]
    for environment, event, name in cases:
        configuration = cloud.ingest(environment=environment, command=command)
        async with FunctionProcess(configuration) as process:
            with pytest.raises(FunctionFailedError) as caught:
                await (await process.invoke(event)).result()
        assert caught.value.error.error_type == name
