"""Originals in S3: written by the ingest function, linked by the query function, removed with documents."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.fake_aws import FakeAws
from tests.support.http.live_api import build_application, key_of, settings_for
from tests.support.http.live_server import serve
from tests.support.rag.ingested import ingest_part
from vectorforge.api.app import create_app
from vectorforge.aws.handlers.ingest import handle
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings
from vectorforge.db.repositories.original_repo import NewOriginal
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import Subject
from vectorforge.errors import ObjectStoreError, OriginalNotKeptError
from vectorforge.ingestion.originals import OriginalKeeper, object_key
from vectorforge.ingestion.types import DocumentPart, DocumentStatus

BUCKET = "vectorforge-originals"
TENANTS = ("acme", "acme/b")  # a prefix of the other's name must not reach its objects
SCHEDULE = {"source": "aws.events"}


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeAws]:
    with FakeAws() as server:
        yield server


@pytest.fixture
def s3(aws_server: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Any:
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    aws_server.create_bucket(BUCKET)
    return aws_server.client("s3")


@pytest.fixture
async def application(fresh_database_url: str, s3: Any, aws_server: FakeAws) -> AsyncIterator[Application]:
    queue = aws_server.client("sqs").create_queue(QueueName="ingestion")["QueueUrl"]
    settings = AwsSettings(originals_bucket=BUCKET, ingestion_queue_url=queue)
    async with build_application(settings_for(fresh_database_url, TENANTS, aws=settings)) as opened:
        yield opened


async def store(application: Application, text: str = "Oil the chain.", tenant: str = "acme") -> UUID:
    """Store a document; return its id."""
    services = application.for_tenant(tenant)
    collection = await services.find_or_create_collection("handbook")
    part = DocumentPart(text.encode(), "a.html", "text/html")
    result = await ingest_part(services.ingestion, collection, part)
    assert result.error is None, result.error
    assert result.document_id is not None
    return result.document_id


def listed(s3: Any) -> list[str]:
    return [found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def execute(database_url: str, statement: str) -> None:
    with psycopg.connect(make_conninfo(database_url, user="postgres")) as connection:
        connection.execute(statement.encode())


async def test_key_holds_tenant_and_document_and_response_links_to_the_object(
    s3: Any, application: Application
) -> None:
    document = await store(application, tenant="acme/b")
    (key,) = listed(s3)
    assert key.startswith(f"acme%2Fb/{document}/")
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"Oil the chain."
    headers = {"Authorization": f"Bearer {key_of('acme/b')}"}
    async with (
        serve(create_app(application)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        path = f"/v1/documents/{document}/original"
        response = await client.get(path)
        assert (response.status_code, response.headers["cache-control"]) == (307, "private, no-store")
        unfollowed = await client.get(path, params={"redirect": "false"})
        assert (unfollowed.status_code, unfollowed.content) == (200, b"")
    for link in (response.headers["location"], unfollowed.headers["location"]):
        async with httpx2.AsyncClient() as browser:  # without a credential
            found = await browser.get(link)
            part = await browser.get(link, headers={"Range": "bytes=4-6"})
        assert (part.status_code, part.content) == (206, b"the")
        assert found.content == b"Oil the chain."
        assert (
            found.headers["content-disposition"] == "attachment; filename=\"a.html\"; filename*=UTF-8''a.html"
        )
        assert "X-Amz-Expires=300" in link or "Expires=" in link


async def test_file_content_is_read_from_the_bucket_while_it_is_sent(
    s3: Any, application: Application
) -> None:
    text = "Oil the chain. " + "x" * 20_000_000
    document = await store(application, f"<!-- {text} --><p>Oil the chain.")
    (key,) = listed(s3)
    stored = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    headers = {"Authorization": f"Bearer {key_of('acme')}"}
    async with (
        serve(create_app(application)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        path = f"/v1/files/{document}/content"
        assert (await client.get(path)).content == stored
        async with client.stream("GET", path) as response:
            pieces = response.aiter_raw()
            assert stored.startswith(await anext(pieces))
            s3.delete_object(Bucket=BUCKET, Key=key)
            with pytest.raises(httpx2.RemoteProtocolError):  # the rest is not in the server's memory
                async for _ in pieces:
                    pass


async def test_original_missing_in_its_bucket_is_not_found_and_a_missing_bucket_unavailable(
    s3: Any, application: Application
) -> None:
    document = await store(application)
    s3.delete_object(Bucket=BUCKET, Key=listed(s3)[0])
    headers = {"Authorization": f"Bearer {key_of('acme')}"}
    async with (
        serve(create_app(application)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        unlinked = await client.get(f"/v1/documents/{document}/original")
        missing = await client.get(f"/v1/files/{document}/content")
        s3.delete_bucket(Bucket=BUCKET)
        failed = await client.get(f"/v1/files/{document}/content")
    assert (unlinked.status_code, unlinked.json()["code"]) == (404, OriginalNotKeptError.code)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, OriginalNotKeptError.code)
    assert "missing in its bucket" in missing.json()["error"]["message"]
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, ObjectStoreError.code)


async def test_scheduled_ingest_function_removes_a_replaced_and_a_deleted_original(
    s3: Any, application: Application
) -> None:
    document = await store(application)
    (first,) = listed(s3)
    assert await store(application, "Grease the chain.") == document
    assert await handle(application, SCHEDULE, Deadline.after(60)) is None
    (second,) = listed(s3)
    assert second != first
    assert await application.for_tenant("acme").vector_store.delete_document(document)
    assert await handle(application, SCHEDULE, Deadline.after(60)) is None
    assert listed(s3) == []


@pytest.mark.parametrize("kind", ["document", "collection", "tenant"])
async def test_erasure_is_certified_after_its_originals_are_removed(
    s3: Any, application: Application, fresh_database_url: str, kind: str
) -> None:
    document = await store(application)
    await store(application, tenant="acme/b")
    services = application.for_tenant("acme")
    collection = await services.find_collection("handbook")
    subject = {
        "document": Subject("document", document_id=document),
        "collection": Subject("collection", collection.id),
        "tenant": Subject("tenant"),
    }[kind]
    begun = await services.eraser.begin(subject, logs="text", requested_by="test")
    left = await services.eraser.run(begun)  # as the query function, which may not delete objects
    assert (left.is_done, len(listed(s3))) == (False, 2)
    execute(fresh_database_url, "UPDATE vectorforge.erasures SET lease_expires_at = now() - interval '1 s'")
    assert await handle(application, SCHEDULE, Deadline.after(60)) is None
    done = await services.eraser.find(begun)
    assert done.is_done
    assert json.loads(done.certificate or "")["erased"]["uploaded files"] == 1
    assert [key.split("/")[0] for key in listed(s3)] == ["acme%2Fb"]


async def test_object_of_a_writer_that_was_killed_is_removed_when_due(
    s3: Any, application: Application, fresh_database_url: str
) -> None:
    repo, bucket = application.for_tenant("acme").originals, application.aws.originals_bucket
    assert bucket is not None
    key = object_key("acme", uuid4())
    await repo.announce(key)
    await bucket.put(key, b"Oil", "text/plain")  # killed here
    assert await handle(application, SCHEDULE, Deadline.after(60)) is None
    assert listed(s3) == [key]  # its writer may still be at work
    execute(fresh_database_url, "UPDATE vectorforge.original_removals SET due_at = now()")
    assert await handle(application, SCHEDULE, Deadline.after(60)) is None
    assert listed(s3) == []


async def test_original_of_a_deleted_document_is_not_stored(s3: Any, application: Application) -> None:
    document = await store(application)
    services = application.for_tenant("acme")
    await services.vector_store.delete_document(document)
    keeper = OriginalKeeper(services.originals, application.aws.originals_bucket)
    await keeper.keep([NewOriginal(document, 1, b"Oil the chain.", "text/html")])
    assert await services.originals.find(document) is None


async def test_unreachable_bucket_fails_the_document_for_a_retry(
    s3: Any, application: Application, aws_server: FakeAws
) -> None:
    s3.delete_bucket(Bucket=BUCKET)
    services = application.for_tenant("acme")
    collection = await services.find_or_create_collection("handbook")
    part = DocumentPart(b"Oil the chain.", "a.html", "text/html")
    result = await ingest_part(services.ingestion, collection, part)
    assert (result.status, result.error and result.error.code) == (
        DocumentStatus.FAILED,
        ObjectStoreError.code,
    )
    aws_server.create_bucket(BUCKET)
    again = await ingest_part(services.ingestion, collection, part)
    assert (again.status, len(listed(s3))) == (DocumentStatus.UNCHANGED, 1)
