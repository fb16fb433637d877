"""Erasure of a tenant: no data is left or restored, and a certificate confirms it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.erasure.conftest import BIKE, CANARY, RAG, eraser_for, fill, stages
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.postgres.pin_rules import PinRule
from tests.support.postgres.tenant_dump import dump_database
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository, QueryLogWriter
from vectorforge.deadline import Deadline
from vectorforge.erasure.repo import (
    Subject,
    sha256_of,
)
from vectorforge.errors import TenantBeingErasedError
from vectorforge.local.postgres import EmbeddedPostgres


class TestTenant:
    async def test_erased_tenant_is_absent_from_a_dump(
        self,
        postgres_server: EmbeddedPostgres,
        make_database: Callable[..., str],
        tenants: tuple[str, str],
    ) -> None:
        url = make_database()
        app_url = make_conninfo(url, user="vectorforge_app")
        async with (
            live_api(settings_for(app_url, tenants)) as api,
            api.client(tenants[0]) as client,
            api.client(tenants[1]) as other,
        ):
            await fill(client)
            await add_documents(other, await new_collection(other), bike=BIKE)
            assert dump_database(url).count(CANARY.encode()) >= 8
            answer = await client.delete("/v1/tenant", params={"confirm": tenants[0]})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            certificate = body["certificate"]
            assert (body["status"], certificate["kind"], certificate["tenant"]) == (
                "done",
                "tenant",
                tenants[0],
            )
            assert {"documents", "chunks", "embeddings", "query_logs", "conversation_messages"} <= set(
                certificate["erased"]
            )
            assert certificate["erased"]["documents"] == 2
            assert sha256_of(certificate) == body["sha256"]
            # the certificate stays readable, and the tenant can start over
            again = await client.get(f"/v1/erasures/{body['id']}")
            assert (again.json()["certificate"], again.json()["sha256"]) == (certificate, body["sha256"])
            assert (await client.get("/v1/erasures")).json()["erasures"][0]["id"] == body["id"]
            assert (await client.get("/v1/collections")).json()["collections"] == []
            assert (await other.get("/v1/collections")).json()["collections"][0]["document_count"] == 1
            await add_documents(client, await new_collection(client), bike=BIKE)
        dump = dump_database(url)
        assert dump.count(CANARY.encode()) == 0
        assert dump.count(b"Oil the chain") >= 2  # the dump shows existing data

    async def test_erasure_without_confirmation_is_rejected(
        self, client: httpx2.AsyncClient, tenants: Any
    ) -> None:
        for confirm in ("", tenants[1]):
            answer = await client.delete("/v1/tenant", params={"confirm": confirm})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "confirm")

    async def test_requests_during_erasure_return_conflict(
        self, api: LiveApi, client: httpx2.AsyncClient, tenants: tuple[str, str]
    ) -> None:
        collection, _, _ = await fill(client)
        eraser = api.application.for_tenant(tenants[0]).eraser
        erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
        await stages(eraser, erasure_id, "rows")
        question = {"query": "How long must the dough rise?"}
        refused = [
            await client.post(RAG, json=question),
            await client.post(RAG, json={**question, "stream": True}),
            await client.get("/v1/collections"),
            await client.post("/v1/collections", json={"name": "new"}),
            await client.post(f"/v1/collections/{collection}/documents", json={"documents": []}),
        ]
        assert [answer.status_code for answer in refused] == [409] * 4 + [refused[4].status_code]
        assert {answer.json()["code"] for answer in refused[:4]} == {"tenant_being_erased"}
        assert refused[4].status_code in (409, 422)
        assert (await client.get(f"/v1/erasures/{erasure_id}")).json()["status"] == "running"
        async with api.client(tenants[1]) as other:
            assert (await other.get("/v1/collections")).status_code == 200
        await eraser.run(erasure_id)
        assert (await client.get("/v1/collections")).json()["collections"] == []

    @pytest.mark.pins(PinRule.SET_CONFIG)
    async def test_erasure_with_open_transaction_waits_for_it(
        self, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        db = direct_database.for_tenant(tenant)
        async with db.transaction() as connection:
            # the steps below may take longer than 5 s on a busy machine
            await connection.execute("SELECT set_config('idle_in_transaction_session_timeout', '60s', true)")
            eraser = eraser_for(direct_database, tenant)
            erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
            step = await eraser.erasures.step(erasure_id, 1000)
            assert (step.stage, step.waits) == ("waiting", True)
            running = asyncio.create_task(eraser.run(erasure_id))
            with pytest.raises(TenantBeingErasedError):
                await db.fetch_all("SELECT 1")
            await connection.execute(
                "INSERT INTO vectorforge.conversations (tenant_id, id, title) VALUES (%s, %s, %s)",
                (tenant, uuid4(), CANARY),
            )
        assert (await running).counts == {"conversations": 1, "conversation_counts": 1}
        assert await db.fetch_all("SELECT FROM vectorforge.conversations") == []

    async def test_erasure_after_crash_resumes(
        self, api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, tenants: tuple[str, str]
    ) -> None:
        await fill(client)
        first = eraser_for(direct_database, tenants[0], rows_a_step=1)
        erasure_id = await first.begin(Subject("tenant"), logs="text", requested_by="test")
        begun = await first.run(erasure_id, Deadline.after(0))
        steps = 1
        while not begun.is_done:  # each step in a new process, as if all were killed after one
            begun = await eraser_for(direct_database, tenants[0], rows_a_step=1).run(
                await first.begin(Subject("tenant"), logs="text", requested_by="another"), Deadline.after(0)
            )
            steps += 1
        assert (begun.id, begun.requested_by) == (erasure_id, "test")
        assert steps > 10
        assert (begun.counts["documents"], begun.counts["collections"]) == (2, 1)

    async def test_abandoned_erasure_is_finished_by_a_worker(
        self, api: LiveApi, direct_database: Database, superuser: Any, tenants: tuple[str, str]
    ) -> None:
        eraser = eraser_for(direct_database, tenants[0])
        erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
        left = "UPDATE vectorforge.erasures SET lease_expires_at = now() - interval '1 s' WHERE id = %s"
        superuser.execute(left, (erasure_id,))
        while not (found := await eraser.erasures.find_by_id(erasure_id)) or not found.is_done:
            await api.application.background.resume_erasure()  # other tests' erasures may be first
        assert found.certificate is not None

    async def test_late_log_records_of_erased_tenant_are_dropped(
        self, direct_database: Database, log_writer: QueryLogWriter, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        logs = QueryLogRepository(direct_database.for_tenant(tenant))
        before = QueryLog(uuid4(), uuid4(), CANARY, [], CANARY, 1.0, created_at=datetime.now(UTC))
        eraser = eraser_for(direct_database, tenant)
        erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
        await log_writer.write([(tenant, replace(before, id=uuid4()))])  # while it runs
        done = await eraser.run(erasure_id)
        assert done.finished_at is not None
        after = replace(before, id=uuid4(), created_at=done.finished_at + timedelta(minutes=1))
        await log_writer.write(
            [(tenant, before), (tenant, replace(before, outcome="started")), (tenant, after)]
        )
        await logs.create(replace(before, id=uuid4()))  # a late record of a server
        assert [log.id for log in await logs.list()] == [after.id]
