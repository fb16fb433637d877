"""Rows of a tenant in every table that grows with its use, as many as a test needs."""

from hashlib import md5
from uuid import UUID

import psycopg

_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.key(tenant text, kind text, n int) RETURNS uuid LANGUAGE sql IMMUTABLE
RETURN md5(kind || tenant || n)::uuid
"""
_INSERT = """
INSERT INTO vectorforge.{columns} SELECT {expressions}
FROM generate_series(%(first)s::int, %(last)s::int) AS n CROSS JOIN (
    SELECT tenant_id AS t, id AS c, term_scope AS s FROM vectorforge.collections
    WHERE tenant_id = %(t)s AND id = %(c)s
) AS owner
"""
_COUNTS = """
WITH counted AS (
    INSERT INTO vectorforge.conversation_counts
    SELECT %(t)s, credential, %(last)s * times
    FROM (VALUES ('', 2), ('someone', 1), ('session:someone', 1), ('session:', 1)) AS each (credential, times)
    ON CONFLICT (tenant_id, credential) DO UPDATE SET conversations = excluded.conversations
)
UPDATE vectorforge.collections SET document_count = %(last)s, chunk_count = %(last)s, term_count = %(last)s
WHERE tenant_id = %(t)s AND id = %(c)s
"""
# "n" is the number of the row; every row belongs to the tenant "t" and the collection "c", except as many
# collections, each of another tenant.
_ROWS = """
collections (tenant_id, id, name, embedding_provider, embedding_model, dimension, distance_metric): t ||
    n, key('collection', n), 'other tenant''s', 'a', 'b', 64, 'cosine';
documents (tenant_id, id, collection_id, source, parent_source, media_type, text, size_chars,
    content_hash, chunk_count, updated_at, created_at): t, key('document', n), c, 'file-' || n || '.md',
    'table-' || n / 10, 'text/markdown', 'word' || n, 9, sha256(n::text::bytea), 1, now() - n * interval
    '1 minute', now() - n * interval '1 minute';
chunks (tenant_id, id, collection_id, document_id, ordinal, text, start_offset, end_offset, token_count,
    content_hash, from_version): t, key('chunk', n), c, key('document', n), 0, 'word' || n, 0, 9, 1,
    sha256(n::text::bytea), 1;
embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding): t, 'cosine_64', c,
    key('document', n), key('chunk', n), array_fill(n::real, ARRAY[64])::public.vector;
chunk_terms (tenant_id, chunk_id, collection_id, document_id, scope, language, terms, length, number,
    batch): t, key('chunk', n), c, key('document', n), s, 'english', ARRAY[vectorforge.term_hash('word'
    || n)], 1, 1000000 + n, 1000000 + n;
packed_postings (scope, term, posting): s, vectorforge.term_hash('word' || n),
    (1000000 + n::bigint) << 23 | 1;
originals (tenant_id, document_id, collection_id, version, size_bytes, sha256, content): t,
    key('document', n), c, 1, 1, sha256('x'), 'x';
profiles (tenant_id, collection_id, profile_id): t, c, n;
profile_documents (tenant_id, document_id, collection_id, profile_id): t, key('document', n), c, n;
query_logs (tenant_id, id, collection_id, conversation_id, query_text, generated_response, outcome,
    latency_ms, retrieved_chunk_ids, used_chunk_ids, created_at): t, key('query', n), c,
    key('conversation', n), 'why?', 'because', 'answered', 1, jsonb_build_array(key('chunk', n)),
    jsonb_build_array(key('chunk', n)), now() - n * interval '1 minute' - CASE WHEN n > 20 THEN interval
    '2 days' ELSE '0' END;
query_feedback (tenant_id, query_id, credential, rating, should_cite): t, key('query', n), 'someone',
    'up', ARRAY[key('chunk', n)];
conversations (tenant_id, id, title, credential, message_count, updated_at): t, key('conversation', n),
    'why?', 'someone', 2, now() - n * interval '1 minute';
conversations (tenant_id, id, credential, updated_at): t, key('session', n), 'session:someone', now() - n *
    interval '1 minute';
conversation_messages (tenant_id, conversation_id, position, role, content, query_id): t,
    key('conversation', n), 0, 'user', 'why?', key('query', n);
conversation_messages (tenant_id, conversation_id, position, role, content, query_id): t,
    key('conversation', n), 1, 'assistant', 'because', key('query', n);
cached_answers (tenant_id, key, collection_id, data_version, answer, expires_at): t,
    sha256(n::text::bytea), c, 0, '{}', now() + interval '1 day';
cached_embeddings (tenant_id, key, vector, expires_at): t, sha256(n::text::bytea), '0000'::bytea, now()
    + interval '1 day';
answer_streams (tenant_id, query_id, state, expires_at): t, key('stream', n), 'ended', now() + interval
    '1 day';
answer_streams (tenant_id, query_id, state, expires_at, idempotency_key, fingerprint, stored_bytes, place,
    bytes_before): t, key('keyed', n), 'ended', now() + interval '1 day', sha256((t || n)::bytea),
    sha256('x'), 1, n, n - 1;
answer_stream_batches (tenant_id, query_id, first_id, last_id, events): t, key('stream', n), 1, 1, 'x';
api_keys (tenant_id, id, digest, name, scope): t || n, left(md5(t || n), 16), sha256((t || n)::bytea),
    'a', 'read';
ingestion_jobs (tenant_id, id, collection_id, status, documents_total, documents_failed, created_at,
    finished_at, last_claimed_at): t, key('job', n), c, 'failed', 1, 1, now() - n * interval '1 minute',
    now(), now();
ingestion_job_items (tenant_id, job_id, ordinal, source, parent_source, status): t, key('job', n), 0,
    'job-' || n, 'file-' || n, 'failed';
ingestion_job_items (tenant_id, job_id, ordinal, source, status, content): t, key('long', 0), n, 'long-' ||
    n, CASE WHEN mod(n, 2) = 0 THEN 'queued' ELSE 'succeeded' END, 'x';
uploaded_files (tenant_id, id, filename, purpose, size_bytes, collection_id, document_id, job_id,
    ordinal, source, created_at, is_stored): t, key('document', n), 'file-' || n || '.md', 'assistants',
    1, c, key('document', n), key('job', n), 1, 'file-' || n || '.md', now() - n * interval '1 minute',
    true;
uploaded_files (tenant_id, id, filename, purpose, size_bytes, collection_id, document_id, job_id,
    ordinal, source, created_at): t, key('file', n), 'job-' || n, 'assistants', 1, c, key('file', n),
    key('job', n), 0, 'job-' || n, now() - n * interval '1 minute';
tombstones (tenant_id, erased_id, erasure_id): t, key('erased', n), key('erasure', n);
erasures (tenant_id, id, kind, document_id, logs, requested_by, stage, finished_at, certificate): t,
    key('erasure', n), 'document', key('erased', n), 'text', 'someone', 'done', now(), '{}'
"""


def row_id(kind: str, number: int, tenant: str) -> UUID:
    """Return the id of a row of ``grow``."""
    return UUID(md5(f"{kind}{tenant}{number}".encode(), usedforsecurity=False).hexdigest())


def grow(owner_url: str, tenant: str, collection_id: UUID, first: int, last: int) -> None:
    """Give a tenant the rows ``first`` to ``last`` of each table; the documents are the collection's."""
    values = {"t": tenant, "c": collection_id, "first": first, "last": last}
    with psycopg.connect(owner_url) as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers: the rows are complete
        connection.execute(_FUNCTION)
        for entry in _ROWS.split(";\n"):
            columns, expressions = entry.split(":", 1)
            expressions = expressions.replace("key('", "pg_temp.key(t, '")
            connection.execute(_INSERT.format(columns=columns, expressions=expressions).encode(), values)
        connection.execute(_COUNTS, values)
