"""Answers that were given before, for all processes to share."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from vectorforge.db.tenant_database import Params, TenantDatabase

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
_STORE = """
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
_DELETE = """
DELETE FROM vectorforge.{table} WHERE tenant_id = %(tenant_id)s AND key IN (
    SELECT key FROM vectorforge.{table} WHERE tenant_id = %(tenant_id)s LIMIT 1000
)
"""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
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
        ttl_s: Seconds for which an answer is fresh.
        stale_s: Seconds after that for which it can still be found.
    """

    def __init__(self, db: TenantDatabase, *, ttl_s: float, stale_s: float) -> None:
        self._db = db
        self._ttl_s = ttl_s
        self._stale_s = stale_s

    async def find(self, key: bytes, collection_id: UUID) -> CachedAnswer | None:
        """Return a collection's version and its answer of this key of 32 bytes, fresh or expired; or None."""
        values = {"key": key, "collection_id": collection_id, "stale_s": self._stale_s}
        row = await self._db.fetch_one(_FIND, values, repeatable=True)
        return CachedAnswer(**row) if row else None

    def end_write(
        self, key: bytes, collection_id: UUID, data_version: int, answer: str
    ) -> tuple[str, Params]:
        """Return the statement that stores an answer, a JSON object, and its parameters; it may run twice.

        ``data_version`` is the collection's version read before the search for the answer.
        """
        return _STORE, {
            "key": key,
            "collection_id": collection_id,
            "data_version": data_version,
            "answer": answer,
            "ttl_s": self._ttl_s,
        }

    async def statistics(self, collection_id: UUID | None = None) -> CacheStatistics:
        """Count what is cached and its hits, of one collection (except for ``embeddings``) or of all."""
        row = await self._db.fetch_one(_STATISTICS, {"collection_id": collection_id})
        assert row is not None  # noqa: S101 - an aggregate has one row
        return CacheStatistics(**row)

    async def clear(self) -> int:
        """Delete the tenant's answers and vectors, a thousand at a time; how many there were."""
        deleted = 0
        for table in ("cached_answers", "cached_embeddings"):
            while count := await self._db.execute(_DELETE.format(table=table), {}):
                deleted += count
        return deleted
