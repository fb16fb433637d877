"""Answers that were given before, for all processes to share."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.types import Params

CacheTier: TypeAlias = Literal["memory", "database"]

# The version and the answer in one statement: what is found belongs to the version that is found with it.
_FIND = """
SELECT c.data_version, a.answer::text AS answer,
       coalesce(extract(epoch FROM a.expires_at - now()), 0)::float8 AS fresh_for_s
FROM vectorforge.collections AS c
LEFT JOIN vectorforge.cached_answers AS a
    ON a.tenant_id = c.tenant_id AND a.key = %(key)s AND a.collection_id = c.id
    AND a.data_version = c.data_version AND a.expires_at > now() - make_interval(secs => %(stale_s)s)
WHERE c.tenant_id = %(tenant_id)s AND c.id = %(collection_id)s
"""
# Deletes some answers from older documents as well, which no look-up returns any more, except those that
# another process is deleting. An answer never replaces one from newer documents.
_KEEP = """
WITH outdated AS (
    DELETE FROM vectorforge.cached_answers WHERE tenant_id = %(tenant_id)s AND key IN (
        SELECT old.key FROM vectorforge.cached_answers AS old
        WHERE old.tenant_id = %(tenant_id)s AND old.collection_id = %(collection_id)s
            AND old.data_version < %(data_version)s AND old.key <> %(key)s
        LIMIT 100 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO vectorforge.cached_answers AS cached
    (tenant_id, key, collection_id, data_version, answer, created_at, expires_at)
VALUES (%(tenant_id)s, %(key)s, %(collection_id)s, %(data_version)s, %(answer)s::jsonb, now(),
        now() + make_interval(secs => %(ttl_s)s))
ON CONFLICT (tenant_id, key) DO UPDATE
SET collection_id = excluded.collection_id, data_version = excluded.data_version, answer = excluded.answer,
    created_at = excluded.created_at, expires_at = excluded.expires_at
WHERE cached.data_version <= excluded.data_version
"""
_STATISTICS = """
SELECT count(*) FILTER (WHERE a.expires_at > now() AND a.data_version = c.data_version) AS fresh,
       count(*) FILTER (WHERE a.expires_at <= now() AND a.data_version = c.data_version) AS stale,
       count(*) FILTER (WHERE a.data_version < c.data_version) AS outdated,
       coalesce(sum(pg_column_size(a.answer)), 0)::bigint AS bytes,
       min(a.created_at) AS oldest_at, max(a.created_at) AS newest_at,
       (SELECT count(*) FROM vectorforge.cached_embeddings AS e
        WHERE e.tenant_id = %(tenant_id)s AND e.expires_at > now()) AS embeddings,
       (SELECT count(*) FROM vectorforge.query_logs AS q
        WHERE q.tenant_id = %(tenant_id)s AND q.created_at > now() - interval '1 day'
            AND q.outcome IN ('answered', 'cached')
            AND (%(collection_id)s::uuid IS NULL OR q.collection_id = %(collection_id)s)
       ) AS answered_last_day,
       (SELECT count(*) FROM vectorforge.query_logs AS q
        WHERE q.tenant_id = %(tenant_id)s AND q.created_at > now() - interval '1 day' AND q.cached
            AND (%(collection_id)s::uuid IS NULL OR q.collection_id = %(collection_id)s)
       ) AS hits_last_day
FROM vectorforge.cached_answers AS a
JOIN vectorforge.collections AS c ON c.tenant_id = a.tenant_id AND c.id = a.collection_id
WHERE a.tenant_id = %(tenant_id)s
    AND (%(collection_id)s::uuid IS NULL OR a.collection_id = %(collection_id)s)
"""
_DELETE_ANSWERS = """
DELETE FROM vectorforge.cached_answers WHERE tenant_id = %(tenant_id)s AND key IN (
    SELECT key FROM vectorforge.cached_answers WHERE tenant_id = %(tenant_id)s LIMIT 1000
)
"""
_DELETE_EMBEDDINGS = """
DELETE FROM vectorforge.cached_embeddings WHERE tenant_id = %(tenant_id)s AND key IN (
    SELECT key FROM vectorforge.cached_embeddings WHERE tenant_id = %(tenant_id)s LIMIT 1000
)
"""


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """Result of a look-up by key."""

    data_version: int
    """Current version of the collection's data."""
    answer: str | None = None
    """JSON of an answer made at this version, or None."""
    fresh_for_s: float = 0.0
    """Seconds until its time runs out; 0 or less when it has."""
    tier: CacheTier = "database"
    """Cache tier that had it."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Contents and hits of one tenant's caches."""

    fresh: int
    """Answers returned for the next equal query."""
    stale: int
    """Expired answers, usable as a fallback."""
    outdated: int
    """Answers from documents that have changed; never returned again, and deleted over time."""
    bytes: int
    """Stored size of all these answers."""
    oldest_at: datetime | None
    newest_at: datetime | None
    embeddings: int
    """Vectors of queries."""
    answered_last_day: int
    """Queries of the last 24 hours that were answered, by the query log."""
    hits_last_day: int
    """Those of them that were answered from the cache."""


class AnswerCacheRepository:
    """The cached answers of one tenant.

    Args:
        db: Database of the tenant.
        ttl_s: Seconds for which an answer is fresh.
        stale_s: Seconds after that for which it can still be found.
    """

    def __init__(self, db: TenantDatabase, *, ttl_s: float, stale_s: float) -> None:
        self._db = db
        self._ttl_s = ttl_s
        self._stale_s = stale_s

    async def find(
        self,
        key: bytes,
        collection_id: UUID,
        data_version: int | None = None,
        known: FoundAnswer | None = None,
    ) -> FoundAnswer | None:
        """Return the collection's present version, and the answer of this key, fresh or expired.

        Args:
            key: 32 bytes.
            collection_id: A collection of the tenant.
            data_version: Not needed here; the version is read with the answer.
            known: Result that was read before; it is returned.

        Returns:
            None when there is no such collection.
        """
        if known is not None:
            return known
        values = {
            "tenant_id": self._db.tenant_id,
            "key": key,
            "collection_id": collection_id,
            "stale_s": self._stale_s,
        }
        row = await self._db.fetch_one(_FIND, values, repeatable=True)
        return FoundAnswer(**row) if row else None

    async def keep(self, key: bytes, collection_id: UUID, data_version: int, answer: str) -> None:
        """Store an answer, replacing an earlier one.

        Args:
            key: 32 bytes.
            collection_id: A collection of the tenant.
            data_version: Version of the collection, read before the search for the answer.
            answer: A JSON object.
        """
        await self._db.execute(*self.end_write(key, collection_id, data_version, answer), repeatable=True)

    def end_write(
        self, key: bytes, collection_id: UUID, data_version: int, answer: str
    ) -> tuple[str, Params]:
        """Return the statement of ``keep`` and its parameters; running it twice has the effect of once."""
        return _KEEP, {
            "tenant_id": self._db.tenant_id,
            "key": key,
            "collection_id": collection_id,
            "data_version": data_version,
            "answer": answer,
            "ttl_s": self._ttl_s,
        }

    async def statistics(self, collection_id: UUID | None = None) -> CacheStatistics:
        """Count what is cached, and how often it was used.

        Args:
            collection_id: Count one collection only, except for ``embeddings``; None counts all.
        """
        values = {"tenant_id": self._db.tenant_id, "collection_id": collection_id}
        row = await self._db.fetch_one(_STATISTICS, values)
        assert row is not None  # noqa: S101 - an aggregate has one row
        return CacheStatistics(**row)

    async def clear(self) -> int:
        """Delete the tenant's answers and vectors, a thousand at a time; how many there were."""
        deleted = 0
        for statement in (_DELETE_ANSWERS, _DELETE_EMBEDDINGS):
            while count := await self._db.execute(statement, {"tenant_id": self._db.tenant_id}):
                deleted += count
        return deleted
