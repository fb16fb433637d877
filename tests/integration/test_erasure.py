"""Erasure (issue 8, point 3): nothing is left, nothing brings it back, and a certificate says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    finished_job,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.postgres.tenant_dump import dump_database
from vectorforge.db.connection import Database
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository, QueryLogWriter
from vectorforge.deadline import Deadline
from vectorforge.erasure.certificate import digest_of_ids, sha256_of
from vectorforge.erasure.eraser import Eraser
from vectorforge.erasure.repo import Erasure, ErasureDatabase, ErasureRepository, LogPolicy, Subject
from vectorforge.errors import NotFoundError, TenantBeingErasedError
from vectorforge.local.postgres import EmbeddedPostgres

RAG = "/v1/rag/query"
CANARY = "quokkasaurus"
BREAD = f"# Bread\n\nLet the {CANARY} dough rise for two hours before baking it at 230 degrees.\n"
BIKE = "# Bike\n\nOil the chain every three hundred kilometres.\n"

# Tables of the schema that an erasure of a tenant does not go through.
NOT_ERASED = """
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'vectorforge'::regnamespace AND c.relkind = 'r'
    AND c.relname NOT IN (SELECT name FROM vectorforge.tables_to_erase())
"""
KEPT = {"schema_migrations", "erasures", "closed_tenants"}
"""Without content; the last two are the erasure's own."""


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenants: tuple[str, str]) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(postgres_server.app_url, tenants)) as started:
        yield started


@pytest.fixture
async def client(api: LiveApi, tenants: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    async with api.client(tenants[0]) as opened:
        yield opened


@pytest.fixture
async def log_writer(postgres_server: EmbeddedPostgres) -> AsyncIterator[QueryLogWriter]:
    async with Database(postgres_server.log_writer_url, pool_size=1) as database:
        yield QueryLogWriter(database)


async def fill(client: httpx2.AsyncClient) -> tuple[str, str, str]:
    """Documents, questions, a conversation, a kept stream; ids of collection, document, conversation."""
    collection = await new_collection(client)
    job = await add_documents(client, collection, bread=BREAD, bike=BIKE)
    conversation = (await client.post("/v1/conversations", json={"title": f"About {CANARY}"})).json()["id"]
    question = {"query": f"How long must the {CANARY} dough rise?"}
    for _ in range(2):  # the second one comes from the cache
        (await client.post(RAG, json=question)).raise_for_status()
    (await client.post(RAG, json={**question, "conversation_id": conversation})).raise_for_status()
    await ask_streaming(client, RAG, {**question, "resumable": True})
    return collection, job["documents"][0]["document_id"], conversation


def eraser_for(database: Database, tenant: str, **options: Any) -> Eraser:
    return Eraser(ErasureRepository(ErasureDatabase(database, tenant)), **options)


async def erase(
    database: Database, tenant: str, subject: Subject, logs: LogPolicy = "text", **options: Any
) -> Erasure:
    eraser = eraser_for(database, tenant, **options)
    return await eraser.run(await eraser.begin(subject, logs=logs, requested_by="test"))


async def stages(eraser: Eraser, erasure_id: UUID, until: str) -> None:
    """Step by step, until that stage comes next."""
    while (await eraser.erasures.step(erasure_id, 1)).stage != until:
        pass


class TestTheCatalogue:
    def test_no_table_is_forgotten(self, postgres_server: EmbeddedPostgres) -> None:
        with psycopg.connect(postgres_server.migrator_url) as connection:
            assert {name for (name,) in connection.execute(NOT_ERASED.encode())} == KEPT

    def test_a_table_that_nobody_would_erase_is_seen(self, make_database: Callable[..., str]) -> None:
        with psycopg.connect(make_database()) as connection:
            connection.execute("CREATE TABLE vectorforge.bare (note text)")
            assert {name for (name,) in connection.execute(NOT_ERASED.encode())} == {*KEPT, "bare"}

    async def test_a_table_of_a_later_migration_is_erased(
        self, postgres_server: EmbeddedPostgres, make_database: Callable[..., str]
    ) -> None:
        """Also one whose migration forgot to let the eraser delete."""
        url = make_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET ROLE vectorforge_migrator")
            connection.execute(
                "CREATE TABLE vectorforge.later (tenant_id text NOT NULL, id uuid PRIMARY KEY,"
                " collection_id uuid,"
                " FOREIGN KEY (tenant_id, collection_id) REFERENCES vectorforge.collections)"
            )
            connection.execute(
                "ALTER TABLE vectorforge.later ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
            )
            connection.execute(
                "CREATE POLICY tenant ON vectorforge.later"
                " USING (tenant_id = NULLIF(current_setting('vectorforge.tenant', true), ''))"
            )
            connection.execute("RESET ROLE")
            ids = {"acme": uuid4(), "other": uuid4()}
            for tenant, row_id in ids.items():
                connection.execute("INSERT INTO vectorforge.later VALUES (%s, %s, NULL)", (tenant, row_id))
            async with Database(make_conninfo(url, user="vectorforge_eraser"), pool_size=1) as database:
                done = await erase(database, "acme", Subject("tenant"))
            assert done.counts == {"later": 1}
            assert connection.execute("SELECT tenant_id FROM vectorforge.later").fetchall() == [("other",)]
            digest = f"{int(done.digests['later'], 2):064x}"
            assert digest == digest_of_ids([ids["acme"]])


class TestATenant:
    async def test_nothing_of_it_is_left_in_a_dump(
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
            # readable again, and the tenant may begin anew
            again = await client.get(f"/v1/erasures/{body['id']}")
            assert (again.json()["certificate"], again.json()["sha256"]) == (certificate, body["sha256"])
            assert (await client.get("/v1/erasures")).json()["erasures"][0]["id"] == body["id"]
            assert (await client.get("/v1/collections")).json()["collections"] == []
            assert (await other.get("/v1/collections")).json()["collections"][0]["document_count"] == 1
            await add_documents(client, await new_collection(client), bike=BIKE)
        dump = dump_database(url)
        assert dump.count(CANARY.encode()) == 0
        assert dump.count(b"Oil the chain") >= 2  # the dump shows what is there

    async def test_it_has_to_be_confirmed_by_name(self, client: httpx2.AsyncClient, tenants: Any) -> None:
        for confirm in ("", tenants[1]):
            answer = await client.delete("/v1/tenant", params={"confirm": confirm})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "confirm")

    async def test_its_requests_are_refused_until_it_is_done(
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

    async def test_whoever_was_inside_when_it_began_is_waited_for(
        self, direct_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        tenant = make_tenant()
        db = direct_database.for_tenant(tenant)
        async with db.transaction() as connection:
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
        assert (await running).counts == {"conversations": 1}
        assert await db.fetch_all("SELECT FROM vectorforge.conversations") == []

    async def test_it_goes_on_after_a_crash_wherever_it_ended(
        self, api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, tenants: tuple[str, str]
    ) -> None:
        await fill(client)
        first = eraser_for(direct_database, tenants[0], rows_a_step=1)
        erasure_id = await first.begin(Subject("tenant"), logs="text", requested_by="test")
        begun = await first.run(erasure_id, Deadline.after(0))
        steps = 1
        while not begun.is_done:  # each step by somebody else, as if all were killed after one
            begun = await eraser_for(direct_database, tenants[0], rows_a_step=1).run(
                await first.begin(Subject("tenant"), logs="text", requested_by="another"), Deadline.after(0)
            )
            steps += 1
        assert (begun.id, begun.requested_by) == (erasure_id, "test")
        assert steps > 10
        assert (begun.counts["documents"], begun.counts["collections"]) == (2, 1)

    async def test_a_worker_takes_up_what_was_left(
        self, api: LiveApi, direct_database: Database, superuser: Any, tenants: tuple[str, str]
    ) -> None:
        eraser = eraser_for(direct_database, tenants[0])
        erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
        left = "UPDATE vectorforge.erasures SET lease_expires_at = now() - interval '1 s' WHERE id = %s"
        superuser.execute(left, (erasure_id,))
        while not (found := await eraser.erasures.find_by_id(erasure_id)) or not found.is_done:
            await api.application.background.resume_erasure()  # other tests' may come first
        assert found.certificate is not None

    async def test_records_that_were_on_their_way_write_nothing(
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
        await logs.create(replace(before, id=uuid4()))  # a server's own, late
        assert [log.id for log in await logs.list()] == [after.id]


class TestADocument:
    @pytest.mark.parametrize("logs", ["text", "rows"])
    async def test_answers_made_of_it_go_and_others_stay(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        superuser: Any,
        tenants: tuple[str, str],
        logs: LogPolicy,
    ) -> None:
        _, document, conversation = await fill(client)
        bike = {"query": "How often must I oil the chain?", "filters": {"kind": "bike"}}
        kept = (await client.post(RAG, json=bike)).json()
        done = await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)), logs)
        assert done.counts["documents"] == 1
        assert done.counts["chunks"] == done.counts["embeddings"] == 1
        assert f"{int(done.digests['documents'], 2):064x}" == digest_of_ids([document])
        assert rows_with(superuser, tenants[0], CANARY) == {}
        logged = (await client.get("/v1/queries")).json()["queries"]
        assert len(logged) == (5 if logs == "text" else 1)
        texts = {row["query_text"] for row in logged}
        assert texts == ({bike["query"], ""} if logs == "text" else {bike["query"]})
        messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
        assert [message["content"] for message in messages] == ["[erased]", "[erased]"]
        # and what is left still answers
        assert (await client.post(RAG, json=bike)).json()["response"] == kept["response"]
        assert (await client.get(f"/v1/documents/{document}")).status_code == 404

    async def test_its_answer_is_not_served_from_a_cache(self, client: httpx2.AsyncClient) -> None:
        """Of this process's memory and of the table (D7): the data's version is another one."""
        _, document, _ = await fill(client)
        question = {"query": f"How long must the {CANARY} dough rise?"}
        assert CANARY in (await client.post(RAG, json=question)).json()["response"]
        answer = await client.delete(f"/v1/documents/{document}")
        assert (answer.status_code, answer.json()["certificate"]["document_id"]) == (200, document)
        assert CANARY not in (await client.post(RAG, json=question)).json()["response"]
        assert (await client.delete(f"/v1/documents/{document}")).status_code == 404

    async def test_records_that_were_on_their_way_are_emptied(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        log_writer: QueryLogWriter,
        tenants: tuple[str, str],
    ) -> None:
        collection, document, _ = await fill(client)
        chunk = (await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"][0]["id"]
        await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
        late = QueryLog(uuid4(), UUID(collection), CANARY, [uuid4(), UUID(chunk)], CANARY, 1.0)
        other = replace(late, id=uuid4(), retrieved_chunk_ids=[uuid4()])
        started = replace(late, retrieved_chunk_ids=[], generated_response="", outcome="started")
        await log_writer.write([(tenants[0], started)])
        await log_writer.write([(tenants[0], late), (tenants[0], other)])
        logs = QueryLogRepository(direct_database.for_tenant(tenants[0]))
        found = [await logs.find_by_id(log.id) for log in (late, other)]
        assert [(log.query_text, log.generated_response) for log in found if log] == [
            ("", ""),
            (CANARY, CANARY),
        ]

    @pytest.mark.parametrize("log_first", [True, False])
    @pytest.mark.parametrize("logs", ["text", "rows"])
    async def test_what_is_said_beside_a_late_record_is_erased(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        log_writer: QueryLogWriter,
        tenants: tuple[str, str],
        logs: LogPolicy,
        log_first: bool,
    ) -> None:
        """An exchange is added to its conversation beside its record, in any order."""
        collection, document, conversation = await fill(client)
        chunk = (await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"][0]["id"]
        await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)), logs)
        late = QueryLog(uuid4(), UUID(collection), CANARY, [UUID(chunk)], CANARY, 1.0)
        conversations = ConversationRepository(
            direct_database.for_tenant(tenants[0]), max_conversations=9, max_messages=99
        )
        if log_first:
            await log_writer.write([(tenants[0], late)])
        assert await conversations.append(UUID(conversation), CANARY, CANARY, late.id)
        if not log_first:
            await log_writer.write([(tenants[0], late)])
        messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
        assert [message["content"] for message in messages] == ["[erased]"] * 4

    async def test_a_job_that_waits_does_not_bring_it_back(
        self, api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, tenants: tuple[str, str]
    ) -> None:
        collection, document, _ = await fill(client)
        await api.application.background.worker.stop()
        again = {"source": "bread.md", "text": BREAD + "More.", "media_type": "text/markdown"}
        path = f"/v1/collections/{collection}/documents"
        job = (await client.post(path, json={"documents": [again]})).json()
        done = await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
        assert done.counts["ingestion_job_items"] == 2
        api.application.background.worker.start()
        await finished_job(client, job["id"])
        assert (await client.get(path)).json()["total"] == 1

    async def test_there_has_to_be_one(self, direct_database: Database, make_tenant: Any) -> None:
        for subject in (
            Subject("document", document_id=uuid4()),
            Subject("collection", uuid4()),
            Subject("profile", uuid4(), profile_id=1),
        ):
            with pytest.raises(NotFoundError):
                await erase(direct_database, make_tenant(), subject)


async def test_a_collection_goes_with_its_questions(
    client: httpx2.AsyncClient, superuser: Any, tenants: tuple[str, str]
) -> None:
    collection, _, _ = await fill(client)
    other = await new_collection(client, "other")
    await add_documents(client, other, bike=BIKE)
    answer = await client.delete(f"/v1/collections/{collection}")
    assert answer.status_code == 200, answer.text
    erased = answer.json()["certificate"]["erased"]
    assert (erased["documents"], erased["collections"], erased["ingestion_jobs"]) == (2, 1, 1)
    assert rows_with(superuser, tenants[0], CANARY) == {}
    assert [one["id"] for one in (await client.get("/v1/collections")).json()["collections"]] == [other]
    assert rows_with(superuser, tenants[0], "Oil the chain") != {}
    words = (
        "SELECT count(*) FROM vectorforge.packed_postings"
        " WHERE scope NOT IN (SELECT term_scope FROM vectorforge.collections)"
    )
    assert superuser.execute(words).fetchone() == (0,)


async def test_a_profile_goes_with_its_rows(
    client: httpx2.AsyncClient, superuser: Any, tenants: tuple[str, str]
) -> None:
    for profile in (1, 2):
        row = {"text": f"{CANARY} {profile}", "source_type": "cv", "source_id": "7"}
        (await client.post(f"/v1/profiles/{profile}/documents", json=row)).raise_for_status()
    answer = await client.delete("/v1/profiles/1")
    assert answer.json()["certificate"]["profile_id"] == 1
    assert rows_with(superuser, tenants[0], f"{CANARY} 1") == {}
    assert "chunks" in rows_with(superuser, tenants[0], f"{CANARY} 2")
    assert (await client.delete("/v1/profiles/1")).status_code == 404


async def test_texts_of_the_log_go_after_their_time(
    direct_database: Database, make_tenant: Callable[[], str]
) -> None:
    """Retention: 30 days for texts; rows stay for statistics."""
    logs = QueryLogRepository(direct_database.for_tenant(make_tenant()))
    new = QueryLog(uuid4(), uuid4(), "new", [], "new", 1.0, created_at=datetime.now(UTC) - timedelta(days=29))
    old = replace(new, id=uuid4(), query_text="old", created_at=datetime.now(UTC) - timedelta(days=31))
    for log in (new, old):
        await logs.create(log)
    await JobDispatcher(direct_database).erase_old_log_texts(30)
    assert [(log.query_text, log.generated_response) for log in await logs.list()] == [
        ("new", "new"),
        ("", ""),
    ]


@pytest.fixture
def superuser(postgres_server: EmbeddedPostgres) -> Any:
    with psycopg.connect(postgres_server.migrator_url, autocommit=True) as connection:
        yield connection


def rows_with(superuser: psycopg.Connection[Any], tenant: str, text: str) -> dict[str, int]:
    """How many rows of a tenant hold a text, by table; those without are left out."""
    tables = superuser.execute(
        "SELECT name FROM vectorforge.tables_to_erase() WHERE of_tenant UNION SELECT 'erasures'"
    ).fetchall()
    found = {}
    for (table,) in tables:
        counted = superuser.execute(
            f"SELECT count(*) FROM vectorforge.{table} AS t WHERE tenant_id = %s"
            " AND (t::text ILIKE %s OR t::text LIKE %s)".encode(),
            (tenant, f"%{text}%", f"%{text.encode().hex()}%"),
        ).fetchone()
        if counted and counted[0]:
            found[table] = counted[0]
    return found
