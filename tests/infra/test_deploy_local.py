"""``make deploy-local``: the production stacks in LocalStack, tested over HTTP, and destroyed.

One deployment for all tests of this file; the last one ends it.
"""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
import pytest

from infra.emulator.cloudformation.resources import DROPPED, KEPT, is_listed
from infra.emulator.deployment.background import BackgroundProcesses
from infra.verification.__main__ import POINTS
from tests.infra.local_deployment import (
    ANSWER,
    NEW,
    OLD,
    Deployment,
    Vendor,
    deploy,
    eventually,
    lines_of,
    logged,
    run,
)
from tests.support.http.event_stream import check_order, read_events
from vectorforge.db.schema.migrate import read_migrations
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.threads import LoopThread

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FACT = "The teapot of Quibblestone sings every Tuesday at noon."
QUESTION = "When does the teapot of Quibblestone sing?"
MESSAGES = 30


@pytest.fixture(scope="module")
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    thread = LoopThread(vendor, name="vendor")
    yield vendor
    thread.close()


@pytest.fixture(scope="module")
def folder(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    made = private_dir("deploy")
    yield made
    run(made, "destroy", "--delete-data")


@pytest.fixture(scope="module")
def deployment(folder: Path, vendor: Vendor) -> Deployment:
    """Deploy the stacks."""
    done = deploy(folder, vendor)
    assert done.returncode == 0, done.stderr
    return Deployment.of(folder, done.stdout)


def test_deployed_stacks_are_complete(deployment: Deployment) -> None:
    with deployment.client("cloudformation") as cloudformation:
        stacks = cloudformation.describe_stacks()["Stacks"]
        statuses = {stack["StackName"]: stack["StackStatus"] for stack in stacks}
        assert statuses == {
            "VectorForge-dev-Data": "CREATE_COMPLETE",
            "VectorForge-dev-App": "CREATE_COMPLETE",
        }
        resources = cloudformation.describe_stack_resources(StackName="VectorForge-dev-App")["StackResources"]
    assert {resource["ResourceStatus"] for resource in resources} == {"CREATE_COMPLETE"}
    types = {resource["ResourceType"] for resource in resources}
    assert types >= {"AWS::Lambda::Alias", "AWS::StepFunctions::StateMachine", "Custom::DatabaseSchema"}
    assert all(is_listed(name, KEPT) and not is_listed(name, DROPPED) for name in types)


def test_migration_runs_as_a_custom_resource(deployment: Deployment) -> None:
    """CloudFormation's event, its response URL, and the role of RDS's master user."""
    with deployment.client("cloudformation") as cloudformation:
        found = cloudformation.describe_stack_resources(StackName="VectorForge-dev-App")["StackResources"]
    (schema,) = [r for r in found if r["ResourceType"] == "Custom::DatabaseSchema"]
    assert schema["PhysicalResourceId"] == "vectorforge-schema"
    server = EmbeddedPostgres(deployment.folder / "deployment" / "postgres")
    server.start()  # finds it running
    with psycopg.connect(server.migrator_url) as connection:
        versions = connection.execute("SELECT version FROM vectorforge.schema_migrations").fetchall()
        owner = connection.execute(
            "SELECT pg_get_userbyid(datdba), rolsuper FROM pg_database "
            "JOIN pg_roles ON pg_roles.oid = datdba WHERE datname = 'vectorforge'"
        ).fetchone()
    assert sorted(version for (version,) in versions) == [m.version for m in read_migrations()]
    assert owner == ("vectorforge_owner", False)


async def test_request_without_a_valid_key_is_401(deployment: Deployment) -> None:
    """API Gateway rejects it; infra/front_doors/gateway_responses.py makes its 403 a 401."""
    async with deployment.http(key="") as anonymous, deployment.http(key="wrong" * 8) as stranger:
        assert (await anonymous.request("GET", "/health"))[0] == 200
        for caller in (anonymous, stranger):
            assert (await caller.request("GET", "/v1/collections"))[0] == 401
            assert (await caller.request("POST", "/v1/rag/query", json={"query": QUESTION}))[0] == 401


async def test_uploaded_document_is_cited_and_the_query_logged(deployment: Deployment) -> None:
    bucket = deployment.told["uploads_bucket"]
    key = f"{deployment.tenant}/default/teapot-{uuid.uuid4().hex[:8]}.md"
    source = f"s3://{bucket}/{key}"
    with deployment.client("s3") as s3:
        s3.put_object(Bucket=bucket, Key=key, Body=FACT.encode())
    async with deployment.http() as api:

        async def ended_job() -> dict[str, Any] | None:  # S3, its notification, SQS, the ingest function
            jobs = (await api.get(f"/v1/jobs?source={quote(source)}"))["jobs"]
            return jobs[0] if jobs and jobs[0]["status"] not in ("queued", "running") else None

        assert (await eventually(ended_job))["status"] == "succeeded"

        question = f"{QUESTION} {uuid.uuid4().hex[:8]}"
        body = {"query": question, "stream": True}
        status, stream = await api.request("POST", "/v1/rag/query", json=body)
        assert status == 200
        events = [event async for event in read_events(lines_of(stream))]
        check_order(events)
        done = events[-1].data
        assert (done["outcome"], done["answer"]) == ("answered", "".join(ANSWER))
        (sources,) = [event.data["sources"] for event in events if event.name == "sources"]
        (citation,) = [event.data for event in events if event.name == "citation"]
        cited = sources[citation["source_number"] - 1]
        assert (cited["document_source"], cited["chunk_id"]) == (source, citation["chunk_id"])

        async def row() -> dict[str, Any] | None:  # SQS, the log writer
            return await logged(api, question)

        found = await eventually(row)
        assert (found["outcome"], found["generated_response"]) == ("answered", done["answer"])
        assert found["provider"] == "openai"


async def test_poison_message_among_thirty_reaches_the_dead_letter_queue(deployment: Deployment) -> None:
    """29 rows, and one message in the dead-letter queue after five deliveries, as configured.

    The queue's 181 s between two deliveries are shortened here, on the emulator's queue; the log writer,
    which answers in milliseconds, has been running since the previous test.
    """
    marker = uuid.uuid4().hex
    async with deployment.http() as api:
        collection_id = (await api.get("/v1/collections"))["collections"][0]["id"]
    template = json.loads((ROOT / "events" / "log_writer_sqs_poison.json").read_text())
    record = json.loads(template["Records"][0]["body"])
    bodies = [
        json.dumps(
            record
            | {"id": str(uuid.uuid4()), "tenant_id": deployment.tenant, "collection_id": collection_id}
            | {"query_text": f"{marker} {number}"}
        )
        for number in range(MESSAGES - 1)
    ]
    poison = f"{marker} is no record"
    queue, dead = deployment.told["query_log_queue_url"], deployment.told["query_log_dead_letter_queue_url"]
    with deployment.client("sqs") as sqs:
        names = ["VisibilityTimeout", "RedrivePolicy"]
        attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        assert int(attributes["VisibilityTimeout"]) >= 6 * 30  # multiple of the function's timeout
        assert int(json.loads(attributes["RedrivePolicy"])["maxReceiveCount"]) == 5
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "1"})
        try:
            for body in [*bodies[:10], poison, *bodies[10:]]:
                sqs.send_message(QueueUrl=queue, MessageBody=body)
            async with deployment.http() as api:

                async def rows() -> bool:
                    found = (await api.get("/v1/queries?limit=100"))["queries"]
                    return sum(marker in row["query_text"] for row in found) == MESSAGES - 1

                await eventually(rows)

            async def dead_letter() -> str | None:
                found = await asyncio.to_thread(sqs.receive_message, QueueUrl=dead, VisibilityTimeout=0)
                return next((m["Body"] for m in found.get("Messages", []) if marker in m["Body"]), None)

            assert await eventually(dead_letter) == poison
        finally:
            shown = {"VisibilityTimeout": attributes["VisibilityTimeout"]}
            sqs.set_queue_attributes(QueueUrl=queue, Attributes=shown)


async def test_key_rotated_during_queries_fails_no_query(deployment: Deployment, vendor: Vendor) -> None:
    """The vendor accepts old and new keys, then the new one only; no query fails."""
    statuses: list[int] = []
    stop = asyncio.Event()

    async def ask() -> None:
        async with deployment.http() as api:
            while not stop.is_set():
                body = {"query": f"{QUESTION} {uuid.uuid4().hex}"}
                status, answer = await api.request("POST", "/v1/rag/query", json=body)
                statuses.append(status)
                assert status == 200, answer
                assert answer["response"] == "".join(ANSWER)

    async def after(number: int) -> None:
        enough = len(statuses) + number

        async def reached() -> bool:
            return len(statuses) >= enough or any(asker.done() for asker in askers)

        await eventually(reached)

    askers = [asyncio.create_task(ask()) for _ in range(2)]
    try:
        await after(3)
        vendor.accepted = {OLD, NEW}
        with deployment.client("secretsmanager") as secrets:
            secret_id = deployment.told["provider_secret_id"]
            secrets.put_secret_value(SecretId=secret_id, SecretString=json.dumps({"openai_api_key": NEW}))
        await after(3)
        vendor.accepted = {NEW}
        await after(5)
    finally:
        stop.set()
        await asyncio.gather(*askers)
    assert set(statuses) == {200}
    assert vendor.refusals  # with the old key, and retried with the new one
    assert vendor.requests[-1].headers["Authorization"] == f"Bearer {NEW}"
    assert OLD not in deployment.logs
    assert NEW not in deployment.logs


def test_verification_passes_and_says_what_needs_aws(deployment: Deployment, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    unhealthy = deployment.verify(report, "health")
    assert (unhealthy.returncode, "embedding.openai" in unhealthy.stdout) == (1, True)  # the fake has none
    later = ("health", "gateway-secret")  # read again after 300 s here
    done = deployment.verify(report, *(point.name for point in POINTS if point.name not in later))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in report.read_text().splitlines() if line.startswith("| ")][1:]
    passed = {row[0].removeprefix("| ") for row in rows if row[2] == "passed"}
    assert passed >= {"one-round-trip", "keys", "cited", "slash", "migrated", "event-sources"}
    assert passed >= {"upload", "original", "bulk-load"}
    assert {row[3] for row in rows if row[2] == "skipped"} >= {"needs AWS"}
    assert deployment.key not in report.read_text() + done.stdout


async def test_second_deployment_updates_the_first(
    deployment: Deployment, folder: Path, vendor: Vendor, tmp_path: Path
) -> None:
    async with deployment.http() as api:
        before = await api.get("/v1/collections")
    emulator = BackgroundProcesses(folder / "deployment" / "processes.json").pid("localstack")
    done = deploy(folder, vendor, VECTORFORGE_MAX_TOP_K="3", VECTORFORGE_SECRET_MAX_AGE_S="2")
    assert done.returncode == 0, done.stderr
    updated = Deployment.of(folder, done.stdout)
    assert updated.told == deployment.told
    assert BackgroundProcesses(folder / "deployment" / "processes.json").pid("localstack") == emulator
    async with updated.http() as api:
        assert await api.get("/v1/collections") == before
        status, problem = await api.request("POST", "/v1/rag/query", json={"query": QUESTION, "k": 4})
    assert (status, problem["errors"][0]["field"]) == (422, "k"), problem  # the changed setting is effective
    rotated = updated.verify(tmp_path / "report.md", "gateway-secret")
    assert rotated.returncode == 0, rotated.stdout + rotated.stderr


def test_destroy_stops_what_was_started_and_nothing_else(deployment: Deployment) -> None:
    root = deployment.folder / "deployment"
    # As similar to the deployment's own as possible: same folder, session and parent as its commands.
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=root)
    try:
        processes = BackgroundProcesses(root / "processes.json")
        started = [psutil.Process(processes.pid(name)) for name in processes.names()]
        started.append(psutil.Process(EmbeddedPostgres(root / "postgres").running_pid()))
        family = [*started, *(child for process in started for child in process.children(recursive=True))]
        assert len(started) == 4
        assert any("managed_runtime.py" in " ".join(process.cmdline()) for process in family)
        done = run(deployment.folder, "destroy")
        assert (done.returncode, done.stderr.splitlines()[0]) == (0, "Stopped.")
        assert psutil.wait_procs(family, timeout=10)[1] == []
        assert bystander.poll() is None
        assert (root / "postgres").exists()
        again = run(deployment.folder, "destroy", "--delete-data")
        assert again.stderr.splitlines()[0] == "No deployment is running."
        assert not root.exists()
    finally:
        bystander.communicate()
