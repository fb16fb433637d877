"""Stored streams after failures of the writer and the database, and after their retention time."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from uuid import uuid4

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.integration.server_processes import server_process
from tests.support.aws.live_query_function import LockStep, query_surroundings
from tests.support.http.event_stream import ReceivedEvent, check_order, read_events
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.api.streaming.answer_buffer import AnswerBuffer
from vectorforge.config import CacheSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.answer_stream_repo import AnswerStreamRepository, EventBatch
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.deadline import Deadline
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.worker import IngestionWorker
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.stopping import StopSignal

QUESTION = {"query": "How long does a refund take?", "stream": True, "resumable": True}


async def first_events(response: httpx2.Response, count: int = -1) -> list[ReceivedEvent]:
    events: list[ReceivedEvent] = []
    async for event in read_events(response.aiter_lines()):
        events.append(event)
        if len(events) == count:
            break
    return events


async def resume(client: httpx2.AsyncClient, query_id: str, after: int) -> list[ReceivedEvent]:
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/queries/{query_id}/events", headers=headers) as response:
        response.raise_for_status()
        return await first_events(response)


async def test_readers_of_killed_writer_receive_error(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    gate, tenant = LockStep(free=3), make_tenant()
    async with (
        query_surroundings(postgres_server.app_url, tenant) as surroundings,
        live_api(settings_for(postgres_server.app_url, [tenant])) as other,
        other.client(tenant) as reader,
        server_process(surroundings) as (pid, url),
        surroundings.client(url) as client,
    ):
        surroundings.vendor.script(Reply(texts=("It ", "takes ", "five ", "days."), gate=gate))
        async with client.stream("POST", "/v1/rag/query", json=QUESTION) as response:
            events = await first_events(response, 3)
        query_id = events[0].data["request_id"]
        following = asyncio.create_task(resume(reader, query_id, 2))
        await gate.waiting.wait()
        await asyncio.sleep(0.5)  # the text so far is stored by then
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            seen = events[:2] + await following
        check_order(seen)  # the ids continue up to the error
        assert "".join(event.data["text"] for event in seen if event.name == "token") == "It takes five "
        assert (seen[-1].name, seen[-1].data["code"], seen[-1].data["status"]) == (
            "error",
            "stream_lost",
            503,
        )
        again = await resume(reader, query_id, 3)  # new readers get the error immediately
        assert again[:-1] == seen[3:-1]
        assert (again[-1].id, again[-1].data["code"]) == (seen[-1].id, "stream_lost")
        path = f"/v1/queries/{query_id}"
        done_with = await reader.get(f"{path}/events", headers={"Last-Event-ID": str(seen[-1].id)})
        assert (done_with.status_code, (await reader.post(f"{path}/stop")).status_code) == (204, 204)


@pytest.fixture
def take_database_away(make_database: Callable[..., str]) -> "tuple[str, Callable[[bool], None]]":
    """Return the app role's connection string of a database, and a switch to disable it."""
    migrator = make_database()
    name = conninfo_to_dict(migrator)["dbname"]

    def set_away(away: bool) -> None:
        with psycopg.connect(make_conninfo(migrator, dbname="postgres"), autocommit=True) as connection:
            allowed = "false" if away else "true"
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
            if away:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
                )

    return make_conninfo(migrator, user="vectorforge_app"), set_away


async def test_database_outage_delays_no_token_and_loses_no_event(
    take_database_away: tuple[str, Callable[[bool], None]], make_tenant: Callable[[], str]
) -> None:
    app_url, set_away = take_database_away
    tenant, gate = make_tenant(), asyncio.Semaphore(0)
    pieces = [f"piece {number} " for number in range(20)]
    config = settings_for(app_url, [tenant], cache=CacheSettings(answer_cache=False))
    llm = ScriptedLLM([*pieces, "end"], gate=gate)
    async with live_api(config, llm) as api, api.client(tenant) as client, api.client(tenant) as reader:
        await add_documents(client, await new_collection(client), refund="How long does a refund take? Long.")
        async with client.stream("POST", "/v1/rag/query", json=QUESTION) as response:
            lines = read_events(response.aiter_lines())
            events = [await anext(lines) for _ in range(3)]
            query_id = events[0].data["request_id"]
            following = asyncio.create_task(resume(reader, query_id, 1))
            await asyncio.sleep(0.5)
            set_away(True)
            try:
                for _ in pieces[1:]:
                    gate.release()
                    events.append(await anext(lines))
                    await asyncio.sleep(0.05)
            finally:
                set_away(False)
            gate.release()
            events += [event async for event in lines]
        check_order(events)
        assert events[-1].data["answer"] == "".join([*pieces, "end"])
        async with asyncio.timeout(60):
            assert await following == events[1:]
        assert await resume(reader, query_id, 0) == events


def batch(first_id: int, *events: bytes) -> EventBatch:
    return EventBatch(first_id, b"".join(events), len(events))


async def test_repeated_batch_overwrites_itself(tenant_db: TenantDatabase) -> None:
    streams, query_id = AnswerStreamRepository(tenant_db, retention_s=60, longest_s=60), uuid4()
    assert await streams.read(query_id, 0) is None
    await streams.open(query_id)
    for sent in (batch(1, b"a\n\n"), batch(1, b"a\n\n", b"b\n\n"), batch(3), batch(3, b"c\n\n")):
        seen = await streams.write(query_id, sent)
        assert seen is not None
        assert (seen.stop_requested, seen.unread_s) == (False, None)
    found = await streams.read(query_id, 0)
    assert found is not None
    assert (found.state, found.last_id, found.batches) == ("running", 3, [(1, b"a\n\nb\n\n"), (3, b"c\n\n")])
    one = await streams.read(query_id, 1, limit=1)
    assert one is not None
    assert one.batches == found.batches[:1]
    assert (await streams.read(query_id, 3)).batches == []  # type: ignore[union-attr] # it is there


async def test_stream_write_reports_readers_stop_request_and_takeover(tenant_db: TenantDatabase) -> None:
    streams, query_id = AnswerStreamRepository(tenant_db, retention_s=60, longest_s=60), uuid4()
    await streams.open(query_id)
    await streams.note_reader(query_id)
    assert await streams.request_stop(query_id) == "running"
    seen = await streams.write(query_id, batch(1, b"a\n\n"))
    assert seen is not None
    assert seen.stop_requested
    assert seen.unread_s is not None
    assert 0 <= seen.unread_s < 60
    before = await streams.read(query_id, 0)
    await streams.write(query_id, batch(2))  # a heartbeat
    assert before is not None
    assert not await streams.give_up(query_id, silent_since=before.written_at)  # since it was not silent
    assert await streams.give_up(query_id)
    assert await streams.write(query_id, batch(2, b"b\n\n"), "ended") is None
    found = await streams.read(query_id, 0)
    assert found is not None
    assert (found.state, found.last_id) == ("lost", 1)


async def test_buffered_events_are_written_after_database_outage(
    take_database_away: tuple[str, Callable[[bool], None]], make_tenant: Callable[[], str]
) -> None:
    app_url, set_away = take_database_away
    tenant, query_id = make_tenant(), uuid4()
    async with Database(app_url, pool_size=1, timeout_s=0.5) as impatient:
        streams = AnswerStreamRepository(impatient.for_tenant(tenant), retention_s=60, longest_s=60)
        buffer = AnswerBuffer(
            streams, query_id, StopSignal(), deadline=Deadline.never(), max_bytes=1000, grace_s=60
        )
        assert await buffer.open()
        async with buffer:
            set_away(True)
            try:
                buffer.add(b"a\n\n", last=False)
                await asyncio.sleep(2)  # several attempts fail
            finally:
                set_away(False)
            async with Database(app_url, pool_size=1) as database, asyncio.timeout(20):
                patient = AnswerStreamRepository(database.for_tenant(tenant), retention_s=60, longest_s=60)
                found = await patient.read(query_id, 0)
                while found is None or found.last_id < 1:
                    await asyncio.sleep(0.05)
                    found = await patient.read(query_id, 0)
            buffer.add(b"b\n\n", last=True)
        found = await streams.read(query_id, 0)
    assert found is not None
    assert (found.state, [events for _, events in found.batches]) == ("ended", [b"a\n\n", b"b\n\n"])


async def test_cancelled_writer_marks_stream_as_lost(tenant_db: TenantDatabase) -> None:
    streams, query_id = AnswerStreamRepository(tenant_db, retention_s=60, longest_s=60), uuid4()
    buffer = AnswerBuffer(
        streams, query_id, StopSignal(), deadline=Deadline.never(), max_bytes=1000, grace_s=60
    )
    assert await buffer.open()

    async def answer() -> None:
        async with buffer:
            buffer.add(b"a\n\n", last=False)
            await asyncio.Event().wait()

    answering = asyncio.create_task(answer())
    await asyncio.sleep(0)
    answering.cancel()
    await asyncio.wait({answering})
    found = await streams.read(query_id, 0)
    assert found is not None
    assert found.state == "lost"


async def test_expired_stream_is_not_found_and_deleted_by_worker(
    database: Database, make_tenant: Callable[[], str]
) -> None:
    tenants = [database.for_tenant(make_tenant()) for _ in range(2)]
    ids = [uuid4() for _ in tenants]
    for db, query_id in zip(tenants, ids, strict=True):
        streams = AnswerStreamRepository(db, retention_s=0.05, longest_s=60)
        await streams.open(query_id)
        await streams.write(query_id, batch(1, b"a\n\n"), "ended")
    kept = AnswerStreamRepository(tenants[0], retention_s=60, longest_s=60)
    kept_id = uuid4()
    await kept.open(kept_id)
    await kept.write(kept_id, batch(1, b"a\n\n"), "ended")
    await asyncio.sleep(0.1)
    for db, query_id in zip(tenants, ids, strict=True):
        streams = AnswerStreamRepository(db, retention_s=60, longest_s=60)
        assert await streams.read(query_id, 0) is None
        assert await streams.request_stop(query_id) is None
    await IngestionWorker(database, no_pipeline, kept_stale_s=3600).run_until_idle()
    assert [await rows_of(db) for db in tenants] == [(1, 1), (0, 0)]
    assert await kept.read(kept_id, 0) is not None


def no_pipeline(tenant_id: str) -> IngestionPipeline:
    raise AssertionError("there are no documents")


async def rows_of(db: TenantDatabase) -> Sequence[int]:
    """Return the tenant's streams and batches, expired or not."""
    row = await db.fetch_one(
        "SELECT (SELECT count(*) FROM vectorforge.answer_streams) AS streams,"
        " (SELECT count(*) FROM vectorforge.answer_stream_batches) AS batches"
    )
    assert row is not None
    return (row["streams"], row["batches"])
