"""Writes during and after an erasure restore no data, at any moment."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.erasure.conftest import (
    BREAD,
    CANARY,
    digest_of_ids,
    erase,
    eraser_for,
    fill,
    rows_with,
    stages,
)
from tests.support.http.live_api import LiveApi, add_documents, new_collection
from vectorforge.db.connection import Database
from vectorforge.db.repositories.answer_cache_repo import AnswerCacheRepository
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.job_repo import JobDispatcher
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository, QueryLogWriter
from vectorforge.erasure.repo import LogPolicy, Subject
from vectorforge.local.postgres import EmbeddedPostgres


async def first_chunk(client: httpx2.AsyncClient, document: str) -> UUID:
    return UUID((await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"][0]["id"])


def log_of(collection: str, chunk: UUID) -> QueryLog:
    return QueryLog(uuid4(), UUID(collection), CANARY, [chunk], CANARY, 1.0, created_at=datetime.now(UTC))


async def test_record_after_log_stage_is_emptied(
    direct_database: Database, log_writer: QueryLogWriter, superuser: Any, tenants: tuple[str, str]
) -> None:
    """Between the last deleted row and the certificate; its time is later than any erasure's end."""
    eraser = eraser_for(direct_database, tenants[0])
    erasure_id = await eraser.begin(Subject("tenant"), logs="text", requested_by="test")
    await stages(eraser, erasure_id, "objects")
    late = log_of(str(uuid4()), uuid4())
    await log_writer.write([(tenants[0], late)])
    assert rows_with(superuser, tenants[0], CANARY) == {}
    await eraser.run(erasure_id)
    assert rows_with(superuser, tenants[0], CANARY) == {}
    await log_writer.write([(tenants[0], late)])
    assert rows_with(superuser, tenants[0], CANARY) == {}


async def test_erasure_with_running_ingestion_waits_for_it(
    api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, superuser: Any,
    tenants: tuple[str, str],
) -> None:  # fmt: skip
    collection, document, _ = await fill(client)
    await api.application.background.worker.stop()
    again = {"source": "bread.md", "text": BREAD + "More.", "media_type": "text/markdown"}
    path = f"/v1/collections/{collection}/documents"
    job = (await client.post(path, json={"documents": [again]})).json()["id"]
    # as returned by the dispatcher
    superuser.execute(
        "UPDATE vectorforge.ingestion_job_items SET status = 'running' WHERE job_id = %s", (job,)
    )
    superuser.execute(
        "UPDATE vectorforge.ingestion_jobs SET status = 'running', lease_expires_at = now() + interval '1 h'"
        " WHERE id = %s",
        (job,),
    )
    eraser = eraser_for(direct_database, tenants[0])
    subject = Subject("document", document_id=UUID(document))
    erasure_id = await eraser.begin(subject, logs="text", requested_by="test")
    await stages(eraser, erasure_id, "jobs")
    for _ in range(2):
        step = await eraser.erasures.step(erasure_id, 1000)
        assert (step.stage, step.waits) == ("jobs", True)
    assert (await client.get(f"/v1/documents/{document}")).status_code == 200
    superuser.execute("UPDATE vectorforge.ingestion_jobs SET lease_expires_at = now() WHERE id = %s", (job,))
    assert (await eraser.run(erasure_id)).is_done  # its worker has died
    assert rows_with(superuser, tenants[0], CANARY) == {}


@pytest.mark.parametrize("kind", ["collection", "tenant"])
async def test_job_of_erased_subject_is_not_claimed(
    api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, superuser: Any,
    tenants: tuple[str, str], kind: str,
) -> None:  # fmt: skip
    collection, _, _ = await fill(client)
    await api.application.background.worker.stop()
    new = {"source": "new.md", "text": BREAD, "media_type": "text/markdown"}
    posted = await client.post(f"/v1/collections/{collection}/documents", json={"documents": [new]})
    eraser = eraser_for(direct_database, tenants[0])
    subject = Subject("tenant") if kind == "tenant" else Subject("collection", UUID(collection))
    erasure_id = await eraser.begin(subject, logs="text", requested_by="test")
    status = "SELECT status, error_code FROM vectorforge.ingestion_jobs WHERE id = %s"
    assert superuser.execute(status, (posted.json()["id"],)).fetchall() == [("failed", "erased")]
    assert (await eraser.run(erasure_id)).is_done


async def test_erasure_with_open_log_transaction_waits_for_it(
    client: httpx2.AsyncClient, direct_database: Database, superuser: Any, tenants: tuple[str, str]
) -> None:
    """Its transaction begins before the chunk's tombstone, and commits after it."""
    collection, document, _ = await fill(client)
    concurrent = log_of(collection, await first_chunk(client, document))
    insert = (
        "INSERT INTO vectorforge.query_logs (tenant_id, id, collection_id, query_text, retrieved_chunk_ids,"
        " generated_response, outcome, latency_ms) VALUES (%s, %s, %s, %s, to_jsonb(%s::uuid[]), %s,"
        " 'answered', 1)"
    )
    values = (concurrent.query_text, list(concurrent.retrieved_chunk_ids), concurrent.generated_response)
    eraser = eraser_for(direct_database, tenants[0])
    async with direct_database.for_tenant(tenants[0]).transaction() as connection:
        await connection.execute(insert, (tenants[0], concurrent.id, concurrent.collection_id, *values))
        subject = Subject("document", document_id=UUID(document))
        erasure_id = await eraser.begin(subject, logs="text", requested_by="test")
        await stages(eraser, erasure_id, "caches")
        step = await eraser.erasures.step(erasure_id, 1000)
        assert (step.stage, step.waits) == ("caches", True)
    await eraser.run(erasure_id)
    assert rows_with(superuser, tenants[0], CANARY) == {}
    found = await QueryLogRepository(direct_database.for_tenant(tenants[0])).find_by_id(concurrent.id)
    assert found is not None
    assert (found.query_text, found.generated_response) == ("", "")


@pytest.mark.parametrize("logs", ["text", "rows"])
async def test_messages_added_after_erased_record_are_erased(
    client: httpx2.AsyncClient, direct_database: Database, log_writer: QueryLogWriter,
    tenants: tuple[str, str], logs: LogPolicy,
) -> None:  # fmt: skip
    collection, document, conversation = await fill(client)
    log = log_of(collection, await first_chunk(client, document))
    await log_writer.write([(tenants[0], log)])
    await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)), logs)
    conversations = ConversationRepository(
        direct_database.for_tenant(tenants[0]), max_conversations=9, max_messages=99
    )
    assert await conversations.append(UUID(conversation), CANARY, CANARY, log.id)
    messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
    assert {message["content"] for message in messages} == {"[erased]"}


async def test_late_answer_of_erased_document_is_not_cached(
    client: httpx2.AsyncClient, direct_database: Database, superuser: Any, tenants: tuple[str, str]
) -> None:
    collection, document, _ = await fill(client)
    db = direct_database.for_tenant(tenants[0])
    answers = AnswerCacheRepository(db, ttl_s=60, stale_s=60)
    found = await answers.find(bytes(32), UUID(collection))
    assert found is not None
    await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
    answer = f'{{"answer": "{CANARY}"}}'
    await db.execute(*answers.end_write(bytes(32), UUID(collection), found.data_version, answer))
    assert rows_with(superuser, tenants[0], CANARY) == {}
    await db.execute(*answers.end_write(bytes(32), UUID(collection), found.data_version + 1, answer))
    assert rows_with(superuser, tenants[0], CANARY) == {"cached_answers": 1}  # created after it


@pytest.mark.parametrize("logs", ["text", "rows"])
async def test_late_record_of_erased_collection_is_emptied(
    client: httpx2.AsyncClient, direct_database: Database, log_writer: QueryLogWriter, superuser: Any,
    tenants: tuple[str, str], logs: LogPolicy,
) -> None:  # fmt: skip
    """Also one without chunks: of a query that found nothing, or has only started."""
    collection = await new_collection(client)
    other = await new_collection(client, "other")
    await erase(direct_database, tenants[0], Subject("collection", UUID(collection)), logs)
    late = replace(log_of(collection, uuid4()), retrieved_chunk_ids=[])
    elsewhere = replace(late, id=uuid4(), collection_id=UUID(other))
    await log_writer.write([(tenants[0], late), (tenants[0], elsewhere)])
    assert rows_with(superuser, tenants[0], CANARY) == {"query_logs": 1}
    retained = {row.id for row in await QueryLogRepository(direct_database.for_tenant(tenants[0])).list()}
    assert retained == ({elsewhere.id} if logs == "rows" else {late.id, elsewhere.id})


async def test_tombstones_are_retained_longer_than_messages(
    client: httpx2.AsyncClient, direct_database: Database, superuser: Any, tenants: tuple[str, str]
) -> None:
    _, document, _ = await fill(client)
    await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
    count = "SELECT count(*) FROM vectorforge.tombstones WHERE tenant_id = %s"
    ageing = (
        "UPDATE vectorforge.tombstones SET erased_at = now() - make_interval(days => %s) WHERE tenant_id = %s"
    )
    for days, are_retained in ((59, True), (61, False)):
        superuser.execute(ageing, (days, tenants[0]))
        await JobDispatcher(direct_database).erase_old_log_texts(30)
        assert (superuser.execute(count, (tenants[0],)).fetchone()[0] > 0) == are_retained


async def test_certificate_counts_match_rows_over_steps_and_crashes(
    api: LiveApi, client: httpx2.AsyncClient, postgres_server: EmbeddedPostgres, tenants: tuple[str, str],
    superuser: Any,
) -> None:  # fmt: skip
    """Numbers and digests of every table match the rows before the erasure."""
    collection = await new_collection(client)
    texts = {name: f"The {CANARY} of {name}.\n\n" * 3 for name in ("a", "b", "c", "d", "e")}
    await add_documents(client, collection, **texts)
    tables = superuser.execute(
        "SELECT name, has_id FROM vectorforge.tables_to_erase()"
        " WHERE of_tenant AND name <> 'tombstones' AND NOT starts_with(name, 'embeddings_')"
    ).fetchall()
    expected: dict[str, tuple[int, str | None]] = {}
    for table, has_id in tables:
        key = "id" if has_id else "NULL"
        query = f"SELECT {key} FROM vectorforge.{table} WHERE tenant_id = %s"
        ids = [row[0] for row in superuser.execute(query.encode(), (tenants[0],))]
        if ids:
            expected[table] = (len(ids), digest_of_ids(ids) if has_id else None)
    url = make_conninfo(postgres_server.migrator_url, user="vectorforge_eraser")
    async with Database(url, pool_size=1) as database:
        done = await erase(database, tenants[0], Subject("tenant"), rows_a_step=2)
    found = {
        table: (count, f"{int(done.digests[table], 2):064x}" if table in done.digests else None)
        for table, count in done.counts.items()
        if table in expected
    }
    assert found == expected
    assert (expected["documents"][0], expected["chunks"][0]) == (5, done.counts["embeddings"])
