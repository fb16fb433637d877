"""Comparison of the stored lexical terms with the text of the stored chunks."""

import hashlib
from uuid import UUID

import psycopg

from vectorforge.db.tenant_database import TenantDatabase

_PASSAGES = """
SELECT c.id, c.collection_id, w.lexeme, cardinality(w.positions) AS frequency
FROM vectorforge.chunks AS c
JOIN vectorforge.documents AS d ON d.tenant_id = c.tenant_id AND d.id = c.document_id
JOIN vectorforge.collections AS l ON l.tenant_id = c.tenant_id AND l.id = c.collection_id
LEFT JOIN LATERAL unnest(
    to_tsvector(
        l.language::regconfig,
        left(
            coalesce(repeat(d.title || E'\n', 3), '') || coalesce(c.heading || E'\n', '')
                || coalesce(c.index_context || E'\n', '') || c.text,
            200000
        )
    )
) AS w ON true
WHERE c.tenant_id = %s AND c.to_version IS NULL
"""
_POSTINGS = """
SELECT t.collection_id, t.chunk_id, p.term, (p.posting >> 15 & 255) + 1, p.posting & 32767
FROM (
    SELECT scope, term, posting, NULL::bigint AS batch FROM vectorforge.packed_postings
    UNION ALL
    SELECT scope, term, unnest(postings), batch FROM vectorforge.grouped_postings
) AS p
JOIN vectorforge.chunk_terms AS t
    ON (p.batch IS NULL OR p.batch = t.batch) AND t.scope = p.scope AND t.number = p.posting >> 23
WHERE t.tenant_id = %s
"""
# Excludes other tenants' collections, which may be many; includes scopes without a collection.
_ORPHANS = """
WITH others AS (
    SELECT term_scope AS scope FROM vectorforge.collections WHERE tenant_id <> %s
)
SELECT (
    SELECT count(*) FROM vectorforge.packed_postings AS p
    WHERE p.scope NOT IN (SELECT scope FROM others) AND NOT EXISTS (
        SELECT FROM vectorforge.chunk_terms AS t
        WHERE t.number = p.posting >> 23 AND t.scope = p.scope AND p.term = ANY (t.terms)
    )
) + (
    SELECT count(*) FROM vectorforge.grouped_postings AS p
    WHERE p.scope NOT IN (SELECT scope FROM others) AND (cardinality(p.postings) = 0 OR EXISTS (
        SELECT FROM unnest(p.postings) AS posting WHERE NOT EXISTS (
            SELECT FROM vectorforge.chunk_terms AS t
            WHERE t.number = posting >> 23 AND t.scope = p.scope AND t.batch = p.batch
                AND p.term = ANY (t.terms)
        )
    ))
)
"""
_UNSETTLED = "SELECT count(*) FROM vectorforge.pending_changes WHERE tenant_id = %s"
_COUNTS = "SELECT id, term_count, chunk_count FROM vectorforge.collections"


def term_hash(lexeme: str) -> int:
    """Return the first four bytes of the MD5 sum as a signed number."""
    return int.from_bytes(hashlib.md5(lexeme.encode(), usedforsecurity=False).digest()[:4], signed=True)


async def check_terms(conninfo: str, db: TenantDatabase) -> int:
    """Compare the postings and counts of a tenant with those recomputed from its chunks.

    Args:
        conninfo: Connection string of a superuser.
        db: The tenant's.

    Returns:
        Number of the tenant's postings.

    Raises:
        AssertionError: They differ, or a tenant has postings without a chunk.
    """
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        words = await (await connection.execute(_PASSAGES, (db.tenant_id,))).fetchall()
        found = await (await connection.execute(_POSTINGS, (db.tenant_id,))).fetchall()
        orphans = await (await connection.execute(_ORPHANS, (db.tenant_id,))).fetchone()
        unsettled = await (await connection.execute(_UNSETTLED, (db.tenant_id,))).fetchone()
    assert orphans == (0,)
    assert unsettled == (0,)
    lengths: dict[UUID, int] = {}
    counted: dict[UUID, int] = {}  # of collections
    for chunk, collection, lexeme, frequency in words:
        for owner, totals in ((chunk, lengths), (collection, counted)):
            totals[owner] = totals.get(owner, 0) + (frequency if lexeme else 0)
    assert sorted(found) == sorted(
        (collection, chunk, term_hash(lexeme), frequency, lengths[chunk])
        for chunk, collection, lexeme, frequency in words
        if lexeme
    )
    rows = await db.fetch_all(_COUNTS)
    assert all(row["term_count"] == counted.get(row["id"], 0) for row in rows)
    assert sum(row["chunk_count"] for row in rows) == len(lengths)
    return len(found)
