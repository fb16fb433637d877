"""Records larger than a message obey a tenant's policy; once stored, their texts leave the bucket."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.request import Request, urlopen
from uuid import UUID

import pytest
from pydantic import SecretStr

from tests.support.aws.fake_aws import FakeAws
from tests.support.aws.sqs_events import Queue
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.rag.query_logs import make_log, started
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.query_log_queue import MAX_MESSAGE_BYTES, QueryLogQueue
from vectorforge.config import AwsSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.erasure.eraser import Eraser
from vectorforge.erasure.repo import ErasureDatabase, ErasureRepository, Subject
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]

RAG = "/v1/rag/query"
CANARY = "quokkasaurus"
QUESTION = "Does ann@example.org know when the kettle boils?"
MASKED = "Does [email] know when the kettle boils?"
SECRETS = ("ann@example.org", "1234567")
SENTENCE = "Yes, call +49 30 1234567 about the quokkasaurus " + "\U0001f998" * 12 + " at 100 degrees.\n\n"
REPEATED = MAX_MESSAGE_BYTES // len(SENTENCE.encode()) + 2_000
"""More sentences than fit in a message, even when masked."""


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        server.unscripted = Reply(texts=("It boils [Source 1].\n\n" + SENTENCE * REPEATED,))
        yield server


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: FakeOpenAI, queue: Queue,
    bucket: str,
) -> AsyncIterator[tuple[LiveApi, str]]:  # fmt: skip
    """Start a server whose answers are too large for the queue, with its tenant."""
    tenant = make_tenant()
    aws = AwsSettings(query_log_queue_url=queue.url, query_log_overflow_bucket=bucket, query_log_timeout_s=5)
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    async with live_api(settings_for(postgres_server.app_url, [tenant], aws=aws), provider) as opened:
        yield opened, tenant


@pytest.fixture
def objects(clients: AwsClients, bucket: str) -> Callable[[], list[str]]:
    """Return the objects of the bucket."""

    def read() -> list[str]:
        s3 = clients.get("s3")
        keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return [s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode() for key in keys]

    return read


def texts(stored: str) -> tuple[str, str]:
    record = json.loads(stored)
    return record["query_text"], record["generated_response"]


@pytest.mark.parametrize("policy", [None, "full", "hash", "off"])
async def test_log_text_policy_applies_to_queued_and_overflow_records(
    api: tuple[LiveApi, str], queue: Queue, writer: QueryLogWriterFunction, rows: Rows,
    objects: Callable[[], list[str]], policy: str | None,
) -> None:  # threat 20  # fmt: skip
    opened, tenant = api
    await opened.application.for_tenant(tenant).caches.settings.set_log_text(policy)
    async with opened.client(tenant) as client:
        await add_documents(client, await new_collection(client), a="The kettle boils at 100 degrees.")
        answer = await client.post(RAG, json={"query": QUESTION, "max_tokens": 16_384})
        assert SECRETS[1] in answer.text  # the client gets the full answer
    event = queue.event()
    assert event is not None
    messages = [json.loads(one["body"]) for one in event["Records"]]
    sent = json.dumps(messages) + "".join(objects())
    assert [secret in sent for secret in SECRETS] == [policy == "full"] * 2
    # masked text is too large for a message, a hash or no text is not
    overflows = policy in (None, "full")
    assert sorted(one["type"] for one in messages) == [
        "vectorforge.query_log",
        "vectorforge.query_log_pointer" if overflows else "vectorforge.query_log",
    ]
    queue.show(event["Records"])
    queue.deliver(writer)
    (row,) = await rows(tenant)
    expected_query = {None: MASKED, "full": QUESTION, "off": ""}.get(policy, row.query_text)
    assert (row.query_text, row.outcome) == (expected_query, "answered")
    assert (len(row.generated_response.encode()) > MAX_MESSAGE_BYTES) == overflows
    assert row.query_text.startswith("sha256:") == (policy == "hash")
    # now the texts are only in the table
    assert [texts(one) for one in objects()] == [("", "")] * overflows


def large(**changes: Any) -> QueryLog:
    return make_log(query_text=CANARY, generated_response=CANARY * 100_000, **changes)


async def test_redelivered_pointer_does_not_overwrite_stored_record(
    sender: QueryLogQueue, queue: Queue, writer: QueryLogWriterFunction, rows: Rows,
    objects: Callable[[], list[str]], make_tenant: Callable[[], str],
) -> None:  # fmt: skip
    """An emptied record does not replace the stored one, even in the unfavorable order."""
    tenant, log = make_tenant(), large()
    await sender.for_tenant(tenant).create(log)
    event = queue.event()
    assert event is not None
    (pointer,) = (one["body"] for one in event["Records"])
    queue.delete(event["Records"])
    for _ in range(5):
        queue.send(pointer)
        queue.deliver(writer)
    await sender.for_tenant(tenant).start(started(log))
    queue.deliver(writer)
    assert await rows(tenant) == [log]
    assert [texts(one) for one in objects()] == [("", "")]
    assert queue.bodies(dead=True) == []


async def test_pointer_is_retried_until_its_object_is_emptied(
    sender: QueryLogQueue, queue: Queue, make_writer: Callable[[str], QueryLogWriterFunction],
    postgres_server: EmbeddedPostgres, rows: Rows, objects: Callable[[], list[str]], fake_aws: FakeAws,
    make_tenant: Callable[[], str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tenant, log = make_tenant(), large()
    await sender.for_tenant(tenant).create(log)
    with read_only(fake_aws) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        assert queue.deliver(make_writer(postgres_server.log_writer_url), rounds=2) == 2
    assert await rows(tenant) == [log]  # stored, but not finished
    assert [texts(one)[0] for one in objects()] == [CANARY]
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    queue.deliver(make_writer(postgres_server.log_writer_url))
    assert await rows(tenant) == [log]
    assert [texts(one) for one in objects()] == [("", "")]
    assert queue.bodies(dead=True) == []


@contextmanager
def read_only(aws: FakeAws) -> Iterator[str]:
    """Yield the address of a read-only S3, as for a role without s3:PutObject."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            signed = {"Authorization": self.headers["Authorization"]}
            expected_query = Request(f"{aws.url}{self.path}", headers=signed)  # noqa: S310 - our own server
            with urlopen(expected_query) as found:  # noqa: S310
                self._answer(200, found.read())

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", ["tenant", "document"])
async def test_erasure_during_delivery_empties_the_record(
    api: tuple[LiveApi, str], direct_database: Database, queue: Queue, writer: QueryLogWriterFunction,
    rows: Rows, objects: Callable[[], list[str]], kind: str,
) -> None:  # fmt: skip
    opened, tenant = api
    async with opened.client(tenant) as client:
        job = await add_documents(client, await new_collection(client), a=f"The {CANARY} kettle boils.")
        await client.post(RAG, json={"query": f"When does the {CANARY} kettle boil?", "max_tokens": 16_384})
    assert any(CANARY in one for one in objects())
    document = UUID(job["documents"][0]["document_id"])
    eraser = Eraser(ErasureRepository(ErasureDatabase(direct_database, tenant)))
    subject = Subject("tenant") if kind == "tenant" else Subject("document", document_id=document)
    await eraser.run(await eraser.begin(subject, logs="text", requested_by="test"))
    queue.deliver(writer)
    assert queue.bodies(dead=True) == []
    assert [(row.query_text, row.generated_response) for row in await rows(tenant)] == (
        [] if kind == "tenant" else [("", "")]
    )
    assert [texts(one) for one in objects()] == [("", "")]
