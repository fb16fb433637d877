"""Uploads to S3 with a form signed by the API (one key, one size, some minutes) become documents."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.support.aws.bucket_event_source import object_created_event
from tests.support.aws.fake_aws import REGION, FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import LiveApi, finished_job, live_api, new_collection, settings_for
from vectorforge.aws.handlers.ingest import handle
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings, IngestionSettings
from vectorforge.deadline import Deadline
from vectorforge.local.postgres import EmbeddedPostgres

BUCKET = "vectorforge-uploads"
LIMIT = 5000
TEXT = "# Refunds\n\nA refund takes five days.\n"


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def aws(aws_server: FakeAws, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server


@dataclass
class Uploads:
    """A tenant's client, and S3."""

    aws: FakeAws
    api: LiveApi
    tenant: str
    client: httpx2.AsyncClient
    collection_id: str

    async def form(self, path: str = "refunds.md", **fields: Any) -> dict[str, Any]:
        response = await self.ask(path=path, **fields)
        assert response.status_code == 200, response.text
        form: dict[str, Any] = response.json()
        return form

    async def ask(self, collection_id: str | None = None, **body: Any) -> httpx2.Response:
        path = f"/v1/collections/{collection_id or self.collection_id}/uploads"
        return await self.client.post(path, json=body)

    async def put(self, form: dict[str, Any], content: bytes) -> httpx2.Response:
        """Upload like a client without AWS credentials; the file comes last."""
        async with httpx2.AsyncClient() as anybody:
            file = {"file": ("local-name.bin", content)}
            return await anybody.request(form["method"], form["url"], data=form["fields"], files=file)

    async def notify(self, key: str) -> None:
        """Run the ingest function with S3's event."""
        application: Application = self.api.application
        assert await handle(application, object_created_event(BUCKET, key), Deadline.after(60)) is None


@pytest.fixture
async def uploads(
    aws: FakeAws, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Uploads]:
    tenant = make_tenant()
    config = settings_for(
        postgres_server.app_url,
        [tenant, f"{tenant}-other"],
        # with a queue the server has no worker that could claim the function's jobs
        aws=AwsSettings(uploads_bucket=BUCKET, ingestion_queue_url=Queue(aws.client("sqs"), tenant).url),
        ingestion=IngestionSettings(max_document_bytes=LIMIT),
    )
    async with live_api(config) as api, api.client(tenant) as client:
        yield Uploads(aws, api, tenant, client, await new_collection(client, "handbook"))


def policy_of(form: dict[str, Any]) -> dict[str, Any]:
    policy: dict[str, Any] = json.loads(base64.b64decode(form["fields"]["policy"]))
    return policy


async def test_uploaded_object_starts_a_job_that_is_found(uploads: Uploads) -> None:
    path = "policies/Refunds & returns, 100% über (2026) + more.md"
    form = await uploads.form(path, content_type="text/markdown", size_bytes=len(TEXT))
    key = f"{uploads.tenant}/handbook/{path}"
    assert (form["key"], form["source"]) == (key, f"s3://{BUCKET}/{key}")
    assert form["url"] == f"{uploads.aws.url}/{BUCKET}"
    assert (await get_jobs(uploads, form["source"])) == []

    assert (await uploads.put(form, TEXT.encode())).status_code == 204
    stored = uploads.aws.client("s3").get_object(Bucket=BUCKET, Key=key)
    assert stored["Body"].read().decode() == TEXT
    await uploads.notify(key)

    [job] = await get_jobs(uploads, form["source"])
    assert (await finished_job(uploads.client, job["id"]))["status"] == "succeeded"
    question = {"query": "How long does a refund take?"}
    answer = await uploads.client.post(f"/v1/collections/{uploads.collection_id}/query", json=question)
    assert "five days" in answer.text


async def get_jobs(uploads: Uploads, source: str, tenant: str | None = None) -> list[dict[str, Any]]:
    async with uploads.api.client(tenant or uploads.tenant) as client:
        response = await client.get("/v1/jobs", params={"source": source})
    assert response.status_code == 200, response.text
    jobs: list[dict[str, Any]] = response.json()["jobs"]
    return jobs


async def test_jobs_are_found_by_document_and_jsonl_source(uploads: Uploads) -> None:
    for text in ("first", "second"):
        form = await uploads.form("note.txt")
        await uploads.put(form, text.encode())
        await uploads.notify(form["key"])
    other = await uploads.form("rows.jsonl")
    await uploads.put(other, b'{"text": "one"}\n{"text": "two"}\n')
    await uploads.notify(other["key"])
    second, first = await get_jobs(uploads, form["source"])
    assert first["created_at"] < second["created_at"]
    [rows] = await get_jobs(uploads, other["source"])
    assert rows["documents_total"] == 2
    shown = (await uploads.client.get(f"/v1/jobs/{rows['id']}")).json()["documents"]
    [found] = await get_jobs(uploads, shown[1]["source"])
    assert found["id"] == rows["id"]
    params = {"source": form["source"], "limit": 1, "offset": 1}
    page = (await uploads.client.get("/v1/jobs", params=params)).json()
    assert [job["id"] for job in page["jobs"]] == [first["id"]]
    assert await get_jobs(uploads, form["source"], tenant=f"{uploads.tenant}-other") == []
    assert await get_jobs(uploads, "note.txt") == []
    assert await get_jobs(uploads, "a\0b") == []
    for source in ("", "x" * 2001):
        assert (await uploads.client.get("/v1/jobs", params={"source": source})).status_code == 422


async def test_upload_policy_limits_key_size_type_and_expiry(uploads: Uploads) -> None:
    before = datetime.now(UTC)
    form = await uploads.form("a.pdf", content_type="application/pdf")
    after = datetime.now(UTC)
    policy = policy_of(form)
    fields = form["fields"]
    assert policy["conditions"] == [
        {"Content-Type": "application/pdf"},
        ["content-length-range", 1, LIMIT],
        {"bucket": BUCKET},
        {"key": f"{uploads.tenant}/handbook/a.pdf"},
        *({name: fields[name]} for name in ("x-amz-algorithm", "x-amz-credential", "x-amz-date")),
    ]
    # S3 refuses fields that no condition names; these two are the exceptions.
    named = {name for condition in policy["conditions"] if isinstance(condition, dict) for name in condition}
    assert set(fields) - named == {"policy", "x-amz-signature"}
    expiry = datetime.fromisoformat(policy["expiration"])
    stated_expiry = datetime.fromisoformat(form["expires_at"])
    assert before + timedelta(minutes=14) < stated_expiry <= after + timedelta(minutes=15)
    assert stated_expiry <= expiry <= stated_expiry + timedelta(seconds=30)

    exact = policy_of(await uploads.form("a.pdf", size_bytes=123))
    assert ["content-length-range", 123, 123] in exact["conditions"]
    assert not any("Content-Type" in condition for condition in exact["conditions"])


async def test_upload_signature_is_sigv4_of_the_policy(uploads: Uploads) -> None:
    """Format: https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-authentication-HTTPPOST.html"""
    fields = (await uploads.form())["fields"]
    access_key, date, region, service, end = fields["x-amz-credential"].split("/")
    assert (access_key, region, service, end) == ("testing", REGION, "s3", "aws4_request")
    key = b"AWS4testing"
    for part in (date, region, service, end):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    signature = hmac.digest(key, fields["policy"].encode(), hashlib.sha256).hex()
    assert fields["x-amz-signature"] == signature


async def test_upload_form_includes_session_token(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function's credentials always have a session token."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-session")
    form = await uploads.form()
    assert form["fields"]["x-amz-security-token"] == "token-of-the-session"
    assert {"x-amz-security-token": "token-of-the-session"} in policy_of(form)["conditions"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"path": "../other/docs/a.txt"}, "path"),
        ({"path": "/a.txt"}, "path"),
        ({"path": "a\0.txt"}, "path"),
        ({"path": "${filename}"}, "path"),
        ({"path": "ü" * 600}, "path"),
        ({"path": "x" * 1001}, "path"),
        ({"path": ""}, "path"),
        ({}, "path"),
        ({"path": "a.txt", "size_bytes": LIMIT + 1}, "size_bytes"),
        ({"path": "a.txt", "size_bytes": 0}, "size_bytes"),
        ({"path": "a.txt", "content_type": "text/plain\r\nx: y"}, "content_type"),
        ({"path": "a.txt", "content_type": "plain"}, "content_type"),
        ({"path": "a.txt", "content_type": "text/${filename}"}, "content_type"),
        ({"path": "a.txt", "tenant": "other"}, "tenant"),
        ({"path": "a.txt", "tenant_id": "other"}, "tenant_id"),
        ({"path": "a.txt", "key": "other/docs/a.txt"}, "key"),
        ({"path": "a.txt", "bucket": "other"}, "bucket"),
    ],
)
async def test_invalid_upload_request_returns_422_naming_the_field(
    uploads: Uploads, body: dict[str, Any], field: str
) -> None:
    response = await uploads.ask(**body)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]
    if field == "size_bytes" and body["size_bytes"]:
        assert f"at most {LIMIT}" in response.json()["detail"]


async def test_upload_to_collection_of_other_tenant_returns_404(uploads: Uploads) -> None:  # C17, security 4
    async with uploads.api.client(f"{uploads.tenant}-other") as stranger:
        path = f"/v1/collections/{uploads.collection_id}/uploads"
        assert (await stranger.post(path, json={"path": "a.txt"})).status_code == 404
    response = await uploads.ask("00000000-0000-4000-8000-000000000000", path="a.txt")
    assert response.status_code == 404


@pytest.mark.parametrize("name", ["other/docs", "..", "US$"])
async def test_upload_to_collection_with_unusable_name_returns_409(uploads: Uploads, name: str) -> None:
    collection_id = await new_collection(uploads.client, name)
    response = await uploads.ask(collection_id, path="a.txt")
    assert (response.status_code, response.json()["code"]) == (409, "conflict")


async def test_upload_without_bucket_returns_503_naming_the_setting(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    config = settings_for(postgres_server.app_url, [tenant])
    async with live_api(config) as api, api.client(tenant) as client:
        collection_id = await new_collection(client)
        response = await client.post(f"/v1/collections/{collection_id}/uploads", json={"path": "a.txt"})
    assert (response.status_code, response.json()["code"]) == (503, "configuration_error")
    assert "VECTORFORGE_UPLOADS_BUCKET" in response.json()["detail"]
    assert "retry-after" not in response.headers


async def test_upload_without_credentials_returns_503(
    uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    response = await uploads.ask(path="a.txt")
    assert (response.status_code, response.json()["code"]) == (503, "configuration_error")
    assert "credentials" in response.json()["detail"]
