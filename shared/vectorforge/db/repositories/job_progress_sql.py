"""The statements with which ``JobProgress`` carries a job forward; all take ``tenant_id`` and ``job_id``."""

# ruff: noqa: S608
# (They are put together from constants of this package only; values are bound.)

from vectorforge.db.repositories.job_types import ITEM_COLUMNS, JOB_COLUMNS

GIVE_UP_ITEMS = """
WITH given_up AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = 'failed', content = NULL, error_code = 'document_crashes',
        error_message = 'Reading the document stopped the server ' || attempts || ' times.'
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued'
      AND attempts >= %(max_attempts)s
    RETURNING 1
)
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + (SELECT count(*) FROM given_up), claims = 0
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND EXISTS (SELECT FROM given_up)
"""
NEXT_ITEM = f"""
UPDATE vectorforge.ingestion_job_items
SET status = 'running', attempts = attempts + 1
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = (
    SELECT ordinal FROM vectorforge.ingestion_job_items
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued'
    ORDER BY ordinal LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING {ITEM_COLUMNS}, content
"""
UPCOMING = f"""
SELECT {ITEM_COLUMNS}, content FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'queued' AND ordinal > %(ordinal)s
    AND octet_length(content) <= %(most_bytes)s
ORDER BY ordinal LIMIT %(limit)s
"""

# Item and job change together, and only while the item runs: reported twice, it is counted once.
ITEM_SUCCEEDED = """
WITH done AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = %(status)s, content = NULL, stage = NULL, error_code = NULL, error_message = NULL,
        document_id = %(document_id)s, warnings = %(warnings)s::text[],
        chunks_added = %(chunks_added)s, chunks_kept = %(chunks_kept)s, chunks_removed = %(chunks_removed)s
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
    RETURNING tenant_id, job_id
)
UPDATE vectorforge.ingestion_jobs AS job
SET documents_done = documents_done + 1, claims = 0, chunks_added = chunks_added + %(chunks_added)s,
    chunks_kept = chunks_kept + %(chunks_kept)s, chunks_removed = chunks_removed + %(chunks_removed)s
FROM done WHERE job.tenant_id = done.tenant_id AND job.id = done.job_id
"""
ITEM_FAILED = """
WITH done AS (
    UPDATE vectorforge.ingestion_job_items
    SET status = CASE WHEN %(retry)s AND attempts < %(max_attempts)s THEN 'queued' ELSE 'failed' END,
        content = CASE WHEN %(retry)s AND attempts < %(max_attempts)s THEN content END,
        error_code = %(code)s, error_message = %(message)s, warnings = %(warnings)s::text[]
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
    RETURNING tenant_id, job_id, status
)
UPDATE vectorforge.ingestion_jobs AS job
SET documents_failed = documents_failed + CASE done.status WHEN 'failed' THEN 1 ELSE 0 END, claims = 0
FROM done WHERE job.tenant_id = done.tenant_id AND job.id = done.job_id
"""
# The first part takes the item's place, the others go behind the last item.
REPLACE_ITEM = """
UPDATE vectorforge.ingestion_job_items
SET source = %(source)s, parent_source = %(parent_source)s, media_type = %(media_type)s, title = %(title)s,
    metadata = %(metadata)s, content = %(content)b, status = 'queued', stage = NULL, attempts = 0
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
COUNT_PARTS = """
UPDATE vectorforge.ingestion_jobs SET documents_total = documents_total + %(more)s, claims = 0
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s
"""
ADD_PART = """
INSERT INTO vectorforge.ingestion_job_items
    (tenant_id, job_id, ordinal, source, parent_source, media_type, title, metadata, content)
SELECT %(tenant_id)s, %(job_id)s, max(ordinal) + 1, %(source)s, %(parent_source)s, %(media_type)s, %(title)s,
       %(metadata)s, %(content)b
FROM vectorforge.ingestion_job_items WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s
"""
COMPLETE_FILES = """
SELECT parent_source, array_agg(source) AS sources FROM vectorforge.ingestion_job_items
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND parent_source IS NOT NULL
GROUP BY parent_source HAVING bool_and(status IN ('succeeded', 'unchanged'))
"""
JOB_STAGE = """
UPDATE vectorforge.ingestion_jobs SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
ITEM_STAGE = """
UPDATE vectorforge.ingestion_job_items SET stage = %(stage)s
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND ordinal = %(ordinal)s AND status = 'running'
"""
HEARTBEAT = """
UPDATE vectorforge.ingestion_jobs
SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
RELEASE_ITEMS = """
UPDATE vectorforge.ingestion_job_items SET status = 'queued', attempts = greatest(attempts - 1, 0)
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status = 'running'
"""
RELEASE = """
UPDATE vectorforge.ingestion_jobs
SET status = 'queued', stage = NULL, lease_expires_at = NULL, claims = greatest(claims - 1, 0)
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status = 'running'
"""
FAIL_OPEN_ITEMS = """
UPDATE vectorforge.ingestion_job_items
SET status = 'failed', content = NULL, error_code = coalesce(error_code, %(code)s),
    error_message = coalesce(error_message, %(message)s)
WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s AND status IN ('queued', 'running')
"""
FINISH = f"""
UPDATE vectorforge.ingestion_jobs
SET documents_failed = documents_failed + %(open)s, stage = NULL, lease_expires_at = NULL,
    finished_at = clock_timestamp(), error_code = %(code)s, error_message = %(message)s,
    status = CASE WHEN documents_failed + %(open)s = 0 THEN 'succeeded'
                  WHEN documents_done = 0 THEN 'failed' ELSE 'partial' END
WHERE tenant_id = %(tenant_id)s AND id = %(job_id)s AND status IN ('queued', 'running')
RETURNING {JOB_COLUMNS}
"""
