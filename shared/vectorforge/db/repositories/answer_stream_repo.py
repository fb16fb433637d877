"""Streamed answers, stored while they are sent, so that any process can resume them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from vectorforge.db.tenant_database import Params, TenantDatabase

StreamState: TypeAlias = Literal["running", "ended", "overflowed", "lost"]
"""ended: the last event is stored; overflowed: too long to store; lost: its writer is gone."""

_OPEN = """
INSERT INTO vectorforge.answer_streams (tenant_id, query_id, expires_at)
VALUES (%(tenant_id)s, %(query_id)s, clock_timestamp() + make_interval(secs => %(retention_s)s))
"""
# A batch whose commit was not confirmed is sent again, maybe with more events, and replaces itself.
_WRITE = """
WITH stream AS (
    UPDATE vectorforge.answer_streams
    SET last_id = greatest(last_id, %(last_id)s), state = %(state)s, written_at = clock_timestamp(),
        stored_bytes = stored_bytes + octet_length(%(events)s::bytea),
        expires_at = CASE WHEN %(state)s = 'running' THEN expires_at
                          ELSE clock_timestamp() + make_interval(secs => %(retention_s)s) END
    WHERE tenant_id = %(tenant_id)s AND query_id = %(query_id)s AND state IN ('running', %(state)s)
    RETURNING stop_requested, extract(epoch FROM clock_timestamp() - read_at)::float8 AS unread_s
), batch AS (
    INSERT INTO vectorforge.answer_stream_batches (tenant_id, query_id, first_id, last_id, events)
    SELECT %(tenant_id)s, %(query_id)s, %(first_id)s, %(last_id)s, %(events)s::bytea FROM stream
    WHERE %(last_id)s >= %(first_id)s
    ON CONFLICT (tenant_id, query_id, first_id) DO UPDATE
    SET last_id = excluded.last_id, events = excluded.events
)
SELECT stop_requested, unread_s FROM stream
"""
_READ = """
SELECT s.state, s.last_id, s.written_at, b.first_id, b.events
FROM vectorforge.answer_streams AS s
LEFT JOIN LATERAL (
    SELECT first_id, events FROM vectorforge.answer_stream_batches
    WHERE tenant_id = s.tenant_id AND query_id = s.query_id AND last_id > %(after)s
    ORDER BY first_id LIMIT %(limit)s
) AS b ON true
WHERE s.tenant_id = %(tenant_id)s AND s.query_id = %(query_id)s AND s.expires_at > clock_timestamp()
    AND s.is_resumable
ORDER BY b.first_id
"""
_NOTE_READER = """
UPDATE vectorforge.answer_streams SET read_at = clock_timestamp()
WHERE tenant_id = %s AND query_id = %s AND state = 'running'
"""
_REQUEST_STOP = """
UPDATE vectorforge.answer_streams SET stop_requested = true
WHERE tenant_id = %s AND query_id = %s AND expires_at > clock_timestamp() AND is_resumable
RETURNING state
"""
_GIVE_UP = """
UPDATE vectorforge.answer_streams SET state = 'lost'
WHERE tenant_id = %s AND query_id = %s AND state = 'running' AND written_at = coalesce(%s, written_at)
"""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of a stream in their order, without gaps."""

    first_id: int
    """From 1."""
    events: bytes
    """As they went over the wire, each with its blank line."""
    count: int


@dataclass(frozen=True, slots=True)
class Readership:
    """State of a stream's readers in other processes, for its writer."""

    stop_requested: bool
    unread_s: float | None
    """Seconds since the last read; None if never read."""


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream, and batches of it."""

    state: StreamState
    last_id: int
    """Id of the last stored event; 0 before the first."""
    written_at: datetime
    """Time of the writer's last sign of life."""
    batches: Sequence[tuple[int, bytes]]
    """First id and events, in order; the first batch may begin before the requested id."""


class AnswerStreamRepository:
    """The streamed answers of one tenant.

    Args:
        retention_s: Retention of a stream after its end, seconds.
        longest_s: Maximum duration of a stream, seconds.
    """

    def __init__(self, db: TenantDatabase, *, retention_s: float, longest_s: float) -> None:
        self._db = db
        self._retention_s = retention_s
        self._longest_s = longest_s

    async def open(self, query_id: UUID) -> None:
        """Begin a stream, which has no events yet."""
        values = {"query_id": query_id, "retention_s": self._longest_s + self._retention_s}
        await self._db.execute(_OPEN, values)

    async def write(
        self, query_id: UUID, batch: EventBatch, state: StreamState = "running"
    ) -> Readership | None:
        """Add events in one round trip; an empty batch is a heartbeat, an equal ``first_id`` replaces one.

        Returns:
            None if the stream accepts no more events, since it was declared lost or deleted.

        Raises:
            DatabaseError: The batch may or may not be stored.
        """
        row = await self._db.fetch_one(*self.writing(query_id, batch, state))
        return Readership(**row) if row else None

    def writing(self, query_id: UUID, batch: EventBatch, state: StreamState) -> tuple[str, Params]:
        """Return the statement that ``write`` runs, and its values."""
        return _WRITE, {
            "query_id": query_id,
            "first_id": batch.first_id,
            "last_id": batch.first_id + batch.count - 1,
            "events": batch.events,
            "state": state,
            "retention_s": self._retention_s,
        }

    async def read(self, query_id: UUID, after: int, *, limit: int = 16) -> StoredStream | None:
        """Return a stream, or None, with at most ``limit`` batches of events after an id (0: the start)."""
        rows = await self._db.fetch_all(_READ, {"query_id": query_id, "after": after, "limit": limit})
        if not rows:
            return None
        batches = [(row["first_id"], bytes(row["events"])) for row in rows if row["first_id"] is not None]
        return StoredStream(rows[0]["state"], rows[0]["last_id"], rows[0]["written_at"], batches)

    async def note_reader(self, query_id: UUID) -> None:
        """Note a reader, so that generation continues."""
        await self._db.execute(_NOTE_READER, (self._db.tenant_id, query_id))

    async def request_stop(self, query_id: UUID) -> StreamState | None:
        """Ask the writer, in any process, to end the answer; return the stream's state, or None."""
        row = await self._db.fetch_one(_REQUEST_STOP, (self._db.tenant_id, query_id))
        return row["state"] if row else None

    async def give_up(self, query_id: UUID, *, silent_since: datetime | None = None) -> bool:
        """Mark a running stream as lost, unless it was written to since a time; return True if it was."""
        return await self._db.execute(_GIVE_UP, (self._db.tenant_id, query_id, silent_since)) == 1
