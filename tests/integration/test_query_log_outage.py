"""The log writer during outages: it stores what it can, and the rest waits without loss."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.aws.lambda_context import LambdaContext
from tests.support.aws.sqs_events import Queue, failed_ids
from tests.support.rag.query_logs import make_log, message
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.query_log_record import MAX_RECORD_BYTES, pointer_fields, record_fields, to_json
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.local.postgres import EmbeddedPostgres

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]
NewTenant: TypeAlias = Callable[[], str]
MakeWriter: TypeAlias = Callable[[str], QueryLogWriterFunction]

COME_AGAIN = "A query log message has to come again"
WRITERS = "FROM pg_stat_activity WHERE usename = 'vectorforge_log_writer' AND datname = current_database()"
KILL_WRITERS = f"SELECT pg_terminate_backend(pid) {WRITERS}".encode()
WAITING_WRITERS = f"SELECT count(*) {WRITERS} AND wait_event_type = 'Lock'".encode()
INSERT = b"""
INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, outcome, latency_ms)
VALUES ('tenant', %(id)s, gen_random_uuid(), '', 'started', 0)
"""


class AilingBucket:
    """S3 that answers with 503, or not at all while ``silent``."""

    def __init__(self) -> None:
        bucket = self
        self.calls = 0
        self.silent = False
        self.end = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                bucket.calls += 1
                if bucket.silent:
                    bucket.end.wait()
                    return
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's signature
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def ailing_bucket(clients: AwsClients, monkeypatch: pytest.MonkeyPatch) -> Iterator[AilingBucket]:
    ailing = AilingBucket()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ailing.url)
    yield ailing
    ailing.close()


def pointer(tenant: str, log: QueryLog) -> str:
    return to_json(pointer_fields(record_fields(tenant, log)))


@pytest.mark.parametrize("silent", [False, True])
async def test_unresponsive_bucket_does_not_block_other_records(
    bucket: str, ailing_bucket: AilingBucket, silent: bool, queue: Queue, rows: Rows,
    make_writer: MakeWriter, postgres_server: EmbeddedPostgres, make_tenant: NewTenant,
) -> None:  # C01; fault 38  # fmt: skip
    tenant = make_tenant()
    logs = [make_log() for _ in range(50)]
    queue.send(*(pointer(tenant, make_log()) for _ in range(50)), *(message(tenant, log) for log in logs))
    event = queue.event(batch_size=100)
    assert event is not None
    assert len(event["Records"]) == 100
    ailing_bucket.silent = silent
    writer = make_writer(postgres_server.log_writer_url)
    answer = await asyncio.to_thread(writer, event, LambdaContext(remaining_ms=10_000))
    assert failed_ids(answer) == {one["messageId"] for one in event["Records"] if "pointer" in one["body"]}
    assert {row.id for row in await rows(tenant)} == {log.id for log in logs}
    assert ailing_bucket.calls <= 2  # one record's attempts, not fifty's


async def test_largest_batch_is_stored_in_parts(
    queue: Queue, bucket: str, clients: AwsClients, writer: QueryLogWriterFunction, rows: Rows,
    make_tenant: NewTenant, logged: list[logging.LogRecord],
) -> None:  # C01  # fmt: skip
    tenant = make_tenant()
    logs = [make_log(generated_response="x" * (MAX_RECORD_BYTES - 2000)) for _ in range(5)]
    for log in logs:
        fields = record_fields(tenant, log)
        key = pointer_fields(fields)["key"]
        clients.get("s3").put_object(Bucket=bucket, Key=key, Body=to_json(fields).encode())
        queue.send(pointer(tenant, log))
    event = queue.event(batch_size=100)
    assert event is not None
    answer = await asyncio.to_thread(writer, event, LambdaContext(remaining_ms=120_000))
    assert failed_ids(answer) == set()
    assert {row.id: len(row.generated_response) for row in await rows(tenant)} == {
        log.id: len(log.generated_response) for log in logs
    }


REFUSALS = {
    "25006": b"ALTER ROLE vectorforge_log_writer IN DATABASE {} SET default_transaction_read_only = on",
    "42501": b"REVOKE EXECUTE ON FUNCTION vectorforge.write_query_logs(jsonb) FROM vectorforge_log_writer",
    "42883": b"ALTER FUNCTION vectorforge.write_query_logs(jsonb) RENAME TO write_no_query_logs",
}
REMEDIES = {
    "25006": b"ALTER ROLE vectorforge_log_writer IN DATABASE {} RESET default_transaction_read_only",
    "42501": b"GRANT EXECUTE ON FUNCTION vectorforge.write_query_logs(jsonb) TO vectorforge_log_writer",
    "42883": b"ALTER FUNCTION vectorforge.write_no_query_logs(jsonb) RENAME TO write_query_logs",
}


@pytest.mark.parametrize("state", REFUSALS)
async def test_database_rejecting_all_records_returns_them_for_retry(
    state: str, make_database: Callable[..., str], make_writer: MakeWriter, queue: Queue,
    logged: list[logging.LogRecord],
) -> None:  # C01; fault 39  # fmt: skip
    migrator_url = make_database()
    writer = make_writer(make_conninfo(migrator_url, user="vectorforge_log_writer"))
    with psycopg.connect(migrator_url, autocommit=True) as connection:
        name = connection.info.dbname.encode()
        connection.execute(REFUSALS[state].replace(b"{}", name))
        queue.send(*(message("tenant", make_log()) for _ in range(100)))
        event = queue.event(batch_size=100)
        assert event is not None
        answer = await asyncio.to_thread(writer, event, LambdaContext())
        assert len(failed_ids(answer)) == 100
        assert [record.msg for record in logged].count(COME_AGAIN) == 100
        assert "dough" not in str([vars(record) for record in logged])  # no texts
        assert "A query log message was refused" not in {record.msg for record in logged}
        connection.execute(REMEDIES[state].replace(b"{}", name))
        # The same warm function reconnects to the recovered database.
        assert failed_ids(await asyncio.to_thread(writer, event, LambdaContext())) == set()
        assert connection.execute("SELECT count(*) FROM vectorforge.query_logs").fetchone() == (100,)


async def test_messages_for_retry_are_delayed_beyond_queue_visibility(
    clients: AwsClients, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:  # C01
    queue = Queue(clients.get("sqs"), visibility_s=1)
    monkeypatch.setenv("VECTORFORGE_QUERY_LOG_QUEUE_URL", queue.url)
    lost = make_writer("postgresql://vectorforge_log_writer@127.0.0.1:1/x?connect_timeout=1")
    queue.send("poison", *(message("tenant", make_log()) for _ in range(12)))
    event = queue.event(batch_size=20)
    assert event is not None
    answer = await asyncio.to_thread(lost, event, LambdaContext())
    assert len(failed_ids(answer)) == 13
    seen: list[str] = []
    async with asyncio.timeout(20):
        while "poison" not in seen:  # after the queue's visibility timeout of 1 s
            await asyncio.sleep(0.3)
            seen += [one["body"] for one in (queue.event(batch_size=20) or {"Records": []})["Records"]]
    assert seen == ["poison"]


async def test_missing_setting_is_logged_by_name(
    queue: Queue, make_writer: MakeWriter, postgres_server: EmbeddedPostgres, make_tenant: NewTenant,
    rows: Rows, logged: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch,
) -> None:  # C01  # fmt: skip
    writer = make_writer(postgres_server.log_writer_url)
    writer.shutdown()
    monkeypatch.delenv("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET")
    tenant, log = make_tenant(), make_log()
    queue.send(pointer(tenant, make_log()), pointer(tenant, make_log()), message(tenant, log))
    event = queue.event()
    assert event is not None
    assert len(failed_ids(await asyncio.to_thread(writer, event, LambdaContext()))) == 2
    assert await rows(tenant) == [log]
    errors = [record.getMessage() for record in logged if record.levelno >= logging.ERROR]
    assert errors == [
        "The log writer is not set up: VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET is not set."
    ]  # once


class TestDatabaseOutage:
    async def test_connection_killed_between_invocations_is_replaced(
        self, queue: Queue, make_database: Callable[..., str], make_writer: MakeWriter
    ) -> None:  # C01; fault 19
        migrator_url = make_database()
        writer = make_writer(make_conninfo(migrator_url, user="vectorforge_log_writer"))
        with psycopg.connect(migrator_url, autocommit=True) as connection:
            for _ in range(3):
                queue.send(message("tenant", make_log()))
                event = queue.event()
                assert event is not None
                assert writer(event, LambdaContext()) == {"batchItemFailures": []}
                queue.settle(event, {"batchItemFailures": []})
                connection.execute(KILL_WRITERS)
            assert connection.execute("SELECT count(*) FROM vectorforge.query_logs").fetchone() == (3,)

    async def test_writer_killed_during_batch_loses_no_record(
        self, queue: Queue, make_database: Callable[..., str], make_writer: MakeWriter
    ) -> None:  # C01; fault 38
        migrator_url = make_database()
        writer = make_writer(make_conninfo(migrator_url, user="vectorforge_log_writer"))
        logs = [make_log() for _ in range(10)]
        last = max(logs, key=lambda log: log.id)
        queue.send(*(message("tenant", log) for log in logs))
        event = queue.event()
        assert event is not None
        with psycopg.connect(migrator_url, autocommit=True) as observer:
            with psycopg.connect(migrator_url) as blocker:  # locks the key of the last row of the batch
                blocker.execute(INSERT, {"id": last.id})
                call = asyncio.create_task(asyncio.to_thread(writer, event, LambdaContext()))
                async with asyncio.timeout(20):
                    while observer.execute(WAITING_WRITERS).fetchone() != (1,):  # noqa: ASYNC110 - has no event
                        await asyncio.sleep(0.01)
                observer.execute(KILL_WRITERS)
                answer = await call
                assert len(answer["batchItemFailures"]) == 10
                blocker.rollback()
            assert observer.execute("SELECT count(*) FROM vectorforge.query_logs").fetchone() == (0,)
            queue.settle(event, answer)
            assert queue.deliver(writer) == 1
            found = observer.execute("SELECT id FROM vectorforge.query_logs").fetchall()
        assert sorted(found) == sorted((log.id,) for log in logs)
        assert queue.bodies(dead=True) == []

    async def test_unreachable_database_returns_all_messages_for_retry(
        self, queue: Queue, make_writer: MakeWriter, postgres_server: EmbeddedPostgres, rows: Rows,
        make_tenant: NewTenant, logged: list[logging.LogRecord],
    ) -> None:  # C01  # fmt: skip
        tenant, logs = make_tenant(), [make_log() for _ in range(3)]
        queue.send(*(message(tenant, log) for log in logs), "poison")
        lost = make_writer("postgresql://vectorforge_log_writer@127.0.0.1:1/x?connect_timeout=1")
        event = queue.event()
        assert event is not None
        answer = lost(event, LambdaContext())
        assert len(answer["batchItemFailures"]) == 4
        queue.settle(event, answer)
        codes = [vars(record)["error_code"] for record in logged if record.msg == COME_AGAIN]
        assert codes == ["database_unavailable"] * 3
        queue.deliver(make_writer(postgres_server.log_writer_url))
        assert {row.id for row in await rows(tenant)} == {log.id for log in logs}
