-- Jobs of one document or file each need not wait for each other, unless it is the same one: so a bucket full of files
-- is read by as many workers as there are, also when all go into one collection. Jobs of several documents are carried
-- out as before: after every older job of their collection, and before every younger one.
SET LOCAL ROLE vectorforge_migrator;

-- The source_key() of the only document or file; NULL: any documents of the collection.
ALTER TABLE vectorforge.ingestion_jobs ADD COLUMN source_key bytea;
GRANT SELECT (source_key) ON vectorforge.ingestion_jobs TO vectorforge_dispatcher;

-- The next job of a tenant, without a look at those behind it.
CREATE INDEX ingestion_jobs_open_by_time ON vectorforge.ingestion_jobs (tenant_id, created_at, id)
    WHERE status IN ('queued', 'running');
DROP INDEX vectorforge.ingestion_jobs_open;
-- What a job may wait for: any older one of its collection, one of any documents, or one of the same document.
CREATE INDEX ingestion_jobs_open_by_collection
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at, id)
    WHERE status IN ('queued', 'running');
CREATE INDEX ingestion_jobs_open_of_any_source
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, created_at, id)
    WHERE status IN ('queued', 'running') AND source_key IS NULL;
CREATE INDEX ingestion_jobs_open_by_source
    ON vectorforge.ingestion_jobs (tenant_id, collection_id, source_key, created_at, id)
    WHERE status IN ('queued', 'running') AND source_key IS NOT NULL;

-- Whether an older job of the collection has to end before this one can be begun; one or two looks into an index. A
-- function of its own, because the planner would make a join of it, which compares every job with every other. Without
-- a search_path of its own, which would cost more than the looks; every name is qualified. The youngest of the older
-- ones is looked for, because the way from the oldest leads past all that have ended since the last vacuum.
CREATE FUNCTION vectorforge.waits_behind_another(tenant text, collection uuid, key bytea, created timestamptz, job uuid)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF key IS NULL THEN
        PERFORM FROM vectorforge.ingestion_jobs
        WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
          AND (created_at, id) < (created, job)
        ORDER BY created_at DESC, id DESC LIMIT 1;
        RETURN FOUND;
    END IF;
    PERFORM FROM vectorforge.ingestion_jobs
    WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
      AND source_key = key AND (created_at, id) < (created, job)
    ORDER BY created_at DESC, id DESC LIMIT 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM vectorforge.ingestion_jobs
    WHERE tenant_id = tenant AND collection_id = collection AND status IN ('queued', 'running')
      AND source_key IS NULL AND (created_at, id) < (created, job)
    ORDER BY created_at DESC, id DESC LIMIT 1;
    RETURN FOUND;
END
$$;
GRANT EXECUTE ON FUNCTION vectorforge.waits_behind_another(text, uuid, bytea, timestamptz, uuid)
    TO vectorforge_app, vectorforge_dispatcher;

-- As in 0004, one tenant after the other: the first of them that has a job which can be begun gets its turn.
CREATE OR REPLACE FUNCTION vectorforge.claim_ingestion_job(lease interval)
RETURNS TABLE (claimed_tenant_id text, claimed_job_id uuid, claims_without_progress int)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    candidate text;
BEGIN
    IF lease IS NULL OR lease <= interval '0' OR lease > interval '1 day' THEN
        RAISE EXCEPTION 'lease out of range' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR candidate IN
        SELECT waiting.tenant_id FROM vectorforge.ingestion_jobs AS waiting
        WHERE waiting.status IN ('queued', 'running')
        GROUP BY waiting.tenant_id
        ORDER BY count(*) FILTER (WHERE waiting.status = 'running'), (
            SELECT max(turn.last_claimed_at) FROM vectorforge.ingestion_jobs AS turn
            WHERE turn.tenant_id = waiting.tenant_id
        ) NULLS FIRST, min(waiting.created_at)
    LOOP
        SELECT job.tenant_id, job.id INTO claimed_tenant_id, claimed_job_id
        FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id = candidate AND job.status IN ('queued', 'running')
          AND (job.status = 'queued' OR job.lease_expires_at < clock_timestamp())
          AND NOT vectorforge.waits_behind_another(
              job.tenant_id, job.collection_id, job.source_key, job.created_at, job.id
          )
        ORDER BY job.created_at, job.id
        LIMIT 1
        FOR UPDATE OF job SKIP LOCKED;
        EXIT WHEN FOUND;
    END LOOP;
    IF claimed_job_id IS NULL THEN
        RETURN;
    END IF;
    UPDATE vectorforge.ingestion_jobs
    SET status = 'running',
        lease_expires_at = clock_timestamp() + lease,
        last_claimed_at = clock_timestamp(),
        claims = claims + 1,
        started_at = coalesce(started_at, clock_timestamp())
    WHERE tenant_id = claimed_tenant_id AND id = claimed_job_id
    RETURNING claims INTO claims_without_progress;
    -- what a killed worker left behind
    UPDATE vectorforge.ingestion_job_items SET status = 'queued'
    WHERE tenant_id = claimed_tenant_id AND job_id = claimed_job_id AND status = 'running';
    RETURN NEXT;
END
$$;
CREATE OR REPLACE FUNCTION vectorforge.other_tenants_wait(tenant text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM vectorforge.ingestion_jobs AS job
        WHERE job.tenant_id <> tenant AND job.status IN ('queued', 'running')
          AND (job.status = 'queued' OR job.lease_expires_at < clock_timestamp())
          AND NOT vectorforge.waits_behind_another(
              job.tenant_id, job.collection_id, job.source_key, job.created_at, job.id
          )
    )
$$;
