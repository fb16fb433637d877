"""Answers under an Idempotency-Key: claimed by one request, replayed to later ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.db.repositories.answer_stream_repo import (
    AnswerStreamRepository,
    EventBatch,
    Readership,
    StreamState,
)
from vectorforge.db.tenant_database import TenantDatabase

if TYPE_CHECKING:
    from vectorforge.db.tenant_database import Call

LEASE_S = 15.0
"""Silence of a writer after which another may take over; writers report twice a second."""

# Deletes the key of an answer that will never end: its writer is gone, or it has expired.
_FREE = """
UPDATE vectorforge.answer_streams
SET idempotency_key = NULL, state = CASE state WHEN 'running' THEN 'lost' ELSE state END
WHERE tenant_id = %(tenant_id)s AND idempotency_key = %(key)s AND query_id <> %(query_id)s
    AND (state = 'lost' OR expires_at <= clock_timestamp()
         OR state = 'running' AND written_at < clock_timestamp() - make_interval(secs => %(lease_s)s))
"""
_CLAIM = """
INSERT INTO vectorforge.answer_streams
    (tenant_id, query_id, idempotency_key, fingerprint, is_resumable, expires_at)
VALUES (%(tenant_id)s, %(query_id)s, %(key)s, %(fingerprint)s, false,
        clock_timestamp() + make_interval(secs => %(longest_s)s))
ON CONFLICT DO NOTHING
"""
_FIND = """
SELECT query_id, fingerprint = %(fingerprint)s AS is_same, state, last_id, response_headers AS headers
FROM vectorforge.answer_streams WHERE tenant_id = %(tenant_id)s AND idempotency_key = %(key)s
"""
_BEGIN_STREAM = """
UPDATE vectorforge.answer_streams SET response_headers = %(headers)s::jsonb, is_resumable = %(is_resumable)s
WHERE tenant_id = %(tenant_id)s AND query_id = %(query_id)s AND state = 'running'
"""
_RELEASE = """
UPDATE vectorforge.answer_streams SET idempotency_key = NULL
WHERE tenant_id = %(tenant_id)s AND query_id = %(query_id)s
"""
# Answers of one tenant end one after the other, so that each has a place and a total of its own.
_LOCK_PLACES = """
SELECT pg_advisory_xact_lock(hashtextextended('vectorforge.answer_places ' || %(tenant_id)s::text, 0))
"""
_PLACE = """
UPDATE vectorforge.answer_streams AS own
SET place = coalesce(newest.place, 0) + 1,
    bytes_before = coalesce(newest.bytes_before + newest.stored_bytes, 0)
FROM (SELECT) AS one LEFT JOIN LATERAL (
    SELECT place, bytes_before, stored_bytes FROM vectorforge.answer_streams
    WHERE tenant_id = %(tenant_id)s AND place IS NOT NULL ORDER BY place DESC LIMIT 1
) AS newest ON true
WHERE own.tenant_id = %(tenant_id)s AND own.query_id = %(query_id)s AND own.place IS NULL
    AND own.idempotency_key IS NOT NULL
"""
_FORGET_OLDEST = """
DELETE FROM vectorforge.answer_streams WHERE tenant_id = %(tenant_id)s AND query_id IN (
    SELECT query_id FROM vectorforge.answer_streams
    WHERE tenant_id = %(tenant_id)s AND place <= (
        SELECT max(place) FROM vectorforge.answer_streams
        WHERE tenant_id = %(tenant_id)s AND place IS NOT NULL
    ) - %(max_keys)s
    ORDER BY place LIMIT 100 FOR UPDATE SKIP LOCKED
)
"""
# Keys remain, so that no answer is generated, and charged, twice.
_DROP_OVER_QUOTA = """
WITH newest AS (
    SELECT bytes_before + stored_bytes AS bytes FROM vectorforge.answer_streams
    WHERE tenant_id = %(tenant_id)s AND place IS NOT NULL ORDER BY place DESC LIMIT 1
), chosen AS (
    SELECT query_id FROM vectorforge.answer_streams
    WHERE tenant_id = %(tenant_id)s AND bytes_before < (SELECT bytes FROM newest) - %(max_bytes)s
    FOR UPDATE SKIP LOCKED
), dropped AS (
    UPDATE vectorforge.answer_streams AS s SET state = 'overflowed', stored_bytes = 0, bytes_before = NULL
    FROM chosen WHERE s.tenant_id = %(tenant_id)s AND s.query_id = chosen.query_id
)
DELETE FROM vectorforge.answer_stream_batches AS b USING chosen
WHERE b.tenant_id = %(tenant_id)s AND b.query_id = chosen.query_id
"""
_READ = """
SELECT last_id, events FROM vectorforge.answer_stream_batches
WHERE tenant_id = %s AND query_id = %s AND first_id > %s ORDER BY first_id LIMIT 16
"""


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """Answer stored under an idempotency key."""

    query_id: UUID
    """Id of the query."""
    is_same: bool
    """True if the request equals the one that first used the key."""
    state: StreamState
    last_id: int
    """Id of the last stored part of the answer; 0 before the first."""
    headers: Mapping[str, str] | None
    """Headers of a streamed response; None for JSON, or before it begins."""


@dataclass(frozen=True, slots=True)
class StreamHead:
    """Head of a streamed response."""

    headers: Mapping[str, str]
    is_resumable: bool
    """True if its events can be read by the query's id."""


class IdempotentAnswerRepository:
    """The answers under keys of one tenant.

    Args:
        retention_s: Retention of an answer after its end, seconds.
        longest_s: Maximum duration of an answer, seconds.
        max_keys: Maximum number of answers; the oldest are deleted.
        max_bytes: Maximum size of all together; the oldest are dropped, and their keys are rejected then.
    """

    def __init__(
        self, db: TenantDatabase, *, retention_s: float, longest_s: float, max_keys: int, max_bytes: int
    ) -> None:
        self._db = db
        self._longest_s = longest_s
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._streams = AnswerStreamRepository(db, retention_s=retention_s, longest_s=longest_s)

    async def claim(self, key: bytes, fingerprint: bytes, query_id: UUID) -> KeyedAnswer | None:
        """Begin the answer under a key, unless another request does. In one round trip.

        Key and fingerprint, which is a digest of the request, have 32 bytes.

        Returns:
            The answer under the key, which the caller must make if it has the caller's ``query_id``; None if
            it was deleted meanwhile.
        """
        values = {
            "key": key,
            "fingerprint": fingerprint,
            "query_id": query_id,
            "lease_s": LEASE_S,
            "longest_s": self._longest_s + LEASE_S,
        }
        calls = [(statement, values) for statement in (_FREE, _CLAIM, _FIND)]
        *_, (rows, _) = await self._db.run(calls, repeatable=True)
        return KeyedAnswer(**rows[0]) if rows else None

    async def write(
        self,
        query_id: UUID,
        batch: EventBatch,
        state: StreamState,
        *,
        head: StreamHead | None = None,
        retain: bool = True,
    ) -> Readership | None:
        """Store a part of an answer as ``AnswerStreamRepository.write``.

        ``head`` is the head of a streamed response and may be repeated. ``retain=False``, with the last
        part, releases the key.
        """
        values: dict[str, Any] = {"query_id": query_id}
        calls: list[Call] = [self._streams.writing(query_id, batch, state)]
        if head is not None:
            headers = json.dumps(dict(head.headers))
            begin = (_BEGIN_STREAM, values | {"headers": headers, "is_resumable": head.is_resumable})
            calls.insert(0, begin)
        if not retain:
            calls.append((_RELEASE, values))
        elif state != "running":
            values |= {"max_keys": self._max_keys, "max_bytes": self._max_bytes}
            ends = (_LOCK_PLACES, _PLACE, _FORGET_OLDEST, _DROP_OVER_QUOTA)
            calls += [(statement, values) for statement in ends]
        outcomes = await self._db.run(calls)
        rows, _ = outcomes[0 if head is None else 1]
        return Readership(**rows[0]) if rows else None

    async def give_up(self, query_id: UUID) -> bool:
        """Abandon a running answer and release its key."""
        return await self._streams.give_up(query_id)

    async def read(self, query_id: UUID, after: int) -> Sequence[tuple[int, bytes]]:
        """Return the parts of an answer after an event (0: from the start): last event's id, and bytes."""
        rows = await self._db.fetch_all(_READ, (self._db.tenant_id, query_id, after), repeatable=True)
        return [(row["last_id"], bytes(row["events"])) for row in rows]
