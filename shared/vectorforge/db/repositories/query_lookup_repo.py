"""Look-up of a query with its collection in one statement: cached vector, cached answer, log policy."""

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from vectorforge.db.repositories.answer_cache_repo import CachedAnswer
from vectorforge.db.repositories.collection_repo import COLUMNS
from vectorforge.db.tenant_database import Call, Outcome, Params, TenantDatabase
from vectorforge.types import Collection, Vector

if TYPE_CHECKING:
    from psycopg.rows import DictRow

# The key needs the collection's model and prefix, so it is made where these are: no round trip of its own.
_KEY = """
sha256(convert_to(
    jsonb_build_array(%(settings)s::text, {provider}, {model}, {prefix} || %(query)s::text)::text, 'UTF8'
))
"""
_STORED_KEY = _KEY.format(provider="c.embedding_provider", model="c.embedding_model", prefix="c.query_prefix")
# OFFSET makes the keys a step of their own. Within the join condition their functions, not being leakproof,
# keep row-level security from using the index, and each of the tenant's rows is compared
# (https://www.postgresql.org/docs/18/rules-privileges.html). Within the look-up it makes the key part of the
# index condition, also while the statistics know no rows of the tenant.
_CACHED_VECTOR = """
LEFT JOIN LATERAL (
    SELECT vector FROM vectorforge.cached_embeddings
    WHERE tenant_id = %(tenant_id)s AND key = keys.of_vector AND expires_at > now()
    OFFSET 0
) AS e ON true
"""
_FIND_VECTOR = f"""
SELECT c.*, e.vector
FROM (
    SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s
) AS c
CROSS JOIN LATERAL (SELECT {_STORED_KEY} AS of_vector OFFSET 0) AS keys
{_CACHED_VECTOR}
"""
_GIVEN = _KEY.format(provider="%(provider)s::text", model="%(model)s::text", prefix="%(prefix)s::text")
_STORE_VECTOR = f"""
INSERT INTO vectorforge.cached_embeddings (tenant_id, key, vector, created_at, expires_at)
VALUES (%(tenant_id)s, {_GIVEN}, %(vector)s, now(), now() + make_interval(secs => %(ttl_s)s))
ON CONFLICT (tenant_id, key) DO UPDATE
SET vector = excluded.vector, created_at = excluded.created_at, expires_at = excluded.expires_at
"""
# An answer belongs to the version that is read with it. A key that is NULL finds nothing.
_FIND = f"""
SELECT c.*, e.vector, a.answer::text AS answer,
       coalesce(extract(epoch FROM a.expires_at - now()), 0)::float8 AS fresh_for_s,
       (SELECT t.log_text FROM vectorforge.tenants AS t WHERE t.tenant_id = %(tenant_id)s) AS log_text
FROM (
    SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND {{condition}}
) AS c
CROSS JOIN LATERAL (
    SELECT {_STORED_KEY} AS of_vector, sha256(%(digest)s::bytea || uuid_send(c.id)) AS of_answer OFFSET 0
) AS keys
{_CACHED_VECTOR}
LEFT JOIN LATERAL (
    SELECT answer, expires_at FROM vectorforge.cached_answers
    WHERE tenant_id = %(tenant_id)s AND key = keys.of_answer
        AND collection_id = c.id AND data_version = c.data_version
        AND expires_at > now() - make_interval(secs => %(stale_s)s)
    OFFSET 0
) AS a ON true
"""
_BY_ID = _FIND.format(condition="id = %(name_or_id)s")
_BY_NAME = _FIND.format(condition="name = %(name_or_id)s")


class PiggybackedStatement(NamedTuple):
    """A statement that shares the look-up's round trip."""

    call: Call
    """The statement; it may run twice."""
    note: Callable[[Outcome], None]
    """Processes its outcome; the look-up raises its errors."""


@dataclass(frozen=True, slots=True)
class QueryLookupRow:
    """Cached answer and vector of a query to one collection."""

    collection: Collection
    vector: Vector | None
    """Vector of the query, in the space of the collection's model."""
    answer: CachedAnswer
    """Cached answer, fresh or expired, if there is one."""
    log_text: str | None = None
    """The tenant's policy for texts in the query log; None for the server's setting."""


class QueryLookupRepository:
    """Looks up a tenant's queries; arguments as in ``QueryVectorRepository``, ``AnswerCacheRepository``."""

    def __init__(self, db: TenantDatabase, *, settings: str, stale_s: float) -> None:
        self._db = db
        self._settings = settings
        self._stale_s = stale_s

    async def find(
        self,
        name_or_id: str,
        query: str | None = None,
        digest: bytes | None = None,
        *,
        piggyback: PiggybackedStatement | None = None,
    ) -> QueryLookupRow | None:
        """Return the collection of this id, or else this name, and what is cached of the query; or None.

        Args:
            name_or_id: Name or id of the collection.
            query: The preprocessed query; None skips the vector.
            digest: Digest of all that decides the answer except the collection; None skips the answer.
            piggyback: Statement to run with the first one, in its transaction.
        """
        values = {
            "settings": self._settings,
            "query": query,
            "digest": digest,
            "stale_s": self._stale_s,
        }
        row = None
        if (as_id := as_uuid(name_or_id)) is not None:
            row = await self._first_row(_BY_ID, {**values, "name_or_id": as_id}, piggyback)
            piggyback = None
        if row is None:
            row = await self._first_row(_BY_NAME, {**values, "name_or_id": name_or_id}, piggyback)
        if row is None:
            return None
        vector, log_text = _read_vector(row.pop("vector")), row.pop("log_text")
        answer = CachedAnswer(row["data_version"], row.pop("answer"), row.pop("fresh_for_s"))
        return QueryLookupRow(Collection.of_row(row), vector, answer, log_text)

    async def _first_row(
        self, query: str, values: dict[str, Any], piggyback: PiggybackedStatement | None
    ) -> "DictRow | None":
        if piggyback is None:
            return await self._db.fetch_one(query, values, repeatable=True)
        # The piggybacked statement is the last: its locks are held for the shortest time.
        (rows, _), outcome = await self._db.run([(query, values), piggyback.call], repeatable=True)
        piggyback.note(outcome)
        return rows[0] if rows else None


class QueryVectorRepository:
    """Cached vectors of one tenant's queries.

    Args:
        settings: Digest of the settings that decide a vector besides provider, model and text.
        ttl_s: Lifetime of a vector, seconds.
    """

    def __init__(self, db: TenantDatabase, *, settings: str, ttl_s: float) -> None:
        self._db = db
        self._settings = settings
        self._ttl_s = ttl_s

    async def find(self, collection_id: UUID, query: str) -> tuple[Collection | None, Vector | None]:
        """Return the collection and the query's vector in its model's space, each None if not found."""
        values = {"collection_id": collection_id, "settings": self._settings, "query": query}
        row = await self._db.fetch_one(_FIND_VECTOR, values, repeatable=True)
        if row is None:
            return None, None
        vector = _read_vector(row.pop("vector"))
        return Collection.of_row(row), vector

    async def store(self, collection: Collection, query: str, vector: Vector) -> None:
        """Store the vector of the query with the query prefix, made by the collection's own model."""
        await self._db.execute(*self.end_write(collection, query, vector), repeatable=True)

    def end_write(self, collection: Collection, query: str, vector: Vector) -> tuple[str, Params]:
        """Return the statement of ``store`` and its parameters; running it twice has the effect of once."""
        return _STORE_VECTOR, {
            "settings": self._settings,
            "provider": collection.embedding_provider,
            "model": collection.embedding_model,
            "prefix": collection.query_prefix,
            "query": query,
            "vector": _bytes(vector),
            "ttl_s": self._ttl_s,
        }


def _bytes(vector: Vector) -> bytes:
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _read_vector(stored: bytes | None) -> list[float] | None:
    if stored is None:
        return None
    values = array("f")
    values.frombytes(stored)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def as_uuid(text: str) -> UUID | None:
    """Return the id that a text is; None for a name."""
    try:
        return UUID(text)
    except ValueError:
        return None
