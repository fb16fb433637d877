"""Feedback on answers: one rating per credential and query, stored with the query log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import FeedbackTooEarlyError, InvalidInputError, RefusedRowError

Rating: TypeAlias = Literal["up", "down"]
MAX_COMMENT_CHARS = 2000
MAX_SHOULD_CITE = 20
_MAX_LISTED = 1000

_UNKNOWN = """
SELECT wanted FROM unnest(%(should_cite)s::uuid[]) AS wanted WHERE NOT EXISTS (
    SELECT FROM vectorforge.chunks AS c WHERE c.tenant_id = %(tenant_id)s AND c.id = wanted
) LIMIT 1
"""
_COLUMNS = "query_id, credential, rating, reasons, comment, should_cite, created_at, updated_at"
# A row "started" is replaced when the query ends, and its feedback would be deleted with it.
_STORE = f"""
INSERT INTO vectorforge.query_feedback
    (tenant_id, query_id, credential, rating, reasons, comment, should_cite)
SELECT l.tenant_id, l.id, %(credential)s::text, %(rating)s::text, %(reasons)s::text[], %(comment)s::text,
       %(should_cite)s::uuid[]
FROM vectorforge.query_logs AS l
WHERE l.tenant_id = %(tenant_id)s AND l.id = %(query_id)s AND l.outcome <> 'started'
    AND %(should_cite)s::uuid[] <@ ARRAY(
        SELECT c.id FROM vectorforge.chunks AS c
        WHERE c.tenant_id = %(tenant_id)s AND c.id = ANY (%(should_cite)s::uuid[])
    )
ON CONFLICT (tenant_id, query_id, credential) DO UPDATE
SET rating = excluded.rating, reasons = excluded.reasons, comment = excluded.comment,
    should_cite = excluded.should_cite, updated_at = now()
RETURNING {_COLUMNS}
"""
_DELETE = "DELETE FROM vectorforge.query_feedback WHERE tenant_id = %s AND query_id = %s AND credential = %s"
_OF_QUERY = f"""
SELECT {_COLUMNS} FROM vectorforge.query_feedback WHERE tenant_id = %s AND query_id = %s
ORDER BY created_at, credential LIMIT {_MAX_LISTED}
"""
RATINGS = """
SELECT query_id, count(*) FILTER (WHERE rating = 'up') AS rated_up,
       count(*) FILTER (WHERE rating = 'down') AS rated_down
FROM vectorforge.query_feedback WHERE tenant_id = %(tenant_id)s AND query_id IN (
    SELECT id FROM vectorforge.query_logs
    WHERE tenant_id = %(tenant_id)s AND created_at >= %(since)s AND created_at < %(until)s
) GROUP BY query_id
"""
"""Number of ratings by query in a range of time, for the statistics."""
# From the ratings to their queries, in the order of the key, so that a page reads no rows of the others.
_RATED = """
SELECT l.id, l.created_at, l.query_text, l.generated_response, l.used_chunk_ids, f.up, f.down, f.should_cite
FROM (
    SELECT DISTINCT query_id FROM vectorforge.query_feedback
    WHERE tenant_id = %(tenant_id)s AND (%(after)s::uuid IS NULL OR query_id > %(after)s) ORDER BY query_id
    LIMIT CASE WHEN %(collection_id)s::uuid IS NULL THEN %(limit)s::bigint END
) AS rated CROSS JOIN LATERAL (
    SELECT * FROM vectorforge.query_logs
    WHERE tenant_id = %(tenant_id)s AND id = rated.query_id
        AND (%(collection_id)s::uuid IS NULL OR collection_id = %(collection_id)s) OFFSET 0
) AS l CROSS JOIN LATERAL (
    SELECT bool_or(rating = 'up') AS up, bool_or(rating = 'down') AS down,
           coalesce(jsonb_agg(DISTINCT wanted) FILTER (WHERE wanted IS NOT NULL), '[]') AS should_cite
    FROM vectorforge.query_feedback LEFT JOIN unnest(should_cite) AS wanted ON true
    WHERE tenant_id = %(tenant_id)s AND query_id = rated.query_id
) AS f
ORDER BY rated.query_id LIMIT %(limit)s
"""
_PASSAGES = """
SELECT c.id, d.source, c.text, c.start_offset, c.end_offset, c.to_version IS NOT NULL AS retired
FROM vectorforge.chunks AS c
JOIN vectorforge.documents AS d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
WHERE c.tenant_id = %s AND c.id = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Rating of one answer by one credential."""

    query_id: UUID
    credential: str
    rating: Rating
    reasons: Sequence[str] = ()
    comment: str = ""
    should_cite: Sequence[UUID] = ()
    """Chunks that the answer should have cited."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RatedQuery:
    """A logged query with all its feedback."""

    id: UUID
    created_at: datetime
    query_text: str
    generated_response: str
    used_chunk_ids: Sequence[UUID]
    up: bool
    """True if anyone rated it up."""
    down: bool
    """True if anyone rated it down."""
    should_cite: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class Passage:
    """Place of a chunk that was cited or should have been."""

    id: UUID
    source: str
    text: str
    start_offset: int
    end_offset: int
    retired: bool
    """True: from an earlier version of the document, in whose text the offsets are."""


class FeedbackRepository:
    """The feedback of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def store(self, feedback: Feedback) -> Feedback:
        """Store a rating; it replaces the credential's earlier one of the same query.

        Raises:
            InvalidInputError: A chunk of ``should_cite`` does not exist.
            FeedbackTooEarlyError: The log has no record of the query's end.
        """
        values: dict[str, Any] = {
            name: getattr(feedback, name) for name in ("query_id", "credential", "rating", "comment")
        }
        values |= {"reasons": list(feedback.reasons), "should_cite": list(feedback.should_cite)}
        calls = [(_UNKNOWN, values), (_STORE, values)]
        try:
            (unknown, _), (stored, _) = await self._db.run(calls, repeatable=True)
        except RefusedRowError:  # the query was deleted meanwhile
            unknown, stored = [], []
        if unknown:
            raise InvalidInputError(f"There is no chunk {unknown[0]['wanted']}.", field="should_cite")
        if not stored:
            raise FeedbackTooEarlyError(
                f"Query {feedback.query_id} not found, or not logged yet; retry in a few seconds."
            )
        return Feedback(**stored[0])

    async def delete(self, query_id: UUID, credential: str) -> bool:
        """Delete a credential's rating of a query; False: there is none."""
        return await self._db.execute(_DELETE, (self._db.tenant_id, query_id, credential)) > 0

    async def of_query(self, query_id: UUID) -> list[Feedback]:
        """Return the first 1,000 ratings of a query, oldest first."""
        rows = await self._db.fetch_all(_OF_QUERY, (self._db.tenant_id, query_id))
        return [Feedback(**row) for row in rows]

    async def rated(
        self, collection_id: UUID | None = None, *, after: UUID | None = None, limit: int = 500
    ) -> list[RatedQuery]:
        """Return a page of the rated queries by id, of one collection if given, after another's id."""
        values = {"collection_id": collection_id, "after": after, "limit": limit}
        ids = ("used_chunk_ids", "should_cite")
        return [
            RatedQuery(**{**row, **{name: tuple(map(UUID, row[name])) for name in ids}})
            for row in await self._db.fetch_all(_RATED, values)
        ]

    async def passages(self, chunk_ids: Sequence[UUID]) -> dict[UUID, Passage]:
        """Return the places of those chunks that still exist."""
        rows = await self._db.fetch_all(_PASSAGES, (self._db.tenant_id, list(chunk_ids)))
        return {row["id"]: Passage(**row) for row in rows}
