"""The query log end to end: service, SQS, log writer, table. SQS and S3 are moto's, PostgreSQL is real."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from tests.support.aws.sqs_events import Queue
from tests.support.rag.query_logs import make_log, message, started
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction
from vectorforge.aws.query_log_queue import MAX_MESSAGE_BYTES, QueryLogQueue
from vectorforge.aws.query_log_record import pointer_fields, record_fields, to_json
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.db.tenant_database import storable_text
from vectorforge.local.postgres import EmbeddedPostgres

Rows: TypeAlias = Callable[[str], Awaitable[list[QueryLog]]]
NewTenant: TypeAlias = Callable[[], str]
MakeWriter: TypeAlias = Callable[[str], QueryLogWriterFunction]

COME_AGAIN = "A query log message has to come again"
NO_OBJECT = "The overflow object cannot be read (NoSuchKey)."


class TestDelivery:
    async def test_queued_record_becomes_a_row(
        self, sender: QueryLogQueue, queue: Queue, writer: QueryLogWriterFunction, rows: Rows,
        make_tenant: NewTenant,
    ) -> None:  # C01, F-003  # fmt: skip
        tenant, log = make_tenant(), make_log()
        await sender.for_tenant(tenant).start(started(log))
        await sender.for_tenant(tenant).create(log)
        assert queue.deliver(writer) == 1
        assert await rows(tenant) == [log]

    @pytest.mark.pgbouncer
    async def test_records_are_stored_through_transaction_pooler(
        self, postgres_server: EmbeddedPostgres, pgbouncer: Any, make_writer: MakeWriter,
        queue: Queue, rows: Rows, make_tenant: NewTenant,
    ) -> None:  # C01  # fmt: skip
        tenant, logs = make_tenant(), [make_log() for _ in range(12)]
        queue.send(*(message(tenant, log) for log in logs))
        queue.deliver(make_writer(pgbouncer.route(postgres_server.log_writer_url)))
        assert {row.id: row for row in await rows(tenant)} == {log.id: log for log in logs}

    async def test_records_of_two_tenants_in_one_batch_are_stored_separately(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, make_tenant: NewTenant
    ) -> None:  # C17
        first, second = make_tenant(), make_tenant()
        log = make_log()
        others = [make_log(), replace(log, query_text="the same id, another tenant")]
        queue.send(message(first, log), *(message(second, other) for other in others))
        assert queue.deliver(writer) == 1
        assert await rows(first) == [log]
        assert {row.query_text for row in await rows(second)} == {other.query_text for other in others}

    async def test_records_in_any_order_and_repeated_are_stored_once(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, make_tenant: NewTenant
    ) -> None:  # C01
        tenant = make_tenant()
        outcomes = ["answered", "empty", "error", "aborted", "cached", "deadline"]
        logs = [make_log(outcome=outcome) for outcome in outcomes * 4]
        killed = started(make_log())  # its final record never arrived
        messages = [message(tenant, log) for log in [*logs, *map(started, logs), killed] for _ in range(5)]
        random.Random(7).shuffle(messages)
        queue.send(*messages)
        queue.deliver(writer)
        assert queue.bodies(dead=True) == []
        found = {row.id: row for row in await rows(tenant)}
        assert len(found) == len(await rows(tenant)) == 25
        assert found == {log.id: log for log in [*logs, killed]}

    async def test_start_record_after_end_record_changes_nothing(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, make_tenant: NewTenant
    ) -> None:  # C01
        tenant, log = make_tenant(), make_log(outcome="aborted")
        for record in (log, started(log), replace(log, outcome="answered")):
            queue.send(message(tenant, record))
            queue.deliver(writer)  # each in its own batch
        assert await rows(tenant) == [log]

    async def test_concurrent_writers_of_same_records_do_not_conflict(
        self, postgres_server: EmbeddedPostgres, make_writer: MakeWriter, queue: Queue, rows: Rows,
        make_tenant: NewTenant,
    ) -> None:  # C01  # fmt: skip
        tenant = make_tenant()
        logs = [make_log() for _ in range(20)]
        writers = [make_writer(postgres_server.log_writer_url) for _ in range(2)]
        queue.send(*(message(tenant, log) for log in [*logs, *reversed(logs), *map(started, logs)]))
        await asyncio.gather(*(asyncio.to_thread(queue.deliver, writer) for writer in writers))
        assert queue.bodies(dead=True) == []
        assert {row.id: row for row in await rows(tenant)} == {log.id: log for log in logs}


awkward = [
    "\0",
    "\ud83d",
    "\udc00\ud800",
    '"',
    "\\",
    "\\u0000",
    "🙂",
    "\u2028\x85\r",
    "\x1b[31m",
    "'; --",
    "\ufffe\uffff",
]
texts = st.text(alphabet=st.characters(exclude_categories=())) | st.sampled_from(awkward)


class TestRecordContent:
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(query=texts, answer=texts, model=texts, repeat=st.sampled_from([1, 1, 1, 500_000]))
    async def test_stored_record_equals_sent_record(
        self, query: str, answer: str, model: str, repeat: int, sender: QueryLogQueue, queue: Queue,
        writer: QueryLogWriterFunction, rows: Rows,
    ) -> None:  # C01, A-114, A-115  # fmt: skip
        tenant = f"tenant-{uuid4().hex}/é"
        long = (answer * (repeat // max(len(answer), 1) + 1))[: max(repeat, len(answer))]
        log = make_log(query_text=query, generated_response=long, model=model)
        await sender.for_tenant(tenant).start(started(log))
        await sender.for_tenant(tenant).create(log)
        queue.deliver(writer)
        expected = replace(
            log,
            query_text=storable_text(query),
            generated_response=storable_text(long),
            model=storable_text(model),
        )
        assert await rows(tenant) == [expected]

    async def test_oversize_record_is_sent_through_the_bucket(
        self, sender: QueryLogQueue, queue: Queue, writer: QueryLogWriterFunction, rows: Rows,
        clients: AwsClients, bucket: str, make_tenant: NewTenant,
    ) -> None:  # C01  # fmt: skip
        tenant = make_tenant()
        limit = MAX_MESSAGE_BYTES
        log = make_log(generated_response="")
        spare = limit - len(message(tenant, log))
        fits, exceeds = (replace(log, id=uuid4(), generated_response="x" * n) for n in (spare, spare + 1))
        for record in (fits, exceeds):
            await sender.for_tenant(tenant).create(record)
        objects = clients.get("s3").list_objects_v2(Bucket=bucket)["Contents"]
        day = log.created_at.date().isoformat() if log.created_at else ""
        assert [o["Key"] for o in objects] == [f"query-logs/{tenant}/{day}/{exceeds.id}-ended.json"]
        queue.deliver(writer)
        assert {row.id: row for row in await rows(tenant)} == {log.id: log for log in (fits, exceeds)}

    async def test_oversize_record_without_bucket_is_truncated_with_note(
        self, clients: AwsClients, queue: Queue, writer: QueryLogWriterFunction, rows: Rows,
        make_tenant: NewTenant,
    ) -> None:  # C01  # fmt: skip
        tenant, log = make_tenant(), make_log(generated_response="é" * 400_000)
        sender = QueryLogQueue(clients, queue.url, timeout_s=20)
        await sender.for_tenant(tenant).create(log)
        await sender.aclose()
        queue.deliver(writer)
        (row,) = await rows(tenant)
        logged_text, _, mark = row.generated_response.partition("\n[")
        assert set(logged_text) == {"é"}
        assert mark == f"{400_000 - len(logged_text)} characters left out by the query log]"
        assert 170_000 < len(logged_text) < 175_000  # six bytes each, in a message of a mebibyte
        assert replace(row, generated_response=log.generated_response) == log

    async def test_pointer_to_missing_object_is_retried(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, clients: AwsClients, bucket: str,
        make_tenant: NewTenant, logged: list[logging.LogRecord],
    ) -> None:  # fmt: skip
        tenant, log, other = make_tenant(), make_log(), make_log()
        fields = record_fields(tenant, log)
        pointer = pointer_fields(fields)
        queue.send(to_json(pointer), message(tenant, other))
        assert queue.deliver(writer, rounds=2) == 2
        assert await rows(tenant) == [other]
        lines = [record for record in logged if record.msg == COME_AGAIN]
        assert [vars(record)["reason"] for record in lines] == [NO_OBJECT] * 2
        clients.get("s3").put_object(Bucket=bucket, Key=pointer["key"], Body=to_json(fields).encode())
        queue.deliver(writer)
        assert len(await rows(tenant)) == 2
        assert queue.bodies(dead=True) == []

    async def test_pointer_to_object_of_other_tenant_is_rejected(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, clients: AwsClients, bucket: str,
        make_tenant: NewTenant,
    ) -> None:  # C17  # fmt: skip
        tenant, other = make_tenant(), make_tenant()
        fields = record_fields(other, make_log())
        pointer = pointer_fields(fields)
        clients.get("s3").put_object(Bucket=bucket, Key=pointer["key"], Body=to_json(fields).encode())
        queue.send(to_json({**pointer, "tenant_id": tenant}))
        queue.deliver(writer)
        assert (await rows(tenant), await rows(other)) == ([], [])
        assert len(queue.bodies(dead=True)) == 1


def poison(tenant: str) -> list[str]:
    good = record_fields(tenant, make_log(query_text="CANARY", generated_response="CANARY"))
    broken: list[dict[str, Any]] = [
        {**good, "tenant_id": ""},
        {**good, "tenant_id": "x" * 129},
        {**good, "id": "CANARY"},
        {**good, "outcome": "CANARY"},
        {**good, "prompt_tokens": 2**31},
        {**good, "latency_ms": -1},
        {**good, "created_at": "2026-11-22T10:00:00"},
        {**good, "retrieved_chunk_ids": ["CANARY"]},
        {**good, "used_chunk_ids": [str(uuid4())] * 1001},
        {**good, "version": 2},
        {**good, "type": "CANARY"},
        {name: value for name, value in good.items() if name != "query_text"},
    ]
    infinite = to_json(good).replace("812.25", "1e999")
    return ["CANARY", "[]", "null", "[" * 100_000, infinite, *map(to_json, broken)]


class TestPoisonMessages:
    async def test_poison_messages_alone_reach_the_dead_letter_queue(
        self, queue: Queue, writer: QueryLogWriterFunction, rows: Rows, make_tenant: NewTenant,
        logged: list[logging.LogRecord],
    ) -> None:  # C01  # fmt: skip
        tenant = make_tenant()
        logs = [make_log() for _ in range(20)]
        bad = poison(tenant)
        mixed = [*(message(tenant, log) for log in logs), *bad]
        random.Random(3).shuffle(mixed)
        queue.send(*mixed)
        queue.deliver(writer)
        assert sorted(queue.bodies(dead=True)) == sorted(bad)
        assert {row.id: row for row in await rows(tenant)} == {log.id: log for log in logs}
        refused = [record for record in logged if record.msg == "A query log message was refused"]
        assert len(refused) == 5 * len(bad)  # maxReceiveCount
        assert {vars(record)["error_code"] for record in refused} == {"invalid_input"}
        assert "CANARY" not in str([vars(record) for record in logged])  # ids and reasons, no texts

    async def test_record_rejected_by_database_alone_reaches_the_dead_letter_queue(
        self, make_database: Callable[..., str], make_writer: MakeWriter, queue: Queue,
        logged: list[logging.LogRecord],
    ) -> None:  # C01  # fmt: skip
        migrator_url = make_database()
        logs = [make_log(model=model) for model in ("a", "b", "forbidden", "c")]
        with psycopg.connect(migrator_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE vectorforge.query_logs ADD CHECK (model <> 'forbidden')")
            queue.send(*(message("tenant", log) for log in logs))
            queue.deliver(make_writer(make_conninfo(migrator_url, user="vectorforge_log_writer")))
            found = connection.execute("SELECT model FROM vectorforge.query_logs ORDER BY model").fetchall()
        assert found == [("a",), ("b",), ("c",)]
        assert queue.bodies(dead=True) == [message("tenant", logs[2])]
        assert "dough" not in str([vars(record) for record in logged])  # PostgreSQL's own text quotes the row


async def test_column_of_later_migration_receives_its_default(
    make_database: Callable[..., str], make_writer: MakeWriter, queue: Queue
) -> None:
    migrator_url = make_database()
    with psycopg.connect(migrator_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE vectorforge.query_logs ADD mood text NOT NULL DEFAULT 'good'")
        queue.send(message("tenant", make_log()))
        queue.deliver(make_writer(make_conninfo(migrator_url, user="vectorforge_log_writer")))
        assert connection.execute("SELECT mood FROM vectorforge.query_logs").fetchall() == [("good",)]
