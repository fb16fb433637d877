"""``make deploy-local``: the production stacks in LocalStack, asked over HTTP, and ended again.

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

import psutil
import psycopg
import pytest
from aiohttp import web

from infra.emulated_resources import DROPPED, KEPT, is_listed
from tests.infra.local_deployment import Deployment, command_line, environment, eventually, run
from vectorforge.db.migrate import read_migrations
from vectorforge.local.deployment.background import BackgroundProcesses
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.loop_thread import LoopThread
from vectorforge.testing.event_stream import check_order, read_events
from vectorforge.testing.fake_openai import FakeOpenAI
from vectorforge.testing.fake_vendor import Reply

OLD, NEW = "sk-old-canary-0123456789", "sk-new-canary-0123456789"
FACT = "The teapot of Quibblestone sings every Tuesday at noon."
QUESTION = "When does the teapot of Quibblestone sing?"
ANSWER = ("It sings every Tuesday", " at noon [Context 1].")
MESSAGES = 30


class Vendor(FakeOpenAI):
    """While keys are exchanged, a vendor accepts two."""

    def __init__(self) -> None:
        super().__init__(api_key=OLD)
        self.accepted = {OLD}
        self.refusals = 0
        self.unscripted = Reply(texts=ANSWER)

    def _wrong_key(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.accepted:
            return None
        self.refusals += 1
        return super()._wrong_key(request) or web.json_response(self.error_body(401, "Old key"), status=401)


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
    """The stacks, deployed."""
    done = deploy(folder, vendor)
    assert done.returncode == 0, done.stderr
    return Deployment.of(folder, done.stdout)


def deploy(folder: Path, vendor: Vendor, **variables: str) -> subprocess.CompletedProcess[str]:
    """The key is put into the deployment's secret; the vendor's address is no secret."""
    variables |= {
        "VECTORFORGE_OPENAI_API_KEY": OLD,
        "VECTORFORGE_OPENAI_BASE_URL": vendor.base_url,
        "VECTORFORGE_DEFAULT_LLM_PROVIDER": "openai",
    }
    return run(folder, "deploy", "--json", "--port", "0", **variables)


def test_the_stacks_are_complete(deployment: Deployment) -> None:
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


def test_the_migration_ran_as_a_custom_resource(deployment: Deployment) -> None:
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


async def test_without_a_key_nobody_gets_in(deployment: Deployment) -> None:
    async with deployment.http(key="") as nobody, deployment.http(key="wrong" * 8) as stranger:
        assert (await nobody.request("GET", "/health"))[0] == 200
        for caller in (nobody, stranger):
            assert (await caller.request("GET", "/v1/collections"))[0] == 403
            assert (await caller.request("POST", "/v1/rag/query", json={"query": QUESTION}))[0] == 403


async def test_upload_ask_and_find_the_log_row(deployment: Deployment) -> None:
    source = f"teapot-{uuid.uuid4().hex[:8]}.md"
    with deployment.client("s3") as s3:
        s3.put_object(
            Bucket=deployment.told["uploads_bucket"],
            Key=f"{deployment.tenant}/default/{source}",
            Body=FACT.encode(),
        )
    async with deployment.http() as api:

        async def ended_job() -> dict[str, Any] | None:  # S3, its notification, SQS, the ingest function
            jobs = (await api.get(f"/v1/jobs?source={source}"))["jobs"]
            return jobs[0] if jobs and jobs[0]["status"] not in ("queued", "running") else None

        assert (await eventually(ended_job))["status"] == "succeeded"

        question = f"{QUESTION} {uuid.uuid4().hex[:8]}"
        body = {"query": question, "stream": True}
        status, stream = await api.request("POST", "/v1/rag/query", json=body)
        assert status == 200
        events = [event async for event in read_events(_lines(stream))]
        check_order(events)
        done = events[-1].data
        assert (done["outcome"], done["answer"]) == ("answered", "".join(ANSWER))
        assert [citation["source"] for citation in done["citations"]] == [source]

        async def row() -> dict[str, Any] | None:  # SQS, the log writer
            return await logged(api, question)

        found = await eventually(row)
        assert (found["outcome"], found["generated_response"]) == ("answered", done["answer"])
        assert found["provider"] == "openai"


async def logged(api: Any, question: str) -> dict[str, Any] | None:
    """The ended row of a question."""
    rows = (await api.get("/v1/queries?limit=100"))["queries"]
    return next((r for r in rows if r["query_text"] == question and r["outcome"] != "started"), None)


async def _lines(text: str) -> Any:
    for line in text.split("\n"):
        yield line
