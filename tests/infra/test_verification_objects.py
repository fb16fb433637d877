"""``make verify`` uploads with signed forms, downloads originals, and starts a bulk load. F-005."""

import asyncio
import base64
import contextlib
import email
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.infra.test_verification_streams import deploy_rest_api
from tests.infra.verified_stage import ALIAS, CONFIGURATION, check, reach
from tests.support.aws.bucket_event_source import object_created_event
from tests.support.aws.scripted_aws import ScriptedAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import LiveApi, live_api, settings_for
from vectorforge.aws.handlers.ingest import handle
from vectorforge.config import AwsSettings
from vectorforge.deadline import Deadline
from vectorforge.errors import NotFoundError
from vectorforge.local.postgres import EmbeddedPostgres

UPLOADS, ORIGINALS = "vectorforge-uploads", "vectorforge-originals"
SCHEDULE = {"source": "aws.events"}
MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:vectorforge-dev-bulk-load"
RUN = MACHINE.replace("stateMachine", "execution") + ":1"


class FormAws(ScriptedAws):
    """An account whose S3 checks forms as AWS documents it; moto accepts everything."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = {"fields", "signature", "size"}
        self.accepted: list[str] = []

    def _respond(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        if (method, path) == ("POST", f"/{UPLOADS}"):
            message = email.message_from_bytes(
                b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
            )
            fields: dict[str, Any] = {
                str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
                for part in message.walk() if not part.is_multipart()
            }  # fmt: skip
            file = fields.pop("file")
            if status := self._refusal({name: value.decode() for name, value in fields.items()}, file):
                return status, [], b""
            self.accepted.append(fields["key"].decode())
        return super()._respond(method, path, headers, body)

    def _refusal(self, fields: dict[str, str], file: bytes) -> int | None:
        conditions = json.loads(base64.b64decode(fields["policy"]))["conditions"]
        wanted = {name: value for one in conditions if isinstance(one, dict) for name, value in one.items()}
        [(_, least, most)] = [one for one in conditions if isinstance(one, list)]
        sent = {name: v for name, v in fields.items() if name not in ("policy", "x-amz-signature")}
        if "fields" in self.checks and sent | {"bucket": UPLOADS} != wanted:
            return 403
        key = b"AWS4testing"
        for part in fields["x-amz-credential"].split("/")[1:]:
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, fields["policy"].encode(), "sha256").hex()
        if "signature" in self.checks and signature != fields["x-amz-signature"]:
            return 403
        return 400 if "size" in self.checks and not least <= len(file) <= most else None


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Any:
    with FormAws() as account:
        reach(account, monkeypatch)
        for bucket in (UPLOADS, ORIGINALS):
            account.create_bucket(bucket)
        yield account


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], aws: FormAws
) -> AsyncIterator[LiveApi]:
    """A served API with both buckets, of a deployed stage."""
    tenant = make_tenant()
    queue = Queue(aws.client("sqs"), tenant).url
    buckets = AwsSettings(uploads_bucket=UPLOADS, originals_bucket=ORIGINALS, ingestion_queue_url=queue)
    async with live_api(settings_for(postgres_server.app_url, [tenant], aws=buckets)) as served:
        deploy_rest_api(aws, served.url, tenant, UploadsBucket=UPLOADS, BulkLoad=MACHINE)
        yield served


@asynccontextmanager
async def ingest_function(api: LiveApi, aws: FormAws) -> AsyncIterator[None]:
    """Invoke the ingest function with the events of uploads and, in place of its queue, of its schedule."""

    async def work() -> None:
        while True:
            events = [object_created_event(UPLOADS, aws.accepted.pop()) for _ in list(aws.accepted)]
            for event in [*events, SCHEDULE]:
                # The check deletes its collection, also while a document arrives: Lambda reports an error.
                with contextlib.suppress(NotFoundError):
                    await handle(api.application, event, Deadline.after(60))
            await asyncio.sleep(0.1)

    running = asyncio.create_task(work())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    ("unchecked", "expected"),
    [
        ("", ("passed", "signed form 204, document ingested; another key 403, a larger file 400, ")),
        ("fields", ("failed", "another key: 204, not 400 or 403")),
        ("size", ("failed", "a larger file: 204, not 400 or 403")),
        ("signature", ("failed", "another policy: 204, not 400 or 403")),
    ],
)
async def test_bucket_of_uploads_must_reject_altered_forms(
    api: LiveApi, aws: FormAws, unchecked: str, expected: tuple[str, str]
) -> None:
    aws.checks.discard(unchecked)
    async with ingest_function(api, aws):
        status, evidence = await check("upload")
    assert (status, evidence[: len(expected[1])]) == expected, evidence
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=UPLOADS) or unchecked == "fields"


async def test_original_must_download_and_disappear_with_its_document(api: LiveApi, aws: FormAws) -> None:
    aws.answer("lambda", ALIAS, json.dumps({"FunctionVersion": "7"}))
    variables = {"VECTORFORGE_ORIGINALS_BUCKET": ORIGINALS}
    aws.answer("lambda", CONFIGURATION, json.dumps({"Environment": {"Variables": variables}}))
    async with ingest_function(api, aws):
        status, evidence = await check("original")
    assert (status, evidence[-25:]) == ("passed", "and the object is deleted"), evidence
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=ORIGINALS)


@pytest.mark.parametrize(("ended", "expected"), [("SUCCEEDED", "passed"), ("FAILED", "failed")])
async def test_bulk_load_of_one_object_must_succeed(
    api: LiveApi, aws: FormAws, ended: str, expected: str
) -> None:
    aws.answer("states", "StartExecution", json.dumps({"executionArn": RUN, "startDate": 0}))
    described = {"executionArn": RUN, "stateMachineArn": MACHINE, "status": ended, "startDate": 0}
    aws.answer("states", "DescribeExecution", json.dumps(described))
    async with ingest_function(api, aws):
        status, evidence = await check("bulk-load")
    assert status == expected, evidence
    assert "Contents" not in aws.client("s3").list_objects_v2(Bucket=UPLOADS)
