"""All that is known of a question before it is searched for, in one statement."""

# ruff: noqa: S608
# (Statements are put together from constants of this module only; values are bound.)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.db.repositories.collection_repo import COLUMNS, make_collection
from vectorforge.db.repositories.query_vector_repo import STORED_KEY, read_vector
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Collection, Vector

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from vectorforge.db.types import Call, Outcome

# An answer belongs to the version that is read with it. A key that is NULL finds nothing.
_FIND = f"""
SELECT c.*, e.vector, a.answer::text AS answer,
       coalesce(extract(epoch FROM a.expires_at - now()), 0)::float8 AS fresh_for_s,
       (SELECT t.log_text FROM vectorforge.tenants AS t WHERE t.tenant_id = %(tenant_id)s) AS log_text
FROM (
    SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND {{condition}}
) AS c
LEFT JOIN vectorforge.cached_embeddings AS e
    ON e.tenant_id = %(tenant_id)s AND e.expires_at > now() AND e.key = {STORED_KEY}
LEFT JOIN vectorforge.cached_answers AS a
    ON a.tenant_id = %(tenant_id)s AND a.key = sha256(%(digest)s::bytea || uuid_send(c.id))
    AND a.collection_id = c.id AND a.data_version = c.data_version
    AND a.expires_at > now() - make_interval(secs => %(stale_s)s)
"""
_BY_ID = _FIND.format(condition="id = %(asked)s")
_BY_NAME = _FIND.format(condition="name = %(asked)s")


class PiggybackedStatement(Protocol):
    """A statement that shares the look-up's round trip; ``limits.admission.PiggybackedReservation``."""

    @property
    def call(self) -> "Call":
        """The statement; it may be run twice."""
        ...

    def note(self, outcomes: "Sequence[Outcome]") -> None:
        """Take its outcome; what this raises, the look-up raises."""
        ...


@dataclass(frozen=True, slots=True)
class QueryLookupRow:
    """Cached answer and vector of a query to one collection."""

    collection: Collection
    vector: Vector | None
    """Vector of the query, in the space of the collection's model."""
    answer: FoundAnswer
    """Cached answer, fresh or expired, if there is one."""
    log_text: str | None = None
    """The tenant's policy for texts in the query log; None for the server's setting."""


class QueryLookupRepository:
    """Looks up a tenant's questions with their collections.

    Args:
        db: Of the tenant.
        settings: As ``QueryVectorRepository``.
        stale_s: As ``AnswerCacheRepository``.
    """

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
        """The collection of this id, or else of this name, and what is kept of the question.

        Args:
            name_or_id: Of the collection.
            query: The cleaned question; None: no vector is looked for.
            digest: Of all that decides the answer but the collection; None: no answer is looked for.
            piggyback: Goes with the first statement, in its transaction.

        Returns:
            None when there is no such collection.
        """
        values = {
            "tenant_id": self._db.tenant_id,
            "settings": self._settings,
            "query": query,
            "digest": digest,
            "stale_s": self._stale_s,
        }
        row = None
        if (as_id := _uuid(name_or_id)) is not None:
            row = await self._first_row(_BY_ID, {**values, "asked": as_id}, piggyback)
            piggyback = None
        if row is None:
            row = await self._first_row(_BY_NAME, {**values, "asked": name_or_id}, piggyback)
        if row is None:
            return None
        vector, answer, fresh_for_s = (
            read_vector(row.pop("vector")),
            row.pop("answer"),
            row.pop("fresh_for_s"),
        )
        log_text = row.pop("log_text")
        collection = make_collection(row)
        known = FoundAnswer(collection.data_version, answer, fresh_for_s)
        return QueryLookupRow(collection, vector, known, log_text)

    async def _first_row(
        self, query: str, values: dict[str, Any], piggyback: PiggybackedStatement | None
    ) -> "DictRow | None":
        if piggyback is None:
            return await self._db.fetch_one(query, values, repeatable=True)
        # The piggybacked statement is the last: its locks are held for the shortest time.
        (rows, _), *outcomes = await self._db.run([(query, values), piggyback.call], repeatable=True)
        piggyback.note(outcomes)
        return rows[0] if rows else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
