"""Two connections that write the same rows: the second one waits for the first, and sees what it did."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from tests.support.rag.collections import insert_collection
from tests.support.rag.query_logs import make_log
from vectorforge.db.connection import Database
from vectorforge.db.repositories.answer_stream_repo import EventBatch
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.feedback_repo import Feedback, FeedbackRepository
from vectorforge.db.repositories.file_repo import FileRepository
from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, FeedbackTooEarlyError
from vectorforge.types import DistanceMetric

_BLOCKED = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))) AS is_blocked"
T = TypeVar("T")


@pytest.fixture
def db(direct_database: Database, tenant: str) -> TenantDatabase:
    return direct_database.for_tenant(tenant)


@asynccontextmanager
async def blocked_by(
    db: TenantDatabase, write: Awaitable[T], statement: str, **values: Any
) -> AsyncIterator[asyncio.Future[T]]:
    """Begin a write while another transaction has run a statement; that one commits before the block."""
    async with db.transaction() as connection:
        await connection.execute(statement.encode(), db.named(**values))
        row = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        assert row is not None
        pid, waiting = (row["pid"],), asyncio.ensure_future(write)
        while not waiting.done() and not (await db.fetch_all(_BLOCKED, pid))[0]["is_blocked"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not waiting.done()
    yield waiting


def conversations_of(db: TenantDatabase, limit: int = 1000) -> ConversationRepository:
    return ConversationRepository(db, max_conversations=limit, max_messages=100)


async def test_exchange_added_while_the_only_other_is_deleted_survives(db: TenantDatabase) -> None:
    conversations = conversations_of(db)
    conversation = (await conversations.create()).id
    first, second = uuid4(), uuid4()
    await conversations.append(conversation, "one?", "one", first)
    added = """
        WITH grown AS (
            UPDATE vectorforge.conversations SET message_count = message_count + 2
            WHERE tenant_id = %(tenant_id)s AND id = %(id)s
        )
        INSERT INTO vectorforge.conversation_messages (tenant_id, conversation_id, position, role, content,
            query_id)
        VALUES (%(tenant_id)s, %(id)s, 2, 'user', 'two?', %(query)s),
            (%(tenant_id)s, %(id)s, 3, 'assistant', 'two', %(query)s)
    """
    deletion = conversations.delete_exchange(conversation, first)
    async with blocked_by(db, deletion, added, id=conversation, query=second) as deleted:
        assert await deleted
    messages = await conversations.last_messages(conversation, 10)
    assert [message.query_id for message in messages] == [second, second]


async def test_feedback_on_a_query_that_is_deleted_meanwhile_finds_none(db: TenantDatabase) -> None:
    log = make_log()
    await QueryLogRepository(db).create(log)
    store = FeedbackRepository(db).store(Feedback(log.id, "someone", "up"))
    deletion = "DELETE FROM vectorforge.query_logs WHERE tenant_id = %(tenant_id)s AND id = %(id)s"
    async with blocked_by(db, store, deletion, id=log.id) as stored:
        with pytest.raises(FeedbackTooEarlyError):
            await stored


async def attached_file(db: TenantDatabase) -> tuple[UUID, UUID]:
    """Return the ids of a collection and of a file that is attached to it."""
    files = FileRepository(db)
    file = await files.create("a.md", "assistants", "text/markdown", b"Words.")
    collection = await insert_collection(db, 2, DistanceMetric.COSINE)
    assert await files.attach(collection, {file: {}}, uuid4())
    return collection, file


_DOCUMENT = """
    WITH ended AS (
        UPDATE vectorforge.ingestion_job_items SET status = 'succeeded', content = NULL, document_id = %(id)s
        WHERE tenant_id = %(tenant_id)s AND document_id = %(id)s
    )
    INSERT INTO vectorforge.documents (tenant_id, id, collection_id, source, media_type, text, size_chars,
        content_hash)
    VALUES (%(tenant_id)s, %(id)s, %(collection)s, 'a.md', 'text/markdown', 'Words.', 6, sha256('x'))
"""


async def test_file_that_became_a_document_meanwhile_is_not_deleted_without_it(db: TenantDatabase) -> None:
    collection, file = await attached_file(db)
    deletion = FileRepository(db).delete(file)
    async with blocked_by(db, deletion, _DOCUMENT, id=file, collection=collection) as deleted:
        with pytest.raises(ConflictError):
            await deleted
    stored = await FileRepository(db).find(file)
    assert stored is not None
    assert (stored.status, stored.filename) == ("completed", "a.md")


async def test_file_deleted_while_it_is_attached_stays(db: TenantDatabase) -> None:
    files = FileRepository(db)
    file = await files.create("a.md", "assistants", "text/markdown", b"Words.")
    collection = await insert_collection(db, 2, DistanceMetric.COSINE)
    job = "INSERT INTO vectorforge.ingestion_jobs (tenant_id, id, collection_id, documents_total)"
    attaching = f"""
        WITH job AS ({job} VALUES (%(tenant_id)s, %(job)s, %(collection)s, 1)), item AS (
            INSERT INTO vectorforge.ingestion_job_items (tenant_id, job_id, ordinal, source, document_id,
                content)
            VALUES (%(tenant_id)s, %(job)s, 0, 'a.md', %(id)s, '')
        )
        UPDATE vectorforge.uploaded_files SET expires_at = NULL, collection_id = %(collection)s,
            document_id = id, job_id = %(job)s, ordinal = 0, source = 'a.md'
        WHERE tenant_id = %(tenant_id)s AND id = %(id)s
    """
    deletion = files.delete(file)
    async with blocked_by(db, deletion, attaching, id=file, collection=collection, job=uuid4()) as deleted:
        with pytest.raises(ConflictError):
            await deleted
    assert await files.find(file, collection)


async def test_conversation_counts_are_exact_after_concurrent_changes(db: TenantDatabase) -> None:
    conversations = conversations_of(db)

    async def change(number: int) -> None:
        begun = await conversations.create(credential=f"key-{number % 3}")
        await conversations.append(begun.id, "one?", "one", uuid4())
        if number % 2:
            await conversations.delete(begun.id)
        if number % 4 == 0:
            await conversations.start_session("someone")

    await asyncio.gather(*map(change, range(40)))
    counts = """
        SELECT credential, conversations::int FROM vectorforge.conversation_counts
        WHERE tenant_id = %(tenant_id)s
    """
    counted = {row["credential"]: row["conversations"] for row in await db.fetch_all(counts, {})}
    whose = "SELECT credential FROM vectorforge.conversations WHERE tenant_id = %(tenant_id)s"
    rows = [row["credential"] for row in await db.fetch_all(whose, {})]
    sessions = [name for name in rows if name.startswith("session:")]
    assert counted == {"": len(rows), "session:": len(sessions), **{name: rows.count(name) for name in rows}}
    await conversations.create()
    with pytest.raises(ConflictError, match="The limit of 31 conversations"):
        await conversations_of(db, 31).create()


async def test_counts_are_gone_with_the_last_conversation(db: TenantDatabase) -> None:
    conversations = conversations_of(db)
    for begun in [await conversations.create(credential="key"), await conversations.start_session("key")]:
        await conversations.delete(begun.id)
    rows = "SELECT FROM vectorforge.conversation_counts WHERE tenant_id = %(tenant_id)s"
    assert await db.fetch_all(rows, {}) == []


async def test_answers_that_end_at_once_have_places_of_their_own(db: TenantDatabase) -> None:
    answers = IdempotentAnswerRepository(db, retention_s=60, longest_s=60, max_keys=6, max_bytes=40)

    async def answer(number: int) -> None:
        query = uuid4()
        claimed = await answers.claim(bytes([number]) * 32, bytes(32), query)
        assert claimed is not None
        assert claimed.query_id == query
        await answers.write(query, EventBatch(1, b"ten bytes.", 1), "ended")

    await asyncio.gather(*map(answer, range(10)))
    places = """
        SELECT place::int, stored_bytes::int AS bytes, state FROM vectorforge.answer_streams
        WHERE tenant_id = %(tenant_id)s ORDER BY place
    """
    rows = await db.fetch_all(places, {})
    assert [row["place"] for row in rows] == [5, 6, 7, 8, 9, 10]
    assert [(row["bytes"], row["state"]) for row in rows] == [(0, "overflowed")] * 2 + [(10, "ended")] * 4


async def test_collection_renamed_to_a_name_that_is_taken_meanwhile_is_a_conflict(db: TenantDatabase) -> None:
    first, second = [await insert_collection(db, 2, DistanceMetric.COSINE) for _ in range(2)]
    collections = CollectionRepository(db)
    rename = """
        UPDATE vectorforge.collections SET name = 'wanted' WHERE tenant_id = %(tenant_id)s AND id = %(id)s
    """
    async with blocked_by(db, collections.update(second, name="wanted"), rename, id=first) as renamed:
        with pytest.raises(ConflictError, match="'wanted' already exists"):
            await renamed
