"""Stored conversations: messages by role, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

from vectorforge.db.tenant_database import TenantDatabase, storable_text
from vectorforge.errors import ConflictError, InvalidInputError
from vectorforge.names import one_line
from vectorforge.types import Location, location_text

MAX_TITLE_CHARS = 200
MAX_CREDENTIAL_CHARS = 512

_COLUMNS = "id, title, message_count, created_at, updated_at"

_CREATE = f"""
INSERT INTO vectorforge.conversations (tenant_id, id, title, credential)
SELECT %(tenant_id)s, %(id)s, %(title)s, %(credential)s
WHERE NOT EXISTS (
    SELECT FROM vectorforge.conversation_counts AS counted
    WHERE counted.tenant_id = %(tenant_id)s AND (
        (counted.credential = '' AND counted.conversations >= %(limit)s)
        OR (counted.credential = %(credential)s AND counted.conversations >= %(limit_per_key)s)
    )
)
RETURNING {_COLUMNS}
"""
_COUNT = """
SELECT conversations AS total FROM vectorforge.conversation_counts WHERE tenant_id = %s AND credential = ''
"""
_BY_ID = f"SELECT {_COLUMNS} FROM vectorforge.conversations WHERE tenant_id = %s AND id = %s"
_LIST = f"""
SELECT {_COLUMNS} FROM vectorforge.conversations
WHERE tenant_id = %(tenant_id)s AND (%(credential)s::text IS NULL OR credential = %(credential)s)
ORDER BY updated_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
"""
ERASED = "[erased]"
"""Content of both messages of an exchange whose answer used erased documents; the migrations write it."""
_MESSAGES = """
SELECT role, content, query_id, created_at, CASE WHEN %s THEN details::text END AS details
FROM vectorforge.conversation_messages
WHERE tenant_id = %s AND conversation_id = %s ORDER BY position DESC LIMIT %s
"""
_ANSWERS = """
SELECT m.conversation_id, m.role, m.content, m.query_id, m.created_at, m.details::text AS details
FROM unnest(%(ids)s::uuid[], %(query_ids)s::uuid[]) AS wanted (conversation_id, query_id)
JOIN vectorforge.conversations AS c ON c.tenant_id = %(tenant_id)s AND c.id = wanted.conversation_id
    AND c.credential IS NOT DISTINCT FROM %(credential)s
JOIN vectorforge.conversation_messages AS m ON m.tenant_id = c.tenant_id AND m.conversation_id = c.id
    AND m.query_id = wanted.query_id AND m.role = 'assistant'
"""
_CONTEXTS = """
SELECT l.id AS query_id, l.collection_id, l.provider, l.model, used.number, c.id AS chunk_id, c.document_id,
    d.source AS document_source, d.title, c.heading, c.start_offset, c.end_offset, c.text, c.locations
FROM vectorforge.query_logs AS l
LEFT JOIN LATERAL jsonb_array_elements_text(l.used_chunk_ids) WITH ORDINALITY AS used (id, number) ON true
LEFT JOIN vectorforge.chunks AS c ON c.tenant_id = l.tenant_id AND c.id = used.id::uuid
LEFT JOIN vectorforge.documents AS d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
WHERE l.tenant_id = %s AND l.id = ANY (%s) ORDER BY used.number
"""
# The row lock lets concurrent exchanges take their positions one after the other, each as a whole.
_APPEND = """
WITH grown AS (
    UPDATE vectorforge.conversations
    SET message_count = message_count + 2, updated_at = now(),
        title = CASE WHEN title = '' THEN %(title)s ELSE title END
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND message_count + 2 <= %(max_messages)s
    RETURNING message_count
)
INSERT INTO vectorforge.conversation_messages
    (tenant_id, conversation_id, position, role, content, query_id, details)
SELECT %(tenant_id)s, %(id)s, grown.message_count - 2 + new.turn, new.role, new.content, %(query_id)s,
    new.details
FROM grown CROSS JOIN (
    VALUES (0, 'user', %(question)s::text, NULL::jsonb),
        (1, 'assistant', %(answer)s::text, %(details)s::jsonb)
) AS new (turn, role, content, details)
"""
_DROP_LAST = """
WITH gone AS (
    DELETE FROM vectorforge.conversation_messages AS m USING vectorforge.conversations AS c
    WHERE c.tenant_id = %(tenant_id)s AND c.id = %(id)s AND m.tenant_id = c.tenant_id
        AND m.conversation_id = c.id AND m.query_id = %(replaces)s AND m.position >= c.message_count - 2
    RETURNING m.position
)
UPDATE vectorforge.conversations SET message_count = message_count - (SELECT count(*) FROM gone)
WHERE tenant_id = %(tenant_id)s AND id = %(id)s
"""
_OF_CREDENTIAL = """
tenant_id = %(tenant_id)s AND id = %(id)s AND (%(credential)s::text IS NULL OR credential = %(credential)s)
"""
_RENAME = (
    f"UPDATE vectorforge.conversations SET title = %(title)s WHERE {_OF_CREDENTIAL} RETURNING {_COLUMNS}"
)
_DELETE = f"DELETE FROM vectorforge.conversations WHERE {_OF_CREDENTIAL}"
_EXCHANGE = """
WITH own AS (
    SELECT min(position) AS first FROM vectorforge.conversation_messages
    WHERE tenant_id = %(tenant_id)s AND conversation_id = %(id)s AND query_id = %(query_id)s
)
SELECT m.role, m.content, m.query_id, m.created_at, m.details::text AS details
FROM own, vectorforge.conversation_messages AS m
WHERE m.tenant_id = %(tenant_id)s AND m.conversation_id = %(id)s
    AND m.position BETWEEN own.first - 1 AND own.first + 1
ORDER BY m.position
"""
# A statement of its own, so that the next one sees what others have appended meanwhile.
_LOCK = "SELECT FROM vectorforge.conversations WHERE tenant_id = %(tenant_id)s AND id = %(id)s FOR UPDATE"
# The count stays: later messages keep their positions. The title may be the deleted query.
_DELETE_EXCHANGE = """
WITH gone AS (
    DELETE FROM vectorforge.conversation_messages
    WHERE tenant_id = %(tenant_id)s AND conversation_id = %(id)s AND query_id = %(query_id)s
    RETURNING position
), others AS (
    SELECT FROM vectorforge.conversation_messages WHERE tenant_id = %(tenant_id)s AND conversation_id = %(id)s
        AND query_id IS DISTINCT FROM %(query_id)s LIMIT 1
), untitled AS (
    UPDATE vectorforge.conversations SET title = ''
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND EXISTS (SELECT FROM others)
        AND EXISTS (SELECT FROM gone WHERE position = 0)
), emptied AS (
    DELETE FROM vectorforge.conversations
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND NOT EXISTS (SELECT FROM others)
        AND EXISTS (SELECT FROM gone)
)
SELECT count(*) AS messages FROM gone
"""
_EXPIRE_SESSIONS = """
DELETE FROM vectorforge.conversations WHERE tenant_id = %(tenant_id)s AND id = ANY (ARRAY(
    SELECT id FROM vectorforge.conversations
    WHERE tenant_id = %(tenant_id)s AND credential LIKE 'session:%%'
        AND updated_at < now() - interval '24 hours'
    UNION ALL (
        SELECT id FROM vectorforge.conversations
        WHERE tenant_id = %(tenant_id)s AND credential LIKE 'session:%%'
        ORDER BY updated_at, id LIMIT greatest(0, coalesce((
            SELECT conversations FROM vectorforge.conversation_counts
            WHERE tenant_id = %(tenant_id)s AND credential = 'session:'
        ), 0) - %(limit)s)
    )
))
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its messages."""

    id: UUID
    title: str
    """Title given, or the start of the first query; empty before that."""
    message_count: int
    created_at: datetime
    updated_at: datetime
    """Time of the last message."""


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    query_id: UUID | None
    """Query log record of this query or answer."""
    created_at: datetime
    details: str | None = None
    """JSON of an answer's details, see ``pipeline.exchange``; None if not read, or if there are none."""


@dataclass(frozen=True, slots=True)
class MessageSource:
    """A chunk that an answer was written from."""

    number: int
    """N of its label, from 1."""
    chunk_id: UUID
    document_id: UUID
    document_source: str
    title: str | None
    heading: str | None
    start_offset: int
    end_offset: int
    text: str
    locations: Sequence[Location]

    @property
    def location_text(self) -> str:
        """Locations as short text, such as "p. 12"."""
        return location_text(self.locations)


@dataclass(slots=True)
class MessageContext:
    """Collection and model of a query, and the chunks of its answer that still exist."""

    collection_id: UUID
    provider: str | None
    model: str | None
    sources: list[MessageSource] = field(default_factory=list)


class ConversationRepository:
    """The conversations of one tenant.

    Args:
        max_conversations: Limit of the tenant; creating one more fails. Concurrent calls may exceed it by
            their number.
        max_messages: Limit of one conversation.
        max_per_key: Conversations of one credential; None: as many as the tenant may have.
    """

    def __init__(
        self,
        db: TenantDatabase,
        *,
        max_conversations: int,
        max_messages: int,
        max_per_key: int | None = None,
    ) -> None:
        self._db = db
        self._max_conversations = max_conversations
        self._max_per_key = max_conversations if max_per_key is None else max_per_key
        self.max_messages = max_messages

    async def create(self, title: str = "", *, credential: str | None = None) -> Conversation:
        """Begin a conversation; ``credential`` names one with a limit of its own, None has the tenant's only.

        Raises:
            InvalidInputError: The title is longer than 200 characters.
            ConflictError: The tenant, or the credential, has as many conversations as are allowed.
        """
        values = {
            "id": uuid4(),
            "title": _checked(title),
            "credential": _stored_name(credential),
            "limit": self._max_conversations,
            "limit_per_key": self._max_per_key,
        }
        row = await self._db.fetch_one(_CREATE, values)
        if row is None:
            raise await self._refusal()
        return Conversation(**row)

    async def start_session(self, credential: str) -> Conversation:
        """Begin a conversation that is deleted after 24 hours without a message.

        Sessions may be half of the tenant's conversations; of more, those used last remain.

        Raises:
            ConflictError: As of ``create``.
        """
        limit = max(1, min(self._max_conversations // 2, self._max_per_key)) - 1  # and the new one
        await self._db.execute(_EXPIRE_SESSIONS, {"limit": limit})
        return await self.create(credential=f"session:{credential}")

    async def _refusal(self) -> ConflictError:
        row = await self._db.fetch_one(_COUNT, (self._db.tenant_id,))
        if row is None or row["total"] >= self._max_conversations:
            return ConflictError(
                f"The limit of {self._max_conversations} conversations is reached; delete one first."
            )
        return ConflictError(
            f"One API key or user may have at most {self._max_per_key} conversations; delete one first."
        )

    async def find_by_id(self, conversation_id: UUID) -> Conversation | None:
        """Return the conversation, or None."""
        row = await self._db.fetch_one(_BY_ID, (self._db.tenant_id, conversation_id))
        return Conversation(**row) if row else None

    async def list(
        self, *, limit: int = 50, offset: int = 0, credential: str | None = None
    ) -> Sequence[Conversation]:
        """Return a page of the conversations, or of those of one credential, the one used last first."""
        values = {"limit": limit, "offset": offset, "credential": _stored_name(credential)}
        rows = await self._db.fetch_all(_LIST, values)
        return [Conversation(**row) for row in rows]

    async def last_messages(
        self, conversation_id: UUID, limit: int, *, with_details: bool = False
    ) -> Sequence[ConversationMessage]:
        """Return the last messages, oldest first; empty for an unknown conversation."""
        values = (with_details, self._db.tenant_id, conversation_id, limit)
        rows = await self._db.fetch_all(_MESSAGES, values)
        return [ConversationMessage(**row) for row in reversed(rows)]

    async def answers(
        self, exchanges: Sequence[tuple[UUID, UUID]], *, credential: str
    ) -> dict[tuple[UUID, UUID], ConversationMessage]:
        """Return the answers of those exchanges (conversation, query) that are of one credential."""
        ids, query_ids = [id_ for id_, _ in exchanges], [query_id for _, query_id in exchanges]
        values = {"ids": ids, "query_ids": query_ids, "credential": _stored_name(credential)}
        return {
            (row.pop("conversation_id"), row["query_id"]): ConversationMessage(**row)
            for row in await self._db.fetch_all(_ANSWERS, values)
        }

    async def contexts(self, query_ids: Sequence[UUID]) -> dict[UUID, MessageContext]:
        """Return collection and chunks of logged queries, by their id; without queries of no record."""
        found: dict[UUID, MessageContext] = {}
        for row in await self._db.fetch_all(_CONTEXTS, (self._db.tenant_id, list(query_ids))):
            context = MessageContext(row.pop("collection_id"), row.pop("provider"), row.pop("model"))
            context = found.setdefault(row.pop("query_id"), context)
            if row["document_source"] is not None:
                context.sources.append(MessageSource(**row))
        return found

    async def append(
        self,
        conversation_id: UUID,
        question: str,
        answer: str,
        query_id: UUID,
        *,
        details: str | None = None,
        replaces: UUID | None = None,
    ) -> bool:
        """Add a finished exchange atomically; return False if the conversation does not exist, or is full.

        ``details`` is JSON, see ``ConversationMessage``. ``replaces`` is the query whose exchange is replaced
        if it is still the last one.
        """
        values = {
            "id": conversation_id,
            "question": storable_text(question),
            "title": one_line(storable_text(question))[:MAX_TITLE_CHARS],
            "answer": storable_text(answer),
            "query_id": query_id,
            "details": details,
            "max_messages": self.max_messages,
            "replaces": replaces,
        }
        statements = [_APPEND] if replaces is None else [_LOCK, _DROP_LAST, _APPEND]
        *_, (_, added) = await self._db.run([(statement, values) for statement in statements])
        return added == 2

    async def rename(
        self, conversation_id: UUID, title: str, *, credential: str | None = None
    ) -> Conversation | None:
        """Set the title; return None if there is no such conversation, or if it has another credential.

        Raises:
            InvalidInputError: The title is longer than 200 characters.
        """
        values = {"id": conversation_id, "title": _checked(title), "credential": _stored_name(credential)}
        row = await self._db.fetch_one(_RENAME, values)
        return Conversation(**row) if row else None

    async def exchange(self, conversation_id: UUID, query_id: UUID) -> Sequence[ConversationMessage]:
        """Return the messages of one query, after the message before them, if any; empty without such."""
        values = {"id": conversation_id, "query_id": query_id}
        return [ConversationMessage(**row) for row in await self._db.fetch_all(_EXCHANGE, values)]

    async def delete_exchange(self, conversation_id: UUID, query_id: UUID) -> bool:
        """Delete the messages of one query, and a conversation that is empty then; False without such."""
        values = {"id": conversation_id, "query_id": query_id}
        *_, (rows, _) = await self._db.run([(_LOCK, values), (_DELETE_EXCHANGE, values)])
        return bool(rows[0]["messages"])

    async def delete(self, conversation_id: UUID, *, credential: str | None = None) -> bool:
        """Delete a conversation and its messages, but no query log.

        Returns:
            False if there is no such conversation, or if it has another credential.
        """
        values = {"id": conversation_id, "credential": _stored_name(credential)}
        return await self._db.execute(_DELETE, values) == 1


def _checked(title: str) -> str:
    if len(title) > MAX_TITLE_CHARS:
        raise InvalidInputError(f"title must have at most {MAX_TITLE_CHARS} characters.", field="title")
    return one_line(storable_text(title))


def _stored_name(credential: str | None) -> str | None:
    return credential and storable_text(credential)[:MAX_CREDENTIAL_CHARS]
