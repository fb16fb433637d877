"""Every function answers its events under AWS's Runtime Interface Emulator, with its bundle only."""

import asyncio
import hashlib
import json
import platform
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp.web
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from infra.bundling.bundle import Bundle
from tests.infra.emulated_function import EmulatedFunction
from tests.infra.test_local_template import SAM
from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import build_application, settings_for
from tests.support.vendors.fake_vendor import Reply
from vectorforge.db.repositories.job_types import NewJobItem

ROOT = Path(__file__).parents[2]
TENANT = "acme"
KEY = "example-key-of-the-tenant-acme"  # the one in the events
TENANTS = {  # the caller in the events
    "api_keys": json.dumps({hashlib.sha256(KEY.encode()).hexdigest(): TENANT}),
    "api_gateway_keys": json.dumps({"k3yidacm3e": TENANT}),
    "iam_tenants": json.dumps({"arn:aws:iam::123456789012:role/acme-reader": TENANT}),
}
UPLOADS = "vectorforge-uploads"
UPLOADED = "acme/handbook/policies/Refunds & returns (2026).md"


def events(prefix: str) -> list[str]:
    """Return the names of the recorded events."""
    return sorted(path.stem for path in (ROOT / "events").glob(f"{prefix}*.json"))


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def emulator(uv: str) -> Path:
    """Return the emulator's program from the wheel of the SAM command line."""
    code = "import samcli; print(samcli.__path__[0])"
    command = [uv, "tool", "run", "--from", SAM, "python", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()
    machine = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Path(found) / "local" / "rapid" / f"aws-lambda-rie-{machine}"


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with FakeAws() as server:
        for bucket in (UPLOADS, "overflow"):
            server.create_bucket(bucket)
        yield server


@dataclass
class Deployment:
    """Surroundings shared by the functions: a separate database, AWS, vendors."""

    migrator_url: str
    aws: FakeAws
    surroundings: QuerySurroundings
    start: Callable[..., EmulatedFunction]
    """Start functions with these settings."""

    def rows(self, query: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.migrator_url, row_factory=dict_row) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
async def deployment(
    make_database: Callable[[], str],
    aws: FakeAws,
    emulator: Path,
    bundle: Callable[[str], tuple[Path, Bundle]],
    bare_environment: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> AsyncIterator[Deployment]:
    migrator_url = make_database()
    app_url = make_conninfo(migrator_url, user="vectorforge_app")

    def start(function: str, *, wrapped: bool = False, **settings: str) -> EmulatedFunction:
        folder, _ = bundle(function)
        variables = {f"VECTORFORGE_{name.upper()}": value for name, value in settings.items()}
        environment = bare_environment(folder, {**aws.environment, **variables})
        record = tmp_path / "outside"
        return EmulatedFunction(emulator, folder, function, environment, record, wrapped=wrapped)

    async with query_surroundings(app_url, TENANT) as surroundings:
        yield Deployment(migrator_url, aws, surroundings, start)


def query_settings(deployment: Deployment, response_mode: str) -> dict[str, str]:
    environment = deployment.surroundings.environment(**TENANTS, response_mode=response_mode)
    return {name.removeprefix("VECTORFORGE_").lower(): value for name, value in environment.items()}


def check_answer(name: str, status: int, body: str) -> None:
    """Check the body of a query function's answer against its event."""
    assert status == 200, body
    if name.endswith("_health"):
        assert json.loads(body)["status"] == "ok"
    elif name.endswith("_stream"):
        assert body.startswith("event: meta\n")
        assert body.rstrip().rsplit("event: ", 1)[1].startswith("done\n")
    else:
        assert "42" in json.loads(body)["response"]


async def test_query_function_buffered_answers_recorded_events(deployment: Deployment) -> None:
    async with deployment.start("query", **query_settings(deployment, "buffered")) as function:
        for name in events("query_"):
            answer = await function.answer(event(name))
            assert answer["isBase64Encoded"] is False
            check_answer(name, answer["statusCode"], answer["body"])
    assert function.outside == []


async def test_query_function_streaming_answers_recorded_events(deployment: Deployment) -> None:
    """The emulator relays the stream as the bytes of the protocol: prelude, eight NULs, body."""
    async with deployment.start("query", **query_settings(deployment, "stream")) as function:
        for name in events("query_"):
            prelude, separator, body = (await function.invoke(event(name))).partition(b"\0" * 8)
            assert separator
            check_answer(name, json.loads(prelude)["statusCode"], body.decode())
    assert function.outside == []


async def test_emulator_withholds_stream_until_its_end(deployment: Deployment) -> None:
    """Under the emulator tokens arrive late; on Lambda (and our own service) they arrive at once.

    https://github.com/aws/aws-lambda-runtime-interface-emulator/issues/175
    """
    at_last_text, go_on = asyncio.Event(), asyncio.Event()

    async def gate(number: int) -> None:
        if number == 2:
            at_last_text.set()
            await go_on.wait()

    deployment.surroundings.vendor.script(Reply(gate=gate))
    settings = query_settings(deployment, "stream")
    async with deployment.start("query", wrapped=True, **settings) as function:
        response = asyncio.create_task(function.invoke(event("query_function_url_query_stream")))
        async with asyncio.timeout(60):
            await at_last_text.wait()
        done, _ = await asyncio.wait([response], timeout=1)
        assert not done  # two texts are sent, and not even the status has arrived
        go_on.set()
        assert b"event: done" in await response


async def test_log_writer_stores_recorded_events(deployment: Deployment) -> None:
    record = json.loads(event("log_writer_sqs_batch")["Records"][0]["body"])
    pointer = json.loads(event("log_writer_sqs_overflow")["Records"][0]["body"])
    deployment.aws.client("s3").put_object(Bucket="overflow", Key=pointer["key"], Body=json.dumps(record))
    settings = {
        "log_writer_database_url": make_conninfo(deployment.migrator_url, user="vectorforge_log_writer"),
        "query_log_overflow_bucket": "overflow",
    }
    failures = {}
    async with deployment.start("log_writer", **settings) as function:
        for name in events("log_writer_"):
            failed = (await function.answer(event(name)))["batchItemFailures"]
            failures[name] = [failure["itemIdentifier"][:8] for failure in failed]
    assert failures == {
        "log_writer_sqs_batch": [],
        "log_writer_sqs_overflow": [],
        "log_writer_sqs_poison": ["00000006", "00000007"],
    }
    rows = deployment.rows("SELECT tenant_id, outcome FROM vectorforge.query_logs ORDER BY tenant_id")
    assert [(row["tenant_id"], row["outcome"]) for row in rows] == [("acme", "answered"), ("globex", "error")]
    assert function.outside == []


async def test_ingest_function_ingests_recorded_events(deployment: Deployment) -> None:
    deployment.aws.client("s3").put_object(Bucket=UPLOADS, Key=UPLOADED, Body=b"# Refunds\n\nFive days.")
    announced = json.loads(event("ingest_sqs_job")["Records"][0]["body"])
    async with build_application(settings_for(deployment.surroundings.app_url)) as application:
        tenant = application.for_tenant(announced["tenant_id"])
        collection = await tenant.find_collection("default")
        html = b"<html><body><h1>Moon</h1><p>It is green.</p></body></html>"
        item = NewJobItem("moon.html", "text/html", html)  # read in a separate process
        await tenant.jobs.create(collection.id, [item], job_id=UUID(announced["job_id"]))
    queue = Queue(deployment.aws.client("sqs"), "ingestion")
    settings = {**query_settings(deployment, "stream"), "ingestion_queue_url": queue.url}
    async with deployment.start("ingest", **settings) as function:
        answers = {name: await function.answer(event(name)) for name in events("ingest_")}
    loaded = answers.pop("ingest_step_functions_batch")
    assert (loaded["unchanged"], [one["status"] for one in loaded["objects"]]) == (1, ["unchanged"])
    assert all(answer in (None, {"batchItemFailures": []}) for answer in answers.values())
    sources = {row["source"] for row in deployment.rows("SELECT source FROM vectorforge.documents")}
    assert sources == {"refunds.txt", "moon.html", f"s3://{UPLOADS}/{UPLOADED}"}
    statuses = [row["status"] for row in deployment.rows("SELECT status FROM vectorforge.ingestion_jobs")]
    assert len(statuses) >= 2
    assert set(statuses) == {"succeeded"}
    assert function.outside == []


async def test_migrate_function_answers_recorded_events(deployment: Deployment) -> None:
    answers: list[dict[str, Any]] = []

    async def take(request: aiohttp.web.Request) -> aiohttp.web.Response:
        answers.append(json.loads(await request.read()))
        return aiohttp.web.Response()

    async with (
        _server(take) as url,
        deployment.start("migrate", migrator_database_url=deployment.migrator_url) as function,
    ):
        for name in events("migrate_"):
            sent_event = event(name)
            if "ResponseURL" not in sent_event:
                assert await function.answer(sent_event) == {"pending": []}
                continue
            assert await function.answer({**sent_event, "ResponseURL": url}) is None
            assert (answers[-1]["Status"], answers[-1]["RequestId"]) == ("SUCCESS", sent_event["RequestId"])
    assert len(answers) == 3
    assert function.outside == []


@asynccontextmanager
async def _server(
    handler: Callable[[aiohttp.web.Request], Any],
) -> AsyncIterator[str]:
    app = aiohttp.web.Application()
    app.router.add_put("/answer", handler)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/answer"
    finally:
        await runner.cleanup()
